//! pthread_getattr_np: the C library has the kernel write a thread's CPUs to a block of malloc's, which in a program with an
//! allocator of its own is managed memory, and may be missing.
use super::held::is_needed;
use crate::abi::next::next_functions;
use crate::abi::raw::Errno;

next_functions! {
    /// Returns its error.
    fn pthread_getattr_np(
        thread: libc::pthread_t, attributes: *mut libc::pthread_attr_t
    ) -> Errno;
}

/// What the C library asks for first: room for 256 CPUs.
const BLOCK_BYTES: usize = 32;
/// The block may be another the next time, or have left again.
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
            if error != libc::EFAULT || !is_needed() {
                break;
            }
            bring_block_in();
            error = super::pthread_getattr_np(thread, attributes);
        }
        error
    }
}

/// Brings in the block that the program's allocator gives out next.
fn bring_block_in() {
    // SAFETY: has no conditions.
    let block = unsafe { libc::malloc(BLOCK_BYTES) }.cast::<[u8; BLOCK_BYTES]>();
    if !block.is_null() {
        // SAFETY: it has so many bytes.
        unsafe { block.write_volatile([0; BLOCK_BYTES]) };
    }
    // SAFETY: allocated above.
    unsafe { libc::free(block.cast()) };
}
