//! Signals by the functions of older systems, made of the newer ones: what the C library has would pass ours by.
//!
//! `signal` is `__sysv_signal` where a program asks for a plain C or X/Open (`-std=c11`). The entry points are as safe as the
//! functions that they stand in for; what they do is in sigset(3), sigvec(3) and sysv_signal(3).
use super::signals::set_action;
use crate::abi::raw::set_errno;
use libc::{EINVAL, SIG_BLOCK, SIG_ERR, SIG_SETMASK, SIG_UNBLOCK, c_int, sigset_t};
use std::mem::MaybeUninit;

/// What sigset() blocks a signal by, and says of one that was.
const SIG_HOLD: usize = 2;

/// A set of signals.
#[derive(Clone, Copy)]
struct Signals(sigset_t);

impl Signals {
    fn none() -> Self {
        let mut set = MaybeUninit::<sigset_t>::zeroed();
        // SAFETY: room for a set.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: just filled in.
        Self(unsafe { set.assume_init() })
    }

    /// One; None where there is no such signal, which errno says.
    fn one(number: c_int) -> Option<Self> {
        let mut set = Self::none();
        // SAFETY: a set.
        (unsafe { libc::sigaddset(&raw mut set.0, number) } == 0).then_some(set)
    }

    /// The first 32, a bit for each.
    fn of_bits(bits: c_int) -> Self {
        let mut set = Self::none();
        (1..=32).filter(|number| bits >> (number - 1) & 1 == 1).for_each(|number| {
            // SAFETY: a set.
            unsafe { libc::sigaddset(&raw mut set.0, number) };
        });
        set
    }

    fn bits(&self) -> c_int {
        (1..=32).filter(|number| self.has(*number)).fold(0, |bits, number| bits | 1 << (number - 1))
    }

    fn has(&self, number: c_int) -> bool {
        // SAFETY: a set.
        unsafe { libc::sigismember(&raw const self.0, number) == 1 }
    }

    /// Changes this thread's mask by them; what it was.
    fn mask(&self, how: c_int) -> Self {
        let mut before = Self::none();
        // SAFETY: two sets; by the function that leaves out what is ours.
        unsafe { libc::sigprocmask(how, &raw const self.0, &raw mut before.0) };
        before
    }

    /// What this thread has blocked.
    fn blocked() -> Self {
        Self::none().mask(SIG_BLOCK)
    }
}

/// Has a signal handled so from now on; how it was before, or SIG_ERR.
fn handle(number: c_int, handler: usize, flags: c_int) -> usize {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: an all-zero sigaction is valid.
    let action = unsafe { action.assume_init_mut() };
    (action.sa_sigaction, action.sa_flags) = (handler, flags);
    replace(number, action)
}

/// The handler that a signal has, which another one replaces, if there is one; or SIG_ERR.
fn replace(number: c_int, new: *const libc::sigaction) -> usize {
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    if set_action(number, new, before.as_mut_ptr()) != 0 {
        return SIG_ERR;
    }
    // SAFETY: an all-zero sigaction is valid.
    unsafe { before.assume_init() }.sa_sigaction
}

mod exported {
    use super::*;

    /// Once, and not blocked meanwhile.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn __sysv_signal(number: c_int, handler: usize) -> usize {
        if handler == SIG_ERR {
            set_errno(EINVAL);
            return SIG_ERR;
        }
        handle(number, handler, libc::SA_RESETHAND | libc::SA_NODEFER)
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn sysv_signal(number: c_int, handler: usize) -> usize {
        // SAFETY: the same.
        unsafe { __sysv_signal(number, handler) }
    }

    macro_rules! as_signal {
        ($($name:ident)+) => { $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(number: c_int, handler: usize) -> usize {
                crate::calls::signals::serve_signal(number, handler)
            }
        )+ };
    }
    as_signal!(bsd_signal ssignal);

    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn sigset(number: c_int, disposition: usize) -> usize {
        let Some(signal) = Signals::one(number) else { return SIG_ERR };
        let before = match disposition {
            SIG_HOLD => replace(number, std::ptr::null()),
            _ => handle(number, disposition, 0),
        };
        if before == SIG_ERR {
            return SIG_ERR;
        }
        let how = if disposition == SIG_HOLD { SIG_BLOCK } else { SIG_UNBLOCK };
        if signal.mask(how).has(number) { SIG_HOLD } else { before }
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn sighold(number: c_int) -> c_int {
        Signals::one(number).map_or(-1, |signal| {
            signal.mask(SIG_BLOCK);
            0
        })
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn sigignore(number: c_int) -> c_int {
        if handle(number, libc::SIG_IGN, 0) == SIG_ERR { -1 } else { 0 }
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn sigblock(bits: c_int) -> c_int {
        Signals::of_bits(bits).mask(SIG_BLOCK).bits()
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn sigsetmask(bits: c_int) -> c_int {
        Signals::of_bits(bits).mask(SIG_SETMASK).bits()
    }

    /// A mask of BSD's.
    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn sigpause(bits: c_int) -> c_int {
        let mask = Signals::of_bits(bits);
        // SAFETY: a set; by the function that leaves out what is ours.
        unsafe { libc::sigsuspend(&raw const mask.0) }
    }

    /// One signal of X/Open's.
    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn __xpg_sigpause(number: c_int) -> c_int {
        let mut mask = Signals::blocked();
        // SAFETY: as above.
        if unsafe { libc::sigdelset(&raw mut mask.0, number) } != 0 {
            return -1;
        }
        // SAFETY: as above.
        unsafe { libc::sigsuspend(&raw const mask.0) }
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn __sigsuspend(mask: *const sigset_t) -> c_int {
        // SAFETY: the same.
        unsafe { libc::sigsuspend(mask) }
    }
}
