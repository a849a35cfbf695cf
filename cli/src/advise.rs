//! `userswap advise`: runs a program once with little RAM, records it, and says how much it needs.
//!
//! A record tells nothing of budgets below its own, and a program that has much less than it needs takes for ever. So the
//! budget follows: a quarter of what the program has at each moment.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::Duration;

use userswap::internals::RAM_MIN_BYTES;
use userswap::internals::directory::EngineName;
use userswap::internals::open::default_directory;
use userswap::internals::protocol::Request;
use userswap::internals::status::Status;
use userswap_report::{Record, advice, size, words};

use crate::control::{Client, plain};
use crate::failure::Failure;
use crate::memory::PAGE_BYTES;
use crate::ram::parse_ram;
use crate::report::{curve, paragraph};

/// What a program has for each byte of its budget.
const SHARE: u64 = 4;

/// Between two looks at how much the program has.
const PAUSE: Duration = Duration::from_millis(200);

/// Options of `advise`.
#[derive(clap::Args)]
pub struct AdviseArgs {
    /// Run with this budget all the time [default: a quarter of what the program has, at least 16M]
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
    let records = directory.records()?;
    if !status.success() && records.is_empty() {
        return Err(Failure::unavailable(format!("the program has failed ({status})")));
    }
    eprint!("{}", advice_on(&records, args.ram.unwrap_or(RAM_MIN_BYTES)));
    if !status.success() {
        return Err(Failure::unavailable(format!(
            "the program has failed ({status}): what is said above is of as far as it came"
        )));
    }
    Ok(ExitCode::SUCCESS)
}

/// Where the records go; removed with all that is in it.
struct Directory(PathBuf);

impl Directory {
    fn create() -> Result<Self, Failure> {
        let path = default_directory().join(format!("userswap-advise-{}", std::process::id()));
        let made = fs::DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| Failure::unavailable(format!("{}: {error}", path.display())))?;
        Ok(Self(path))
    }

    fn run(&self, args: &AdviseArgs) -> Result<ExitStatus, Failure> {
        let failed =
            |error| Failure::unavailable(format!("this program cannot start itself: {error}"));
        let itself = std::env::current_exe().map_err(failed)?;
        let mut child = Command::new(itself)
            .args(["run", "--ram", &args.ram.unwrap_or(RAM_MIN_BYTES).to_string(), "--record"])
            .arg(self.0.join("record"))
            .arg("--")
            .args(&args.command)
            .spawn()
            .map_err(failed)?;
        match args.ram {
            Some(_) => child.wait().map_err(failed),
            None => follow(&mut child).map_err(failed),
        }
    }

    /// The record that read most back first.
    fn records(&self) -> Result<Vec<Record>, Failure> {
        let names = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let mut records = names
            .map(|name| Record::open(&name.path()).map_err(Failure::unavailable))
            .collect::<Result<Vec<_>, _>>()?;
        records.sort_by_key(|record| u64::MAX - record.counter("pswpin"));
        Ok(records)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What cannot be removed is in a directory for such files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Keeps the budget at a share of what the program has, until it ends.
fn follow(child: &mut Child) -> std::io::Result<ExitStatus> {
    let name = EngineName { pid: child.id(), number: 1 };
    let mut budget = RAM_MIN_BYTES;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        std::thread::sleep(PAUSE);
        // Without an engine it needs no more; one that ends meanwhile neither.
        let Ok(mut client) = Client::of(name) else { continue };
        let Ok(status) = client.status() else { continue };
        let wanted = has_bytes(&status) / SHARE / PAGE_BYTES * PAGE_BYTES;
        if wanted > budget {
            let ram = Request::Set { key: "ram".into(), value: wanted.to_string() };
            // Refused, it stays as it was: the record is of less RAM then.
            if client.ask(&ram).is_ok() {
                budget = wanted;
            }
        }
    }
}

/// In RAM, and on devices.
fn has_bytes(status: &Status) -> u64 {
    let resident: u64 = status.nodes.iter().map(|node| node.resident_pages).sum();
    let swapped: u64 = status.devices.iter().map(|device| device.used_bytes).sum();
    resident * PAGE_BYTES + swapped
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
            "Smallest budget within 10 % of native speed: {}. Without waiting it would have taken about {:.2} s.",
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
