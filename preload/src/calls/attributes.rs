//! pthread_getattr_np: the C library has the kernel write a thread's CPUs to a block of malloc's, which in a program with an
//! allocator of its own is managed memory, and may be missing.
use super::held::is_needed;
use crate::abi::next::{call_at, next_functions};
use crate::abi::raw::Errno;
use crate::abi::symbols;
use libc::c_void;

next_functions! {
    /// Returns its error.
    fn pthread_getattr_np(
        thread: libc::pthread_t, attributes: *mut libc::pthread_attr_t
    ) -> Errno;
}

/// What the C library asks for, in bytes: room for 256 CPUs, or for as many as there may be, and, for the first thread, a stream's
/// buffer.
const BLOCKS: std::ops::RangeInclusive<u32> = 5..=12;
/// The blocks may be others the next time, or have left again.
const TRIES_MAX: u32 = 1000;

mod exported {
    use super::*;

    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn pthread_getattr_np(
        thread: libc::pthread_t,
        attributes: *mut libc::pthread_attr_t,
    ) -> Errno {
        let mut error = super::pthread_getattr_np(thread, attributes);
        for _ in 0..TRIES_MAX {
            if ![libc::EFAULT, libc::ENOENT].contains(&error) || !is_needed() {
                break;
            }
            bring_blocks_in();
            error = super::pthread_getattr_np(thread, attributes);
        }
        error
    }
}

/// Brings in the blocks that the program's allocator gives out next.
fn bring_blocks_in() {
    // What the C library calls, and not what this library does.
    let [Some(malloc), Some(free)] = [c"malloc", c"free"].map(symbols::first) else { return };
    // SAFETY: the functions of these names take one argument.
    let call = |function, argument| unsafe {
        call_at(function as *const c_void, &[argument, 0, 0, 0, 0, 0])
    };
    let blocks = BLOCKS.map(|power| {
        let bytes = 1usize << power;
        let block = call(malloc, bytes);
        // A page at most: it begins on one, and ends on that or the next.
        for end in [block, block + bytes - 1].into_iter().filter(|_| block != 0) {
            // SAFETY: within the block.
            unsafe { (end as *mut u8).write_volatile(0) };
        }
        block
    });
    let blocks: Vec<usize> = blocks.collect();
    blocks.into_iter().for_each(|block| _ = call(free, block));
}
