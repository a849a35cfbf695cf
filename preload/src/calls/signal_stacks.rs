//! A stack for the handler of SIGBUS in every thread: the one that the thread runs on may itself be missing.
//!
//! The entry points are as safe as the functions that they stand in for.
use super::held::{Held, is_needed, values};
use super::libc_memory;
use super::signals::is_by_signal;
use crate::abi::allocator;
use crate::abi::next::next_functions;
use crate::abi::raw::{self, Errno, MapRequest, Span};
use crate::state::process::{self, Process};
use libc::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, Ordering};
use userswap::Engine;
use userswap::internals::PageRange;
use userswap::internals::lock::Lock;
use userswap::internals::signal::Blocked;

next_functions! {
    fn sigaltstack(new: *const libc::stack_t, old: *mut libc::stack_t) -> c_int;
    /// Returns its error.
    fn pthread_create(
        thread: *mut libc::pthread_t, attributes: *const libc::pthread_attr_t,
        start: StartFunction, argument: *mut c_void
    ) -> Errno;
}

type StartFunction = extern "C" fn(*mut c_void) -> *mut c_void;

/// The key whose destructor frees a thread's signal stack.
static STACK_KEY: AtomicU32 = AtomicU32::new(u32::MAX);
/// Signal stacks, and upper ends of stacks, that the program put into managed memory.
static MANAGED_STACKS: Lock<Vec<PageRange>> = Lock::new(Vec::new());
/// Room for the engine's deepest path in the handler, with direct reclaim, and the kernel's frame.
const STACK_BYTES: usize = 64 << 10;

/// Before the program's code runs, and after SIGBUS is known to be the engine's.
pub fn start() {
    if !is_by_signal() {
        return;
    }
    let mut key = 0;
    // SAFETY: the destructor lives as long as the process.
    if unsafe { libc::pthread_key_create(&mut key, Some(free_stack)) } == 0 {
        STACK_KEY.store(key, Ordering::Relaxed);
    }
    give_stack();
}

/// Before the engine has the arena: a stack that is missing cannot take the signal that would bring it in.
pub fn fill(process: &Process) {
    if is_needed() {
        for range in MANAGED_STACKS.lock().iter() {
            // Kernels before 5.14 refuse: what the program has not used of its stacks is missing then.
            let _ = raw::advise(process.span_of(*range), libc::MADV_POPULATE_WRITE);
        }
    }
}

/// Once the engine has the arena: stacks in it must not leave.
pub fn pin(engine: &Engine) {
    let stacks = MANAGED_STACKS.lock();
    if !is_needed() || stacks.is_empty() {
        return;
    }
    // What this thread has may be among them, and be missing until it is pinned.
    let before = present_stack();
    let apart = is_by_signal().then(map_stack).flatten();
    if let Some(address) = apart {
        use_stack(address);
    }
    for range in stacks.iter() {
        // A stack that cannot stay is brought in by luck only, and no caller could be told.
        let _ = engine.core().pin_range(*range);
    }
    if let Some(address) = apart {
        sigaltstack(&before, std::ptr::null_mut());
        // The mapping is not in use any more; a failure is a leak.
        let _ = raw::unmap(Span { address, bytes: STACK_BYTES });
    }
}

mod exported {
    use super::*;

    /// A stack in managed memory stays in RAM.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn sigaltstack(
        new: *const libc::stack_t,
        old: *mut libc::stack_t,
    ) -> c_int {
        let _held = is_needed().then(|| Held::new(&[values(new, 1), values(old, 1)]));
        super::keep_stack(new);
        super::sigaltstack(new, old)
    }

    /// The new thread gets a signal stack.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn pthread_create(
        thread: *mut libc::pthread_t,
        attributes: *const libc::pthread_attr_t,
        function: StartFunction,
        argument: *mut c_void,
    ) -> Errno {
        super::create_thread(thread, attributes, Start { function, argument })
    }
}

/// Keeps a signal stack in managed memory in RAM: the kernel writes to it.
fn keep_stack(new: *const libc::stack_t) {
    // SAFETY: null, or a description of the program's.
    let Some(new) = (unsafe { new.as_ref() }) else { return };
    if is_needed() && new.ss_flags & libc::SS_DISABLE == 0 {
        keep_span(Span::of(new.ss_sp, new.ss_size));
    }
}

/// Keeps the upper end of a thread's stack in managed memory in RAM: the C library has the thread's own data there,
/// to which the kernel writes as well (rseq, the list of robust mutexes, the word that tells its end), and the
/// thread begins and ends there without a signal stack.
fn keep_thread(attributes: *const libc::pthread_attr_t) {
    if attributes.is_null() || !is_needed() {
        return;
    }
    let (mut start, mut bytes) = (std::ptr::null_mut(), 0);
    // SAFETY: the program passes attributes.
    if unsafe { pthread_attr_getstack(attributes, &mut start, &mut bytes) } == 0 {
        let kept = bytes.min(STACK_BYTES);
        keep_span(Span { address: start as usize + bytes - kept, bytes: kept });
    }
}

/// Remembers, and under the engine pins, what must not leave.
fn keep_span(span: Span) {
    let Some(process) = process::current() else { return };
    let Some(inside) = process.within_arena(span) else { return };
    let range = process.pages_between(inside);
    let _blocked = Blocked::new();
    let mut stacks = MANAGED_STACKS.lock();
    let is_known = stacks.contains(&range);
    if !is_known {
        stacks.push(range);
    }
    drop(stacks);
    if let Some(engine) = process.engine() {
        if is_known {
            // It may have been freed meanwhile, and its pins with it.
            engine.core().unpin_range(range);
        }
        // One that cannot stay is brought in by luck only, and no caller could be told.
        let _ = engine.core().pin_range(range);
    }
}

unsafe extern "C" {
    fn pthread_attr_getstack(
        attributes: *const libc::pthread_attr_t,
        start: *mut *mut c_void,
        bytes: *mut usize,
    ) -> c_int;
}

/// What a new thread is to run.
struct Start {
    function: StartFunction,
    argument: *mut c_void,
}

fn create_thread(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: Start,
) -> Errno {
    keep_thread(attributes);
    if !is_by_signal() && !allocator::is_foreign() {
        return pthread_create(thread, attributes, start.function, start.argument);
    }
    let start = Box::into_raw(Box::new(start));
    let error = pthread_create(thread, attributes, run_thread, start.cast());
    if error != 0 {
        // SAFETY: no thread has taken the box.
        drop(unsafe { Box::from_raw(start) });
    }
    error
}

extern "C" fn run_thread(start: *mut c_void) -> *mut c_void {
    // SAFETY: `create_thread` made the box for this thread.
    let start = unsafe { Box::from_raw(start.cast::<Start>()) };
    let Start { function, argument } = *start;
    if is_by_signal() {
        give_stack();
    }
    libc_memory::note_thread();
    function(argument)
}

/// Gives this thread a signal stack if it has none.
fn give_stack() {
    if present_stack().ss_flags & libc::SS_DISABLE == 0 {
        return;
    }
    let Some(address) = map_stack() else { return };
    use_stack(address);
    let key = STACK_KEY.load(Ordering::Relaxed);
    if key != u32::MAX {
        // SAFETY: the key exists; a failure leaves the stack to the end of the process.
        unsafe { libc::pthread_setspecific(key, address as *const c_void) };
    }
}

fn map_stack() -> Option<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let wanted =
        MapRequest { address: 0, bytes: STACK_BYTES, protection, flags, fd: -1, offset: 0 };
    raw::map(wanted).ok()
}

fn use_stack(address: usize) {
    let stack = libc::stack_t { ss_sp: address as *mut c_void, ss_flags: 0, ss_size: STACK_BYTES };
    sigaltstack(&stack, std::ptr::null_mut());
}

/// This thread's.
fn present_stack() -> libc::stack_t {
    let mut present = MaybeUninit::<libc::stack_t>::zeroed();
    sigaltstack(std::ptr::null(), present.as_mut_ptr());
    // SAFETY: sigaltstack has filled it in; zeroes are valid too.
    unsafe { present.assume_init() }
}

/// At a thread's end.
unsafe extern "C" fn free_stack(address: *mut c_void) {
    let none =
        libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
    if present_stack().ss_sp == address {
        sigaltstack(&none, std::ptr::null_mut());
    }
    // The mapping is not in use any more; a failure is a leak.
    let _ = raw::unmap(Span::of(address, STACK_BYTES));
}
