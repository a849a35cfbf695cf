//! One round: the load under `userswap run`, watched.
use super::kind::{Devices, Kind};
use super::operator::{self, Shared};
use crate::failure::Failure;
use crate::said;
use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use userswap::internals::bench::process::{self, Pid};
use userswap::internals::bench::stress::STATUS_LOST_OWN;
use userswap::internals::open::default_directory;

/// Longer than any pause of a load that goes on, on a machine that has other things to do.
const STUCK: Duration = Duration::from_secs(60);

/// How often a round is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// What an engine says of a page that it has given up on. That is progress: slots that are bad are waited for one by one, each for
/// almost seven seconds, a sixth of `patience`.
const LOST: &str = "userswap: lost ";

/// What is said by an engine that has found itself at fault.
const OWN_FAULTS: [&str; 4] =
    ["panicked", "stopping before a page", "has waited for", "io_uring failed"];

/// What rounds came to.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    operations: u64,
    verified: u64,
    forks: u64,
    members: u64,
    refused: u64,
    lost: u64,
    lost_own: u64,
    operated: u64,
    swapped_out: u64,
    retries: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.verified += other.verified;
        self.forks += other.forks;
        self.members += other.members;
        self.refused += other.refused;
        self.lost += other.lost;
        self.lost_own += other.lost_own;
        self.operated += other.operated;
        self.swapped_out += other.swapped_out;
        self.retries += other.retries;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operations, verified, forks, members, refused, .. } = self;
        let Self { operated, swapped_out, retries, lost, lost_own, .. } = self;
        write!(
            f,
            "{operations} operations, {verified} pages verified, {forks} forks, {members} members, {refused} calls refused; \
             {operated} settings and devices changed; {swapped_out} pages swapped out, {retries} requests \
             repeated; {lost} pages lost as planned, {lost_own} loads ended by that"
        )
    }
}

/// A round.
pub struct Round {
    pub kind: Kind,
    pub seed: u64,
    pub time: Duration,
}

/// What was found, in words.
pub type Finding = String;

impl Round {
    /// Runs it.
    ///
    /// # Errors
    /// The load cannot be started.
    pub fn run(&self) -> Result<Result<Tally, Finding>, Failure> {
        let directory = default_directory();
        let statistics = crate::library::private_directory()?.join(format!(
            "stress-{}-{}.json",
            std::process::id(),
            self.seed
        ));
        let (child, shared) = (self.start(&directory, &statistics)?, Shared::default());
        let (outcome, said, total) = self.attend(child, &shared);
        let counters = read_counters(&statistics);
        let verdict = outcome.and_then(|status| self.judge(status, &said, total, &counters));
        Ok(match verdict {
            Ok(mut tally) => {
                tally.operated = shared.done.load(Ordering::Relaxed);
                said::print(format_args!(
                    "stress: {}: {} operations\n",
                    self.kind, tally.operations
                ))?;
                Ok(tally)
            }
            Err(finding) => {
                let said: Vec<_> = said.lines().rev().take(200).collect();
                let said: Vec<_> = said.into_iter().rev().collect();
                Err(format!("{finding}\n{}", said.join("\n")))
            }
        })
    }

    fn start(&self, directory: &Path, statistics: &Path) -> Result<Child, Failure> {
        let program = std::env::current_exe().map_err(Failure::unavailable)?;
        let Kind { fault, transfer, devices } = self.kind;
        let mut command = Command::new(&program);
        command
            .args(["run", "--no-defaults", "--ram", "16M", "--min-region", "64K", "--stats"])
            .arg(statistics);
        command.args(["--fault", fault.name(), "--transfer", transfer.name()]);
        for spec in devices.specs(directory, self.seed) {
            command.args(["--swap", &spec]);
        }
        command.arg("--").arg(&program).arg("stress-load");
        command.args([self.seed.to_string(), self.time.as_millis().to_string()]).arg(directory);
        if devices == Devices::Losing {
            command.arg("--losses");
        }
        if self.kind.has_ring() {
            command.arg("--ring");
        }
        spawn(&mut command).map_err(|error| {
            Failure::unavailable(format!("{}: cannot be started: {error}", program.display()))
        })
    }

    /// Operates a load to its end: how it came to that, what was said, and its figures.
    fn attend(
        &self,
        mut child: Child,
        shared: &Shared,
    ) -> (Result<ExitStatus, Finding>, String, Option<Tally>) {
        let output = child.stdout.take().expect("standard output was asked for");
        let errors = child.stderr.take().expect("standard error was asked for");
        let (pid, alive) = (child.id(), Alive::default());
        std::thread::scope(|scope| {
            let totals = scope.spawn(|| alive.follow(BufReader::new(output)));
            let said = scope.spawn(|| alive.hear(BufReader::new(errors)));
            scope.spawn(|| operator::operate(pid, self.seed, shared));
            let outcome = self.watch(&mut child, &alive);
            shared.over.store(true, Ordering::Relaxed);
            // A forked child that is left would keep the pipes open.
            kill_group_of(&child);
            let said = said.join().unwrap_or_default();
            (outcome, said, totals.join().unwrap_or_default())
        })
    }

    /// Waits for the end of the load; one that stands still is looked at and killed.
    fn watch(&self, child: &mut Child, alive: &Alive) -> Result<ExitStatus, Finding> {
        let (mut seen, mut since) = (0, Instant::now());
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return Ok(status),
                Ok(None) => {}
                Err(error) => return Err(format!("the load cannot be waited for: {error}")),
            }
            let now = alive.lines.load(Ordering::Relaxed);
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
            if since.elapsed() > STUCK {
                let states = states_of(child.id());
                kill_group_of(child);
                // It may have gone just now.
                let _ = child.wait();
                return Err(format!("HANGS: no progress for {} s\n{states}", STUCK.as_secs()));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn judge(
        &self,
        status: ExitStatus,
        said: &str,
        total: Option<Tally>,
        counters: &serde_json::Value,
    ) -> Result<Tally, Finding> {
        if let Some(line) =
            said.lines().find(|line| OWN_FAULTS.iter().any(|own| line.contains(own)))
        {
            return Err(format!("the engine says: {line}"));
        }
        let loses = self.kind.devices == Devices::Losing;
        let count =
            |name: &str| counters.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0);
        let mut tally = match (status.code(), total) {
            (Some(0), Some(total)) => total,
            (Some(0), None) => return Err("the load ended without its figures".to_owned()),
            (Some(STATUS_LOST_OWN), _) if loses => Tally { lost_own: 1, ..Tally::default() },
            _ => return Err(format!("the load ended with {status}")),
        };
        tally.swapped_out = count("pswpout");
        tally.retries = count("swap_retries");
        let lost = count("pages_lost");
        match (tally.lost_own, lost) {
            (0, 0) if tally.swapped_out == 0 => Err("the load fitted its budget".to_owned()),
            (0, lost) if !loses && lost > 0 => Err(format!("{lost} pages were lost")),
            (0, lost) if tally.lost > lost => {
                Err(format!("the load met {} lost pages, {lost} are counted", tally.lost))
            }
            _ => Ok(tally),
        }
    }
}

/// Starts a load as the leader of a process group, which ends with this thread.
fn spawn(command: &mut Command) -> io::Result<Child> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    process::tie_to_this_thread(command);
    command.spawn()
}

fn kill_group_of(child: &Child) {
    process::kill_group(Pid::try_from(child.id()).expect("a process id is a pid_t"));
}

/// What the load says of itself.
#[derive(Default)]
struct Alive {
    lines: AtomicU64,
}

impl Alive {
    /// Reads lines to the end; returns the figures of the last one.
    fn follow(&self, output: impl BufRead) -> Option<Tally> {
        let mut tally = None;
        for line in output.lines().map_while(Result::ok) {
            self.lines.fetch_add(1, Ordering::Relaxed);
            let numbers = line.strip_prefix("total ").unwrap_or_default().split(' ');
            let numbers: Vec<u64> = numbers.filter_map(|number| number.parse().ok()).collect();
            if let [operations, verified, forks, members, refused, lost] = numbers[..] {
                let counted = Tally { operations, verified, forks, members, ..Tally::default() };
                tally = Some(Tally { refused, lost, ..counted });
            }
        }
        tally
    }

    /// Reads what is said to the end, or to where it can be read no more; returns all of it.
    fn hear(&self, mut errors: impl BufRead) -> String {
        let mut said = Vec::new();
        loop {
            let heard = said.len();
            match errors.read_until(b'\n', &mut said) {
                Ok(0) | Err(_) => return String::from_utf8_lossy(&said).into_owned(),
                Ok(_) => {}
            }
            if String::from_utf8_lossy(&said[heard..]).contains(LOST) {
                self.lines.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// The states of a load that stands still, and of its children.
fn states_of(pid: u32) -> String {
    let children =
        tasks_of(pid).filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<String> = children.collect();
    let children = children.iter().flat_map(|pids| pids.split_whitespace());
    let all = [pid].into_iter().chain(children.filter_map(|pid| pid.parse().ok()));
    all.map(state_of).collect::<Vec<_>>().join("\n")
}

fn tasks_of(pid: u32) -> impl Iterator<Item = fs::DirEntry> {
    fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten()
}

/// What the engine says of a process, and where the kernel has its threads.
fn state_of(pid: u32) -> String {
    let status = std::env::current_exe()
        .ok()
        .and_then(|program| Command::new(program).args(["status", &pid.to_string()]).output().ok());
    let status = status.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let describe = |thread: fs::DirEntry| {
        let read = |name: &str| fs::read_to_string(thread.path().join(name)).unwrap_or_default();
        let stack: Vec<String> = read("stack").lines().take(4).map(str::to_owned).collect();
        let id = thread.file_name();
        format!("{} {}: {}", id.display(), read("comm").trim(), stack.join(" "))
    };
    let threads: Vec<String> = tasks_of(pid).map(describe).collect();
    format!("{pid}: {}\n{}", status.unwrap_or_default(), threads.join("\n"))
}

/// The counters that the engine left; none where it had no time to.
fn read_counters(path: &PathBuf) -> serde_json::Value {
    let text = fs::read_to_string(path).unwrap_or_default();
    // Missing when the load ended early.
    let _ = fs::remove_file(path);
    serde_json::from_str(&text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::os::unix::process::ExitStatusExt;
    use userswap::{FaultMode, Transfer};

    /// What is found in a round that ended so, with 9 pages swapped out.
    fn found(devices: Devices, code: i32, said: &str, lost: [u64; 2]) -> Option<Finding> {
        let kind = Kind { fault: FaultMode::Thread, transfer: Transfer::Copy, devices };
        let round = Round { kind, seed: 1, time: LOOK };
        let total = Tally { operations: 5, lost: lost[0], ..Tally::default() };
        let counters = json!({ "pswpout": 9, "pages_lost": lost[1] });
        round.judge(ExitStatus::from_raw(code), said, Some(total), &counters).err()
    }

    #[test]
    fn only_what_is_expected_of_its_devices_passes() {
        const LOST_OWN: i32 = STATUS_LOST_OWN << 8;
        assert_eq!(found(Devices::Well, 0, "userswap: warning: a hint", [0, 0]), None);
        assert_eq!(found(Devices::Losing, 0, "", [3, 4]), None);
        assert_eq!(found(Devices::Losing, LOST_OWN, "", [3, 4]), None);
        for (devices, code, said, lost, expected) in [
            (Devices::Well, 1 << 8, "", [0, 0], "exit status: 1"),
            (Devices::Losing, 11, "", [0, 0], "signal: 11"),
            (Devices::Well, LOST_OWN, "", [0, 0], "exit status: 7"),
            (Devices::InTrouble, 0, "", [0, 1], "1 pages were lost"),
            (Devices::Losing, 0, "", [5, 4], "met 5 lost pages, 4 are counted"),
            (Devices::Well, 0, "x\nuserswap: thread 3 has waited for 60.0 s", [0, 0], "has waited"),
            (Devices::Well, 0, "thread 'userswap-fault' panicked at", [0, 0], "panicked"),
        ] {
            let finding = found(devices, code, said, lost).expect(expected);
            assert!(finding.contains(expected), "{finding}");
        }
    }

    #[test]
    fn a_page_that_is_given_up_on_is_progress() {
        let alive = Alive::default();
        let said = "userswap: lost the page at address 0x1: slot 2 of x\nuserswap: something else\n\
                    userswap: lost 32 pages so far\nuserswap: lost the page at address 0x3: sl";
        assert_eq!(alive.hear(said.as_bytes()), said);
        assert_eq!(alive.lines.into_inner(), 3);
    }

    #[test]
    fn a_forked_child_that_is_left_of_a_load_is_killed_and_not_waited_for() {
        let kind =
            Kind { fault: FaultMode::Thread, transfer: Transfer::Copy, devices: Devices::Well };
        let round = Round { kind, seed: 1, time: LOOK };
        let mut shell = Command::new("sh");
        shell.args(["-c", "(sleep 1000; echo woke >&2) & echo 'total 1 2 3 4 5 6'"]);
        let (outcome, said, total) = round.attend(spawn(&mut shell).unwrap(), &Shared::default());
        assert!(outcome.is_ok_and(|status| status.success()));
        assert_eq!((said.as_str(), total.map(|total| total.operations)), ("", Some(1)));
    }
}
