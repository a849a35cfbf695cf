//! The kernel's swapoff of a program's memory, timed.
//!
//! The load fills its memory inside its control group, has it paged out to the new swap file, and waits; the
//! group gives up what is left in the swap cache. Then swapoff reads everything back, page by page, as the
//! kernel does it. `vm.page-cluster` is set for that moment and restored by the cleaner,
//! whatever happens.

use super::{Baseline, KernelError, Limits, Tuning, c_path};
use crate::interrupt::Interrupt;
use crate::process::RunError;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use userswap::internals::bench::process::{self as sys, Pid};
use userswap::internals::bench::swap;

/// Where the kernel's readahead is tuned.
pub(super) const PAGE_CLUSTER: &str = "/proc/sys/vm/page-cluster";
/// With less than this share of the load out of RAM, in percent, nothing is measured.
const OUT_PERCENT: u64 = 95;
/// What the program itself may keep in RAM, and what the group has for it.
const PROGRAM_BYTES: u64 = 8 << 20;
/// How often the group is told to give its memory up: what is being written cannot go at once.
const RECLAIMS_MAX: u32 = 100;

/// What swapoff has to read back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KernelLoad {
    pub(crate) bytes: u64,
    pub(crate) page_cluster: u8,
    /// The line that says that everything is out.
    pub(crate) out_mark: &'static str,
}

/// Seconds that the kernel's swapoff takes for the memory of `command`.
///
/// # Errors
/// When the swap file or the control group cannot be made, the load fails or does not leave memory, or
/// something cannot be removed.
pub(crate) fn seconds(
    command: &mut Command,
    limits: &Limits<'_>,
    load: KernelLoad,
) -> Result<f64, KernelError> {
    limits.place.check()?;
    let interrupt = Interrupt::hold().map_err(RunError::from)?;
    let tuned = |source| KernelError::Tuning { path: PAGE_CLUSTER.into(), source };
    let before = fs::read(PAGE_CLUSTER).map_err(tuned)?;
    let baseline = Baseline::set_up(limits, vec![Tuning { file: PAGE_CLUSTER, before }])?;
    interrupt.check().map_err(RunError::from)?;
    fs::write(PAGE_CLUSTER, load.page_cluster.to_string()).map_err(tuned)?;
    baseline.cgroup.enter(command)?;
    let timed = time(command, &baseline, load, &interrupt);
    baseline.tear_down()?;
    timed
}

fn time(
    command: &mut Command,
    baseline: &Baseline,
    load: KernelLoad,
    interrupt: &Interrupt,
) -> Result<f64, KernelError> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    sys::tie_to_this_thread(command);
    let program = command.get_program().display().to_string();
    let mut child = command.spawn().map_err(|source| RunError::Start { program, source })?;
    let pid = Pid::try_from(child.id()).expect("a process id is a pid_t");
    let covered = interrupt.cover(pid);
    let timed = time_one(&mut child, baseline, load);
    // It looks at its memory when its input ends.
    drop(child.stdin.take());
    let ended = child.wait_with_output().map_err(RunError::from);
    sys::kill_group(pid);
    drop(covered);
    interrupt.check().map_err(RunError::from)?;
    let ended = ended?;
    let stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
    match ended.status.success() {
        true => timed,
        false => Err(KernelError::Load { status: ended.status, stderr }),
    }
}

fn time_one(child: &mut Child, baseline: &Baseline, load: KernelLoad) -> Result<f64, KernelError> {
    let stdout = child.stdout.take().expect("the output is a pipe");
    let mut line = String::new();
    // Bounded: a mark is one line, and a program that says more is no load of ours.
    let mut stdout = BufReader::new(stdout.take(4096));
    stdout.read_line(&mut line).map_err(RunError::from)?;
    if line.trim_end() != load.out_mark {
        // It has failed; its caller says how.
        return Err(KernelError::NotOut { used: 0, bytes: load.bytes });
    }
    empty(baseline, load.bytes)?;
    let swap_file = &baseline.cleaner.swap_file;
    let swaps = fs::read_to_string("/proc/swaps").map_err(RunError::from)?;
    let used = used_bytes(&swaps, swap_file).unwrap_or(0);
    if used < load.bytes / 100 * OUT_PERCENT {
        return Err(KernelError::NotOut { used, bytes: load.bytes });
    }
    let begin = Instant::now();
    let path = c_path(swap_file);
    let refused = |source| KernelError::SwapFile { path: swap_file.to_owned(), source };
    swap::swapoff(&path).map_err(refused)?;
    Ok(begin.elapsed().as_secs_f64())
}

/// Has the kernel reclaim all of the load's memory, the swap cache included.
fn empty(baseline: &Baseline, bytes: u64) -> Result<(), KernelError> {
    let allowed = bytes / 100 * (100 - OUT_PERCENT);
    for _ in 0..RECLAIMS_MAX {
        baseline.cgroup.reclaim()?;
        if baseline.cgroup.usage_bytes()? <= allowed {
            return Ok(());
        }
    }
    let left = baseline.cgroup.usage_bytes()?;
    // A small load is not much more than the program itself.
    let used = bytes.saturating_sub(left.min(bytes));
    if left <= allowed.max(PROGRAM_BYTES) {
        return Ok(());
    }
    Err(KernelError::NotOut { used, bytes })
}

/// What a `/proc/swaps` says is in use of a file.
fn used_bytes(swaps: &str, file: &Path) -> Option<u64> {
    let name = file.to_str()?;
    let line = swaps.lines().find(|line| line.split_whitespace().next() == Some(name))?;
    line.split_whitespace().nth(3)?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_use_of_a_swap_file_is_found_by_its_name() {
        let swaps = "Filename\tType\tSize\tUsed\tPriority\n/a/b.swap  file\t1024\t\t16\t\t-2\n";
        assert_eq!(used_bytes(swaps, Path::new("/a/b.swap")), Some(16384));
        assert_eq!(used_bytes(swaps, Path::new("/a/b")), None);
    }
}
