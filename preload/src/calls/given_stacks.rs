//! The signal stacks that this library gives to threads: mapped when they are wanted, and freed at a thread's end.
use super::trap;
use crate::abi::next::next_functions;
use crate::abi::raw::{self, Span};
use crate::abi::thread_key::ThreadKey;
use libc::{c_int, c_void};
use std::cell::Cell;
use std::mem::MaybeUninit;

next_functions! {
    fn sigaltstack(new: *const libc::stack_t, old: *mut libc::stack_t) -> c_int;
}

/// Room for the engine's deepest path in the handler, with direct reclaim, and the kernel's frame.
pub const BYTES: usize = 64 << 10;
/// The same where calls are caught: one of them may start the engine.
const BYTES_TRAPPING: usize = 512 << 10;

/// Its destructor frees a thread's.
static KEY: ThreadKey = ThreadKey::none();
thread_local! {
    static GIVEN: Cell<Option<Span>> = const { Cell::new(None) };
}

/// Before any is given, with what is called at the end of a thread that has one.
pub fn start(at_end: unsafe extern "C" fn(*mut c_void)) {
    KEY.make(at_end);
}

/// Gives this thread one if it has none, of its own or of ours.
pub fn give() {
    if present().ss_flags & libc::SS_DISABLE != 0
        && let Some(stack) = map()
    {
        set(&for_kernel(stack));
        note(stack);
    }
}

/// Gives a larger one to a thread that was there before calls were caught. What becomes of one of the program's, `replaced` says.
/// The smaller one stays: a handler that runs puts it in force again as it returns.
pub fn enlarge(replaced: impl FnOnce(libc::stack_t) -> libc::stack_t) {
    let (present, given) = (present(), GIVEN.get());
    let is_enough = given.is_some_and(|given| given.bytes >= bytes());
    if is_enough || present.ss_flags & libc::SS_ONSTACK != 0 {
        return;
    }
    let Some(stack) = map() else { return };
    note(stack);
    let is_ours = given.is_some_and(|given| given.address == present.ss_sp as usize);
    let is_programs = !is_ours && present.ss_flags & libc::SS_DISABLE == 0;
    set(&if is_programs { replaced(present) } else { for_kernel(stack) });
}

/// At the end of this thread.
pub fn take_back() {
    let Some(given) = GIVEN.take() else { return };
    if present().ss_sp as usize == given.address {
        set(&NONE);
    }
    unmap(given);
}

/// The one that this thread was given.
pub fn own() -> Option<libc::stack_t> {
    GIVEN.get().map(for_kernel)
}

/// The one that the kernel knows of for this thread.
pub fn present() -> libc::stack_t {
    let mut present = MaybeUninit::<libc::stack_t>::zeroed();
    sigaltstack(std::ptr::null(), present.as_mut_ptr());
    // SAFETY: sigaltstack has filled it in; zeroes are valid too.
    unsafe { present.assume_init() }
}

/// Whether this thread is on it.
pub fn is_in_use() -> bool {
    present().ss_flags & libc::SS_ONSTACK != 0
}

pub const NONE: libc::stack_t =
    libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };

fn bytes() -> usize {
    if trap::is_armed() { BYTES_TRAPPING } else { BYTES }
}

fn map() -> Option<Span> {
    let bytes = bytes();
    raw::map_stack(bytes).ok().map(|address| Span { address, bytes })
}

fn unmap(stack: Span) {
    // Not in use any more; a failure is a leak.
    let _ = raw::unmap(stack);
}

fn note(stack: Span) {
    GIVEN.set(Some(stack));
    // A failure leaves the stack to the end of the process.
    KEY.set(stack.address as *const c_void);
}

fn for_kernel(stack: Span) -> libc::stack_t {
    libc::stack_t { ss_sp: stack.address as *mut c_void, ss_flags: 0, ss_size: stack.bytes }
}

fn set(stack: &libc::stack_t) {
    sigaltstack(stack, std::ptr::null_mut());
}

/// A signal stack apart from the program's.
pub struct Apart(Span);

impl Apart {
    pub fn new() -> Option<Self> {
        map().map(Self)
    }

    /// Does `work` with it: the thread must be on no signal stack.
    pub fn with<R>(&self, work: impl FnOnce() -> R) -> R {
        let before = present();
        set(&for_kernel(self.0));
        let result = work();
        set(&before);
        result
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        unmap(self.0);
    }
}
