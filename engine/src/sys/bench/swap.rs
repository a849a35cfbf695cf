//! System calls about swap files and the file systems that hold them.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// swapon's flag that a priority is given, and the bits it is given in (linux/swap.h).
const SWAP_FLAG_PREFER: libc::c_int = 0x8000;
const SWAP_FLAG_PRIO_MASK: libc::c_int = 0x7fff;
/// File systems that live in RAM (linux/magic.h).
const TMPFS_MAGIC: i64 = 0x0102_1994;
const RAMFS_MAGIC: i64 = 0x8584_58f6;

/// Lets the kernel swap to the file at `path`.
pub fn swapon(path: &CStr, priority: u16) -> io::Result<()> {
    let flags = SWAP_FLAG_PREFER | (libc::c_int::from(priority) & SWAP_FLAG_PRIO_MASK);
    // SAFETY: the path is a valid C string.
    super::check(unsafe { libc::swapon(path.as_ptr(), flags) }).map(drop)
}

/// Has the kernel read back all that is on the swap file at `path`, and stop using it.
pub fn swapoff(path: &CStr) -> io::Result<()> {
    // SAFETY: the path is a valid C string.
    super::check(unsafe { libc::swapoff(path.as_ptr()) }).map(drop)
}

/// The flags that an open file has.
pub fn flags(file: &File) -> io::Result<libc::c_int> {
    // SAFETY: F_GETFL takes no argument and touches no memory.
    super::check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) })
}

/// Reserves real blocks for the first `bytes` bytes of `file`.
pub fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    let bytes = libc::off_t::try_from(bytes).map_err(io::Error::other)?;
    // SAFETY: fallocate touches no memory of this process.
    super::check(unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes) }).map(drop)
}

/// Whether `directory` is on a file system that has no disk below it.
pub fn lives_in_ram(directory: &File) -> io::Result<bool> {
    // SAFETY: statfs is plain numbers, for which zeros are valid.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is valid for writing during the call.
    super::check(unsafe { libc::fstatfs(directory.as_raw_fd(), &mut stat) })?;
    // The field's type differs between architectures, and so would the need for this cast.
    #[allow(clippy::unnecessary_cast)]
    let kind = stat.f_type as i64;
    Ok(kind == TMPFS_MAGIC || kind == RAMFS_MAGIC)
}
