//! The first line of a trace: what it is of.
use serde::{Deserialize, Serialize};

/// The version of the format; another one is refused.
pub const VERSION: u32 = 1;

/// What the line begins with, before the version.
pub(crate) const MAGIC: &str = "userswap-trace ";

/// Bytes of the line at most.
pub(crate) const LINE_MAX: usize = 4096;

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
}

impl Header {
    /// The line, with its end.
    pub(crate) fn line(&self) -> String {
        let fields = serde_json::to_string(self).expect("plain fields are JSON");
        format!("{MAGIC}{VERSION} {fields}\n")
    }
}
