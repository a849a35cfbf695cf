//! Real programs under `run` with a quarter of the memory they use give the results they give natively.
//!
//! The programs come from Debian packages; a missing one is a failure, not a skipped test.

use crate::preload_support::{is_long, progress};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Both ways faults are delivered.
const MODES: [&str; 2] = ["thread", "signal"];

fn userswap() -> &'static str {
    env!("CARGO_BIN_EXE_userswap")
}

/// Runs natively and under userswap in both modes; all must succeed with the same output, and swapping must
/// have happened.
fn same_under_userswap(ram: &str, program: &[&str], input: Option<&Path>) {
    if is_long() {
        progress(&format!("{}: the long form", program[0]));
    }
    let run = |words: &[&str]| -> Output {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).env("LC_ALL", "C");
        if let Some(input) = input {
            command.stdin(Stdio::from(fs::File::open(input).expect("the input exists")));
        }
        command.output().unwrap_or_else(|error| panic!("{}: {error}: install it", words[0]))
    };
    let native = run(program);
    assert!(native.status.success(), "natively: {native:?}");
    let directory = tempfile::tempdir().expect("a temporary directory");
    for mode in MODES {
        let stats = directory.path().join(mode);
        let stats_text = stats.to_str().expect("a UTF-8 path");
        let mut words =
            vec![userswap(), "run", "--ram", ram, "--fault", mode, "--stats", stats_text, "--"];
        words.extend(program);
        let swapped = run(&words);
        let errors = String::from_utf8_lossy(&swapped.stderr);
        assert!(swapped.status.success(), "{mode}: {:?}: {errors}", swapped.status);
        assert!(swapped.stdout == native.stdout, "{mode}: the output differs from the native one");
        let counters = fs::read_to_string(&stats).expect("statistics were written");
        let counters: serde_json::Value = serde_json::from_str(&counters).expect("they are JSON");
        assert!(counters["pswpout"].as_u64() > Some(1000), "{mode}: hardly swapped: {counters}");
        assert_eq!(counters["pages_lost"], 0, "{mode}");
    }
}

/// A program of the table of programs.
fn workload(name: &str) -> String {
    format!("{}/../tests/programs/workloads/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Lines whose order is far from sorted, the same in every run.
fn lines(directory: &Path, count: u64) -> PathBuf {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut text = String::new();
    for number in 0..count {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push_str(&format!("{:016x}{number:020}\n", state ^ (state >> 29)));
    }
    let path = directory.join("lines");
    fs::write(&path, text).expect("room for the input");
    path
}

#[test]
fn sort_with_a_large_buffer() {
    let directory = tempfile::tempdir().unwrap();
    let input = lines(directory.path(), if is_long() { 400_000 } else { 240_000 });
    same_under_userswap("16M", &["sort", "-S", "256M"], Some(&input));
}

#[test]
fn python_with_a_large_dict_and_a_bytearray() {
    same_under_userswap("32M", &["python3", &workload("python.py")], None);
}

#[test]
fn sqlite_with_a_table_in_memory_and_two_indexes() {
    same_under_userswap("16M", &["bash", &workload("sqlite.sh")], None);
}

#[test]
fn xz_with_two_threads() {
    let directory = tempfile::tempdir().unwrap();
    let input = lines(directory.path(), if is_long() { 60_000 } else { 20_000 });
    // Two blocks: their tables take three times the budget, and are used at random. Where other programs want
    // the CPUs, a thorough search takes a minute instead of five seconds.
    let search = if is_long() { "-9e" } else { "-9" };
    let block = if is_long() { "--block-size=1MiB" } else { "--block-size=352KiB" };
    same_under_userswap("16M", &["xz", search, "-T2", block, "-c"], Some(&input));
}

#[test]
fn the_load_generator_with_eight_threads() {
    for mode in MODES {
        let load = ["usemem", "-t", "8", "-r", "2", "-q", "8M"];
        let output = Command::new(userswap())
            .args(["run", "--ram", "16M", "--fault", mode, "--", userswap()])
            .args(load)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{mode}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(text.matches("KB/s").count(), 8, "{mode}: {text}");
    }
}
