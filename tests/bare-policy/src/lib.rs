//! Proves that `policy` needs no std.
//!
//! A static library has everything in it, so it needs exactly one panic handler. This one brings its own: if `policy`, or
//! anything it depends on, brought std, there would be two, and the compiler refuses that. So the proof needs no other
//! target than the machine's own. Nothing here is ever run.

#![no_std]

extern crate userswap_policy as _;

use core::alloc::{GlobalAlloc, Layout};
use core::panic::PanicInfo;

/// There is no memory in a crate that is never run.
struct NoMemory;

// SAFETY: it hands out no memory, so nothing about any memory can be wrong.
unsafe impl GlobalAlloc for NoMemory {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static NO_MEMORY: NoMemory = NoMemory;

#[panic_handler]
fn panic(_: &PanicInfo) -> ! {
    loop {}
}
