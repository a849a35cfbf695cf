//! `userswap list`: the programs of this user that have an engine.

use std::process::ExitCode;

use userswap::ByteSize;
use userswap::internals::directory::EngineName;
use userswap::internals::status::Status;

use super::client::Client;
use super::table::{Lean, plain, table};
use super::target;
use crate::failure::Failure;
use crate::memory::PAGE_BYTES;

/// Prints a row for each, in the order of their numbers.
///
/// # Errors
/// None: an engine that cannot be asked is reported, and the others are listed.
pub fn list() -> Result<ExitCode, Failure> {
    let titles = [
        ("PID", Lean::Right),
        ("PROGRAM", Lean::Left),
        ("RAM", Lean::Right),
        ("RESIDENT", Lean::Right),
        ("SWAPPED", Lean::Right),
    ];
    let rows: Vec<_> = statuses().iter().map(|(name, status)| row(*name, status)).collect();
    print!("{}", table(titles, &rows));
    Ok(ExitCode::SUCCESS)
}

/// The status of every engine of this user; one that cannot be asked is reported.
pub fn statuses() -> Vec<(EngineName, Status)> {
    let mut statuses = Vec::new();
    for (name, socket) in target::all() {
        match Client::connect(name, &socket).and_then(|mut client| client.status()) {
            Ok(status) => statuses.push((name, status)),
            Err(failure) => eprintln!("userswap: {}", failure.message),
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
