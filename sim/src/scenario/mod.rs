//! The experiments: each reads its file, runs memory under its load, and reports.

mod device_use;
mod exclusive_stall;
mod fixed_readahead;
mod load;
mod per_node_devices;
mod per_node_lru;
mod scale;
mod sorted_free;
mod stress;
mod trace;
mod workloads;

use std::path::Path;

use serde::Deserialize;

use crate::machine::{BadFile, Device, Impossible, Machine, Set, Source};
use crate::report::Report;
use userswap_policy::devices::DEVICES_MAX;

/// The scenarios that come with the program: name and file.
const BUILT_IN: [(&str, &str); 11] = [
    ("per-node-devices", include_str!("../../scenarios/per-node-devices.toml")),
    ("four-nodes", include_str!("../../scenarios/four-nodes.toml")),
    ("eight-nodes", include_str!("../../scenarios/eight-nodes.toml")),
    ("exclusive-stall", include_str!("../../scenarios/exclusive-stall.toml")),
    ("sorted-free", include_str!("../../scenarios/sorted-free.toml")),
    ("per-node-lru", include_str!("../../scenarios/per-node-lru.toml")),
    ("fixed-readahead", include_str!("../../scenarios/fixed-readahead.toml")),
    ("workloads", include_str!("../../scenarios/workloads.toml")),
    ("scale", include_str!("../../scenarios/scale.toml")),
    ("stress", include_str!("../../scenarios/stress.toml")),
    ("trace", include_str!("../../scenarios/trace.toml")),
];

/// Reads and runs a scenario of one kind.
type Run = fn(&str, &Source, &Options) -> Result<Report, Failure>;

/// The kinds of scenarios.
const KINDS: [(&str, Run); 10] = [
    ("per-node-devices", per_node_devices::run),
    ("device-use", device_use::run),
    ("exclusive-stall", exclusive_stall::run),
    ("sorted-free", sorted_free::run),
    ("per-node-lru", per_node_lru::run),
    ("fixed-readahead", fixed_readahead::run),
    ("workloads", workloads::run),
    ("scale", scale::run),
    ("stress", stress::run),
    ("trace", trace::run),
];

/// The largest device, in pages after scaling: 512 GiB, as far as the engine uses one.
const DEVICE_PAGES_MAX: u64 = 1 << 27;

/// How to run a scenario.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// For all that is random.
    pub seed: u64,
    /// What is looked at after every event.
    pub checking: Checking,
}

/// What is looked at after every event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checking {
    /// Nothing.
    Off,
    /// Everything.
    EveryEvent,
}

/// Why there is no report.
#[derive(Debug)]
pub enum Failure {
    /// The scenario cannot be meant: file, line, and what would do.
    Bad(BadFile),
    /// A run broke an invariant, or never ended.
    Broken(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bad(bad) => bad.fmt(f),
            Self::Broken(what) => f.write_str(what),
        }
    }
}

impl From<BadFile> for Failure {
    fn from(bad: BadFile) -> Self {
        Self::Bad(bad)
    }
}

/// What every file begins with.
#[derive(Deserialize)]
struct Head {
    kind: toml::Spanned<String>,
    about: String,
}

/// Names and subjects of the built-in scenarios.
pub fn list() -> impl Iterator<Item = (&'static str, String)> {
    BUILT_IN.iter().map(|(name, text)| {
        let head = Source::new(name, text).read::<Head>();
        (*name, head.map_or_else(|bad| bad.to_string(), |head| head.about))
    })
}

/// Runs a built-in scenario, or the file of that name.
///
/// # Errors
/// See [`Failure`].
pub fn run(name: &str, sets: &[Set], options: &Options) -> Result<Report, Failure> {
    let mut source = find(name)?;
    for set in sets {
        source.set(set)?;
    }
    let head: Head = source.read()?;
    let kind = head.kind.get_ref();
    let Some((_, run)) = KINDS.iter().find(|(known, _)| known == kind) else {
        let message =
            format!("{kind:?} is no kind of scenario: use {}", KINDS.map(|of| of.0).join(", "));
        return Err(source.refuse(&Impossible::new(head.kind.span(), message)).into());
    };
    run(name, &source, options)
}

/// Whether a machine can be, with its devices.
fn check(machine: &Machine, devices: &[Device]) -> Result<(), Impossible> {
    machine.check()?;
    for (count, device) in (1..).zip(devices) {
        device.check(machine.nodes())?;
        let pages = machine.pages(*device.size.get_ref());
        let refusal = match pages {
            _ if count > DEVICES_MAX => format!("{count} devices: use {DEVICES_MAX} at most"),
            2..=DEVICE_PAGES_MAX => continue,
            pages => {
                format!("a device of {pages} pages after scaling: use 2 to {DEVICE_PAGES_MAX}")
            }
        };
        return Err(Impossible::new(device.size.span(), refusal));
    }
    Ok(())
}

fn find(name: &str) -> Result<Source, Failure> {
    if let Some((_, text)) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name) {
        return Ok(Source::new(&format!("{name}.toml"), text));
    }
    if Path::new(name).extension().is_none_or(|extension| extension != "toml") {
        let message = format!("there is no scenario {name:?}: use {}, or a file .toml", names());
        return Err(BadFile::new(message).into());
    }
    match std::fs::read_to_string(name) {
        Ok(text) => Ok(Source::new(name, &text)),
        Err(error) => Err(BadFile::new(format!("{name}: {error}")).into()),
    }
}

fn names() -> String {
    BUILT_IN.map(|(name, _)| name).join(", ")
}
