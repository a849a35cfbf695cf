//! `userswap list`: the programs of this user that have an engine.

use std::process::ExitCode;

use userswap::ByteSize;
use userswap::internals::directory::EngineName;
use userswap::internals::status::{JobStatus, MemberStatus, Status};

use super::gather::{PATIENCE, engines};
use super::status::children;
use super::table::{Lean, plain, table};
use super::target;
use crate::failure::Failure;
use crate::memory::PAGE_BYTES;
use crate::said;

/// Prints a row for each, in the order of their numbers.
///
/// # Errors
/// Nobody reads it; an engine that cannot be asked is reported, and the others are listed.
pub fn list() -> Result<ExitCode, Failure> {
    let titles = [
        ("PID", Lean::Right),
        ("PROGRAM", Lean::Left),
        ("RAM", Lean::Right),
        ("RESIDENT", Lean::Right),
        ("SWAPPED", Lean::Right),
    ];
    let rows: Vec<_> = statuses().iter().map(|(name, status)| row(*name, status)).collect();
    said::print(format_args!("{}{}", table(titles, &rows), jobs()))?;
    Ok(ExitCode::SUCCESS)
}

/// The jobs of more than one process, those included that userswap could not be in, and what each has of its job's budget.
fn jobs() -> String {
    let titles = [
        ("JOB", Lean::Right),
        ("PID", Lean::Right),
        ("RAM", Lean::Right),
        ("USED", Lean::Right),
        ("REFAULTS/S", Lean::Right),
        ("", Lean::Left),
    ];
    let jobs = target::jobs().into_iter().filter(is_shown);
    let rows: Vec<_> = jobs.flat_map(|job| job_rows(&job)).collect();
    if rows.is_empty() { String::new() } else { format!("\n{}", table(titles, &rows)) }
}

fn is_shown(job: &JobStatus) -> bool {
    job.members.len() > 1 || job.unmanaged_children > 0
}

/// What is to be said of a member besides its numbers.
pub fn note(member: &MemberStatus) -> &'static str {
    match (member.engaged, member.has_turn) {
        (false, _) => "no engine",
        (true, true) => "has its turn",
        (true, false) => "",
    }
}

fn job_rows(job: &JobStatus) -> Vec<[String; 6]> {
    let size = |pages: u64| ByteSize(pages * PAGE_BYTES).rounded();
    let whole = [
        job.root_pid.to_string(),
        "all".to_owned(),
        size(job.budget_pages),
        size(job.held_pages),
        job.members.iter().map(|member| member.refaults_per_second).sum::<u64>().to_string(),
        format!("at most {}{}", size(job.held_pages_max), children(job.unmanaged_children)),
    ];
    let members = job.members.iter().map(|member| {
        [
            String::new(),
            member.pid.to_string(),
            size(member.share_pages),
            size(member.used_pages),
            member.refaults_per_second.to_string(),
            note(member).to_owned(),
        ]
    });
    std::iter::once(whole).chain(members).collect()
}

/// The status of every engine of this user; one that cannot be asked is reported.
pub fn statuses() -> Vec<(EngineName, Status)> {
    let mut statuses = Vec::new();
    for engine in engines(PATIENCE) {
        match engine.status {
            Ok(status) => statuses.push((engine.name, status)),
            Err(failure) => said::say(failure.message),
        }
    }
    statuses
}

fn row(name: EngineName, status: &Status) -> [String; 5] {
    let resident: u64 = status.nodes.iter().map(|node| node.resident_pages).sum();
    let swapped: u64 = status.devices.iter().map(|device| device.used_bytes).sum();
    [
        name.to_string(),
        plain(&status.program),
        ByteSize(status.ram_bytes).rounded(),
        ByteSize(resident * PAGE_BYTES).rounded(),
        ByteSize(swapped).rounded(),
    ]
}
