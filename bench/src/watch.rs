//! Looks at a load while it runs: how much memory its processes have together, and whether it takes too long.

use std::fs;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use userswap::internals::bench::process::{Pid, kill_group};

/// Between two looks. One at a process of 27 threads takes a millisecond.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What a load is watched for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watch {
    /// After this its process group is killed.
    pub(crate) limit: Option<Duration>,
}

/// How a watched load came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Own,
    /// It was killed because it took too long.
    Killed,
}

/// What was seen of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The most anonymous memory in RAM that all its processes had together.
    pub(crate) anon_bytes_max: u64,
    pub(crate) ending: Ending,
}

/// A load that is being watched.
#[derive(Debug)]
pub(crate) struct Watching {
    over: Sender<()>,
    thread: JoinHandle<Seen>,
}

impl Watch {
    /// Watches the process group that `leader` leads.
    pub(crate) fn begin(self, leader: Pid) -> io::Result<Watching> {
        let (over, is_over) = mpsc::channel();
        let mut deadline = self.limit.map(|limit| Instant::now() + limit);
        let watch = move || {
            let mut seen = Seen { anon_bytes_max: 0, ending: Ending::Own };
            loop {
                let left = |at: Instant| at.saturating_duration_since(Instant::now());
                let pause = deadline.map_or(LOOK_AGAIN, left).min(LOOK_AGAIN);
                if is_over.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                    return seen;
                }
                seen.anon_bytes_max = seen.anon_bytes_max.max(anon_bytes(leader));
                if deadline.take_if(|at| *at <= Instant::now()).is_some() {
                    kill_group(leader);
                    seen.ending = Ending::Killed;
                }
            }
        };
        let thread = std::thread::Builder::new().name("watch".to_owned()).spawn(watch)?;
        Ok(Watching { over, thread })
    }
}

impl Watching {
    /// What was seen until now.
    pub(crate) fn end(self) -> Seen {
        drop(self.over);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Anonymous memory in RAM of a process and all below it.
fn anon_bytes(process: Pid) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let own = parse_anon(&status).unwrap_or(0);
    own + children(process).into_iter().map(anon_bytes).sum::<u64>()
}

fn parse_anon(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// Children of any thread of a process; none of one that is gone.
fn children(process: Pid) -> Vec<Pid> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let texts = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let numbers = |text: String| -> Vec<Pid> {
        text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    };
    texts.flat_map(numbers).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Course, Part, run};
    use std::process::{Command, Stdio};

    #[test]
    fn a_load_that_takes_too_long_is_killed_and_one_that_does_not_is_left_alone() {
        let ending = |script: &str, limit| {
            let mut command = Command::new("sh");
            let watch = Some(Watch { limit: Some(limit) });
            let course = Course { watch, ..Course::new(Part::Whole) };
            let finished = run(command.args(["-c", script]), &course).unwrap();
            (finished.seen.unwrap().ending, finished.status.success())
        };
        assert_eq!(ending("sleep 1000 & sleep 1000", Duration::ZERO), (Ending::Killed, false));
        assert_eq!(ending("true", Duration::from_secs(1000)), (Ending::Own, true));
    }

    #[test]
    fn the_memory_of_children_counts() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = |number: u32| Pid::try_from(number).unwrap();
        assert!(children(pid(std::process::id())).contains(&pid(child.id())));
        assert!(anon_bytes(pid(std::process::id())) > anon_bytes(pid(child.id())));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(parse_anon("RssAnon:\t    1024 kB\nRssFile: 1 kB\n"), Some(1 << 20));
    }
}
