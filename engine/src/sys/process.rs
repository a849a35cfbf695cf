//! What the engine does to its own process.
use super::device_pins;
use super::file_limit;
use super::own_fd::Own;
use std::io;
use std::os::fd::RawFd;

/// Lets other threads run first.
pub fn yield_now() {
    // SAFETY: has no effect but on scheduling.
    unsafe { libc::sched_yield() };
}

/// The end of the heap that grows after the executable (brk).
pub fn program_break() -> usize {
    // SAFETY: zero changes nothing. The raw system call takes the C library's record of it as it is.
    unsafe { libc::syscall(libc::SYS_brk, 0) as usize }
}

/// A number that is different in every process; 0 where the program asks for the same addresses each time
/// (setarch -R, debuggers), and where the kernel has no randomness yet.
pub fn random_of_addresses() -> u64 {
    const ASK: libc::c_ulong = 0xFFFF_FFFF;
    // SAFETY: this value asks and changes nothing.
    let persona = unsafe { libc::personality(ASK) };
    let mut random = 0u64;
    if persona & libc::ADDR_NO_RANDOMIZE == 0 {
        let (to, bytes) = (&raw mut random, size_of::<u64>());
        // SAFETY: `random` has room for it. The raw system call passes by an interposed getrandom.
        unsafe { libc::syscall(libc::SYS_getrandom, to, bytes, libc::GRND_NONBLOCK) };
    }
    random
}

/// Reads exactly `bytes` bytes at `offset` of a file into memory of the caller's at `to`.
///
/// # Errors
/// The error number; EIO for a short read.
pub fn read_at(fd: RawFd, offset: usize, to: usize, bytes: usize) -> Result<(), i32> {
    // SAFETY: `to` is the caller's, of that length. The raw system call passes by an interposed pread.
    let read = unsafe { libc::syscall(libc::SYS_pread64, fd, to, bytes, offset) };
    match usize::try_from(read) {
        Ok(read) if read == bytes => Ok(()),
        Ok(_) => Err(libc::EIO),
        Err(_) => Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)),
    }
}

/// Writes a number to a file that takes one.
///
/// # Errors
/// The error number; EIO for a short write.
pub fn write_word(fd: RawFd, word: i32) -> Result<(), i32> {
    // SAFETY: `word` is four readable bytes. The raw system call passes by an interposed write.
    let written = unsafe { libc::syscall(libc::SYS_write, fd, &raw const word, size_of::<i32>()) };
    match written {
        4 => Ok(()),
        0.. => Err(libc::EIO),
        _ => Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)),
    }
}

/// Whether the kernel may merge any page of the process with one of the same content (KSM).
pub fn merges_memory() -> bool {
    const PR_GET_MEMORY_MERGE: libc::c_int = 68;
    // SAFETY: only asks. The raw system call passes by an interposed one.
    unsafe { libc::syscall(libc::SYS_prctl, PR_GET_MEMORY_MERGE, 0, 0, 0, 0) == 1 }
}

/// Reads from the start of a file as much as fits and comes at once; None when it cannot be read.
pub fn read_some(fd: RawFd, to: &mut [u8]) -> Option<usize> {
    read_part(fd, 0, to).ok()
}

/// Reads the whole of a file that grows meanwhile, or shrinks.
///
/// # Errors
/// What the system says.
pub fn read_all(fd: RawFd) -> io::Result<Vec<u8>> {
    let (mut all, mut part) = (Vec::new(), [0u8; super::PAGE_BYTES]);
    loop {
        match read_part(fd, all.len(), &mut part)? {
            0 => return Ok(all),
            bytes => all.extend_from_slice(&part[..bytes]),
        }
    }
}

/// As [`read_all`], to memory that is there; None if it is too little, or the file cannot be read. Allocates nothing.
pub fn read_all_to(fd: RawFd, to: &mut [u8]) -> Option<usize> {
    let mut all = 0;
    while all < to.len() {
        match read_part(fd, all, &mut to[all..]).ok()? {
            0 => return Some(all),
            bytes => all += bytes,
        }
    }
    None
}

fn read_part(fd: RawFd, offset: usize, to: &mut [u8]) -> io::Result<usize> {
    let (part, bytes) = (to.as_mut_ptr(), to.len());
    // SAFETY: the slice is the caller's. The raw system call passes by an interposed pread.
    let read = unsafe { libc::syscall(libc::SYS_pread64, fd, part, bytes, offset) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

/// Bytes of RAM that the process has, but for those of files and shared memory; None without /proc. Allocates nothing.
pub fn anonymous_bytes() -> Option<u64> {
    // Pages in the address space, in RAM, and of those the ones of files and shared memory; then others.
    let mut text = [0u8; 128];
    let file = Own::raised(std::fs::File::open("/proc/thread-self/statm").ok()?);
    let bytes = std::os::unix::fs::FileExt::read_at(&*file, &mut text, 0).ok()?;
    let mut fields = std::str::from_utf8(&text[..bytes]).ok()?.split(' ').skip(1);
    let mut next = || fields.next()?.parse::<u64>().ok();
    let (resident, shared) = (next()?, next()?);
    Some(resident.saturating_sub(shared) * super::PAGE_BYTES as u64)
}

/// The most bytes of RAM that the process ever had, but for those that files and shared memory have now, of its code all; None
/// without /proc. Allocates nothing.
pub fn most_anonymous_bytes() -> Option<u64> {
    let [most, code, libraries, files, shared] =
        kib([b"VmHWM:", b"VmExe:", b"VmLib:", b"RssFile:", b"RssShmem:"])?;
    let others = files.max(code + libraries) + shared;
    Some(most.saturating_sub(others) * 1024)
}

/// Bytes of shared memory in RAM (memfd, tmpfs, System V) that the process has mapped, where it is mapped twice twice; None
/// without /proc. Allocates nothing.
pub fn shared_memory_bytes() -> Option<u64> {
    kib([b"RssShmem:"]).map(|[shared]| shared * 1024)
}

/// Rows of /proc/self/status, in KiB.
fn kib<const N: usize>(names: [&[u8]; N]) -> Option<[u64; N]> {
    let mut text = [0u8; 2048];
    let file = std::fs::File::open("/proc/thread-self/status").ok()?;
    let bytes = std::os::unix::fs::FileExt::read_at(&file, &mut text, 0).ok()?;
    let mut rows = [0; N];
    for (row, name) in rows.iter_mut().zip(names) {
        *row = device_pins::kib(&text[..bytes], name)? as u64;
    }
    Some(rows)
}

/// Faults of this process for which nothing was read, copies of shared pages among them.
pub fn minor_faults() -> u64 {
    used().ru_minflt as u64
}

/// CPU time of all threads so far.
pub struct CpuTime {
    /// All of it.
    pub all_ms: u64,
    /// Of it, outside the kernel.
    pub user_ms: u64,
}

/// Asks the kernel for it.
pub fn cpu_time() -> CpuTime {
    let usage = used();
    let ms = |time: libc::timeval| time.tv_sec as u64 * 1000 + time.tv_usec as u64 / 1000;
    let user_ms = ms(usage.ru_utime);
    CpuTime { all_ms: user_ms + ms(usage.ru_stime), user_ms }
}

/// CPUs that the process may use, at least one. Opens no file: one that is opened here would go through the program's calls.
pub fn usable_cpus() -> u32 {
    let mut mask = [0u64; 1024];
    // SAFETY: the mask is as long as said.
    let bytes = unsafe {
        libc::syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&mask), mask.as_mut_ptr())
    };
    // The kernel fills so many bytes of it; it has no other error than a mask too short for it.
    let filled = bytes.max(0) as usize / size_of::<u64>();
    mask[..filled].iter().map(|word| word.count_ones()).sum::<u32>().max(1)
}

/// The program and its arguments, as much of them as `bytes` hold; empty without /proc.
pub fn command_line(bytes: usize) -> String {
    let text = std::fs::read("/proc/thread-self/cmdline").unwrap_or_default();
    let text = String::from_utf8_lossy(&text[..text.len().min(bytes)]).replace('\0', " ");
    text.trim_end().to_owned()
}

/// What is mapped in this process, as the kernel writes it; empty without /proc.
pub fn mappings() -> String {
    // A name may be of any bytes.
    String::from_utf8_lossy(&std::fs::read("/proc/thread-self/maps").unwrap_or_default())
        .into_owned()
}

/// Times that the kernel has taken the CPU away from this thread for other work.
pub fn preemptions() -> u64 {
    used_by(libc::RUSAGE_THREAD).ru_nivcsw as u64
}

/// What this process and its threads have used so far.
pub(super) fn used() -> libc::rusage {
    used_by(libc::RUSAGE_SELF)
}

fn used_by(of: libc::c_int) -> libc::rusage {
    let mut usage = std::mem::MaybeUninit::zeroed();
    // SAFETY: the structure is as large as the call writes.
    unsafe { libc::getrusage(of, usage.as_mut_ptr()) };
    // SAFETY: it is all numbers, and zero where the call has written none.
    unsafe { usage.assume_init() }
}

/// The longest line that is written in one piece.
const LINE_BYTES: usize = 512;

/// Writes a line to standard error without allocating, for places where nothing else may be used. In one piece, so that
/// the lines of two threads do not mix; a very long one in several.
pub fn say(parts: &[&str]) {
    let (mut line, mut length) = ([0u8; LINE_BYTES], 0);
    for byte in parts.iter().flat_map(|part| part.bytes()) {
        if length == LINE_BYTES {
            write_error(&line);
            length = 0;
        }
        line[length] = byte;
        length += 1;
    }
    write_error(&line[..length]);
}

fn write_error(text: &[u8]) {
    // SAFETY: the bytes are readable for that length. A closed standard error is not our concern.
    file_limit::tell(|| unsafe { libc::syscall(libc::SYS_write, 2, text.as_ptr(), text.len()) });
}

/// What is in force of one of the process's limits (`RLIMIT_…`), in its unit; u64::MAX where there is none.
pub fn limit_in_force(resource: libc::__rlimit_resource_t) -> u64 {
    let mut found = libc::rlimit { rlim_cur: u64::MAX, rlim_max: u64::MAX };
    let (own, nothing) = (0, std::ptr::null::<libc::rlimit>());
    // SAFETY: `found` is a buffer for the answer. The raw system call passes by an interposed one.
    unsafe { libc::syscall(libc::SYS_prlimit64, own, resource, nothing, &raw mut found) };
    found.rlim_cur
}

/// A number as text in `digits`, without allocating.
pub fn decimal(number: u64, digits: &mut [u8; 20]) -> &str {
    let first = write_digits(number, 10, digits);
    std::str::from_utf8(&digits[first..]).expect("digits are ASCII")
}

/// An address as text in `digits`, with 0x before it, without allocating.
pub fn hexadecimal(number: usize, digits: &mut [u8; 20]) -> &str {
    let first = write_digits(number as u64, 16, digits) - 2;
    digits[first..first + 2].copy_from_slice(b"0x");
    std::str::from_utf8(&digits[first..]).expect("digits are ASCII")
}

/// Writes a number to the end of `digits`; returns where it begins there.
fn write_digits(mut number: u64, base: u64, digits: &mut [u8; 20]) -> usize {
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b"0123456789abcdef"[(number % base) as usize];
        number /= base;
        if number == 0 {
            return first;
        }
    }
}

/// Ends the process: going on would lose or damage a page.
pub fn die(what: &str, error: i32) -> ! {
    let mut digits = [0; 20];
    let number = decimal(u64::from(error.unsigned_abs()), &mut digits);
    say(&[what, " (errno ", number, "): stopping before a page is lost\n"]);
    abort()
}

/// Ends the process with SIGABRT and a core dump, as for any broken promise.
pub fn abort() -> ! {
    // SAFETY: does not return, and runs nothing of the program but a handler it has for SIGABRT.
    unsafe { libc::abort() }
}
