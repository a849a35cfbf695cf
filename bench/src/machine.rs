//! What the figures were measured on.

use crate::size;
use serde::Serialize;
use std::fmt;
use std::fs;

/// The machine, as a reader of a report needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cpus: usize,
    pub(crate) ram_bytes: u64,
}

impl fmt::Display for Machine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} x {}, {}", self.cpus, self.cpu, size::display(self.ram_bytes))
    }
}

impl Machine {
    pub(crate) fn this() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            cpu: cpu_model(&cpuinfo).unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            ram_bytes: meminfo_bytes("MemTotal:"),
        }
    }
}

/// The kernel's release, as `uname -r` prints it.
pub(crate) fn kernel_release() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim().to_owned()
}

/// Memory that programs could have now without swapping.
pub(crate) fn available_bytes() -> u64 {
    meminfo_bytes("MemAvailable:")
}

fn cpu_model(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn meminfo_bytes(key: &str) -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    parse_meminfo(&meminfo, key).unwrap_or(0)
}

fn parse_meminfo(meminfo: &str, key: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(key))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_understood() {
        let meminfo = "MemTotal:       24684096 kB\nMemFree:         100 kB\n";
        assert_eq!(parse_meminfo(meminfo, "MemTotal:"), Some(24_684_096 * 1024));
        let cpuinfo = "processor\t: 0\nmodel name\t: Some CPU @ 2.00GHz\n";
        assert_eq!(cpu_model(cpuinfo).as_deref(), Some("Some CPU @ 2.00GHz"));
    }

    #[test]
    fn this_machine_has_memory_and_a_kernel() {
        assert!(Machine::this().ram_bytes > 0);
        assert!(!kernel_release().is_empty());
    }
}
