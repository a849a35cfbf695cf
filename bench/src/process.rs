//! Runs one load to its end and says what it took.
//!
//! A load is a process group of its own, which dies with this thread and with an interrupting
//! signal. Where only the part after a signal, or between two, is to be measured, they are sent from here; what is
//! looked at meanwhile is in `watch`.

use crate::faults::Faults;
use crate::interrupt::{Interrupt, Interrupted};
use crate::usemem::WAITING_MARK;
use crate::watch::{Seen, Watch, Watching};
use serde::Serialize;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thiserror::Error;
use userswap::internals::bench::process::{self as sys, CpuTime, Pid};

/// A load that has ended.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// From its start, or from its signal, to its exit.
    pub wall: Duration,
    /// User time of the process and all its descendants that were waited for.
    pub user: Duration,
    /// System time of the same.
    pub sys: Duration,
    /// Faults of the same that had to wait for a device; none where nobody counted them.
    pub major_faults: Option<u64>,
    /// What was seen while it ran, where somebody looked.
    pub(crate) seen: Option<Seen>,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
}

/// What a run took, as every report has it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Figures {
    pub(crate) wall_s: f64,
    pub(crate) user_s: f64,
    pub(crate) sys_s: f64,
    /// Faults that had to wait for a device, where somebody counted them.
    pub(crate) major_faults: Option<u64>,
}

impl Finished {
    /// The figures of a report.
    pub(crate) fn figures(&self) -> Figures {
        Figures {
            wall_s: self.wall.as_secs_f64(),
            user_s: self.user.as_secs_f64(),
            sys_s: self.sys.as_secs_f64(),
            major_faults: self.major_faults,
        }
    }
}

/// Names the binary that has the verbs `run`, `bench` and `usemem`, when it is not the running one.
const EXE_VARIABLE: &str = "USERSWAP_BENCH_EXE";

/// The program that loads are started with.
pub(crate) fn own_program() -> io::Result<PathBuf> {
    match std::env::var_os(EXE_VARIABLE) {
        Some(path) => Ok(PathBuf::from(path)),
        None => std::env::current_exe(),
    }
}

/// Why a load has no figures.
#[derive(Debug, Error)]
pub enum RunError {
    /// The program could not be executed.
    #[error("cannot start {program}: {source}")]
    Start {
        /// The program as it was given.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// A signal asked this process to stop, and the load was killed.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// The load ended well, but never waited for the signal that starts the measured part.
    #[error("the load ended without waiting for its signal")]
    NeverWaited,
    /// A system call of the measuring process failed.
    #[error("cannot follow the load: {0}")]
    System(#[from] io::Error),
}

/// Which part of a load is measured. SIGUSR1 is sent whenever so many tasks wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    AfterSignal {
        waiters: usize,
    },
    /// Up to the moment at which the tasks wait again.
    BetweenSignals {
        waiters: usize,
    },
}

impl Part {
    fn waiters(self) -> usize {
        match self {
            Self::Whole => 0,
            Self::AfterSignal { waiters } | Self::BetweenSignals { waiters } => waiters,
        }
    }

    fn signals(self) -> usize {
        match self {
            Self::Whole => 0,
            Self::AfterSignal { .. } => 1,
            Self::BetweenSignals { .. } => 2,
        }
    }

    /// Where this part of a load begins and ends. One that failed before its marks has no figures; the caller shows
    /// why.
    fn bounds(self, start: Mark, marks: &[Mark], end: Mark) -> (Mark, Mark) {
        let begin = if self == Self::Whole { start } else { end };
        (marks.first().copied().unwrap_or(begin), marks.get(1).copied().unwrap_or(end))
    }
}

/// How a load is followed.
#[derive(Debug, Clone)]
pub(crate) struct Course {
    pub(crate) part: Part,
    pub(crate) faults: Arc<Faults>,
    pub(crate) watch: Option<Watch>,
}

impl Course {
    /// With the kernel's count of major faults, and nobody looking.
    pub(crate) fn new(part: Part) -> Self {
        Self { part, faults: Arc::new(Faults::Kernel), watch: None }
    }
}

/// What a load had used at a moment.
#[derive(Debug, Clone, Copy)]
struct Mark {
    at: Instant,
    used: CpuTime,
    major_faults: Option<u64>,
}

impl Mark {
    fn faults_since(&self, begin: &Mark) -> Option<u64> {
        self.major_faults?.checked_sub(begin.major_faults?)
    }
}

/// Runs `command` to its end.
pub(crate) fn run(command: &mut Command, course: &Course) -> Result<Finished, RunError> {
    let Course { part, faults, watch } = course;
    let interrupt = Interrupt::hold()?;
    let started = Instant::now();
    let mut child = spawn(command)?;
    let pid = Pid::try_from(child.id()).expect("a process id is a pid_t");
    let covered = interrupt.cover(pid);
    let watching = watch.map(|watch| watch.begin(pid)).transpose()?;
    let follower = Follower { part: *part, faults: Arc::clone(faults) };
    let readers = Readers::start(&mut child, follower)?;
    let waited = sys::wait(pid)?;
    let ended = Instant::now();
    let seen = watching.map(Watching::end);
    // Processes that are left of the group would keep the pipes open.
    sys::kill_group(pid);
    drop(covered);
    let (stdout, marks) = join(readers.stdout)?;
    let stderr = join(readers.stderr)?;
    interrupt.check()?;
    if marks.len() < part.signals() && waited.status.success() {
        return Err(RunError::NeverWaited);
    }
    let end =
        Mark { at: ended, used: waited.used, major_faults: faults.in_all(waited.major_faults) };
    let start = Mark { at: started, used: CpuTime::default(), major_faults: Some(0) };
    let (begin, end) = part.bounds(start, &marks, end);
    Ok(Finished {
        status: waited.status,
        wall: end.at - begin.at,
        user: end.used.user.saturating_sub(begin.used.user),
        sys: end.used.sys.saturating_sub(begin.used.sys),
        major_faults: end.faults_since(&begin),
        seen,
        stdout,
        stderr,
    })
}

/// Starts `command` as the leader of a process group.
fn spawn(command: &mut Command) -> Result<Child, RunError> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    sys::tie_to_this_thread(command);
    command.spawn().map_err(|source| RunError::Start {
        program: command.get_program().display().to_string(),
        source,
    })
}

type Reading<T> = JoinHandle<io::Result<T>>;

/// The threads that read what a load prints.
struct Readers {
    stdout: Reading<Followed>,
    stderr: Reading<String>,
}

/// What came out of standard output, and the moments at which the load waited for a signal.
type Followed = (String, Vec<Mark>);

impl Readers {
    fn start(child: &mut Child, follower: Follower) -> io::Result<Self> {
        let stdout = child.stdout.take().expect("the output is a pipe");
        let mut stderr = child.stderr.take().expect("the output is a pipe");
        let spawn = std::thread::Builder::new;
        let stdout = spawn().spawn(move || follower.follow(stdout))?;
        let stderr = spawn().spawn(move || {
            let mut bytes = Vec::new();
            stderr.read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        })?;
        Ok(Self { stdout, stderr })
    }
}

fn join<T>(reading: Reading<T>) -> io::Result<T> {
    reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Reads what a load prints, and sends its signals.
struct Follower {
    part: Part,
    faults: Arc<Faults>,
}

impl Follower {
    /// Reads all lines, and sends a signal whenever all tasks wait for one.
    fn follow(&self, stdout: ChildStdout) -> io::Result<Followed> {
        let mut reader = BufReader::new(stdout);
        let mut text = String::new();
        let mut line = Vec::new();
        let mut waiting = Vec::new();
        let mut marks = Vec::new();
        while reader.read_until(b'\n', &mut line)? > 0 {
            let printed = String::from_utf8_lossy(&line);
            waiting.extend(waiting_pid(&printed));
            text.push_str(&printed);
            line.clear();
            if marks.len() < self.part.signals() && waiting.len() == self.part.waiters() {
                marks.push(self.signal(std::mem::take(&mut waiting), &marks)?);
            }
        }
        Ok((text, marks))
    }

    /// Nothing but waiting goes on while this counts; what it takes itself is not measured.
    fn signal(&self, mut waiting: Vec<Pid>, before: &[Mark]) -> io::Result<Mark> {
        let waiting_since = Instant::now();
        // Threads of one process print the same number.
        waiting.sort_unstable();
        waiting.dedup();
        let mut used = CpuTime::default();
        for &pid in waiting.iter() {
            let of_one = used_so_far(pid)?;
            used.user += of_one.user;
            used.sys += of_one.sys;
        }
        let major_faults = waiting.iter().map(|&pid| self.faults.so_far(pid)).sum();
        let at = if before.is_empty() { Instant::now() } else { waiting_since };
        waiting.iter().try_for_each(|&pid| sys::send(pid, libc::SIGUSR1))?;
        Ok(Mark { at, used, major_faults })
    }
}

/// The process of a line such as `Read Process 17 is waiting signal`.
fn waiting_pid(line: &str) -> Option<Pid> {
    line.trim_end().strip_suffix(WAITING_MARK)?.rsplit(' ').next()?.parse().ok()
}

fn used_so_far(pid: Pid) -> io::Result<CpuTime> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    parse_used(&stat, sys::ticks_per_second())
        .ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat has no used time: {stat}")))
}

/// User and system time of a `/proc/PID/stat`: fields 14 and 15.
fn parse_used(stat: &str, ticks_per_second: u64) -> Option<CpuTime> {
    // The name, field 2, may hold spaces and parentheses; the last parenthesis ends it.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut next = || {
        let ticks: u64 = fields.next()?.parse().ok()?;
        Some(Duration::from_millis(ticks * 1000 / ticks_per_second))
    };
    Some(CpuTime { user: next()?, sys: next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(command: &mut Command, part: Part) -> Result<Finished, RunError> {
        super::run(command, &Course::new(part))
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_and_status_of_a_program_are_handed_back() {
        let mut command = shell("echo out; echo err >&2; exit 3");
        let finished = run(&mut command, Part::Whole).unwrap();
        assert_eq!(finished.status.code(), Some(3));
        assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("out\n", "err\n"));
    }

    #[test]
    fn a_program_that_leaves_a_child_running_does_not_keep_us_waiting() {
        let finished = run(&mut shell("sleep 1000 & echo done"), Part::Whole).unwrap();
        assert_eq!(finished.stdout, "done\n");
    }

    #[test]
    fn a_waiting_program_gets_its_signal() {
        let script = "trap 'echo go; exit 0' USR1; echo \"Read Process $$ is waiting signal\"; \
                      while :; do sleep 0.01; done";
        let finished = run(&mut shell(script), Part::AfterSignal { waiters: 1 }).unwrap();
        assert!(finished.stdout.ends_with("go\n"), "{finished:?}");
    }

    #[test]
    fn what_comes_after_the_second_signal_is_not_measured() {
        let script = "wait_for_it() { go=; echo \"Read Process $$ is waiting signal\"; \
                      while [ -z \"$go\" ]; do sleep 0.01; done; }; trap 'go=1' USR1; \
                      wait_for_it; wait_for_it; sleep 0.1; echo end";
        let part = Part::BetweenSignals { waiters: 1 };
        let begin = Instant::now();
        let finished = run(&mut shell(script), part).unwrap();
        let left_out = begin.elapsed() - finished.wall;
        assert!(finished.stdout.ends_with("end\n"), "{finished:?}");
        assert!(left_out >= Duration::from_millis(100), "{finished:?}");
        let once = "trap 'exit 0' USR1; echo \"Read Process $$ is waiting signal\"; \
                    while :; do sleep 0.01; done";
        let result = run(&mut shell(once), part);
        assert!(matches!(result, Err(RunError::NeverWaited)), "{result:?}");
    }

    #[test]
    fn a_program_that_should_wait_and_does_not_is_an_error() {
        let result = run(&mut shell("true"), Part::AfterSignal { waiters: 1 });
        assert!(matches!(result, Err(RunError::NeverWaited)), "{result:?}");
    }

    #[test]
    fn a_program_that_does_not_exist_is_named() {
        let error = run(&mut Command::new("/nonexistent/program"), Part::Whole).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/program"), "{error}");
    }

    #[test]
    fn used_time_is_read_past_a_name_with_parentheses() {
        let stat = "17 (a) b) R 1 17 17 0 -1 0 1 2 3 4 250 75 0 0 20 0 1 0";
        let (user, sys) = (Duration::from_millis(2500), Duration::from_millis(750));
        assert_eq!(parse_used(stat, 100), Some(CpuTime { user, sys }));
    }
}
