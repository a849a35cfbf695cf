//! The kernel's compressed memory in front of a swap file: zswap, set up for a run, and afterwards as it was.
//!
//! It compresses with the algorithm of the other side where the kernel has that, and its pool is bounded where no control group
//! contains it; whether it shrinks before it is full is as the administrator left it.

use super::{KernelError, Tuning};
use crate::machine::Machine;
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Whether it is on.
const ENABLED: &str = "/sys/module/zswap/parameters/enabled";
/// The name of its algorithm.
const COMPRESSOR: &str = "/sys/module/zswap/parameters/compressor";
/// What its pages may take of the machine's memory, in percent.
const POOL_PERCENT: &str = "/sys/module/zswap/parameters/max_pool_percent";
/// Has a line that says what they take.
const MEMINFO: &str = "/proc/meminfo";

/// Between two looks at what they take: some pages more or less.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// Finds out whether the kernel has it.
pub(super) fn check() -> Result<(), KernelError> {
    tuning()?;
    taken().map(drop)
}

/// What is going to be another, the switch last: it is switched off before the pool may grow again.
pub(super) fn tuning() -> Result<Vec<Tuning>, KernelError> {
    let of = |file| Ok(Tuning { file, before: fs::read(file).map_err(|why| failed(file, why))? });
    [ENABLED, COMPRESSOR, POOL_PERCENT].into_iter().map(of).collect()
}

/// Has what the kernel swaps from now on go there first.
pub(super) fn switch_on(
    algorithm: Option<&str>,
    pool_bytes_max: Option<u64>,
) -> Result<(), KernelError> {
    if let Some(algorithm) = algorithm {
        // A kernel that has it not keeps the one it had: what a run compressed with is told.
        let _ = fs::write(COMPRESSOR, algorithm);
    }
    if let Some(bytes) = pool_bytes_max {
        let percent = percent(bytes, Machine::this().ram_bytes);
        fs::write(POOL_PERCENT, percent.to_string()).map_err(|why| failed(POOL_PERCENT, why))?;
    }
    fs::write(ENABLED, "Y").map_err(|why| failed(ENABLED, why))?;
    match fs::read(ENABLED).map_err(|why| failed(ENABLED, why))?.as_slice() {
        // A kernel that cannot make its pool says so in its log only.
        [b'N', ..] => Err(failed(ENABLED, io::Error::other("it stays off"))),
        _ => Ok(()),
    }
}

/// As much as fits, but what the kernel can be told.
fn percent(bytes: u64, of: u64) -> u64 {
    (bytes * 100 / of.max(1)).clamp(1, 100)
}

/// What it compresses with, as far as can be known.
pub(super) fn algorithm() -> Option<String> {
    fs::read_to_string(COMPRESSOR).ok().map(|name| name.trim().to_owned())
}

/// Looks at what its pages take.
#[derive(Debug)]
pub(super) struct Pool {
    is_over: Arc<AtomicBool>,
    looking: JoinHandle<u64>,
}

impl Pool {
    pub(super) fn watch() -> Result<Self, KernelError> {
        let before = taken()?;
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let looking = thread::spawn(move || {
            let mut most = before;
            while !ends.load(Ordering::Relaxed) {
                most = most.max(taken().unwrap_or_default());
                thread::sleep(BETWEEN_LOOKS);
            }
            most - before
        });
        Ok(Self { is_over, looking })
    }

    /// The most that they took since, in bytes.
    pub(super) fn bytes_max(self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        self.looking.join().expect("it only reads numbers")
    }
}

/// In bytes, of all that use it.
fn taken() -> Result<u64, KernelError> {
    let text = fs::read_to_string(MEMINFO).map_err(|why| failed(MEMINFO, why))?;
    let none = || failed(MEMINFO, io::Error::other("it has no line Zswap"));
    in_meminfo(&text).ok_or_else(none)
}

fn in_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Zswap:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

fn failed(path: &str, source: io::Error) -> KernelError {
    KernelError::Zswap { path: path.into(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_compressed_pages_take_is_in_meminfo() {
        let text = "SwapFree:  0 kB\nZswap:          1024 kB\nZswapped:       4096 kB\n";
        assert_eq!(in_meminfo(text), Some(1 << 20));
        assert_eq!(in_meminfo("SwapFree:  0 kB\nZswapped:       4096 kB\n"), None);
    }

    #[test]
    fn the_pool_is_bounded_in_percent_of_the_machine() {
        assert_eq!(percent(256 << 20, 25 << 30), 1);
        assert_eq!(percent(512 << 20, 25 << 30), 2);
        assert_eq!(percent(1 << 20, 25 << 30), 1);
        assert_eq!(percent(50 << 30, 25 << 30), 100);
    }
}
