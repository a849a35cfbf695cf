//! How often a load had to wait for a device: the kernel counts its own major faults, an engine those that it serves.

use serde_json::Value;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use userswap::internals::bench::process::Pid;

/// The counter of an engine, in its status and in its statistics.
const COUNTER: &str = "pgmajfault";

/// Where the major faults of a load are counted.
#[derive(Debug)]
pub(crate) enum Faults {
    /// By the kernel, for each process.
    Kernel,
    /// By the engines that the load's processes run in.
    Engine(Engines),
}

impl Faults {
    /// Those of the running process `pid`; none if nobody knows.
    pub(crate) fn so_far(&self, pid: Pid) -> Option<u64> {
        match self {
            Self::Kernel => kernel_faults(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?),
            Self::Engine(engines) => engines.so_far(pid),
        }
    }

    /// Those of the whole load, which has ended, and for which the kernel counted `counted`.
    pub(crate) fn in_all(&self, counted: u64) -> Option<u64> {
        match self {
            Self::Kernel => Some(counted),
            Self::Engine(engines) => engines.in_all(),
        }
    }

    /// What its engines left.
    pub(crate) fn statistics(&self) -> Vec<Value> {
        match self {
            Self::Kernel => Vec::new(),
            Self::Engine(engines) => engines.statistics().unwrap_or_default(),
        }
    }
}

/// Field 12 of a `/proc/PID/stat`.
fn kernel_faults(stat: &str) -> Option<u64> {
    // The name, field 2, may hold spaces and parentheses; the last parenthesis ends it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(9)?.parse().ok()
}

/// The engines of one load: asked by `status` while they run, known by their statistics when they have ended.
#[derive(Debug)]
pub(crate) struct Engines {
    exe: PathBuf,
    directory: PathBuf,
}

impl Engines {
    /// Makes a directory for statistics, which goes with the value.
    pub(crate) fn new(exe: &Path, name: &str) -> io::Result<Self> {
        let directory = std::env::temp_dir().join(name);
        fs::create_dir(&directory)?;
        Ok(Self { exe: exe.to_owned(), directory })
    }

    /// What `run --stats` is given.
    pub(crate) fn pattern(&self) -> PathBuf {
        self.directory.join("%p.json")
    }

    fn so_far(&self, pid: Pid) -> Option<u64> {
        let mut command = Command::new(&self.exe);
        command.args(["status", &pid.to_string(), "--json"]).stderr(Stdio::null());
        let status: Value = serde_json::from_slice(&command.output().ok()?.stdout).ok()?;
        status["counters"][COUNTER].as_u64()
    }

    /// What the processes that have ended in order left; none if that cannot be read.
    fn statistics(&self) -> Option<Vec<Value>> {
        let files = fs::read_dir(&self.directory).ok()?;
        files.map(|file| serde_json::from_slice(&fs::read(file.ok()?.path()).ok()?).ok()).collect()
    }

    fn in_all(&self) -> Option<u64> {
        let statistics = self.statistics()?;
        let counts = statistics.iter().map(|of| of[COUNTER].as_u64());
        let counts: Vec<u64> = counts.collect::<Option<_>>()?;
        // Without any statistics nothing is known, rather than that there was no fault.
        (!counts.is_empty()).then(|| counts.iter().sum())
    }
}

impl Drop for Engines {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.directory));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_count_is_read_past_a_name_with_parentheses() {
        assert_eq!(kernel_faults("17 (a) b) R 1 17 17 0 -1 0 1 2 3 4 250 75"), Some(3));
        assert_eq!(kernel_faults("17 (a"), None);
    }

    #[test]
    fn the_statistics_of_all_processes_add_up_and_go_with_their_reader() {
        let name = format!("userswap-faults-test-{}", std::process::id());
        let engines = Engines::new(Path::new("false"), &name).unwrap();
        let directory = engines.directory.clone();
        assert_eq!((engines.in_all(), engines.so_far(1)), (None, None));
        for (pid, count) in [(7, 40), (8, 2)] {
            let path = engines.pattern().to_str().unwrap().replace("%p", &pid.to_string());
            fs::write(path, format!("{{\"{COUNTER}\": {count}}}")).unwrap();
        }
        assert_eq!(Faults::Engine(engines).in_all(0), Some(42));
        assert!(!directory.exists());
    }
}
