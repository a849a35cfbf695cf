//! Processes: fork, wait with resource usage, signals, what a child does before it executes.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::time::Duration;

/// A process id.
pub type Pid = libc::pid_t;

/// Which side of a fork this is.
#[derive(Debug)]
pub enum Fork {
    /// The new process.
    Child,
    /// The process that forked.
    Parent {
        /// The new process.
        child: Pid,
    },
}

/// Processor time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// In the program.
    pub user: Duration,
    /// In the kernel.
    pub sys: Duration,
}

impl CpuTime {
    fn of(usage: &libc::rusage) -> Self {
        Self { user: duration(usage.ru_utime), sys: duration(usage.ru_stime) }
    }
}

/// How a process ended, and what it and the children it waited for used.
#[derive(Debug)]
pub struct Waited {
    /// Its exit code or signal.
    pub status: ExitStatus,
    /// Processor time of them all.
    pub used: CpuTime,
    /// Their faults that had to wait for a device of the kernel's.
    pub major_faults: u64,
}

/// Forks; the caller must have no other threads, or the child would find their locks taken.
pub fn fork() -> io::Result<Fork> {
    // SAFETY: the callers fork before they start threads, so the child is a whole program.
    match super::check(unsafe { libc::fork() })? {
        0 => Ok(Fork::Child),
        child => Ok(Fork::Parent { child }),
    }
}

/// Waits until `pid`, a child, ends.
pub fn wait(pid: Pid) -> io::Result<Waited> {
    let mut status = 0;
    // SAFETY: rusage is plain numbers, for which zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are valid for writing during the call.
        match super::check(unsafe { libc::wait4(pid, &mut status, 0, &mut usage) }) {
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Waited {
        status: ExitStatus::from_raw(status),
        used: CpuTime::of(&usage),
        major_faults: u64::try_from(usage.ru_majflt).expect("a count is not negative"),
    })
}

/// What this process and its threads have used so far.
pub fn used_by_us() -> CpuTime {
    CpuTime::of(&crate::sys::process::used())
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).expect("used time is not negative");
    let micros = u64::try_from(time.tv_usec).expect("used time is not negative");
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

/// Sends `signal` to one process.
pub fn send(pid: Pid, signal: i32) -> io::Result<()> {
    assert!(pid > 0, "0 and negative numbers address groups");
    // SAFETY: kill has no preconditions on memory.
    super::check(unsafe { libc::kill(pid, signal) }).map(drop)
}

/// Kills every process of a process group; a group that is gone already is fine.
pub fn kill_group(leader: Pid) {
    assert!(leader > 1, "1 and below would address more than one group");
    // SAFETY: kill has no preconditions on memory.
    unsafe { libc::kill(-leader, libc::SIGKILL) };
}

/// Binds the calling thread to one CPU.
pub fn bind_to_cpu(cpu: usize) -> io::Result<()> {
    // SAFETY: cpu_set_t is plain bits, for which zeros are valid.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: CPU_SET checks its bound.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the pointer is valid for the size given.
    super::check(unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) }).map(drop)
}

/// Has the kernel kill the calling process when the thread that made it ends.
pub fn die_with_parent() -> io::Result<()> {
    // SAFETY: this prctl takes one number and touches no memory.
    super::check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) }).map(drop)
}

/// Has `command` start its child so that it dies with this thread.
pub fn tie_to_this_thread(command: &mut Command) {
    // SAFETY: the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(die_with_parent) };
}

/// Has `command` start its child inside the control group of this `cgroup.procs`.
pub fn start_inside(command: &mut Command, procs: File) {
    let join = move || {
        // "0" means the writer itself.
        // SAFETY: the file is open as long as the closure lives, the text is one valid byte.
        let written = unsafe { libc::write(procs.as_raw_fd(), c"0".as_ptr().cast(), 1) };
        if written == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(join) };
}

/// Whether this process may do what only root may.
pub fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions.
    unsafe { libc::geteuid() == 0 }
}

/// The clock ticks per second of `/proc/PID/stat`.
pub fn ticks_per_second() -> u64 {
    // SAFETY: sysconf has no preconditions.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).expect("the clock tick is known on every Linux")
}
