//! `bench jobs` with programs that end as they should not, and without programs.

mod common;

use common::{refuses, run, standalone, text, until};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// What stands for the binary with the verbs `usemem` and `run`: natively the result is 4096 bytes.
fn stand_in(directory: &Path, run: &str) -> PathBuf {
    let path = directory.join("stand-in");
    let usemem = "echo '4096 bytes / 1 usecs = 1 KB/s'";
    fs::write(&path, format!("#!/bin/sh\ncase $1 in usemem) {usemem} ;; run) {run} ;; esac\n"))
        .unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// `bench jobs usemem` with a stand-in that does this for `run`; it has its own temporary directory.
fn bench(directory: &Path, run: &str, options: &str) -> Command {
    let scratch = directory.join("scratch");
    fs::create_dir(&scratch).unwrap();
    let mut command = standalone();
    command.env("USERSWAP_BENCH_EXE", stand_in(directory, run)).env("TMPDIR", scratch);
    command.args(["bench", "jobs", "usemem", "--runs", "2"]).args(options.split_whitespace());
    command
}

fn left_in_scratch(directory: &Path) -> usize {
    fs::read_dir(directory.join("scratch")).unwrap().count()
}

/// The command lines of all processes that have this word in them.
fn processes_with(word: &str) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    let texts = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    texts.filter(|line| line.contains(word)).collect()
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_result_that_differs_is_reported_and_the_status_is_1() {
    let directory = TempDir::new().unwrap();
    let other = "echo '4095 bytes / 1 usecs = 1 KB/s'";
    let output = bench(directory.path(), other, "").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let table = text(&output.stdout);
    assert!(table.contains("| **wrong** | – |"), "{table}");
    assert!(table.contains("wrong: natively \"4096 bytes\", here \"4095 bytes\""), "{table}");
    assert_eq!(left_in_scratch(directory.path()), 0);
}

#[test]
fn a_job_that_fails_is_reported_and_the_status_is_1() {
    let directory = TempDir::new().unwrap();
    let output =
        bench(directory.path(), "echo 'no such page' >&2; exit 3", "--json").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let run = &json(&output)["rows"][0]["runs"][1];
    assert_eq!((&run["side"], &run["verdict"]), (&"thread".into(), &"failed".into()));
    assert!(run["why"].as_str().unwrap().ends_with("no such page"), "{run}");
}

#[test]
fn a_job_beyond_its_budget_has_failed_whatever_its_result() {
    let directory = TempDir::new().unwrap();
    let statistics = "while [ $1 != --stats ]; do shift; done; \
                      echo '{\"pgmajfault\": 7, \"budget_exceeded\": 512}' > $2";
    let same = format!("{statistics}; echo '4096 bytes / 9 usecs = 9 KB/s'");
    let output = bench(directory.path(), &same, "").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let table = text(&output.stdout);
    assert!(table.contains("| **failed** | – |"), "{table}");
    assert!(
        table.contains("failed: it went beyond its budget, by 2 MiB one after the other"),
        "{table}"
    );
}

#[test]
fn the_same_result_at_another_rate_is_right() {
    let directory = TempDir::new().unwrap();
    let same = "echo '4096 bytes / 9 usecs = 9 KB/s'";
    let output = bench(directory.path(), same, "--json --fault thread,signal").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let runs = json(&output)["rows"][0]["runs"].as_array().unwrap().clone();
    let sides: Vec<&str> = runs.iter().map(|run| run["side"].as_str().unwrap()).collect();
    assert_eq!(sides, ["native", "thread", "signal", "thread", "signal"]);
    assert!(runs.iter().all(|run| run["verdict"] == "same"), "{runs:?}");
}

#[test]
fn a_job_that_takes_too_long_is_killed_with_its_children() {
    let directory = TempDir::new().unwrap();
    // A number that no other process sleeps for.
    let seconds = format!("1{:09}", std::process::id());
    let endless = format!("sleep {seconds} & sleep {seconds}");
    let output = bench(directory.path(), &endless, "--limit 2 --json").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let runs = json(&output)["rows"][0]["runs"].as_array().unwrap().clone();
    // After the first one there is no second.
    assert_eq!(runs.len(), 2, "{runs:?}");
    assert_eq!(runs[1]["verdict"], "too-long");
    assert!(runs[1]["wall_s"].as_f64().unwrap() >= 2.0, "{runs:?}");
    assert_eq!(processes_with(&seconds), Vec::<String>::new());
    assert_eq!(left_in_scratch(directory.path()), 0);
}

#[test]
fn a_bench_of_jobs_that_is_asked_to_stop_leaves_nothing_and_shows_what_it_has() {
    let directory = TempDir::new().unwrap();
    let mark = directory.path().join("begun");
    let endless = format!("touch {}; sleep 1000", mark.display());
    let mut command = bench(directory.path(), &endless, "");
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("the job runs", || mark.exists());
    let status = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(128 + 15), "{output:?}");
    assert!(text(&output.stdout).starts_with("| job | memory |"), "{output:?}");
    assert_eq!(left_in_scratch(directory.path()), 0);
}

#[test]
fn programs_that_are_not_installed_are_rows_of_their_own() {
    let directory = TempDir::new().unwrap();
    // Nothing but what starts the bench itself.
    let path = directory.path().join("bin");
    fs::create_dir(&path).unwrap();
    std::os::unix::fs::symlink("/usr/bin/env", path.join("env")).unwrap();
    let same = "echo '4096 bytes / 9 usecs = 9 KB/s'";
    let output = bench(directory.path(), same, "node java sqlite numpy --venv")
        .arg(directory.path().join("venv"))
        .env("PATH", path)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let table = text(&output.stdout);
    for row in ["`node` | not installed: node |", "`java` | not installed: java and javac |"] {
        assert!(table.contains(row), "{table}");
    }
    assert!(table.contains("`numpy` | not installed: python3 -m venv: cannot start"), "{table}");
    let note = "not measured, because not installed: ";
    let note = table.lines().find_map(|line| line.strip_prefix(note)).unwrap();
    assert!(["node", "java", "sqlite", "numpy"].iter().all(|job| note.contains(job)), "{table}");
}

#[test]
fn wrong_values_are_named_on_one_line_and_end_with_status_2() {
    for (options, value) in [
        ("--ram 12Q", "\"12Q\""),
        ("--runs 0", "'0'"),
        ("--scale 0", "'0'"),
        ("--limit x", "'x'"),
        ("--venv /proc/self", "/proc/self"),
        ("--swap mem:1K", "1K is too small"),
        ("--swap mem:1G --vs zswap", "mem:1G"),
    ] {
        refuses(&format!("bench jobs {options}"), value);
    }
}

#[test]
fn the_list_says_what_every_job_does() {
    let list = text(&run("bench jobs --list").stdout);
    for job in ["numpy", "pandas", "polars", "duckdb", "sqlite", "java", "node", "usemem"] {
        assert!(list.lines().any(|line| line.starts_with(&format!("{job} "))), "{list}");
    }
}
