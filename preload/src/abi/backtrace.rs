//! The calls that led here, by the unwinder of the compiler, which Rust's standard library brings.
//!
//! It reads tables of the program's files and its stack, and allocates nothing. Code without tables ends the walk.
use super::callers;
use libc::{c_int, c_void};

/// Calls that are kept: an allocator of the program's own has several before those that tell something.
const CALLS_MAX: usize = 12;
/// Frames that are looked at.
const FRAMES_MAX: u32 = 48;

const GO_ON: c_int = 0;
const STOP: c_int = 4;

unsafe extern "C" {
    fn _Unwind_Backtrace(
        visit: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
}

struct Walk {
    frames: u32,
    calls: Vec<usize>,
}

/// Addresses in the functions that called each other, the nearest first, without this library and without what the C
/// library does for them. Signals may not be blocked: tables and stack may be on pages that have to come in.
pub fn calls() -> Vec<usize> {
    let mut walk = Walk { frames: 0, calls: Vec::with_capacity(CALLS_MAX) };
    // SAFETY: `visit` is called before this returns, with the walk.
    unsafe { _Unwind_Backtrace(visit, (&raw mut walk).cast()) };
    walk.calls
}

extern "C" fn visit(frame: *mut c_void, walk: *mut c_void) -> c_int {
    // SAFETY: the walk of `calls`, which waits.
    let walk = unsafe { &mut *walk.cast::<Walk>() };
    // The address behind the call, which may be another function's already.
    // SAFETY: the unwinder passes a frame.
    let address = unsafe { _Unwind_GetIP(frame) }.saturating_sub(1);
    walk.frames += 1;
    let passes_on = walk.calls.is_empty() && callers::is_system(address);
    if !callers::is_ours(address) && !passes_on {
        walk.calls.push(address);
    }
    let is_full = walk.calls.len() == CALLS_MAX || walk.frames == FRAMES_MAX;
    if is_full { STOP } else { GO_ON }
}
