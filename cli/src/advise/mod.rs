//! `userswap advise`: runs a program once with little RAM, records it, and says how much it needs.
//!
//! A record tells nothing of budgets below its own, and a program that has much less than it needs takes for ever. So the
//! budget follows: a quarter of what the program and all that it has started have at each moment (`job`), and more of it as
//! long as they do nothing but wait. Ctrl-C ends the program; what it has shown until then is said all the same.

mod job;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use userswap::internals::RAM_MIN_BYTES;
use userswap::internals::open::default_directory;
use userswap_report::{Record, advice, size, words};

use crate::control::plain;
use crate::failure::Failure;
use crate::memory::{PAGE_BYTES, available_bytes};
use crate::metrics::{Stop, Woken};
use crate::ram::parse_ram;
use crate::report::{curve, paragraph};
use crate::said;

use job::Job;

/// Eighths of what the program has: its budget at first.
const EIGHTHS_MIN: u64 = 2;
/// And at last: all of it, and room for what the engine keeps free.
const EIGHTHS_MAX: u64 = 9;

/// After so long it is looked whether the program only waits.
const PATIENCE: Duration = Duration::from_secs(12);

/// It does if it has waited for one part of that in so many: without waiting it would be at least twice as fast.
const PARTS_WAITED: u32 = 2;

/// Between two looks at how much the program has.
const PAUSE: Duration = Duration::from_millis(200);

/// Options of `advise`.
#[derive(clap::Args)]
pub struct AdviseArgs {
    /// Run with this budget all the time [default: a quarter of what the program has, more of it while the program only
    /// waits, at least 16M]
    #[arg(long, value_name = "SIZE", value_parser = parse_ram, allow_hyphen_values = true)]
    ram: Option<u64>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM ARGS")]
    command: Vec<OsString>,
}

/// Runs the program and says on standard error how much RAM it needs.
///
/// # Errors
/// It cannot be run, or has failed.
pub fn advise(args: &AdviseArgs) -> Result<ExitCode, Failure> {
    let directory = Directory::create()?;
    let status = directory.run(args)?;
    let Found { records, unread } = directory.found();
    for bad in &unread {
        said::say(format_args!("a record is left out: {bad}"));
    }
    // A program that ends well without a record has fitted its budget.
    let is_known = !records.is_empty() || (unread.is_empty() && status.success());
    if is_known {
        said::say_plainly(advice_on(&records, args.ram.unwrap_or(RAM_MIN_BYTES)));
    }
    // That it cannot be run has been said.
    let not_run = status.code().filter(|code| matches!(code, 126 | 127) && records.is_empty());
    if let Some(code) = not_run.and_then(|code| u8::try_from(code).ok()) {
        return Ok(ExitCode::from(code));
    }
    Err(Failure::unavailable(match (status.success(), records.is_empty()) {
        (false, false) => {
            format!("the program has failed ({status}): what is said above is of as far as it came")
        }
        (false, true) => format!("the program has failed ({status})"),
        (true, true) if !is_known => {
            let directory = default_directory();
            format!("no record is left: make room in {}, and run it again", directory.display())
        }
        (true, _) => return Ok(ExitCode::SUCCESS),
    }))
}

/// How the names of such directories begin; the number of the process follows.
const PREFIX: &str = "userswap-advise-";

/// What the program has left.
struct Found {
    /// The one that read most back first.
    records: Vec<Record>,
    /// What is wrong with each of the others: a line.
    unread: Vec<String>,
}

/// Where the records go; removed with all that is in it.
struct Directory(PathBuf);

impl Directory {
    fn create() -> Result<Self, Failure> {
        let path = default_directory().join(format!("{PREFIX}{}", std::process::id()));
        let made = fs::DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| Failure::unavailable(format!("{}: {error}", path.display())))?;
        Ok(Self(path))
    }

    fn run(&self, args: &AdviseArgs) -> Result<ExitStatus, Failure> {
        let failed =
            |error| Failure::unavailable(format!("this program cannot start itself: {error}"));
        let itself = std::env::current_exe().map_err(failed)?;
        let stop = Stop::on_signals()?;
        let ram = args.ram.unwrap_or(RAM_MIN_BYTES);
        let ram_max = available_bytes().unwrap_or(ram).max(ram);
        let child = Command::new(itself)
            .args(["run", "--ram", &ram.to_string(), "--ram-max", &ram_max.to_string(), "--record"])
            .arg(self.0.join("record"))
            .arg("--")
            .args(&args.command)
            .spawn()
            .map_err(failed)?;
        let share = args.ram.is_none().then(Share::new);
        follow(child, &stop, share).map_err(failed)
    }

    fn found(&self) -> Found {
        let mut found = Found { records: Vec::new(), unread: Vec::new() };
        for name in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            match Record::open(&name.path()) {
                Ok(record) => found.records.push(record),
                Err(bad) => found.unread.push(bad),
            }
        }
        found.records.sort_by_key(|record| u64::MAX - record.counter("pswpin"));
        found
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What cannot be removed is in a directory for such files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Waits until the program ends, with its budget at a share of what it has, if there is one.
fn follow(mut child: Child, stop: &Stop, mut share: Option<Share>) -> std::io::Result<ExitStatus> {
    let mut job = Job::of(child.id());
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if stop.wait(None, Some(PAUSE)) == Woken::Stopped {
            // It has ended, or does so now.
            let _ = kill_process(Pid::from_child(&child), Signal::TERM);
            return child.wait();
        }
        let Some(share) = &mut share else { continue };
        let Some(mut seen) = job.look() else { continue };
        let budget = share.budget_of(seen.has_bytes, seen.stalled_ns, Instant::now());
        share.ask(budget, |budget| seen.set_budget(budget));
    }
}

/// How much of what the program has is its budget.
struct Share {
    bytes: u64,
    eighths: u64,
    /// Since when it is that much, and for how long a thread had waited until then.
    since: Option<(Instant, u64)>,
}

/// A budget that is larger by less is not worth asking for.
const STEP_BYTES: u64 = 1 << 20;

impl Share {
    fn new() -> Self {
        Self { bytes: RAM_MIN_BYTES, eighths: EIGHTHS_MIN, since: None }
    }

    /// Has a larger budget, if that is granted.
    fn ask(&mut self, budget: u64, is_granted: impl FnOnce(u64) -> bool) {
        if budget >= self.bytes + STEP_BYTES && is_granted(budget) {
            self.bytes = budget;
        }
    }

    /// The budget that it is to have from now on.
    fn budget_of(&mut self, has_bytes: u64, stall_ns: u64, now: Instant) -> u64 {
        let (since, stalled_ns) = *self.since.get_or_insert((now, stall_ns));
        if now - since >= PATIENCE {
            let waited = Duration::from_nanos(stall_ns.saturating_sub(stalled_ns));
            if waited * PARTS_WAITED >= now - since {
                self.eighths = (self.eighths + 1).min(EIGHTHS_MAX);
            }
            self.since = None;
        }
        has_bytes * self.eighths / 8 / PAGE_BYTES * PAGE_BYTES
    }
}

fn advice_on(records: &[Record], ram: u64) -> String {
    let Some((first, others)) = records.split_first() else {
        return paragraph(&format!(
            "The program fits {}: it never outgrew it, and needs no swap.",
            size::bytes(ram)
        ));
    };
    let mut text = format!("{}\n", plain(&words::command(first)));
    text += &curve(first).replacen('\n', "", 1);
    text += &paragraph(&match advice::smallest_near_native(first) {
        Some(budget) => format!(
            "Smallest budget within 10 % of native speed: {}. Without swapping it would have taken about {:.2} s.",
            size::pages(budget),
            advice::native_s(first)
        ),
        None => format!(
            "{} is enough: nothing was read back with it.",
            size::pages(first.budget_pages())
        ),
    });
    if !others.is_empty() {
        text += &paragraph(&format!(
            "{} other processes had to swap; this is the one that read most back. They share a budget, so that all need more.",
            others.len()
        ));
    }
    text + &paragraph(&format!("How sure that is: {}.", advice::Doubt::about(first).words()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_only_waits_gets_more_and_more_of_what_it_has() {
        const MIB: u64 = 1 << 20;
        let began = Instant::now();
        let mut share = Share::new();
        let mut look = |seconds: u64, stalled_s: u64| {
            let now = began + Duration::from_secs(seconds);
            share.budget_of(80 * MIB, stalled_s * 1_000_000_000, now) / MIB
        };
        assert_eq!([look(0, 0), look(11, 11), look(12, 12)], [20, 20, 30]);
        // Less than half of the time.
        assert_eq!([look(13, 13), look(20, 15), look(25, 18)], [30, 30, 30]);
        let all: Vec<u64> = (0..200).map(|seconds| look(30 + seconds, 30 + seconds)).collect();
        assert_eq!((all[0], all[199]), (30, 90));
        assert!(all.is_sorted(), "{all:?}");
    }
}
