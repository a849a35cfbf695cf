//! A bench of many rows that is asked to stop between two of them.

mod common;

use common::{standalone, text, until};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Whether a process has a file open in a directory.
fn has_open(pid: u32, directory: &Path) -> bool {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let mut paths = open.filter_map(|entry| fs::read_link(entry.path()).ok());
    paths.any(|path| path.parent() == Some(directory))
}

#[test]
fn a_signal_while_the_disk_is_measured_does_not_lose_the_rows_before() {
    // On a disk: the default temporary directory may be in RAM.
    let swap = tempfile::tempdir_in("/var/tmp").unwrap();
    let tools = tempfile::tempdir().unwrap();
    let stand_in = tools.path().join("stand-in");
    fs::write(&stand_in, "#!/bin/sh\necho '4096 bytes / 1 usecs = 1 KB/s'\n").unwrap();
    fs::set_permissions(&stand_in, fs::Permissions::from_mode(0o755)).unwrap();
    let mut bench = standalone()
        .env("USERSWAP_BENCH_EXE", &stand_in)
        .args([
            "bench",
            "all",
            "--case",
            "swap-w-seq",
            "swap-w-rand",
            "--runs",
            "1",
            "--size",
            "16M",
            "--swap",
        ])
        .arg(swap.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = bench.id();
    let mut said = BufReader::new(bench.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(said.any(|line| line.starts_with("2 of ")), "no row begins after the first");
    until("its disk is measured", || has_open(pid, swap.path()));
    let status = Command::new("kill").args(["-TERM", &pid.to_string()]).status().unwrap();
    assert!(status.success());
    let output = bench.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(128 + 15), "{output:?}");
    assert!(text(&output.stdout).contains("| `swap-w-seq` |"), "{output:?}");
}
