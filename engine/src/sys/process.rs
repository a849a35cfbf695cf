//! What the engine does to its own process.
use std::io;

/// Lets others run.
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
    // This thread, not the process: that one is its main thread, which may have ended.
    // SAFETY: has no conditions.
    let this = unsafe { libc::gettid() };
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

/// Ends the process: going on would lose or damage a page.
pub fn die(what: &str, error: i32) -> ! {
    let mut digits = [0u8; 12];
    let mut place = digits.len();
    let mut left = error.unsigned_abs();
    loop {
        place -= 1;
        digits[place] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    let number = std::str::from_utf8(&digits[place..]).expect("digits are ASCII");
    say(&[what, " (errno ", number, "): stopping before a page is lost\n"]);
    // SAFETY: ends the process with a core dump, as for any broken promise.
    unsafe { libc::abort() }
}
