//! Filters of system calls (seccomp): how many a thread has, and whether they permit what `alias` does.
//!
//! A filter may kill for a call that was never made before, so a child makes them first, under the same filters. Filters
//! are inherited, and only ever added: a thread that has as many as its forebear had when that tried has the same ones.
use super::aio::Reader;
use super::alias::Alias;
use super::device_pins::value;
use super::request::Pieces;
use super::{clock, process};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};

/// How long the child may take: many times what the calls need, unless a filter has somebody else asked.
const PATIENCE_NS: u64 = 1_000_000_000;

/// Between two looks at the child.
const PAUSE_NS: i64 = 500_000;

/// The end of a child that has made all calls.
const MADE: libc::c_int = 0;

/// What /proc says of the calling thread; nothing without /proc.
pub(super) fn own_status() -> Vec<u8> {
    std::fs::read("/proc/thread-self/status").unwrap_or_default()
}

/// How many filters a thread has, by its status in /proc; None where that does not tell (before Linux 5.9).
pub(super) fn count_in(status: &[u8]) -> Option<u32> {
    match value(status, b"Seccomp:")? {
        b"0" => Some(0),
        b"2" => str::from_utf8(value(status, b"Seccomp_filters:")?).ok()?.parse().ok(),
        // Only read, write and exit are permitted.
        _ => None,
    }
}

/// The program makes filters of its own, see [`are_expected`].
static EXPECTED: AtomicBool = AtomicBool::new(false);

/// A filter of the program's comes: what it will permit nobody knows.
pub fn expect() {
    EXPECTED.store(true, Ordering::Relaxed);
}

/// Whether calls that can be done without had better not be made.
pub fn are_expected() -> bool {
    EXPECTED.load(Ordering::Relaxed)
}

/// Whether the calling thread has no filters, or as many as were tried and do no harm.
pub fn are_harmless(tried: u32) -> bool {
    count_in(&own_status()).is_some_and(|count| count == 0 || count == tried)
}

/// The filters of the calling thread, if there are any and they permit what blocks need; else 0.
///
/// Only for a process that has one thread, and no child that it waits for.
pub fn tried() -> u32 {
    match count_in(&own_status()) {
        Some(count) if count > 0 && a_child_makes_the_calls(count) => count,
        _ => 0,
    }
}

fn a_child_makes_the_calls(count: u32) -> bool {
    // SAFETY: the caller has no other thread.
    match unsafe { libc::fork() } {
        0 => {
            let made = panic::catch_unwind(|| make_the_calls(count).is_ok());
            let status = if made.unwrap_or(false) { MADE } else { !MADE };
            // SAFETY: ends the child; nothing of what it has from its parent is flushed or dropped.
            unsafe { libc::_exit(status) }
        }
        child if child > 0 => ended_well(child),
        _ => false,
    }
}

fn make_the_calls(count: u32) -> io::Result<()> {
    // A filter that kills is not to leave a core file: with a limit of one byte there is none, nor one through a pipe. A
    // process that is not dumpable could not read what the calls have done to its memory, if it is not root's.
    let limit = libc::rlimit { rlim_cur: 1, rlim_max: 1 };
    // SAFETY: reads `limit`.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const limit) };
    Alias::new(count)?;
    // A read that is slept for, of a file that Linux AIO reads: what is refused is done without.
    let (own, mut byte) = (File::open("/proc/thread-self/exe")?, 0u8);
    let _ = process::preemptions();
    if let Ok(reader) = Reader::new() {
        let pieces = Pieces::one((&raw mut byte).addr(), 1);
        let _ = reader.read((own.as_raw_fd(), 0), &pieces, 0);
    }
    Ok(())
}

/// Whether a child ends in time, and by itself.
fn ended_well(child: libc::pid_t) -> bool {
    let until = clock::now_ns() + PATIENCE_NS;
    let mut status = 0;
    loop {
        // SAFETY: the child is ours, and `status` has room.
        match unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } {
            0 if clock::now_ns() < until => pause(),
            0 => {
                // SAFETY: the child is ours, and was not waited for yet.
                unsafe { libc::kill(child, libc::SIGKILL) };
                // SAFETY: as above; it ends now.
                unsafe { libc::waitpid(child, &raw mut status, 0) };
                return false;
            }
            ended => {
                return ended == child
                    && libc::WIFEXITED(status)
                    && libc::WEXITSTATUS(status) == MADE;
            }
        }
    }
}

fn pause() {
    let pause = libc::timespec { tv_sec: 0, tv_nsec: PAUSE_NS };
    // SAFETY: reads `pause`.
    unsafe { libc::nanosleep(&raw const pause, std::ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_counted_where_the_kernel_tells() {
        let status = |mode: &str, more: &str| format!("NoNewPrivs:\t1\nSeccomp:\t{mode}\n{more}");
        let count = |mode, more| count_in(status(mode, more).as_bytes());
        assert_eq!(count("0", ""), Some(0));
        assert_eq!(count("0", "Seccomp_filters:\t0\n"), Some(0));
        assert_eq!(count("2", "Seccomp_filters:\t3\nSpeculation:\tx\n"), Some(3));
        assert_eq!(count("2", ""), None, "before Linux 5.9");
        assert_eq!(count("1", "Seccomp_filters:\t0\n"), None);
        assert_eq!(count_in(b""), None);
    }
}
