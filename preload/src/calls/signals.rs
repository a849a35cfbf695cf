//! Signals, where faults are delivered by one: SIGBUS must always reach the engine.
//!
//! A SIGBUS that is blocked when a page is missing kills the process, so no thread gets to block it, and the
//! program's own handler for it is asked after the engine's. The entry points are as safe as the functions
//! that they stand in for.
use super::held::{Held, is_needed, values};
use crate::abi::callers;
use crate::abi::next::next_functions;
use crate::abi::raw::Errno;
use crate::abi::system_call::enter;
use crate::state::process;
use libc::{SIGBUS, c_int, sigset_t};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};
use userswap::FaultMode;
use userswap::internals::Options;
use userswap::internals::signal::{is_installed, replace_chained};

next_functions! {
    fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int;
    fn signal(signal: c_int, handler: usize) -> usize;
    /// Returns its error.
    fn pthread_sigmask(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> Errno;
    fn sigprocmask(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> c_int;
    fn sigsuspend(mask: *const sigset_t) -> c_int;
}

/// Faults come, or will come, by signal.
static BY_SIGNAL: AtomicBool = AtomicBool::new(false);

/// Before the program's code runs.
pub fn start(options: &Options) {
    if options.fault != FaultMode::Signal {
        return;
    }
    BY_SIGNAL.store(true, Ordering::Relaxed);
    let mut only = MaybeUninit::uninit();
    // SAFETY: `only` has room for a set.
    unsafe { libc::sigemptyset(only.as_mut_ptr()) };
    // SAFETY: `only` is a set now.
    unsafe { libc::sigaddset(only.as_mut_ptr(), SIGBUS) };
    // A parent may have left it blocked.
    pthread_sigmask(libc::SIG_UNBLOCK, only.as_ptr(), std::ptr::null_mut());
}

/// Whether SIGBUS is the engine's.
#[inline]
pub fn is_by_signal() -> bool {
    BY_SIGNAL.load(Ordering::Relaxed)
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
        let [a, b, c, d, e, f] = arguments;
        // SAFETY: the kernel's sets are the first words of the C library's.
        let returned = unsafe { enter(libc::SYS_rt_sigprocmask, a, b, c, d, e, f) };
        match returned.wrapping_neg() as Errno {
            libc::EFAULT => {}
            error => return error,
        }
    }
}

/// Calls with a mask of the program's, less SIGBUS where that is the engine's.
fn without_bus<R>(mask: *const sigset_t, call: impl FnOnce(*const sigset_t) -> R) -> R {
    if !is_by_signal() {
        return call(mask);
    }
    // SAFETY: null, or a set of the program's.
    let Some(mask) = (unsafe { mask.as_ref() }) else { return call(mask) };
    let mut mask = *mask;
    // SAFETY: `mask` is a valid set.
    unsafe { libc::sigdelset(&mut mask, SIGBUS) };
    call(&mask)
}

/// Sets of the program's in managed memory.
fn kept(new: *const sigset_t, old: *const sigset_t) -> Option<Held> {
    is_needed().then(|| Held::new(&[values(new, 1), values(old, 1)]))
}

mod exported {
    use super::{Errno, c_int, kept, sigset_t, without_bus};
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
        without_bus(new, |new| super::pthread_sigmask(how, new, old))
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
        without_bus(new, |new| super::sigprocmask(how, new, old))
    }

    /// Handlers run under its mask.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn sigsuspend(mask: *const sigset_t) -> c_int {
        let _held = kept(mask, std::ptr::null());
        without_bus(mask, super::sigsuspend)
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn signal(signal: c_int, handler: usize) -> usize {
        super::serve_signal(signal, handler)
    }

    entry!(
        /// For SIGBUS the program's handler comes after the engine's, and no handler blocks SIGBUS.
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
        // SAFETY: null, or room for an action.
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
