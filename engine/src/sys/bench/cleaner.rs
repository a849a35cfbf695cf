//! The process that cleans up after a kernel baseline, whatever becomes of its parent.
//!
//! It is forked before anything is created, holds the reading end of a pipe, and does its work when
//! the pipe closes: because the parent finished, failed, or was killed. Its parent may have
//! threads, so between fork and exit it calls nothing but async-signal-safe functions: no
//! allocation, no locks, no formatting.

use super::process::Pid;
use std::ffi::{CStr, CString};
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsRawFd, RawFd};

/// Rounds of waiting for killed processes or a busy control group, [`PAUSE_NS`] each: 20 s.
const ROUNDS_MAX: u32 = 2000;
const PAUSE_NS: i64 = 10_000_000;
/// One read of `cgroup.procs`; more members than fit are seen in the next round.
const PROCS_BYTES: usize = 4096;
/// How long the cleaner's exit status can say what is left over.
const LEFT_PROCESSES: u8 = 1;
const LEFT_SWAP: u8 = 2;
const LEFT_FILE: u8 = 4;
const LEFT_CGROUP: u8 = 8;
const LEFT_TUNING: u8 = 16;
const LEFT_DEVICE: u8 = 32;

/// What has to be gone in the end; each may be missing already.
#[derive(Debug)]
pub struct Remains {
    /// The kernel's swap file or device.
    pub swap_file: CString,
    /// How it goes.
    pub removal: Removal,
    /// The directory of the control group.
    pub cgroup: CString,
    /// `cgroup.procs` below `cgroup`.
    pub procs: CString,
    /// Files of the kernel's tuning, and what has to be in each again.
    pub tuned: Vec<(CString, Vec<u8>)>,
}

/// How a swap file or device goes when nothing is on it any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    /// Its name is removed.
    Unlink,
    /// The number of the device is written to a file of the kernel's.
    Write {
        /// That file.
        file: CString,
        /// That number.
        number: CString,
    },
}

/// What could not be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeftOver(u8);

impl LeftOver {
    /// All is gone.
    pub const NOTHING: Self = Self(0);

    /// Reads the exit status of a cleaner.
    pub fn from_exit_code(code: i32) -> Self {
        Self(u8::try_from(code).unwrap_or(u8::MAX))
    }

    /// What is left, in words.
    pub fn describe(self) -> Vec<&'static str> {
        let names = [
            (LEFT_PROCESSES, "processes in the control group"),
            (LEFT_SWAP, "the swap file in use"),
            (LEFT_FILE, "the swap file"),
            (LEFT_CGROUP, "the control group"),
            (LEFT_TUNING, "another setting of the kernel (vm.page-cluster, or those of zswap)"),
            (LEFT_DEVICE, "the swap device"),
        ];
        names.into_iter().filter(|(bit, _)| self.0 & bit != 0).map(|(_, name)| name).collect()
    }
}

/// Forks the cleaner; the child never returns from here.
pub fn start(remains: &Remains, reader: PipeReader, writer: &PipeWriter) -> io::Result<Pid> {
    // SAFETY: the child runs `serve` only, which is async-signal-safe and does not return.
    let child = super::check(unsafe { libc::fork() })?;
    if child != 0 {
        return Ok(child);
    }
    close(writer.as_raw_fd());
    serve(remains, reader.as_raw_fd())
}

fn serve(remains: &Remains, pipe: RawFd) -> ! {
    // SAFETY: a fresh child is no group leader, so this gives it its own session.
    unsafe { libc::setsid() };
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE] {
        // SAFETY: ignoring a signal installs no code.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    // SAFETY: the name is a valid C string of less than 16 bytes.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"userswap-clean".as_ptr()) };
    keep_only(pipe);
    wait_for_close(pipe);
    let left = clean(remains);
    // SAFETY: _exit leaves the parent's exit handlers alone.
    unsafe { libc::_exit(i32::from(left.0)) }
}

/// Closes every file but `pipe`: a cleaner that held its parent's output open would keep the reader
/// of that output waiting.
fn keep_only(pipe: RawFd) {
    let last = libc::c_uint::MAX;
    let kept = libc::c_uint::try_from(pipe).expect("an open file has no negative number");
    if kept > 0 {
        close_range(0, kept - 1);
    }
    close_range(kept + 1, last);
}

fn close_range(first: libc::c_uint, last: libc::c_uint) {
    // SAFETY: the child owns its descriptor table and uses none of these any more.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}

fn close(file: RawFd) {
    // SAFETY: only the forked child closes its copy, and it never uses it again.
    unsafe { libc::close(file) };
}

fn wait_for_close(pipe: RawFd) {
    let mut byte = 0u8;
    loop {
        // SAFETY: the buffer is one valid byte.
        let read = unsafe { libc::read(pipe, (&raw mut byte).cast(), 1) };
        if read == 0 || (read < 0 && errno() != libc::EINTR) {
            return;
        }
    }
}

/// Removes what is there: members, swap, file, group, in this order, because swapoff is quick only
/// when no pages are in it. Async-signal-safe.
pub fn clean(remains: &Remains) -> LeftOver {
    let mut left = 0;
    for (file, before) in &remains.tuned {
        if !restore(file, before) {
            left |= LEFT_TUNING;
        }
    }
    if !kill_members(&remains.procs) {
        left |= LEFT_PROCESSES;
    }
    if !swapoff(&remains.swap_file) {
        left |= LEFT_SWAP;
    }
    left |= match &remains.removal {
        Removal::Unlink if !unlink(&remains.swap_file) => LEFT_FILE,
        Removal::Write { file, number } if !remove_device(file, number) => LEFT_DEVICE,
        _ => 0,
    };
    if !remove_cgroup(&remains.cgroup) {
        left |= LEFT_CGROUP;
    }
    LeftOver(left)
}

fn unlink(file: &CStr) -> bool {
    // SAFETY: the path is a valid C string.
    let unlinked = unsafe { libc::unlink(file.as_ptr()) };
    unlinked == 0 || errno() == libc::ENOENT
}

fn remove_device(file: &CStr, number: &CStr) -> bool {
    for _ in 0..ROUNDS_MAX {
        if restore(file, number.to_bytes()) {
            return true;
        }
        // Busy as long as somebody, such as a daemon that looks at new devices, has it open.
        pause();
    }
    false
}

/// Writes what a file of the kernel's is to have in it.
fn restore(file: &CStr, before: &[u8]) -> bool {
    // SAFETY: the path is a valid C string.
    let file = unsafe { libc::open(file.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) };
    if file < 0 {
        return false;
    }
    // SAFETY: the bytes are valid for the length given.
    let written = unsafe { libc::write(file, before.as_ptr().cast(), before.len()) };
    close(file);
    usize::try_from(written) == Ok(before.len())
}

fn kill_members(procs: &CStr) -> bool {
    for _ in 0..ROUNDS_MAX {
        match kill_listed(procs) {
            0 => return true,
            _ => pause(),
        }
    }
    false
}

/// Kills the members of one reading of `cgroup.procs` and returns their number.
fn kill_listed(procs: &CStr) -> usize {
    let mut text = [0u8; PROCS_BYTES];
    // SAFETY: the path is a valid C string.
    let file = unsafe { libc::open(procs.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if file < 0 {
        return 0;
    }
    // SAFETY: the buffer is valid for the length given.
    let read = unsafe { libc::read(file, text.as_mut_ptr().cast(), text.len()) };
    close(file);
    let text = &text[..usize::try_from(read).unwrap_or(0)];
    // A last line without its end may be half a number.
    let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    let mut members = 0;
    for line in text[..whole].split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        let pid = line.iter().fold(0, |pid: Pid, &digit| {
            pid.wrapping_mul(10).wrapping_add(Pid::from(digit.wrapping_sub(b'0')))
        });
        if pid > 1 {
            // SAFETY: kill has no preconditions on memory.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            members += 1;
        }
    }
    members
}

fn swapoff(file: &CStr) -> bool {
    for _ in 0..ROUNDS_MAX {
        // SAFETY: the path is a valid C string.
        if unsafe { libc::swapoff(file.as_ptr()) } == 0 {
            return true;
        }
        match errno() {
            // Never swapped on, or not even made.
            libc::EINVAL | libc::ENOENT => return true,
            libc::EINTR | libc::ENOMEM => pause(),
            _ => return false,
        }
    }
    false
}

fn remove_cgroup(directory: &CStr) -> bool {
    for _ in 0..ROUNDS_MAX {
        // SAFETY: the path is a valid C string.
        if unsafe { libc::rmdir(directory.as_ptr()) } == 0 || errno() == libc::ENOENT {
            return true;
        }
        // Busy until the last killed member has been reaped.
        pause();
    }
    false
}

fn pause() {
    let time = libc::timespec { tv_sec: 0, tv_nsec: PAUSE_NS };
    // SAFETY: the pointer is valid, and the remainder is not asked for.
    unsafe { libc::nanosleep(&time, std::ptr::null_mut()) };
}

fn errno() -> libc::c_int {
    // SAFETY: the location is the calling thread's own.
    let location = unsafe { libc::__errno_location() };
    // SAFETY: the location is valid for the life of the thread.
    unsafe { *location }
}
