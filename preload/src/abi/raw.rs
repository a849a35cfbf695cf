//! The kernel's memory calls themselves, past everything that is interposed, ourselves included.
use super::system_call::{call, make};
use libc::{c_int, c_long};
use std::mem::MaybeUninit;
use userswap::internals::file_limit;

/// An error number, as in errno.
pub type Errno = c_int;

/// Consecutive bytes of the address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    pub address: usize,
    pub bytes: usize,
}

impl Span {
    /// What lies from a pointer on.
    pub fn of<T>(pointer: *const T, bytes: usize) -> Self {
        Self { address: pointer as usize, bytes }
    }
}

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
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: errno is this thread's own.
    unsafe { errno.read() }
}

/// Sets this thread's errno.
pub fn set_errno(error: Errno) {
    // SAFETY: has no conditions.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: errno is this thread's own.
    unsafe { errno.write(error) };
}

/// What a mapping is asked to be.
#[derive(Clone, Copy, Debug)]
pub struct MapRequest {
    /// Where, or a hint.
    pub address: usize,
    pub bytes: usize,
    /// PROT_ bits.
    pub protection: c_int,
    /// MAP_ bits.
    pub flags: c_int,
    pub fd: c_int,
    /// In the file, in bytes.
    pub offset: i64,
}

/// mmap.
pub fn map(request: MapRequest) -> Result<usize, Errno> {
    let MapRequest { address, bytes, protection, flags, fd, offset } = request;
    // SAFETY: passed through for the program, or for a range of the arena that the caller owns.
    outcome(unsafe { call!(libc::SYS_mmap, address, bytes, protection, flags, fd, offset) })
}

/// Maps memory for a stack, past all management; an address.
pub fn map_stack(bytes: usize) -> Result<usize, Errno> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    map(MapRequest { address: 0, bytes, protection, flags, fd: -1, offset: 0 })
}

/// munmap.
pub fn unmap(Span { address, bytes }: Span) -> Result<usize, Errno> {
    // SAFETY: as for `map`.
    outcome(unsafe { call!(libc::SYS_munmap, address, bytes) })
}

/// mprotect.
pub fn protect(Span { address, bytes }: Span, protection: c_int) -> Result<usize, Errno> {
    // SAFETY: as for `map`.
    outcome(unsafe { call!(libc::SYS_mprotect, address, bytes, protection) })
}

/// pkey_mprotect: mprotect that gives a protection key too; 0 is every thread's.
pub fn protect_keyed(
    Span { address, bytes }: Span,
    protection: c_int,
    key: c_int,
) -> Result<usize, Errno> {
    // SAFETY: as for `map`.
    outcome(unsafe { call!(libc::SYS_pkey_mprotect, address, bytes, protection, key) })
}

/// madvise.
pub fn advise(Span { address, bytes }: Span, advice: c_int) -> Result<usize, Errno> {
    // SAFETY: as for `map`.
    outcome(unsafe { call!(libc::SYS_madvise, address, bytes, advice) })
}

/// mseal, of which no C library of today has a function.
pub fn seal(Span { address, bytes }: Span, flags: usize) -> Result<usize, Errno> {
    // SAFETY: it changes no memory.
    outcome(unsafe { call!(libc::SYS_mseal, address, bytes, flags) })
}

/// mincore.
pub fn in_core(Span { address, bytes }: Span, vector: *mut u8) -> Result<usize, Errno> {
    // SAFETY: the kernel checks the vector.
    outcome(unsafe { call!(libc::SYS_mincore, address, bytes, vector) })
}

/// What mremap is asked for.
#[derive(Clone, Copy, Debug)]
pub struct RemapRequest {
    pub address: usize,
    pub bytes: usize,
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
    outcome(unsafe { call!(libc::SYS_mremap, address, bytes, new_bytes, flags, new_address) })
}

/// mlock, mlock2 or munlock, by number.
pub fn lock(call: c_long, Span { address, bytes }: Span, flags: c_int) -> Result<usize, Errno> {
    // SAFETY: changes only where the pages may be.
    outcome(unsafe { call!(call, address, bytes, flags) })
}

/// mlockall.
pub fn lock_all(flags: c_int) -> Result<usize, Errno> {
    // SAFETY: as for `lock`.
    outcome(unsafe { call!(libc::SYS_mlockall, flags) })
}

/// munlockall.
pub fn unlock_all() -> Result<usize, Errno> {
    // SAFETY: as for `lock`.
    outcome(unsafe { call!(libc::SYS_munlockall) })
}

fn status_of(fd: c_int) -> Option<libc::stat> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `status` has room for a stat.
    if unsafe { libc::fstat(fd, status.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: fstat succeeded and filled it in.
    Some(unsafe { status.assume_init() })
}

/// Whether two descriptors are of one file, as far as files have numbers there.
pub fn is_same_file(one: c_int, other: c_int) -> bool {
    let number = |fd| status_of(fd).map(|status| (status.st_dev, status.st_ino));
    number(one).is_some_and(|one| Some(one) == number(other))
}

/// Whether a descriptor of a process is a file with a number (pidfs, Linux 6.9).
pub fn is_in_pidfs(fd: c_int) -> bool {
    const MAGIC: i64 = 0x5049_4446;
    let mut status = MaybeUninit::<libc::statfs>::zeroed();
    let room = status.as_mut_ptr().addr();
    let found = make(libc::SYS_fstatfs, [fd as usize, room, 0, 0, 0, 0]) == 0;
    // SAFETY: numbers, which are zero where the kernel has not filled them in.
    found && unsafe { status.assume_init() }.f_type == MAGIC
}

/// Whether a descriptor is /dev/zero.
pub fn is_dev_zero(fd: c_int) -> bool {
    status_of(fd).is_some_and(|status| {
        status.st_mode & libc::S_IFMT == libc::S_IFCHR && status.st_rdev == libc::makedev(1, 5)
    })
}

/// Copies memory of this process's, as much of it as can be read; how many bytes.
pub fn read_memory(address: usize, to: &mut [u8]) -> usize {
    let from = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: to.len() };
    let to = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let (call, process) = (libc::SYS_process_vm_readv, std::process::id());
    // SAFETY: `to` is written to, as far as the kernel can read what is asked for.
    let read = unsafe { call!(call, process, &raw const to, 1, &raw const from, 1, 0) };
    outcome(read).unwrap_or(0)
}

/// Whether what is read by a descriptor never makes the caller wait for more: a file, a disk, or what the kernel makes bytes for.
/// Leaves errno.
pub fn never_waits(fd: c_int) -> bool {
    status_of(fd).is_some_and(|status| match status.st_mode & libc::S_IFMT {
        libc::S_IFREG | libc::S_IFBLK => true,
        libc::S_IFCHR => Driver::of(status.st_rdev) == Driver::Memory,
        _ => false,
    })
}

/// What is behind a character device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Driver {
    /// The kernel's null, zero, full, random and urandom.
    Memory,
    Terminal,
    /// One of its own rules; a call can be a message there, as with /dev/fuse.
    Other,
}

impl Driver {
    /// By the numbers in the kernel's Documentation/admin-guide/devices.txt.
    fn of(device: libc::dev_t) -> Self {
        match (libc::major(device), libc::minor(device)) {
            (1, 3 | 5 | 7..=9) => Self::Memory,
            (4 | 5 | 136..=143 | 166 | 188, _) => Self::Terminal,
            _ => Self::Other,
        }
    }
}

/// Whether bytes by a descriptor have no bounds but their order, so that a call may move fewer: a file, a pipe, a disk, or a stream's
/// socket. Leaves errno.
pub fn is_of_bytes(fd: c_int) -> bool {
    status_of(fd).is_some_and(|status| match status.st_mode & libc::S_IFMT {
        libc::S_IFREG | libc::S_IFIFO | libc::S_IFBLK => true,
        libc::S_IFSOCK => !has_messages(fd),
        _ => false,
    })
}

/// Whether what one call transfers by a descriptor is a message of its own: by a socket that is no stream's, or a driver that may
/// have such. Leaves errno.
pub fn has_messages(fd: c_int) -> bool {
    let (mut kind, mut bytes): (c_int, _) = (0, size_of::<c_int>() as libc::socklen_t);
    let [level, name] = [libc::SOL_SOCKET, libc::SO_TYPE].map(|number| number as usize);
    let (value, length) = (&raw mut kind as usize, &raw mut bytes as usize);
    let result = make(libc::SYS_getsockopt, [fd as usize, level, name, value, length, 0]);
    if result == 0 { kind != libc::SOCK_STREAM } else { is_drivers_own(fd) }
}

/// Whether a descriptor is a character device that may have rules of its own. Leaves errno.
pub fn is_drivers_own(fd: c_int) -> bool {
    status_of(fd).is_some_and(|status| {
        status.st_mode & libc::S_IFMT == libc::S_IFCHR
            && Driver::of(status.st_rdev) == Driver::Other
    })
}

/// Whom the process is started by, and acts as: users, or groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    pub real: u32,
    pub effective: u32,
}

/// The process's users.
pub fn users() -> Identity {
    let (mut real, mut effective, mut saved) = (0, 0, 0);
    // SAFETY: three places for numbers.
    unsafe { libc::getresuid(&raw mut real, &raw mut effective, &raw mut saved) };
    Identity { real, effective }
}

/// The process's groups.
pub fn groups() -> Identity {
    let (mut real, mut effective, mut saved) = (0, 0, 0);
    // SAFETY: three places for numbers.
    unsafe { libc::getresgid(&raw mut real, &raw mut effective, &raw mut saved) };
    Identity { real, effective }
}

/// Writes one line about us to standard error, without allocating, as one write.
pub fn say_bytes(message: &[u8]) {
    let parts = [&b"userswap: "[..], message, b"\n"].map(std::io::IoSlice::new);
    // SAFETY: the parts are readable. A closed standard error is not our concern.
    file_limit::tell(|| unsafe { call!(libc::SYS_writev, 2, parts.as_ptr(), parts.len()) });
}

/// Writes one line about us to standard error.
pub fn say(message: &str) {
    let line = format!("userswap: {message}\n");
    // SAFETY: the bytes are readable. A closed standard error is not our concern.
    file_limit::tell(|| unsafe { call!(libc::SYS_write, 2, line.as_ptr(), line.len()) });
}

/// Writes a line about us without allocating, and ends the process.
pub fn stop(line: &str) -> ! {
    let parts = ["userswap: ", line];
    for part in parts {
        // SAFETY: the bytes are readable. A closed standard error is not our concern.
        file_limit::tell(|| unsafe { call!(libc::SYS_write, 2, part.as_ptr(), part.len()) });
    }
    exit_now(1)
}

/// Ends the process without running anything of the program's.
pub fn exit_now(status: c_int) -> ! {
    // SAFETY: ends the process.
    unsafe { call!(libc::SYS_exit_group, status) };
    unreachable!("exit_group does not return")
}
