//! Pages that were lost: what a thread that touches one meets.
use crate::sys::signal;
use std::cell::Cell;

/// Whether touching the page at an address, which lies in a live region, raises SIGBUS; that does not end the process.
pub fn is_lost(page: usize) -> bool {
    thread_local!(static JUMP: Cell<*mut SigJump> = const { Cell::new(std::ptr::null_mut()) });
    #[repr(C, align(16))]
    struct SigJump([u8; 512]);
    unsafe extern "C" {
        fn __sigsetjmp(jump: *mut SigJump, save: i32) -> i32;
        fn siglongjmp(jump: *mut SigJump, value: i32) -> !;
    }
    extern "C" fn on_bus(_: i32) {
        // SAFETY: the thread is inside `is_lost`, below the frame that set the jump.
        unsafe { siglongjmp(JUMP.get(), 1) }
    }
    let mut jump = SigJump([0; 512]);
    JUMP.set(&raw mut jump);
    let wanted = libc::sigaction {
        sa_sigaction: on_bus as *const () as usize,
        sa_flags: libc::SA_NODEFER,
        // SAFETY: an empty set.
        sa_mask: unsafe { std::mem::zeroed() },
        sa_restorer: None,
    };
    let before = if signal::is_installed() {
        signal::replace_chained(Some(&wanted))
    } else {
        // SAFETY: an all-zero sigaction has room for the old one.
        let mut before = unsafe { std::mem::zeroed() };
        // SAFETY: both are valid.
        unsafe { libc::sigaction(libc::SIGBUS, &wanted, &mut before) };
        before
    };
    // SAFETY: no value that needs dropping lives between the two returns of this call.
    let lost = unsafe { __sigsetjmp(&raw mut jump, 1) } != 0;
    if !lost {
        // SAFETY: the page lies in a live region, or raises SIGBUS, which comes back above.
        unsafe { (page as *const u8).read_volatile() };
    }
    if signal::is_installed() {
        signal::replace_chained(Some(&before));
    } else {
        // SAFETY: what was in force before.
        unsafe { libc::sigaction(libc::SIGBUS, &before, std::ptr::null_mut()) };
    }
    lost
}
