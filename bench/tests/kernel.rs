//! The kernel's side on a real kernel: it swaps, and it leaves nothing, whatever happens.

mod common;

use common::{run, standalone, text, until};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;
use userswap_bench::kernel::{self, KernelError};

const MIB: u64 = 1 << 20;
const SIGKILL: i32 = 9;

/// Whether this test can run; where it must be able to, not being root is a failure.
fn root() -> bool {
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    if !is_root {
        eprintln!("NOT TESTED: the kernel's swap needs root (swapon, memory control group)");
        let in_ci = std::env::var("CI").is_ok_and(|value| value == "true");
        assert!(!in_ci, "CI=true, but not root: the kernel's side stays untested");
    }
    is_root
}

/// A directory on a disk, as the default temporary one may be in RAM.
fn directory() -> TempDir {
    tempfile::tempdir_in("/var/tmp").unwrap()
}

/// What is left of a bench, by the directory it swapped to and its process id.
fn remains(directory: &Path, pid: u32) -> Vec<String> {
    let swaps = fs::read_to_string("/proc/swaps").unwrap();
    let mut remains: Vec<String> =
        swaps.lines().filter(|line| line.contains(name(directory))).map(str::to_owned).collect();
    let files = fs::read_dir(directory).unwrap();
    remains.extend(files.map(|file| file.unwrap().path().display().to_string()));
    remains.extend(cgroups(pid));
    remains
}

fn name(directory: &Path) -> &str {
    directory.file_name().unwrap().to_str().unwrap()
}

/// The control groups that process `pid` made: at the top of one of the hierarchies.
fn cgroups(pid: u32) -> Vec<String> {
    let prefix = format!("userswap-bench-{pid}-");
    let top = Path::new("/sys/fs/cgroup");
    let tops = fs::read_dir(top).unwrap().map(|entry| entry.unwrap().path());
    let names = |path: &Path| -> Vec<String> {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    let all = tops.flat_map(|path| names(&path)).chain(names(top));
    all.filter(|name| name.starts_with(&prefix)).collect()
}

fn usemem(options: &str) -> Command {
    let mut command = standalone();
    command.arg("usemem").args(options.split_whitespace());
    command
}

/// A bench that stays in its first run on the kernel for minutes, caught there.
fn bench_in_the_middle(directory: &Path) -> Child {
    bench_beside("kernel", directory)
}

fn bench_beside(rival: &str, directory: &Path) -> Child {
    let mut child = start_beside(rival, directory);
    until("the kernel swaps", || {
        // On a slow disk the kernel may find its control group out of memory before it swaps, and end the load.
        if child.try_wait().unwrap().is_some() {
            child = start_beside(rival, directory);
        }
        let swaps = fs::read_to_string("/proc/swaps").unwrap();
        let used = swaps.lines().find(|line| line.contains(name(directory)));
        used.is_some_and(|line| line.split_whitespace().nth(3).is_some_and(|used| used != "0"))
    });
    assert_eq!(cgroups(child.id()).len(), 1);
    child
}

fn start_beside(rival: &str, directory: &Path) -> Child {
    standalone()
        .args(["bench", "swap-w-seq", "--ram", "24M", "--size", "64M", "--vs", rival])
        .args(["--runs", "1", "--step", "4096", "--repeat", "2000", "--json", "--swap"])
        .arg(directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn signal(pid: u32, signal: &str) {
    let status = Command::new("kill").args([signal, &pid.to_string()]).status().unwrap();
    assert!(status.success());
}

/// The cleaner of a bench: the child that bears its name.
fn cleaner_of(bench: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{bench}/task/{bench}/children")).unwrap();
    let mut children = children.split_whitespace().map(|pid| pid.parse::<u32>().unwrap());
    let is_cleaner =
        |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap() == "userswap-clean\n";
    children.find(is_cleaner).expect("a bench on the kernel has a cleaner")
}

#[test]
fn a_limited_program_swaps_and_nothing_is_left_of_it() {
    if !root() {
        return;
    }
    let directory = directory();
    let run = || {
        let mut command = usemem("-q -r 2 64m");
        kernel::run_limited(&mut command, 24 * MIB, 96 * MIB, directory.path()).unwrap()
    };
    // The kernel kills now and then for want of memory with swap left, where the disk is slow.
    let mut runs = std::iter::repeat_with(run).take(5);
    let finished = runs.find(|finished| finished.status.signal() != Some(SIGKILL));
    let finished = finished.expect("one run of five is not killed");
    assert!(finished.status.success(), "{finished:?}");
    assert!(finished.stdout.contains(" KB/s"), "{finished:?}");
    let usage = finished.user + finished.sys;
    assert!(!finished.wall.is_zero() && !usage.is_zero(), "{finished:?}");
    assert_eq!(remains(directory.path(), 0), Vec::<String>::new());
}

#[test]
fn the_program_runs_inside_the_limit() {
    if !root() {
        return;
    }
    let directory = directory();
    let script = "group=$(sed -n 's/.*\\(userswap-bench-.*\\)/\\1/p' /proc/self/cgroup | head -n 1); \
                  cd /sys/fs/cgroup; \
                  cat */$group/memory.limit_in_bytes $group/memory.max 2>/dev/null; true";
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    let finished = kernel::run_limited(&mut command, 24 * MIB, 8 * MIB, directory.path()).unwrap();
    assert_eq!(finished.stdout.trim(), (24 * MIB).to_string(), "{finished:?}");
}

#[test]
fn a_program_that_cannot_start_leaves_nothing_either() {
    if !root() {
        return;
    }
    let directory = directory();
    let mut command = Command::new("/nonexistent/program");
    let error = kernel::run_limited(&mut command, 24 * MIB, 8 * MIB, directory.path()).unwrap_err();
    assert!(matches!(error, KernelError::Run(_)), "{error}");
    assert_eq!(remains(directory.path(), 0), Vec::<String>::new());
}

#[test]
fn a_disk_that_is_too_small_is_an_error_that_leaves_nothing() {
    if !root() {
        return;
    }
    let directory = directory();
    let huge = 1 << 43;
    let error = kernel::run_limited(&mut usemem("1m"), 24 * MIB, huge, directory.path());
    assert!(matches!(error, Err(KernelError::SwapFile { .. })), "{error:?}");
    assert_eq!(remains(directory.path(), 0), Vec::<String>::new());
}

#[test]
fn tmpfs_is_refused_before_anything_runs() {
    if !root() {
        return;
    }
    let output = run("bench swap-w-seq --ram 24M --size 64M --vs kernel --swap /dev/shm");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let message = text(&output.stderr);
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.contains("/dev/shm"), "{message}");
}

/// Two processes, and the one that starts them, need the least budget each.
fn ram_of(case: &str) -> &'static str {
    if case.contains("swapin") { "48M" } else { "24M" }
}

/// Compressed pages are part of the budget on both sides, or on none; what zram takes is said either way.
fn counts(case: &str, run: &serde_json::Value) {
    let part = |name: &str| run["within"][name].as_u64();
    let both = part("limit_bytes").zip(part("compressed_bytes_max"));
    let is_right = |(limit, zram): (u64, u64)| {
        let share = (limit + zram) * 1000 / (24 * MIB);
        limit < 18 * MIB && zram > 6 * MIB && (980..=1005).contains(&share)
    };
    assert_eq!(both.map(is_right), case.contains("zram:").then_some(true), "{case}: {run}");
    let is_on_top = run["compressed_bytes_on_top"].as_u64().is_some_and(|bytes| bytes > MIB);
    assert_eq!(is_on_top, case.contains("--vs zram") && both.is_none(), "{case}: {run}");
}

#[test]
fn both_sides_run_in_turns_and_give_a_ratio() {
    if !root() {
        return;
    }
    let directory = directory();
    let disk =
        ["swap-w-seq", "swapin --tasks 2", "page-rand-read --tasks 2", "hash-join --tasks 2"];
    let cases = disk.map(|case| format!("{case} --vs kernel"));
    let zram = [
        "zipf-write --vs zram --swap",
        "page-rand-read --vs zram --data 4:1 --swap zram:128M --swap",
    ];
    let cases = cases.into_iter().map(|case| format!("{case} --swap"));
    for case in cases.chain(zram.map(str::to_owned)) {
        let line = format!("bench --ram {} --size 64M --runs 2 --json {case}", ram_of(&case));
        let output = run(&format!("{line} {}", directory.path().display()));
        assert!(output.status.success(), "{output:?}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let runs = report["runs"].as_array().unwrap();
        let engines: Vec<&str> = runs.iter().map(|run| run["engine"].as_str().unwrap()).collect();
        assert_eq!(engines, ["userswap", "kernel", "userswap", "kernel"]);
        let kernel = report["median_wall_s"]["kernel"].as_f64().unwrap();
        let userswap = report["median_wall_s"]["userswap"].as_f64().unwrap();
        let ratio = report["ratio"].as_f64().unwrap();
        assert!((ratio / (kernel / userswap) - 1.0).abs() < 1e-9, "{report}");
        let kernel_faults = report["median_major_faults"]["kernel"].as_f64().unwrap();
        assert!(kernel_faults > 0.0, "{report}");
        runs.iter().filter(|run| run["engine"] == "kernel").for_each(|run| counts(&case, run));
        let has_hits =
            report["hit_rate"]["kernel"].as_f64().is_some_and(|rate| rate > 0.0 && rate < 1.0);
        assert_eq!(has_hits, case.contains("rand") || case.contains("zipf"));
        assert_eq!(remains(directory.path(), 0), Vec::<String>::new());
    }
}

#[test]
fn a_bench_that_is_killed_leaves_nothing() {
    if !root() {
        return;
    }
    let directory = directory();
    let mut bench = bench_in_the_middle(directory.path());
    bench.kill().unwrap();
    bench.wait().unwrap();
    until("everything is removed", || remains(directory.path(), bench.id()).is_empty());
}

#[test]
fn a_bench_that_is_asked_to_stop_cleans_up_before_it_ends() {
    if !root() {
        return;
    }
    for (name, number) in [("-TERM", 15), ("-INT", 2), ("-HUP", 1), ("-QUIT", 3)] {
        let directory = directory();
        let bench = bench_in_the_middle(directory.path());
        let pid = bench.id();
        signal(pid, name);
        let output = bench.wait_with_output().unwrap();
        assert_eq!(remains(directory.path(), pid), Vec::<String>::new());
        assert_eq!(output.status.code(), Some(128 + number), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
    }
}

#[test]
fn zswap_is_on_for_a_run_beside_it_and_as_it_was_whatever_ends_the_bench() {
    const ENABLED: &str = "/sys/module/zswap/parameters/enabled";
    if !root() {
        return;
    }
    let settings = || {
        let file = |name| fs::read_to_string(Path::new(ENABLED).with_file_name(name)).ok();
        ["enabled", "compressor", "max_pool_percent"]
            .map(file)
            .into_iter()
            .collect::<Option<Vec<_>>>()
    };
    let Some(before) = settings() else {
        let output = run("bench swap-w-seq --vs zswap");
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.lines().count() == 1 && message.contains("CONFIG_ZSWAP"), "{message}");
        return;
    };
    for (name, code) in [("-KILL", None), ("-TERM", Some(143))] {
        let directory = directory();
        let bench = bench_beside("zswap", directory.path());
        // Its swap file is there before zswap is on, and programs of other tests may swap to it until then.
        until("zswap is on", || fs::read_to_string(ENABLED).unwrap() == "Y\n");
        let pid = bench.id();
        signal(pid, name);
        assert_eq!(bench.wait_with_output().unwrap().status.code(), code);
        until("everything is removed", || remains(directory.path(), pid).is_empty());
        assert_eq!(settings().unwrap(), before, "after {name}");
    }
}

#[test]
fn a_bench_whose_cleaner_is_killed_cleans_up_itself() {
    if !root() {
        return;
    }
    let directory = directory();
    let bench = bench_in_the_middle(directory.path());
    let pid = bench.id();
    signal(cleaner_of(pid), "-KILL");
    signal(pid, "-TERM");
    let output = bench.wait_with_output().unwrap();
    assert_eq!(remains(directory.path(), pid), Vec::<String>::new());
    assert_eq!(output.status.code(), Some(143), "{output:?}");
}

#[test]
fn a_job_that_is_killed_on_the_kernels_swap_leaves_nothing() {
    if !root() {
        return;
    }
    let directory = directory();
    let tools = tempfile::tempdir().unwrap();
    let stand_in = tools.path().join("stand-in");
    // Endless where memory is limited only.
    let script = "#!/bin/sh\ngrep -q userswap-bench /proc/self/cgroup && sleep 1000\n\
                  echo '4096 bytes / 1 usecs = 1 KB/s'\n";
    fs::write(&stand_in, script).unwrap();
    fs::set_permissions(&stand_in, fs::Permissions::from_mode(0o755)).unwrap();
    let child = standalone()
        .env("USERSWAP_BENCH_EXE", &stand_in)
        .args(["bench", "jobs", "usemem", "--vs", "kernel", "--limit", "2", "--json", "--swap"])
        .arg(directory.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let runs = report["rows"][0]["runs"].as_array().unwrap();
    let killed = runs.iter().find(|run| run["side"] == "kernel").unwrap();
    assert_eq!(killed["verdict"], "too-long");
    assert_eq!(report["ratios"][0]["bound"], "at-least");
    assert_eq!(remains(directory.path(), pid), Vec::<String>::new());
}
