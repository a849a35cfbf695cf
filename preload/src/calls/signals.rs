//! Signals, where faults are delivered by one: SIGBUS must always reach the engine.
//!
//! A SIGBUS that is blocked when a page is missing kills the process, so nobody gets to block it; the
//! program's own handler for it is asked after the engine's; and every thread has a stack for the handler,
//! since the one it runs on may itself be missing.
use crate::abi::callers;
use crate::abi::next::behind;
use crate::abi::raw::{self, Errno, MapRequest};
use crate::state::process::{self, Process};
use libc::{SIGBUS, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use userswap::Engine;
use userswap::arena::PageRange;
use userswap::options::{FaultMode, Options};
use userswap::sys::lock::Lock;
use userswap::sys::signal::{Blocked, is_installed, replace_chained};

behind! {
    /// sigaction.
    fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int;
    /// signal.
    fn signal(signal: c_int, handler: usize) -> usize;
    /// pthread_sigmask, which returns its error.
    fn pthread_sigmask(how: c_int, new: *const libc::sigset_t, old: *mut libc::sigset_t) -> Errno;
    /// sigprocmask.
    fn sigprocmask(how: c_int, new: *const libc::sigset_t, old: *mut libc::sigset_t) -> c_int;
    /// sigsuspend.
    fn sigsuspend(mask: *const libc::sigset_t) -> c_int;
    /// sigaltstack.
    fn sigaltstack(new: *const libc::stack_t, old: *mut libc::stack_t) -> c_int;
    /// pthread_create, which returns its error.
    fn pthread_create(
        thread: *mut libc::pthread_t, attributes: *const libc::pthread_attr_t,
        start: StartFunction, argument: *mut c_void
    ) -> Errno;
}

type StartFunction = extern "C" fn(*mut c_void) -> *mut c_void;

/// Faults come, or will come, by signal.
static BY_SIGNAL: AtomicBool = AtomicBool::new(false);
/// The key whose destructor frees a thread's signal stack.
static STACK_KEY: AtomicU32 = AtomicU32::new(u32::MAX);
/// Signal stacks that the program put into managed memory.
static MANAGED_STACKS: Lock<Vec<PageRange>> = Lock::new(Vec::new());
/// Room for the engine's deepest path in the handler, with direct reclaim, and the kernel's frame.
const STACK_BYTES: usize = 64 << 10;

/// Before the program's code runs.
pub fn start(options: &Options) {
    if options.fault != FaultMode::Signal {
        return;
    }
    BY_SIGNAL.store(true, Ordering::Relaxed);
    let mut key = 0;
    // SAFETY: the destructor lives as long as the process.
    if unsafe { libc::pthread_key_create(&mut key, Some(free_stack)) } == 0 {
        STACK_KEY.store(key, Ordering::Relaxed);
    }
    let mut only = MaybeUninit::uninit();
    // SAFETY: `only` is a place for a set.
    unsafe { libc::sigemptyset(only.as_mut_ptr()) };
    // SAFETY: `only` is a set now.
    unsafe { libc::sigaddset(only.as_mut_ptr(), SIGBUS) };
    // A parent may have left it blocked.
    pthread_sigmask(libc::SIG_UNBLOCK, only.as_ptr(), std::ptr::null_mut());
    give_stack();
}

/// Once the engine has the arena: signal stacks in it must not leave.
pub fn pin_stacks(engine: &Engine) {
    if is_by_signal() {
        for range in MANAGED_STACKS.lock().iter() {
            // A stack that cannot stay is brought in by luck only; there is nobody to tell.
            let _ = engine.core().pin_range(*range);
        }
    }
}

#[inline]
fn is_by_signal() -> bool {
    BY_SIGNAL.load(Ordering::Relaxed)
}

/// A copy of a set without SIGBUS.
fn without_bus(set: *const libc::sigset_t) -> Option<libc::sigset_t> {
    // SAFETY: null, or a set of the program's.
    let mut set = *unsafe { set.as_ref() }?;
    // SAFETY: `set` is a valid set.
    unsafe { libc::sigdelset(&mut set, SIGBUS) };
    Some(set)
}

fn pointer(set: &Option<libc::sigset_t>) -> *const libc::sigset_t {
    set.as_ref().map_or(std::ptr::null(), std::ptr::from_ref)
}

mod exported {
    use super::{Errno, c_int, is_by_signal, pointer, without_bus};
    use crate::abi::callers::entry;

    /// pthread_sigmask.
    ///
    /// # Safety
    /// As the function of the C library.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn pthread_sigmask(
        how: c_int,
        new: *const libc::sigset_t,
        old: *mut libc::sigset_t,
    ) -> Errno {
        if !is_by_signal() || how == libc::SIG_UNBLOCK {
            return super::pthread_sigmask(how, new, old);
        }
        super::pthread_sigmask(how, pointer(&without_bus(new)), old)
    }

    /// sigprocmask.
    ///
    /// # Safety
    /// As the function of the C library.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn sigprocmask(
        how: c_int,
        new: *const libc::sigset_t,
        old: *mut libc::sigset_t,
    ) -> c_int {
        if !is_by_signal() || how == libc::SIG_UNBLOCK {
            return super::sigprocmask(how, new, old);
        }
        super::sigprocmask(how, pointer(&without_bus(new)), old)
    }

    /// sigsuspend: handlers run under its mask.
    ///
    /// # Safety
    /// As the function of the C library.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn sigsuspend(mask: *const libc::sigset_t) -> c_int {
        if !is_by_signal() {
            return super::sigsuspend(mask);
        }
        super::sigsuspend(pointer(&without_bus(mask)))
    }

    /// signal.
    ///
    /// # Safety
    /// As the function of the C library.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn signal(signal: c_int, handler: usize) -> usize {
        super::serve_signal(signal, handler)
    }

    /// sigaltstack: one in managed memory stays in RAM.
    ///
    /// # Safety
    /// As the function of the C library.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn sigaltstack(
        new: *const libc::stack_t,
        old: *mut libc::stack_t,
    ) -> c_int {
        super::keep_stack(new);
        super::sigaltstack(new, old)
    }

    /// pthread_create: the new thread gets a signal stack.
    ///
    /// # Safety
    /// As the function of the C library.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn pthread_create(
        thread: *mut libc::pthread_t,
        attributes: *const libc::pthread_attr_t,
        start: super::StartFunction,
        argument: *mut super::c_void,
    ) -> Errno {
        super::create_thread(thread, attributes, (start, argument))
    }

    entry!(
        /// sigaction: for SIGBUS the program's handler comes after the engine's, and none blocks SIGBUS.
        sigaction(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int, "rcx", "x3", super::serve_sigaction
    );
}

extern "C" fn serve_sigaction(
    number: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
    caller: usize,
) -> c_int {
    if !is_by_signal() || callers::is_ours(caller) {
        return sigaction(number, new, old);
    }
    // SAFETY: null, or an action of the program's.
    let changed = unsafe { new.as_ref() }.map(|new| {
        let mut changed = *new;
        // SAFETY: the mask is a valid set.
        unsafe { libc::sigdelset(&mut changed.sa_mask, SIGBUS) };
        changed
    });
    if number == SIGBUS && is_installed() {
        let before = replace_chained(changed.as_ref());
        // SAFETY: null, or a place for an action.
        if let Some(old) = unsafe { old.as_mut() } {
            *old = before;
        }
        return 0;
    }
    sigaction(number, changed.as_ref().map_or(std::ptr::null(), std::ptr::from_ref), old)
}

fn serve_signal(number: c_int, handler: usize) -> usize {
    if number != SIGBUS || !is_by_signal() || !is_installed() {
        return signal(number, handler);
    }
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: an all-zero sigaction is valid.
    let action = unsafe { action.assume_init_mut() };
    action.sa_sigaction = handler;
    action.sa_flags = libc::SA_RESTART;
    replace_chained(Some(action)).sa_sigaction
}

/// Remembers, and under the engine pins, a signal stack in managed memory.
fn keep_stack(new: *const libc::stack_t) {
    if !is_by_signal() {
        return;
    }
    // SAFETY: null, or a description of the program's.
    let Some(new) = (unsafe { new.as_ref() }) else { return };
    let Some(process) = process::current() else { return };
    if new.ss_flags & libc::SS_DISABLE != 0 {
        return;
    }
    if let Some(range) = managed_stack(process, new) {
        let _blocked = Blocked::new();
        let mut stacks = MANAGED_STACKS.lock();
        if stacks.contains(&range) {
            return;
        }
        stacks.push(range);
        drop(stacks);
        process.engine().map(|engine| engine.core().pin_range(range));
    }
}

fn managed_stack(process: &Process, stack: &libc::stack_t) -> Option<PageRange> {
    let (start, end) = process.within_arena(stack.ss_sp as usize, stack.ss_size)?;
    let first = process.arena.page_of(start);
    let last = process.arena.page_of(end - 1);
    Some(PageRange { first, count: last - first + 1 })
}

/// What a new thread is to run.
struct Start {
    function: StartFunction,
    argument: *mut c_void,
}

fn create_thread(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    (function, argument): (StartFunction, *mut c_void),
) -> Errno {
    if !is_by_signal() {
        return pthread_create(thread, attributes, function, argument);
    }
    let start = Box::into_raw(Box::new(Start { function, argument }));
    let error = pthread_create(thread, attributes, run_thread, start.cast());
    if error != 0 {
        // SAFETY: nobody has taken the box.
        drop(unsafe { Box::from_raw(start) });
    }
    error
}

extern "C" fn run_thread(start: *mut c_void) -> *mut c_void {
    // SAFETY: `create_thread` made the box for this thread.
    let start = unsafe { Box::from_raw(start.cast::<Start>()) };
    let Start { function, argument } = *start;
    give_stack();
    function(argument)
}

/// Gives this thread a signal stack if it has none.
fn give_stack() {
    let mut present = MaybeUninit::<libc::stack_t>::zeroed();
    sigaltstack(std::ptr::null(), present.as_mut_ptr());
    // SAFETY: sigaltstack has filled it in; zeroes are valid too.
    if unsafe { present.assume_init() }.ss_flags & libc::SS_DISABLE == 0 {
        return;
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let wanted =
        MapRequest { address: 0, bytes: STACK_BYTES, protection, flags, fd: -1, offset: 0 };
    let Ok(address) = raw::map(wanted) else { return };
    let stack = libc::stack_t { ss_sp: address as *mut c_void, ss_flags: 0, ss_size: STACK_BYTES };
    sigaltstack(&stack, std::ptr::null_mut());
    let key = STACK_KEY.load(Ordering::Relaxed);
    if key != u32::MAX {
        // SAFETY: the key exists; a failure leaves the stack to the end of the process.
        unsafe { libc::pthread_setspecific(key, address as *const c_void) };
    }
}

/// At a thread's end.
unsafe extern "C" fn free_stack(address: *mut c_void) {
    let none =
        libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
    let mut present = MaybeUninit::<libc::stack_t>::zeroed();
    sigaltstack(std::ptr::null(), present.as_mut_ptr());
    // SAFETY: sigaltstack has filled it in; zeroes are valid too.
    if unsafe { present.assume_init() }.ss_sp == address {
        sigaltstack(&none, std::ptr::null_mut());
    }
    // Nobody uses the mapping any more; a failure is a leak.
    let _ = raw::unmap(address as usize, STACK_BYTES);
}
