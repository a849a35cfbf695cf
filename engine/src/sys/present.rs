//! Which pages of private memory are there, asked of the kernel without a file that a child might not be able to open.
use super::PAGE_BYTES;
use std::io;

/// Fills a byte for each page from `address` on, to be asked by [`is_present`].
///
/// # Errors
/// What mincore(2) says: ENOMEM where something is not mapped.
pub fn look(address: usize, found: &mut [u8]) -> io::Result<()> {
    let bytes = found.len() * PAGE_BYTES;
    // SAFETY: it writes a byte for each page of the range, for which there is room; the range itself is only looked at. By
    // number: the program's own calls are others.
    match unsafe { libc::syscall(libc::SYS_mincore, address, bytes, found.as_mut_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What a byte says. The other bits have no meaning.
pub fn is_present(found: u8) -> bool {
    found & 1 != 0
}
