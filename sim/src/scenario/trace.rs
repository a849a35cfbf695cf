//! A recorded program under each rule of replacement, with other budgets than the one it had.
//!
//! Its uses of pages come one after the other, in the order of the trace, and each as a write: a trace does not say which
//! were reads. What it did between them takes no time here.

use std::fmt::Write as _;
use std::io::BufRead;
use std::path::Path;
use std::rc::Rc;

use serde::Deserialize;
use userswap_trace::{BadTrace, Reader, Recording, Use};

use super::{Failure, Options, load};
use crate::machine::{BadFile, Bytes, Device, Impossible, Machine, PAGE_BYTES, Source};
use crate::memory::{Access, Costs, Memory, Outcome, Replacement, Rules, Setup, Shared};
use crate::report::{Report, Row, Table};

/// What is simulated when no file is named.
const BUILT_IN: &[u8] = userswap_trace::recorded::NUMPY_SORT;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "kind")]
    _kind: String,
    about: String,
    machine: Machine,
    cost: Costs,
    device: Vec<Device>,
    trace: Recorded,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Recorded {
    file: String,
    percent: toml::Spanned<Vec<u32>>,
}

/// Runs the trace with every share of memory and every rule.
pub fn run(name: &str, source: &Source, options: &Options) -> Result<Report, Failure> {
    let file: File = source.read()?;
    let recording = match &file.trace.file[..] {
        "" => Reader::new("numpy-sort.trace".to_owned(), BUILT_IN).and_then(read),
        path => Reader::open(Path::new(path)).and_then(read),
    };
    let recording = recording.map_err(|bad| BadFile::new(bad.to_string()))?;
    check(&file, &recording).map_err(|bad| source.refuse(&bad))?;
    let mut report = Report::new(name, &file.about, options.seed);
    let (mut reads, mut writes, mut times) = (Vec::new(), Vec::new(), Vec::new());
    for percent in file.trace.percent.get_ref() {
        for replacement in Replacement::ALL {
            let rules = Rules { replacement, ..Rules::default() };
            let memory = simulate(&file, &recording, (*percent, rules), options)?;
            let case = format!("{percent} %, {replacement}");
            let row = |value: f64| Row::predicted(case.clone(), None, value);
            reads.push(row(memory.counts.swapped_in.get() as f64));
            writes.push(row(memory.counts.swapped_out.get() as f64));
            times.push(row(memory.sim().now() as f64 / 1e6));
            report.events += memory.sim().events();
        }
    }
    report.tables.push(Table::new("pages read from devices", reads));
    report.tables.push(Table::new("pages written to devices", writes));
    report.tables.push(Table::new("time of faults and reclaim, ms", times));
    report.notes.push(describe(&recording));
    Ok(report)
}

fn read<R: BufRead>(reader: Reader<R>) -> Result<Recording, BadTrace> {
    Recording::read(reader)
}

/// Whether the trace can be run with these shares.
fn check(file: &File, recording: &Recording) -> Result<(), Impossible> {
    let percent = &file.trace.percent;
    if percent.get_ref().is_empty() {
        return Err(Impossible::new(percent.span(), "no percent: use one or more".to_owned()));
    }
    for share in percent.get_ref() {
        let of_all = format!("{share} % of the {} pages of the trace", recording.pages);
        if !(1..=100).contains(share) {
            return Err(Impossible::new(percent.span(), format!("{share} percent: use 1 to 100")));
        }
        let (machine, devices) = machine_of(file, recording, *share);
        super::check(&machine, &devices)
            .map_err(|bad| Impossible::new(percent.span(), format!("{of_all}: {}", bad.message)))?;
    }
    Ok(())
}

/// The machine with a share of the program's pages, and devices that hold all of them.
fn machine_of(file: &File, recording: &Recording, percent: u32) -> (Machine, Vec<Device>) {
    let (mut machine, mut devices) = (file.machine.clone(), file.device.clone());
    let pages = u64::from(recording.pages);
    let memory = pages * u64::from(percent) / 100 / u64::from(machine.nodes().max(1));
    machine.memory_per_node = toml::Spanned::new(0..0, Bytes(memory * PAGE_BYTES));
    for device in &mut devices {
        device.size = toml::Spanned::new(0..0, Bytes((pages + 64) * 2 * PAGE_BYTES));
    }
    (machine, devices)
}

fn simulate(
    file: &File,
    recording: &Recording,
    (percent, rules): (u32, Rules),
    options: &Options,
) -> Result<Shared, Failure> {
    let pages = recording.pages;
    let (machine, devices) = machine_of(file, recording, percent);
    let setup = Setup { pages, costs: file.cost.clone(), rules, seed: options.seed };
    let memory = Memory::start(&machine, &devices, setup);
    let (of_program, uses) = (Rc::clone(&memory), recording.uses.clone());
    memory.sim().program(async move {
        let thread = of_program.program_thread(0);
        for used in uses {
            match used {
                Use::Access(page) => {
                    let outcome = of_program.access(&thread, page, Access::Write).await;
                    if outcome == Outcome::NoMemory {
                        of_program.counts.kill();
                        break;
                    }
                }
                Use::Drop(page) => of_program.discard(&thread, page).await,
            }
        }
        thread.settle().await;
    });
    load::finish(&memory, options)?;
    Ok(memory)
}

/// What the numbers rest on.
fn describe(recording: &Recording) -> String {
    let Recording { header, uses, pages, lost, duration_ms, .. } = recording;
    let accesses = uses.iter().filter(|used| matches!(used, Use::Access(_))).count();
    let mut text = format!(
        "{} used {pages} pages, {accesses} uses were seen in {:.1} s with a budget of {} pages and readahead {}: memory \
         near that or below is not told apart",
        header.program,
        *duration_ms as f64 / 1e3,
        header.budget_pages,
        header.readahead,
    );
    if *lost > 0 {
        write!(text, "; {lost} events were lost").expect("a string takes all");
    }
    if !recording.has_ended {
        text.push_str("; the trace has no end: the program was killed, or the file is not whole");
    }
    text
}
