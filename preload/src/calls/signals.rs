//! Signals that are ours: SIGBUS where faults are delivered by it, SIGSYS where system calls are caught by it.
//!
//! One that is blocked when a page is missing or a call is caught kills the process, so no thread gets to block
//! it, and the program's own handler for it is asked after ours. The entry points are as safe as the functions
//! that they stand in for.
use super::held::{Held, is_needed, values};
use crate::abi::callers;
use crate::abi::next::next_functions;
use crate::abi::raw::Errno;
use crate::abi::system_call::make;
use crate::state::process;
use libc::{SIGBUS, SIGSYS, c_int, c_void, pthread_attr_t, siginfo_t, sigset_t};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};
use userswap::FaultMode;
use userswap::internals::Options;
use userswap::internals::lock::Lock;
use userswap::internals::signal::{
    Blocked, hold_chained, is_installed, pass_on, release_chained, replace_chained, take_action,
};

next_functions! {
    fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int;
    fn signal(signal: c_int, handler: usize) -> usize;
    /// Returns its error.
    fn pthread_sigmask(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> Errno;
    fn sigprocmask(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> c_int;
    /// Returns its error. Of glibc 2.32.
    fn pthread_attr_setsigmask_np(attributes: *mut pthread_attr_t, mask: *const sigset_t) -> Errno;
}

/// A bit for each signal that is ours.
static RESERVED: AtomicU64 = AtomicU64::new(0);
/// What the program wants done for SIGSYS, once that is ours; taken with signals blocked only.
static AFTER_SIGSYS: Lock<Option<libc::sigaction>> = Lock::new(None);

/// A handler with SA_SIGINFO.
pub type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

/// Before the program's code runs.
pub fn start(options: &Options) {
    if options.fault == FaultMode::Signal {
        reserve(SIGBUS);
    }
}

/// From here on no thread can block this signal; a parent may have left it blocked.
fn reserve(signal: c_int) {
    let only = bit(signal);
    // Relaxed: what is ours is blocked by no thread that asks later.
    RESERVED.fetch_or(only, Ordering::Relaxed);
    unblock(only);
}

const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// The signals that are ours, a bit for each.
#[inline]
pub fn reserved() -> u64 {
    RESERVED.load(Ordering::Relaxed)
}

/// Whether SIGBUS is the engine's.
#[inline]
pub fn is_by_signal() -> bool {
    reserved() & bit(SIGBUS) != 0
}

/// Makes SIGSYS ours, unless it is already. The handler runs with the mask that the thread has, and can be interrupted by itself.
pub fn take_sigsys(handler: Handler) {
    let blocked = Blocked::new();
    let mut after = AFTER_SIGSYS.lock();
    if after.is_none() {
        // An action that the program sets from here on waits for the lock.
        RESERVED.fetch_or(bit(SIGSYS), Ordering::Relaxed);
        *after = Some(replace_sigsys(handler));
    }
    drop(after);
    drop(blocked);
    unblock(bit(SIGSYS));
}

/// What the program had wanted.
fn replace_sigsys(handler: Handler) -> libc::sigaction {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: an all-zero sigaction is valid, and blocks nothing.
    let action = unsafe { action.assume_init_mut() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER | libc::SA_RESTART;
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    sigaction(SIGSYS, action, before.as_mut_ptr());
    // SAFETY: an all-zero sigaction is valid.
    unsafe { before.assume_init() }
}

/// Handlers of the program's that were there before a signal became ours do not block it either.
pub fn unblock_in_handlers() {
    for number in 1..=libc::SIGRTMAX() {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // The C library's own signals are refused.
        if sigaction(number, std::ptr::null(), action.as_mut_ptr()) != 0 {
            continue;
        }
        // SAFETY: an all-zero sigaction is valid.
        let action = unsafe { action.assume_init_mut() };
        let is_handled = ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
        // SAFETY: a valid set.
        if is_handled && unsafe { libc::sigismember(&action.sa_mask, SIGSYS) } == 1 {
            clear_reserved(&mut action.sa_mask);
            let mut seen = *action;
            sigaction(number, action, &mut seen);
            // Another thread has set one meanwhile, or the handler has run for the only time.
            if seen.sa_sigaction != action.sa_sigaction {
                sigaction(number, &seen, std::ptr::null_mut());
            }
        }
    }
}

/// In a thread that has blocked what is ours: it was the program's then, or the thread is ours and is to serve the program's faults.
pub fn unblock_reserved() {
    unblock(reserved());
}

/// Whether this thread blocks any of them: it did so before they were ours.
pub fn blocks_reserved() -> bool {
    let mut mask = 0_u64;
    let (how, mask_at) = (libc::SIG_BLOCK as usize, (&raw mut mask).addr());
    make(libc::SYS_rt_sigprocmask, [how, 0, mask_at, size_of::<u64>(), 0, 0]);
    mask & reserved() != 0
}

/// Before fork: no other thread has the list of actions then.
pub fn hold() {
    AFTER_SIGSYS.hold();
    hold_chained();
}

/// After fork, on both sides.
pub fn release() {
    release_chained();
    AFTER_SIGSYS.release();
}

fn unblock(set: u64) {
    let (how, set) = (libc::SIG_UNBLOCK as usize, (&raw const set).addr());
    make(libc::SYS_rt_sigprocmask, [how, set, 0, size_of::<u64>(), 0, 0]);
}

/// What a child with CLONE_CLEAR_SIGHAND begins with: no handlers of the program's.
pub fn forget_handlers() {
    for number in 1..=libc::SIGRTMAX() {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        let found = set_action(number, std::ptr::null(), action.as_mut_ptr()) == 0;
        // SAFETY: an all-zero sigaction is valid.
        let action = unsafe { action.assume_init_mut() };
        if found && action.sa_sigaction != libc::SIG_IGN {
            action.sa_sigaction = libc::SIG_DFL;
            set_action(number, action, std::ptr::null_mut());
        }
    }
}

/// A SIGSYS that is not ours: a filter of the program's, or another process, has sent it.
pub fn chain_sigsys(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let blocked = Blocked::new();
    let action = take_action(&AFTER_SIGSYS);
    drop(blocked);
    pass_on(action, signal, info, context);
}

/// What the program wants done after us; what it wanted before. None for a signal that is not ours.
fn replace_after(signal: c_int, new: Option<&libc::sigaction>) -> Option<libc::sigaction> {
    match signal {
        SIGBUS if is_by_signal() && is_installed() => Some(replace_chained(new)),
        SIGSYS if reserved() & bit(SIGSYS) != 0 => {
            let _blocked = Blocked::new();
            let mut after = AFTER_SIGSYS.lock();
            let before = *after;
            *after = new.copied().or(before);
            before
        }
        _ => None,
    }
}

/// What this library means by `pthread_sigmask` (build.rs).
///
/// The sets may be on a stack of the program's own making that has just left, where the kernel cannot bring it
/// back. The old set is asked for apart then: a call that could not tell it may have set the new one.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_pthread_sigmask(
    how: c_int,
    new: *const sigset_t,
    old: *mut sigset_t,
) -> Errno {
    if process::is_managed((&raw const how).addr()) && is_needed() {
        set_mask(how, std::ptr::null(), old);
        set_mask(how, new, std::ptr::null_mut())
    } else {
        set_mask(how, new, old)
    }
}

fn set_mask(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> Errno {
    loop {
        for set in [new, old.cast_const()].into_iter().filter(|set| !set.is_null()) {
            // SAFETY: the caller passes sets.
            std::hint::black_box(unsafe { set.cast::<u64>().read_volatile() });
        }
        let arguments = [how as usize, new as usize, old as usize, size_of::<u64>(), 0, 0];
        // The kernel's sets are the first words of the C library's.
        let returned = make(libc::SYS_rt_sigprocmask, arguments);
        match returned.wrapping_neg() as Errno {
            libc::EFAULT => {}
            error => return error,
        }
    }
}

/// Calls with a mask of the program's, less what is ours.
pub fn without_reserved<R>(mask: *const sigset_t, call: impl FnOnce(*const sigset_t) -> R) -> R {
    if reserved() == 0 {
        return call(mask);
    }
    // SAFETY: null, or a set of the program's.
    let Some(mask) = (unsafe { mask.as_ref() }) else { return call(mask) };
    let mut mask = *mask;
    clear_reserved(&mut mask);
    call(&mask)
}

fn clear_reserved(mask: &mut sigset_t) {
    for signal in [SIGBUS, SIGSYS].into_iter().filter(|signal| reserved() & bit(*signal) != 0) {
        // SAFETY: `mask` is a valid set.
        unsafe { libc::sigdelset(mask, signal) };
    }
}

/// Sets of the program's in managed memory.
fn kept(new: *const sigset_t, old: *const sigset_t) -> Option<Held> {
    is_needed().then(|| Held::new(&[values(new, 1), values(old, 1)]))
}

mod exported {
    use super::{Errno, c_int, kept, pthread_attr_t, sigset_t, without_reserved};
    use crate::abi::callers::entry;

    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn pthread_sigmask(
        how: c_int,
        new: *const sigset_t,
        old: *mut sigset_t,
    ) -> Errno {
        let _held = kept(new, old);
        if how == libc::SIG_UNBLOCK {
            return super::pthread_sigmask(how, new, old);
        }
        without_reserved(new, |new| super::pthread_sigmask(how, new, old))
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn sigprocmask(
        how: c_int,
        new: *const sigset_t,
        old: *mut sigset_t,
    ) -> c_int {
        let _held = kept(new, old);
        if how == libc::SIG_UNBLOCK {
            return super::sigprocmask(how, new, old);
        }
        without_reserved(new, |new| super::sigprocmask(how, new, old))
    }

    /// A thread begins with this mask.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn pthread_attr_setsigmask_np(
        attributes: *mut pthread_attr_t,
        mask: *const sigset_t,
    ) -> Errno {
        without_reserved(mask, |mask| super::pthread_attr_setsigmask_np(attributes, mask))
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn signal(signal: c_int, handler: usize) -> usize {
        super::serve_signal(signal, handler)
    }

    entry!(
        /// For signals of ours the program's handler comes after ours, and no handler blocks them.
        sigaction(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int, "rcx", "x3", super::serve_sigaction
    );

    entry!(
        /// The same by its older name.
        __sigaction(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int, "rcx", "x3", super::serve_sigaction
    );
}

extern "C" fn serve_sigaction(
    number: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
    caller: usize,
) -> c_int {
    if reserved() == 0 || callers::is_ours(caller) {
        return sigaction(number, new, old);
    }
    // SAFETY: null, or an action of the program's.
    let changed = unsafe { new.as_ref() }.map(|new| {
        let mut changed = *new;
        clear_reserved(&mut changed.sa_mask);
        changed
    });
    if let Some(before) = replace_after(number, changed.as_ref()) {
        // SAFETY: null, or room for an action.
        if let Some(old) = unsafe { old.as_mut() } {
            *old = before;
        }
        return 0;
    }
    sigaction(number, changed.as_ref().map_or(std::ptr::null(), std::ptr::from_ref), old)
}

/// sigaction as the program calls it.
pub fn set_action(number: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    serve_sigaction(number, new, old, 0)
}

/// signal as the program calls it.
pub fn serve_signal(number: c_int, handler: usize) -> usize {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: an all-zero sigaction is valid.
    let action = unsafe { action.assume_init_mut() };
    action.sa_sigaction = handler;
    action.sa_flags = libc::SA_RESTART;
    match replace_after(number, Some(action)) {
        Some(before) => before.sa_sigaction,
        None => signal(number, handler),
    }
}
