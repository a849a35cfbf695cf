//! What the engine does to its own process.
use std::io;

/// Lets other threads run first.
pub fn yield_now() {
    // SAFETY: has no effect but on scheduling.
    unsafe { libc::sched_yield() };
}

/// Copies mapped memory through the kernel, which reports what cannot be read instead of faulting.
///
/// # Errors
/// EFAULT where the memory may not be read; a short copy is an error too.
pub fn read_own(from: usize, to: usize, bytes: usize) -> io::Result<()> {
    let local = libc::iovec { iov_base: to as *mut libc::c_void, iov_len: bytes };
    let remote = libc::iovec { iov_base: from as *mut libc::c_void, iov_len: bytes };
    let this = std::process::id() as i32;
    // SAFETY: `to` is held frames of that length; the kernel checks `from`.
    let copied = unsafe { libc::process_vm_readv(this, &local, 1, &remote, 1, 0) };
    match usize::try_from(copied) {
        Ok(copied) if copied == bytes => Ok(()),
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Writes a line to standard error without allocating, for places where nothing else may be used.
pub fn say(parts: &[&str]) {
    for part in parts {
        // SAFETY: the bytes are readable for that length. A closed standard error is not our concern.
        unsafe { libc::write(2, part.as_ptr().cast(), part.len()) };
    }
}

/// A number as text in `digits`, without allocating.
pub fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &str {
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    std::str::from_utf8(&digits[first..]).expect("digits are ASCII")
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
