//! How a program was doing at one moment of a record.
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Mappings of a sample at most: the largest ones.
pub const MAPPINGS_MAX: usize = 512;

/// A moment. What counts events has those since the sample before; what was zero is left out, and so is what has not changed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// RAM, all nodes together.
    pub pages: Pages,
    /// Counters by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, u64>,
    /// How long faults took.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fault_latency: Vec<Bucket>,
    /// Nanoseconds of all faults together.
    pub fault_ns: u64,
    /// Nanoseconds in which at least one thread waited for a page's read, or for reclaim.
    pub stall_ns: u64,
    /// The devices.
    pub devices: Vec<DeviceSample>,
    /// Settings that have changed, at the start all that are followed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// The program's mappings, if they have changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mappings: Option<Vec<Mapping>>,
    /// Files with code that the calls of `origins` are in, those that no sample before has told: numbered from 0.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<String>,
    /// Where mappings come from, what no sample before has told: numbered from 1.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<Origin>,
    /// CPU time of all threads of the process so far.
    pub cpu_ms: u64,
    /// Of it, outside the kernel.
    pub user_ms: u64,
    /// The program that the process was about to become by exec; a sample after this one says that it could not.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub exec: String,
}

/// RAM in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Pages {
    /// Allowed.
    pub budget: u64,
    /// Mapped in regions.
    pub resident: u64,
    /// On their second chance, or read ahead.
    pub cached: u64,
    /// Present and unused.
    pub free: u64,
    /// In frames whose write is under way.
    pub writing: u64,
    /// Held by the program's own caches, and by compressed pages.
    pub charged: u64,
}

/// Faults that took a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Bucket {
    /// Less than this.
    pub below_ns: u64,
    /// So many.
    pub faults: u64,
}

/// A swap device.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceSample {
    /// As the user named it.
    pub name: String,
    /// Its slots in use, in pages.
    pub used_pages: u64,
    /// Bytes read since the last sample.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Nanoseconds in which it had a request under way.
    pub busy_ns: u64,
}

/// Consecutive pages that the program has mapped together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Mapping {
    /// Its first page.
    pub first: u32,
    /// So many.
    pub count: u32,
    /// The number of its origin; 0 where that is not known.
    #[serde(skip_serializing_if = "is_zero")]
    pub origin: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Where a mapping comes from.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Origin {
    /// What it is called; empty if it has no name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The calls that asked for it, the nearest one first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Call>,
}

/// An address in a function that has called another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Call {
    /// The number of the file that its code is in.
    pub object: u32,
    /// Its place in that file, in bytes.
    pub offset: u64,
}
