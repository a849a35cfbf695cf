//! The first line of a trace: what it is of.
use serde::{Deserialize, Serialize};

/// The version of a trace.
pub const VERSION: u32 = 3;

/// The version of a record: a trace with [`Sample`](crate::Sample)s in it.
pub const RECORD_VERSION: u32 = 4;

/// Those of both before [`Kind::Written`](crate::Kind::Written), which are read as well. Others are refused.
pub(crate) const OLDER: Versions = Versions { trace: 1, record: 2 };

/// Those of today.
pub(crate) const NEWEST: Versions = Versions { trace: VERSION, record: RECORD_VERSION };

/// The numbers of one time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Versions {
    pub trace: u32,
    pub record: u32,
}

impl Versions {
    /// The number of a file with this header.
    pub fn of(self, header: &Header) -> u32 {
        if header.record.is_some() { self.record } else { self.trace }
    }
}

/// What the line begins with, before the version.
pub(crate) const MAGIC: &str = "userswap-trace ";

/// Bytes of the line at most.
pub(crate) const LINE_MAX: usize = 8192;

/// What was recorded, and how.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Header {
    /// The program, as the kernel names it.
    pub program: String,
    /// Its process.
    pub pid: u32,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Pages of RAM that it could have when the trace began.
    pub budget_pages: u32,
    /// Pages of managed memory that there can be: all numbers are below.
    pub pages: u32,
    /// How faults were delivered.
    pub fault: String,
    /// How pages travelled.
    pub transfer: String,
    /// What was read ahead.
    pub readahead: String,
    /// The process was forked with pages that the trace does not have.
    pub forked: bool,
    /// What a record says beyond a trace; None in a trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<RecordHeader>,
}

/// What a record says at its start.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordHeader {
    /// The program and its arguments.
    pub command: String,
    /// The address of page 0.
    pub address: u64,
    /// CPUs that the process may use.
    pub cpus: u32,
}

impl Header {
    /// The line, with its end.
    pub(crate) fn line(&self) -> String {
        let fields = serde_json::to_string(self).expect("plain fields are JSON");
        format!("{MAGIC}{} {fields}\n", NEWEST.of(self))
    }
}
