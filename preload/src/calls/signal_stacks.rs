//! A stack for our handlers in every thread: the one that the thread runs on may itself be missing, or be small.
//!
//! The entry points are as safe as the functions that they stand in for.
use super::arguments::Arguments;
use super::detached;
use super::forks::Wanted;
use super::given_stacks::{self, sigaltstack};
use super::held::{Held, is_needed, values};
use super::kept_stacks::{self, Replaced};
use super::libc_memory::{self, Stack};
use super::libraries;
use super::reading::Reader;
use super::signals::{self, is_by_signal};
use super::trap;
use crate::abi::allocator;
use crate::abi::callers::{self, entry};
use crate::abi::context::Context;
use crate::abi::next::next_functions;
use crate::abi::raw::{self, Errno, Span};
use crate::abi::system_call::{enter_on, error};
use libc::{c_int, c_void};
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use userswap::internals::PAGE_BYTES;
use userswap::internals::lock::Lock;
use userswap::internals::signal::Blocked;

next_functions! {
    /// Returns its error.
    fn pthread_create(
        thread: *mut libc::pthread_t, attributes: *const libc::pthread_attr_t,
        start: StartFunction, argument: *mut c_void
    ) -> Errno;
}

pub type StartFunction = extern "C" fn(*mut c_void) -> *mut c_void;

/// Signal stacks of the program's that the kernel knows, each with its thread, where handlers of ours run on them.
static STACKS_IN_USE: Lock<Vec<(Span, libc::pthread_t)>> = Lock::new(Vec::new());
/// Of Linux; the C library's headers for Rust lack it.
const SS_AUTODISARM: c_int = 1 << 31;
/// What the C library has of a thread at the upper end of its stack, in bytes: below a page, of which it may take parts of two.
const DATA_BYTES: usize = 2 * PAGE_BYTES;
/// A smaller one of the program's has too little room for handlers of ours; the second is in frames of the kernel's, of which one of
/// AVX-512 has 3.6 KB: a caught call can fault.
const BYTES_MIN: usize = 8 << 10;
const FRAMES_MIN: usize = 4;

/// Whether threads run handlers of ours.
fn is_wanted() -> bool {
    is_by_signal() || trap::is_armed()
}

fn bytes_min() -> usize {
    // SAFETY: has no conditions; without such an entry it is 0.
    let frame = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) } as usize;
    BYTES_MIN.max(FRAMES_MIN * frame)
}

/// Before the program's code runs, and after it is known which signals are ours.
pub fn start() {
    if !is_wanted() && !trap::is_watching() {
        return;
    }
    given_stacks::start(free_stack);
    if is_wanted() {
        given_stacks::give();
    }
}

/// Before fork: no other thread has the list then.
pub fn hold() {
    STACKS_IN_USE.hold();
    signals::hold();
}

/// After fork, on both sides.
pub fn release() {
    signals::release();
    STACKS_IN_USE.release();
}

/// In the child of a fork: the one thread that it has.
pub fn renew() {
    let own = this_thread();
    STACKS_IN_USE.lock().retain(|(_, thread)| *thread == own);
}

/// This thread's, as the kernel knows it.
pub fn present() -> Span {
    let stack = given_stacks::present();
    Span::of(stack.ss_sp, stack.ss_size)
}

/// sigaltstack, caught. The handler may be on the stack that is to be replaced: the call is made from another.
pub fn change_stack(context: &mut Context, arguments: &Arguments) -> usize {
    let [new, old, ..] = *arguments;
    let (before, told, sets) = (context.stack(), TOLD.get(), new != 0);
    let on_stack = context.is_on_stack();
    let asked: Option<libc::stack_t> = Reader::default().value(new);
    if asked.is_none() && sets {
        return error(libc::EFAULT);
    }
    if let Some(new) = asked.as_ref() {
        if on_stack {
            return error(libc::EPERM);
        }
        keep_stack(Some(new));
        let new = for_kernel(*new);
        let result = replace_stack(&new);
        if result != 0 {
            return result;
        }
        // The handler's return puts it in force again.
        context.set_stack(new);
    }
    // SAFETY: null, or room for a description.
    if let Some(old) = unsafe { (old as *mut libc::stack_t).as_mut() } {
        let flags = if on_stack { libc::SS_ONSTACK } else { before.ss_flags };
        *old = as_told(libc::stack_t { ss_flags: flags, ..before }, told, sets);
    }
    0
}

/// No signal may come before the handler has returned: it could lie on the handler's own frame.
fn replace_stack(new: &libc::stack_t) -> usize {
    let Ok(scratch) = raw::map_stack(PAGE_BYTES) else { return error(libc::ENOMEM) };
    // The handler's return puts the program's mask back.
    std::mem::forget(Blocked::new());
    // SAFETY: a stack of its own, and a description.
    let result = unsafe {
        enter_on(scratch + PAGE_BYTES, libc::SYS_sigaltstack, std::ptr::from_ref(new).addr())
    };
    // Not in use any more; a failure is a leak.
    let _ = raw::unmap(Span { address: scratch, bytes: PAGE_BYTES });
    result
}

/// What a thread of the program's has last told of its signal stack.
#[derive(Clone, Copy)]
enum Told {
    Nothing,
    Stack(libc::stack_t),
}

thread_local! {
    static TOLD: Cell<Told> = const { Cell::new(Told::Nothing) };
}

/// What the kernel is told in the place of a stack of the program's: the one that this thread was given, where handlers of
/// ours would have too little room, run on whatever stack there is, or on one that another thread has as well. A program can
/// share one among all its threads, as long as only one of them gets a signal at a time; faults come at any time.
fn for_kernel(new: libc::stack_t) -> libc::stack_t {
    let disarms = new.ss_flags & SS_AUTODISARM;
    let mode = new.ss_flags & !SS_AUTODISARM;
    let is_off = mode == libc::SS_DISABLE;
    let is_refused = ![0, libc::SS_ONSTACK, libc::SS_DISABLE].contains(&mode)
        || !is_off && new.ss_size < libc::MINSIGSTKSZ;
    if !is_wanted() || is_refused {
        return new;
    }
    TOLD.set(Told::Stack(new));
    forget_stack();
    let is_enough = !is_off && new.ss_size >= bytes_min();
    if is_enough && takes_alone(Span::of(new.ss_sp, new.ss_size)) {
        return new;
    }
    let flags = if is_off { 0 } else { disarms };
    given_stacks::own().map_or(new, |own| libc::stack_t { ss_flags: flags, ..own })
}

/// What a program is told that its thread had: not ours in the place of its own, which it may give back to the kernel; nor
/// where it sets one, and had none.
fn as_told(kernels: libc::stack_t, told: Told, sets: bool) -> libc::stack_t {
    let is_ours = given_stacks::own().is_some_and(|own| own.ss_sp == kernels.ss_sp);
    let stack = match (is_ours, told) {
        (false, _) => return kernels,
        (true, Told::Nothing) if !sets => return kernels,
        (true, Told::Nothing) => given_stacks::NONE,
        (true, Told::Stack(stack)) => stack,
    };
    let is_on = kernels.ss_flags & libc::SS_ONSTACK != 0;
    match stack.ss_flags & libc::SS_DISABLE {
        0 if is_on => libc::stack_t { ss_flags: libc::SS_ONSTACK, ..stack },
        0 => libc::stack_t { ss_flags: stack.ss_flags & SS_AUTODISARM, ..stack },
        _ => given_stacks::NONE,
    }
}

/// Notes this thread's stack, unless another thread has it.
fn takes_alone(stack: Span) -> bool {
    let _blocked = Blocked::new();
    let end = |span: Span| span.address.saturating_add(span.bytes);
    let mut stacks = STACKS_IN_USE.lock();
    let is_anothers =
        stacks.iter().any(|(other, _)| other.address < end(stack) && stack.address < end(*other));
    if !is_anothers {
        stacks.push((stack, this_thread()));
    }
    !is_anothers
}

fn forget_stack() {
    let _blocked = Blocked::new();
    STACKS_IN_USE.lock().retain(|(_, thread)| *thread != this_thread());
}

/// As the C library calls it, which a fork does not change.
fn this_thread() -> libc::pthread_t {
    // SAFETY: has no conditions.
    unsafe { libc::pthread_self() }
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
        let asked = Reader::default().value(new as usize);
        let is_bad = asked.is_none() && !new.is_null();
        if is_bad || !old.is_null() && !Reader::default().can_read(values(old, 1)) {
            raw::set_errno(libc::EFAULT);
            return -1;
        }
        super::keep_stack(asked.as_ref());
        // SAFETY: null, or room for one.
        let old = unsafe { old.as_mut() };
        super::exchange(asked.as_ref(), old)
    }

    entry!(
        /// The new thread gets a signal stack; those of this library's are no threads of the program's.
        pthread_create(
            *mut libc::pthread_t, *const libc::pthread_attr_t, StartFunction, *mut c_void
        ) -> Errno, "r8", "x4", super::create_thread
    );
}

fn exchange(new: Option<&libc::stack_t>, old: Option<&mut libc::stack_t>) -> c_int {
    // The kernel refuses that, and nothing is changed.
    if new.is_none() || !given_stacks::is_in_use() {
        let (told, sets) = (TOLD.get(), new.is_some());
        let mut before = MaybeUninit::<libc::stack_t>::zeroed();
        let new = new.map(|new| for_kernel(*new));
        let new = new.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let result = sigaltstack(new, before.as_mut_ptr());
        if let (0, Some(old)) = (result, old) {
            // SAFETY: sigaltstack has filled it in; zeroes are valid too.
            *old = as_told(unsafe { before.assume_init() }, told, sets);
        }
        return result;
    }
    sigaltstack(new.map_or(std::ptr::null(), std::ptr::from_ref), std::ptr::null_mut())
}

/// Keeps a signal stack in managed memory in RAM: the kernel writes to it.
fn keep_stack(new: Option<&libc::stack_t>) {
    let Some(new) = new else { return };
    if is_needed() && new.ss_flags & libc::SS_DISABLE == 0 {
        kept_stacks::keep(Span::of(new.ss_sp, new.ss_size), Replaced::Within);
    }
}

/// Keeps the upper end of a thread's stack in managed memory in RAM: the C library has the thread's own data there,
/// to which the kernel writes as well (rseq, the list of robust mutexes, the word that tells its end). Of a thread that is
/// ending userfaultfd serves no fault. By signal, more: it begins and ends there without a signal stack.
fn keep_thread(stack: Option<Span>) {
    let Some(whole @ Span { address, bytes }) = stack else { return };
    let kept = bytes.min(if is_needed() { given_stacks::BYTES } else { DATA_BYTES });
    let end = Span { address: address + bytes - kept, bytes: kept };
    kept_stacks::keep(end, Replaced::Overlapping(whole));
}

/// Before a clone that shares this memory: the word that tells the end of the new thread or process is kept, and what that
/// begins on, without a signal stack of its own.
pub fn keep_shared(wanted: &Wanted) {
    if let Some(address) = wanted.end_word() {
        kept_stacks::keep(Span { address, bytes: size_of::<c_int>() }, Replaced::Same);
    }
    if let Some(end) = wanted.stack_end().filter(|_| is_needed()) {
        let address = end.saturating_sub(given_stacks::BYTES);
        kept_stacks::keep(Span { address, bytes: end - address }, Replaced::Same);
    }
}

/// What a new thread is to run.
struct Start {
    function: StartFunction,
    argument: *mut c_void,
    /// It runs the program's code.
    is_programs: bool,
    stack: Stack,
    /// Where it says its number, if that is asked for.
    number: Option<Arc<AtomicU64>>,
}

/// As the program's call at `caller` would.
pub extern "C" fn create_thread(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    function: StartFunction,
    argument: *mut c_void,
    caller: usize,
) -> Errno {
    let is_programs = !callers::is_ours(caller);
    if is_programs {
        libraries::look();
    }
    let named = detached::stack_of(attributes);
    keep_thread(named);
    if !is_wanted() && !allocator::is_foreign() {
        return pthread_create(thread, attributes, function, argument);
    }
    let making = named.filter(|_| is_programs);
    let making = making.and_then(|stack| detached::Making::new(stack, attributes));
    let attributes = making.as_ref().and_then(detached::Making::attributes).unwrap_or(attributes);
    let number = making.as_ref().filter(|making| making.is_detached()).map(|_| Arc::default());
    let said = number.clone();
    let stack = if named.is_none() { Stack::Libc } else { Stack::Program };
    let start = Box::into_raw(Box::new(Start { function, argument, is_programs, stack, number }));
    let error = pthread_create(thread, attributes, run_thread, start.cast());
    if let Some(making) = making {
        // Not what is at `thread`: the new thread may have freed that.
        making.finish(if error == 0 { Ok(said.map(|said| heard(&said))) } else { Err(error) });
    }
    if error != 0 {
        // SAFETY: no thread has taken the box.
        drop(unsafe { Box::from_raw(start) });
    }
    error
}

/// The number that a thread says as it begins.
fn heard(number: &AtomicU64) -> libc::pthread_t {
    loop {
        match number.load(Ordering::Acquire) {
            0 => std::thread::yield_now(),
            number => return number,
        }
    }
}

extern "C" fn run_thread(start: *mut c_void) -> *mut c_void {
    // SAFETY: `create_thread` made the box for this thread.
    let start = unsafe { Box::from_raw(start.cast::<Start>()) };
    let Start { function, argument, is_programs, stack, number } = *start;
    if let Some(number) = number {
        // SAFETY: has no conditions.
        number.store(unsafe { libc::pthread_self() }, Ordering::Release);
    }
    begin(is_programs, stack);
    function(argument)
}

fn begin(is_programs: bool, stack: Stack) {
    if is_by_signal() || is_programs && trap::is_armed() {
        given_stacks::give();
    }
    if is_programs {
        trap::arm_thread();
    }
    libc_memory::note_thread(stack);
}

/// In a thread of the program's that the C library has made past `create_thread`, with all signals blocked.
pub fn begin_unseen() {
    signals::unblock_reserved();
    begin(true, Stack::Libc);
}

/// Before the C library makes such threads with these attributes.
pub fn keep_stack_of(attributes: *const libc::pthread_attr_t) {
    keep_thread(detached::stack_of(attributes));
}

/// In a thread that was there before calls were caught.
pub fn enlarge() {
    given_stacks::enlarge(|programs| {
        keep_stack(Some(&programs));
        for_kernel(programs)
    });
}

/// At a thread's end.
unsafe extern "C" fn free_stack(_: *mut c_void) {
    forget_stack();
    given_stacks::take_back();
}
