//! The kernel's memory calls themselves, past everything that is interposed, ourselves included.
use libc::{c_int, c_long};
use std::mem::MaybeUninit;

/// An error number, as in errno.
pub type Errno = c_int;

/// Bytes of a page.
pub const PAGE_BYTES: usize = userswap::sys::PAGE_BYTES;

/// What a system call returned, as C sees it.
fn outcome(returned: c_long) -> Result<usize, Errno> {
    match returned {
        -1 => Err(errno()),
        value => Ok(value as usize),
    }
}

/// This thread's errno.
pub fn errno() -> Errno {
    // SAFETY: has no conditions.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: errno is this thread's own.
    unsafe { place.read() }
}

/// Sets this thread's errno.
pub fn set_errno(error: Errno) {
    // SAFETY: has no conditions.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: errno is this thread's own.
    unsafe { place.write(error) };
}

/// What a mapping is asked to be.
#[derive(Clone, Copy, Debug)]
pub struct MapRequest {
    /// Where, or a hint.
    pub address: usize,
    /// How long.
    pub bytes: usize,
    /// PROT_ bits.
    pub protection: c_int,
    /// MAP_ bits.
    pub flags: c_int,
    /// The file.
    pub fd: c_int,
    /// Where in the file.
    pub offset: i64,
}

/// mmap.
pub fn map(request: MapRequest) -> Result<usize, Errno> {
    let MapRequest { address, bytes, protection, flags, fd, offset } = request;
    // SAFETY: passed through for the program, or for a range of the arena that the caller owns.
    outcome(unsafe { libc::syscall(libc::SYS_mmap, address, bytes, protection, flags, fd, offset) })
}

/// munmap.
pub fn unmap(address: usize, bytes: usize) -> Result<usize, Errno> {
    // SAFETY: as for `map`.
    outcome(unsafe { libc::syscall(libc::SYS_munmap, address, bytes) })
}

/// mprotect.
pub fn protect(address: usize, bytes: usize, protection: c_int) -> Result<usize, Errno> {
    // SAFETY: as for `map`.
    outcome(unsafe { libc::syscall(libc::SYS_mprotect, address, bytes, protection) })
}

/// madvise.
pub fn advise(address: usize, bytes: usize, advice: c_int) -> Result<usize, Errno> {
    // SAFETY: as for `map`.
    outcome(unsafe { libc::syscall(libc::SYS_madvise, address, bytes, advice) })
}

/// mincore.
pub fn in_core(address: usize, bytes: usize, vector: *mut u8) -> Result<usize, Errno> {
    // SAFETY: the kernel checks the vector.
    outcome(unsafe { libc::syscall(libc::SYS_mincore, address, bytes, vector) })
}

/// What mremap is asked for.
#[derive(Clone, Copy, Debug)]
pub struct RemapRequest {
    /// Where it is.
    pub address: usize,
    /// How long it is.
    pub bytes: usize,
    /// How long it shall be.
    pub new_bytes: usize,
    /// MREMAP_ bits.
    pub flags: c_int,
    /// Where it shall be, with MREMAP_FIXED or as a hint with MREMAP_DONTUNMAP.
    pub new_address: usize,
}

/// mremap.
pub fn remap(request: RemapRequest) -> Result<usize, Errno> {
    let RemapRequest { address, bytes, new_bytes, flags, new_address } = request;
    // SAFETY: as for `map`.
    outcome(unsafe {
        libc::syscall(libc::SYS_mremap, address, bytes, new_bytes, flags, new_address)
    })
}

/// One of the mlock family, by number.
pub fn lock(call: c_long, address: usize, bytes: usize, flags: c_int) -> Result<usize, Errno> {
    // SAFETY: changes only where the pages may be.
    outcome(unsafe { libc::syscall(call, address, bytes, flags) })
}

/// Whether a descriptor is /dev/zero.
pub fn is_dev_zero(fd: c_int) -> bool {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `status` is a place for a stat.
    if unsafe { libc::fstat(fd, status.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: fstat succeeded and filled it in.
    let status = unsafe { status.assume_init() };
    status.st_mode & libc::S_IFMT == libc::S_IFCHR && status.st_rdev == libc::makedev(1, 5)
}

/// Writes one line about us to standard error.
pub fn say(message: &str) {
    let line = format!("userswap: {message}\n");
    // SAFETY: the bytes are readable. A closed standard error is not our concern.
    unsafe { libc::syscall(libc::SYS_write, 2, line.as_ptr(), line.len()) };
}

/// Ends the process without running anything of the program's.
pub fn exit_now(status: c_int) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::syscall(libc::SYS_exit_group, status) };
    unreachable!("exit_group does not return")
}
