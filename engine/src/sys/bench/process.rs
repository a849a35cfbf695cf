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

/// Forks; the caller must have no other threads, or the child would find their locks taken, unless the child does only what
/// misses none of them.
pub fn fork() -> io::Result<Fork> {
    // SAFETY: the child is a whole program, or does not miss what it lacks.
    match super::check(unsafe { libc::fork() })? {
        0 => Ok(Fork::Child),
        child => Ok(Fork::Parent { child }),
    }
}

/// Waits until `pid`, a child, ends.
pub fn wait(pid: Pid) -> io::Result<Waited> {
    wait_for(pid).map(|(_, waited)| waited)
}

/// Waits until any child ends, and says which.
pub fn wait_any() -> io::Result<(Pid, Waited)> {
    wait_for(-1)
}

fn wait_for(pid: Pid) -> io::Result<(Pid, Waited)> {
    let mut status = 0;
    // SAFETY: rusage is plain numbers, for which zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let ended = loop {
        // SAFETY: both pointers are valid for writing during the call.
        match super::check(unsafe { libc::wait4(pid, &mut status, 0, &mut usage) }) {
            Ok(ended) => break ended,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    };
    let waited = Waited {
        status: ExitStatus::from_raw(status),
        used: CpuTime::of(&usage),
        major_faults: u64::try_from(usage.ru_majflt).expect("a count is not negative"),
    };
    Ok((ended, waited))
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

/// Ends this process without running what was left for its end.
pub fn end(code: i32) -> ! {
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(code) }
}

/// Has SIGALRM end this process in so many seconds; how many were left of the last time.
pub fn alarm(seconds: u32) -> u32 {
    // SAFETY: sets a timer of this process.
    unsafe { libc::alarm(seconds) }
}

/// Sets a variable of the environment, which no other thread reads or writes meanwhile.
pub fn set_variable(name: &str, value: &str) {
    // SAFETY: see above; the caller keeps to it.
    unsafe { std::env::set_var(name, value) };
}

/// Ignores a signal.
pub fn ignore(signal: i32) {
    // SAFETY: ignoring a signal installs no code.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// Has `handler`, which does what a handler may, called each time this process has used so much more CPU time; zero ends that.
pub fn interrupt(handler: extern "C" fn(i32), every: Duration) -> io::Result<()> {
    if every.is_zero() {
        // One that is already on its way is ignored.
        ignore(libc::SIGVTALRM);
    } else {
        // SAFETY: see above.
        unsafe { libc::signal(libc::SIGVTALRM, handler as *const () as usize) };
    }
    let tv_usec = libc::suseconds_t::try_from(every.as_micros()).map_err(io::Error::other)?;
    let time = libc::timeval { tv_sec: 0, tv_usec };
    let timer = libc::itimerval { it_interval: time, it_value: time };
    // SAFETY: a valid structure, and none for the old one.
    let set = unsafe { libc::setitimer(libc::ITIMER_VIRTUAL, &timer, std::ptr::null_mut()) };
    super::check(set).map(drop)
}

/// Takes this process's rights away: all its threads are another user's from here on.
pub fn become_user(id: u32) -> io::Result<()> {
    // SAFETY: setresuid has no preconditions on memory.
    super::check(unsafe { libc::setresuid(id, id, id) }).map(drop)
}

/// Whether a descriptor of this process is another process's under the same number: the same open file, not only the same path.
pub fn shares_descriptor(process: Pid, number: i32) -> io::Result<bool> {
    const KCMP_FILE: i32 = 0;
    let this = std::process::id();
    // SAFETY: compares two descriptors by number.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, this, process, KCMP_FILE, number, number) };
    if order < 0 { Err(io::Error::last_os_error()) } else { Ok(order == 0) }
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
