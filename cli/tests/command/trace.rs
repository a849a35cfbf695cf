//! `run --trace`: one file for each process, with as many faults as its statistics; `sim trace`, which reads them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::preload_support::{compile, directory, run, succeed, with};
use serde_json::Value;
use userswap_trace::{Kind, Reader, Recording};

/// Fills more than the budget twice; with an argument it becomes itself once more, without.
const BECOMES_ANOTHER: &str = "
import os, sys
b = bytearray(40 << 20)
for turn in range(2):
    for i in range(0, len(b), 4096): b[i] = (i >> 12) + turn & 255
    assert all(b[i] == (i >> 12) + turn & 255 for i in range(0, len(b), 4096))
if len(sys.argv) > 1: os.execv(sys.executable, [sys.executable, sys.argv[0]])
";

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain name")
}

/// Runs a program with a trace and with statistics for each process, which it must survive.
fn record(directory: &Path, fault: &str, program: &[&str]) -> PathBuf {
    let (trace, stats) = (directory.join("trace"), directory.join("stats.%p"));
    let mut command = with(&run("16M", fault), &["--trace", text(&trace), "--stats", text(&stats)]);
    succeed(command.args(program));
    trace
}

fn recording(file: &Path) -> Recording {
    let reader = Reader::open(file).unwrap_or_else(|bad| panic!("{bad}"));
    Recording::read(reader).unwrap_or_else(|bad| panic!("{bad}"))
}

/// All traces of a directory, the one with the plain name first.
fn traces(directory: &Path) -> Vec<(PathBuf, Recording)> {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let is_trace = |path: &PathBuf| {
        path.file_name().unwrap().to_str().is_some_and(|name| name.starts_with("trace"))
    };
    let mut files: Vec<_> = names.filter(is_trace).collect();
    files.sort();
    files.into_iter().map(|file| (file.clone(), recording(&file))).collect()
}

fn events(recording: &Recording, kind: Kind) -> u64 {
    recording.events[kind as usize - 1]
}

/// A trace that has ended has the faults of its process's statistics.
fn assert_counted(directory: &Path, recording: &Recording) {
    let stats = directory.join(format!("stats.{}", recording.header.pid));
    let stats: Value = serde_json::from_slice(&fs::read(stats).unwrap()).unwrap();
    let faults = Kind::ALL.into_iter().filter(|kind| kind.is_fault());
    let faults: u64 = faults.map(|kind| events(recording, kind)).sum();
    assert!(recording.has_ended && recording.lost == 0, "{:?}", recording.header);
    assert_eq!((stats["pgfault"].as_u64(), stats["trace_lost"].as_u64()), (Some(faults), Some(0)));
    assert_eq!(stats["pgmajfault"].as_u64(), Some(events(recording, Kind::Read)));
    assert_eq!(stats["pgfault_cached"].as_u64(), Some(events(recording, Kind::SecondChance)));
    assert_eq!(stats["pgfault_wp"].as_u64(), Some(events(recording, Kind::Written)));
    assert!(events(recording, Kind::Read) > 0, "{:?}", recording.events);
}

#[test]
fn a_program_with_threads_has_a_trace_with_the_faults_of_its_statistics() {
    for fault in ["thread", "signal"] {
        let directory = directory();
        let program = compile(directory.path(), "heap.c");
        let trace = record(directory.path(), fault, &[text(&program)]);
        let recording = recording(&trace);
        assert_eq!((&recording.header.program[..], &recording.header.fault[..]), ("heap", fault));
        assert_counted(directory.path(), &recording);
    }
}

#[test]
fn a_forked_child_has_a_trace_of_its_own_and_every_byte() {
    for fault in ["thread", "signal"] {
        let directory = directory();
        let program = compile(directory.path(), "fork.c");
        record(directory.path(), fault, &[text(&program)]);
        let traces = traces(directory.path());
        let (root, others) = traces.split_first().unwrap();
        assert_counted(directory.path(), &root.1);
        assert!(!root.1.header.forked && !others.is_empty(), "{fault}");
        for (file, child) in others {
            let pid = child.header.pid;
            assert!(file.ends_with(format!("trace.{pid}")) && child.header.forked);
            assert!(child.lost == 0 && events(child, Kind::Read) > 0, "{:?}", child.events);
        }
    }
}

#[test]
fn a_program_that_a_shell_starts_has_a_trace_of_all_its_pages() {
    let directory = directory();
    let program = compile(directory.path(), "heap.c");
    record(directory.path(), "thread", &["sh", "-c", "\"$0\"; true", text(&program)]);
    let traces = traces(directory.path());
    let [(file, recording)] = &traces[..] else { panic!("{} traces", traces.len()) };
    assert!(file.ends_with(format!("trace.{}", recording.header.pid)));
    assert!(!recording.header.forked, "{:?}", recording.header);
    assert_counted(directory.path(), recording);
}

#[test]
fn a_program_that_becomes_another_keeps_the_trace_of_the_first() {
    let directory = directory();
    let script = directory.path().join("script.py");
    fs::write(&script, BECOMES_ANOTHER).unwrap();
    let trace = record(directory.path(), "thread", &["python3", text(&script), "again"]);
    let traces = traces(directory.path());
    let [(first_file, first), (second_file, second)] = &traces[..] else {
        panic!("{} traces", traces.len())
    };
    assert_eq!(first_file, &trace);
    assert!(second_file.ends_with(format!("trace.{}", first.header.pid)));
    assert_eq!(first.header.pid, second.header.pid);
    // Its engine did not come to an end; the other one's did.
    assert!(!first.has_ended);
    assert_counted(directory.path(), second);
}

#[test]
fn a_program_that_fits_its_budget_leaves_no_trace_and_no_older_one() {
    let directory = directory();
    let trace = directory.path().join("trace");
    fs::write(&trace, "").unwrap();
    succeed(with(&run("1G", "thread"), &["--trace", text(&trace)]).arg("true"));
    assert!(!trace.exists());
    fs::write(&trace, "a list").unwrap();
    let output = with(&run("1G", "thread"), &["--trace", text(&trace)]).arg("true").output();
    let error = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(error.contains("something else than a trace"), "{error}");
    assert_eq!(fs::read(&trace).unwrap(), b"a list");
}

fn sim(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_userswap"));
    command.args(["sim", "trace"]).args(args).output().expect("the command starts")
}

#[test]
fn a_recorded_program_is_simulated_with_other_budgets_and_rules() {
    let directory = directory();
    let program = compile(directory.path(), "heap.c");
    let trace = record(directory.path(), "thread", &[text(&program)]);
    let output = sim(&["--trace", text(&trace), "--json"]);
    let said = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
    let reads = report["tables"][0]["rows"].as_array().unwrap();
    let value = |row: &Value| row["simulated"].as_f64().unwrap();
    assert_eq!(reads.len(), 4);
    // With more memory fewer pages are read, by either rule.
    assert!(
        value(&reads[0]) > value(&reads[2]) && value(&reads[1]) > value(&reads[3]),
        "{reads:?}"
    );
    let note = report["notes"][0].as_str().unwrap();
    assert!(note.starts_with("heap used ") && !note.contains("lost"), "{note}");
    // What a program leaves that is killed as it writes.
    let whole = fs::read(&trace).unwrap();
    fs::write(&trace, &whole[..whole.len() - 40]).unwrap();
    let output = sim(&["--trace", text(&trace), "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let note = report["notes"][0].as_str().unwrap();
    assert!(note.contains("the file is not whole"), "{note}");
}

#[test]
fn a_file_that_is_no_trace_gets_one_line_and_status_2() {
    let directory = directory();
    let (bad, whole) = (directory.path().join("bad"), userswap_trace::recorded::NUMPY_SORT);
    let mut damaged = whole.to_vec();
    damaged[whole.len() / 2] ^= 1;
    for (content, said) in [
        (&b""[..], "is no trace: name a file that userswap run --trace or --record wrote"),
        (b"#!/bin/sh\n", "is no trace"),
        (b"userswap-trace 5 {}\n", "is a trace of version \"5\", this userswap reads 1 to 4"),
        (b"userswap-trace 1 {}\n", "its header is damaged"),
        (&damaged, "is damaged at byte"),
    ] {
        fs::write(&bad, content).unwrap();
        refused(&["--trace", text(&bad)], &[text(&bad), said]);
    }
    fs::remove_file(&bad).unwrap();
    refused(&["--trace", text(&bad)], &[text(&bad), "No such file"]);
    refused(&["--trace", "/var/tmp"], &["/var/tmp: "]);
    refused(&["--set", "trace.percent=[0]"], &["trace.toml:33: 0 percent: use 1 to 100"]);
}

fn refused(args: &[&str], parts: &[&str]) {
    let output = sim(args);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let (status, lines) = (output.status.code(), error.lines().count());
    assert_eq!((status, lines), (Some(2), 1), "{args:?}: {error}");
    assert!(parts.iter().all(|part| error.contains(part)), "{parts:?} are not in {error}");
}
