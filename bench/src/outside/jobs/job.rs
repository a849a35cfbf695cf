//! The jobs: what each executes, and how large it is.

use crate::choice;
use clap::ValueEnum;
use serde::Serialize;
use std::borrow::Cow;
use std::fmt;
use userswap::internals::PAGE_BYTES;

/// A job that people run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Job {
    /// Arrays of random numbers: added, their standard deviation, sorted (numpy)
    Numpy,
    /// A table: groups, a merge, a stable sort by values (pandas)
    Pandas,
    /// A table on all CPUs: groups, a join, a sort (polars)
    Polars,
    /// A database in memory on four threads: a table, groups, the table joined with itself (duckdb)
    Duckdb,
    /// A database in memory: rows, two indexes, an integrity check (python3's sqlite3)
    Sqlite,
    /// A HashMap of strings: filled, looked up, half replaced, with the collector G1 (java and javac)
    Java,
    /// A Map of objects: filled, looked up, half replaced (node)
    Node,
    /// Random writes to a page each, in two passes that check what they replace (usemem)
    Usemem,
}

/// What executes a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Runtime {
    /// python3 with packages.
    Venv,
    /// python3 as it is.
    Python,
    Node,
    Java,
    /// The load generator of the running program.
    Usemem,
}

/// What a job executes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Program {
    pub(super) runtime: Runtime,
    /// The name of its file, and the text in it.
    pub(super) file: &'static str,
    pub(super) text: &'static str,
    /// What it works on at scale 1: rows, entries or bytes. Chosen so that it needs 0.8 to 1.6 GB, and a run with 512M of
    /// RAM takes a minute or two rather than an hour.
    count: u64,
}

macro_rules! program {
    ($runtime:ident, $file:literal, $count:expr) => {
        Program {
            runtime: Runtime::$runtime,
            file: $file,
            text: include_str!(concat!("programs/", $file)),
            count: $count,
        }
    };
}

impl Job {
    pub(super) fn program(self) -> Program {
        match self {
            Self::Numpy => program!(Venv, "numpy_arrays.py", 40_000_000),
            Self::Pandas => program!(Venv, "pandas_table.py", 15_000_000),
            Self::Polars => program!(Venv, "polars_table.py", 15_000_000),
            Self::Duckdb => program!(Venv, "duckdb_tables.py", 8_000_000),
            Self::Sqlite => program!(Python, "sqlite_index.py", 500_000),
            Self::Java => program!(Java, "HashMapJob.java", 6_000_000),
            Self::Node => program!(Node, "node_map.js", 2_500_000),
            Self::Usemem => {
                Program { runtime: Runtime::Usemem, file: "", text: "", count: 1 << 30 }
            }
        }
    }

    /// What it works on at `scale`; of bytes whole pages.
    pub(super) fn count(self, scale: f64) -> u64 {
        let Program { runtime, count, .. } = self.program();
        let count = (count as f64 * scale) as u64;
        match runtime {
            Runtime::Usemem => count.next_multiple_of(PAGE_BYTES as u64).max(1 << 20),
            _ => count.max(1000),
        }
    }

    /// What it does, in a line.
    pub(super) fn about(self) -> String {
        let value = self.to_possible_value().expect("no job is hidden");
        value.get_help().map(ToString::to_string).unwrap_or_default()
    }

    /// The part of what a run printed that all runs must have in common.
    pub(super) fn result(self, stdout: &str) -> Cow<'_, str> {
        match self {
            // Bytes, and after them their rate; the other lines are times.
            Self::Usemem => {
                let bytes = stdout.lines().filter_map(|line| Some(line.split_once(" / ")?.0));
                Cow::Owned(bytes.collect::<Vec<_>>().join("\n"))
            }
            _ => Cow::Borrowed(stdout),
        }
    }
}

impl fmt::Display for Job {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&choice::name(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_no_result() {
        let one = "1048576 bytes / 17 usecs = 60235 KB/s\n";
        let other = "1048576 bytes / 99 usecs = 10343 KB/s\n9 usecs to free memory\n";
        assert_eq!(Job::Usemem.result(one), Job::Usemem.result(other));
        assert_ne!(Job::Usemem.result(one), Job::Usemem.result("4096 bytes / 17 usecs = 9 KB/s"));
        assert_ne!(Job::Sqlite.result(one), Job::Sqlite.result(other));
    }

    #[test]
    fn every_job_says_what_it_does_and_has_something_to_do() {
        for &job in Job::value_variants() {
            assert!(!job.about().is_empty() && job.count(1e-9) > 0, "{job}");
            assert!(job.count(2.0) == 2 * job.count(1.0), "{job}");
        }
    }
}
