//! Runs one load to its end and says what it took.
//!
//! A load is a process group of its own, which dies with this thread and with an interrupting
//! signal. Where only the part after a signal is to be measured, the signal is sent from here.

use crate::interrupt::{Interrupt, Interrupted};
use crate::usemem::WAITING_MARK;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
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
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
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

/// From when on a load is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MeasureFrom {
    Start,
    /// From the SIGUSR1 that is sent when this many tasks wait for it.
    Signal {
        waiters: usize,
    },
}

/// The moment from which the figures count.
#[derive(Debug)]
struct Mark {
    at: Instant,
    used: CpuTime,
}

/// Runs `command` to its end.
pub(crate) fn run(command: &mut Command, from: MeasureFrom) -> Result<Finished, RunError> {
    let interrupt = Interrupt::hold()?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    sys::tie_to_this_thread(command);
    let started = Instant::now();
    let mut child = command.spawn().map_err(|source| RunError::Start {
        program: command.get_program().display().to_string(),
        source,
    })?;
    let pid = Pid::try_from(child.id()).expect("a process id is a pid_t");
    let covered = interrupt.cover(pid);
    let readers = Readers::start(&mut child, from)?;
    let waited = sys::wait(pid)?;
    let ended = Instant::now();
    // Processes that are left of the group would keep the pipes open.
    sys::kill_group(pid);
    drop(covered);
    let (stdout, mark) = join(readers.stdout)?;
    let stderr = join(readers.stderr)?;
    interrupt.check()?;
    let mark = match (from, mark) {
        (MeasureFrom::Start, _) => Mark { at: started, used: CpuTime::default() },
        (MeasureFrom::Signal { .. }, Some(mark)) => mark,
        (MeasureFrom::Signal { .. }, None) if waited.status.success() => {
            return Err(RunError::NeverWaited);
        }
        // It failed before; the caller shows why.
        (MeasureFrom::Signal { .. }, None) => Mark { at: ended, used: waited.used },
    };
    Ok(Finished {
        status: waited.status,
        wall: ended - mark.at,
        user: waited.used.user.saturating_sub(mark.used.user),
        sys: waited.used.sys.saturating_sub(mark.used.sys),
        stdout,
        stderr,
    })
}

type Reading<T> = JoinHandle<io::Result<T>>;

/// The threads that read what a load prints.
struct Readers {
    stdout: Reading<Followed>,
    stderr: Reading<String>,
}

/// What came out of standard output, and the moment the signal was sent if it was.
type Followed = (String, Option<Mark>);

impl Readers {
    fn start(child: &mut Child, from: MeasureFrom) -> io::Result<Self> {
        let stdout = child.stdout.take().expect("the output is a pipe");
        let mut stderr = child.stderr.take().expect("the output is a pipe");
        let spawn = std::thread::Builder::new;
        let stdout = spawn().spawn(move || follow(stdout, from))?;
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

/// Reads all lines, and sends the signal once all tasks wait for it.
fn follow(stdout: ChildStdout, from: MeasureFrom) -> io::Result<Followed> {
    let mut reader = BufReader::new(stdout);
    let mut text = String::new();
    let mut line = Vec::new();
    let mut waiting = Vec::new();
    let mut mark = None;
    while reader.read_until(b'\n', &mut line)? > 0 {
        let printed = String::from_utf8_lossy(&line);
        waiting.extend(waiting_pid(&printed));
        text.push_str(&printed);
        line.clear();
        match from {
            MeasureFrom::Signal { waiters } if mark.is_none() && waiting.len() == waiters => {
                mark = Some(signal(&mut waiting)?);
            }
            _ => {}
        }
    }
    Ok((text, mark))
}

/// The process of a line such as `Read Process 17 is waiting signal`.
fn waiting_pid(line: &str) -> Option<Pid> {
    line.trim_end().strip_suffix(WAITING_MARK)?.rsplit(' ').next()?.parse().ok()
}

fn signal(waiting: &mut Vec<Pid>) -> io::Result<Mark> {
    // Threads of one process print the same number.
    waiting.sort_unstable();
    waiting.dedup();
    let mut used = CpuTime::default();
    for &pid in waiting.iter() {
        let of_one = used_so_far(pid)?;
        used.user += of_one.user;
        used.sys += of_one.sys;
    }
    let mark = Mark { at: Instant::now(), used };
    waiting.iter().try_for_each(|&pid| sys::send(pid, libc::SIGUSR1))?;
    Ok(mark)
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

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_and_status_of_a_program_are_handed_back() {
        let mut command = shell("echo out; echo err >&2; exit 3");
        let finished = run(&mut command, MeasureFrom::Start).unwrap();
        assert_eq!(finished.status.code(), Some(3));
        assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("out\n", "err\n"));
    }

    #[test]
    fn a_program_that_leaves_a_child_running_does_not_keep_us_waiting() {
        let finished = run(&mut shell("sleep 1000 & echo done"), MeasureFrom::Start).unwrap();
        assert_eq!(finished.stdout, "done\n");
    }

    #[test]
    fn a_waiting_program_gets_its_signal() {
        let script = "trap 'echo go; exit 0' USR1; echo \"Read Process $$ is waiting signal\"; \
                      while :; do sleep 0.01; done";
        let finished = run(&mut shell(script), MeasureFrom::Signal { waiters: 1 }).unwrap();
        assert!(finished.stdout.ends_with("go\n"), "{finished:?}");
    }

    #[test]
    fn a_program_that_should_wait_and_does_not_is_an_error() {
        let result = run(&mut shell("true"), MeasureFrom::Signal { waiters: 1 });
        assert!(matches!(result, Err(RunError::NeverWaited)), "{result:?}");
    }

    #[test]
    fn a_program_that_does_not_exist_is_named() {
        let error = run(&mut Command::new("/nonexistent/program"), MeasureFrom::Start).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/program"), "{error}");
    }

    #[test]
    fn used_time_is_read_past_a_name_with_parentheses() {
        let stat = "17 (a) b) R 1 17 17 0 -1 0 1 2 3 4 250 75 0 0 20 0 1 0";
        let (user, sys) = (Duration::from_millis(2500), Duration::from_millis(750));
        assert_eq!(parse_used(stat, 100), Some(CpuTime { user, sys }));
    }
}
