//! Programs that cannot be served as they should be: a message says so, and none waits for ever.

use crate::preload_support::{compile, deliveries, directory, run, with_an_allocator_in_it};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Runs to the end, or for a minute at most: the status is 124 then.
fn ended(command: &Command) -> Output {
    let mut timed = Command::new("timeout");
    timed.args(["--signal", "KILL", "60"]).arg(command.get_program()).args(command.get_args());
    timed.output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// `script` is run in a job whose swap directory is in its `$1`, and a program that outgrows the budget its `$2`.
fn with_a_directory(fault: &str, program: &Path, script: &str) -> Output {
    let directory = directory();
    let swap = directory.path().join("swap");
    fs::create_dir(&swap).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_userswap"));
    command.args(["run", "--ram", "16M", "--fault", fault, "--swap"]).arg(swap);
    command.args(["--", "sh", "-c", script, "sh"]).arg(directory.path()).arg(program);
    ended(&command)
}

#[test]
fn an_engine_that_cannot_start_ends_its_program_with_a_message() {
    const REASON: &str = "the program needs more than its budget and cannot be served: ";
    let directory = directory();
    // The other's engine is started by a thread of ours.
    let programs = [
        compile(directory.path(), "large.c"),
        with_an_allocator_in_it(directory.path(), "large.c"),
    ];
    // What is gone is made anew by none, least of all as a file.
    let gone = ["rm -r \"$1\"", "rmdir \"$1/swap\""];
    let all = programs.iter().zip(gone).chain(programs.iter().rev().zip(gone));
    for (case, (program, gone)) in all.enumerate() {
        for fault in deliveries(case) {
            let script = format!("{gone} && exec \"$2\"");
            let output = with_a_directory(fault, program, &script);
            let told = said(&output);
            assert_eq!(output.status.code(), Some(1), "{fault}: {program:?}: {told}");
            assert!(told.contains(REASON), "{fault}: {program:?}: {told}");
            assert!(output.stdout.is_empty(), "{fault}: {program:?}");
        }
    }
    let script = "rm -r \"$1\"; \"$2\"; echo $?; mkdir -p \"$1/swap\"; \"$2\"";
    let output = with_a_directory("thread", &programs[0], script);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1\nexact\n", "{}", said(&output));
}

#[test]
fn a_child_of_a_fork_that_cannot_be_served_ends_with_a_message_and_its_parent_goes_on() {
    let directory = directory();
    let program = compile(directory.path(), "unserved_child.c");
    for fault in deliveries(0) {
        let output = ended(run("16M", fault).arg(&program));
        let told = said(&output);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "exact\n", "{fault}: {told}");
        let lines = told.matches("the child of a fork cannot be served: ").count();
        assert_eq!((output.status.code(), lines), (Some(0), 2), "{fault}: {told}");
    }
}

/// Outgrows a budget of 16 MiB, and forks.
const PARENT: &str = "
import os
held = bytearray(48 << 20)
for at in range(0, len(held), 4096): held[at] = 1
child = os.fork()
if child == 0: os._exit(0)
os.waitpid(child, 0)
";

#[test]
fn a_limit_of_memory_that_an_engine_has_no_room_in_is_named_with_what_would_do() {
    let directory = directory();
    let large = compile(directory.path(), "large.c");
    let within = |limit: &str, program: &[&OsStr]| {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit {limit}; exec \"$@\""), "sh"]);
        let run = run("16M", "thread");
        command.arg(run.get_program()).args(run.get_args()).args(program);
        ended(&command)
    };
    for (limit, name, remedy) in [
        ("-d 1572864", "data is limited to 1.5G (RLIMIT_DATA)", "(ulimit -d 16777216)"),
        ("-v 2097152", "address space is limited to 2G (RLIMIT_AS)", "(ulimit -v 16777216)"),
        // Not even for the arena.
        ("-v 524288", "address space is limited to 512M (RLIMIT_AS)", "(ulimit -v 16777216)"),
    ] {
        let output = within(limit, &[large.as_os_str()]);
        let told = said(&output);
        assert_eq!(output.status.code(), Some(1), "{limit}: {told}");
        assert!(told.contains(name) && told.contains(remedy), "{limit}: {told}");
        assert_eq!(told.lines().count(), 1, "{limit}: {told}");
    }
    // Room for one engine, and not for two.
    let told = said(&within("-d 4194304", &["python3", "-c", PARENT].map(OsStr::new)));
    let reason = "the child of a fork cannot be served: ";
    let line = told.lines().find(|line| line.contains(reason)).unwrap_or_else(|| panic!("{told}"));
    assert!(line.contains("4G (RLIMIT_DATA)") && line.contains("(ulimit -d 16777216)"), "{told}");
    for limit in ["-d 16777216", "-v 16777216"] {
        let output = within(limit, &[large.as_os_str()]);
        assert_eq!(output.stdout, b"exact\n", "{limit}: {}", said(&output));
    }
}

#[test]
fn a_program_that_limits_its_data_to_less_than_managing_it_takes_is_told_why_it_ends() {
    let directory = directory();
    let program = compile(directory.path(), "data_limit.c");
    for fault in deliveries(0) {
        let output = ended(run("16M", fault).arg(&program));
        let told = said(&output);
        assert_eq!(output.status.code(), Some(1), "{fault}: {}: {told}", output.status);
        assert!(told.contains("(RLIMIT_DATA, ulimit -d;"), "{fault}: {told}");
    }
}

/// A member with 40 of the budget's 64 MiB, which puts a directory in the ledger's place if it is told to, and then starts others.
const MEMBER: &str = "
import glob, os, subprocess, sys
held = bytearray(40 << 20)
for at in range(0, len(held), 4096): held[at] = 1
if sys.argv[2] == 'without':
    [ledger] = glob.glob(os.environ['XDG_RUNTIME_DIR'] + '/**/*.ledger', recursive=True)
    os.unlink(ledger)
    os.mkdir(ledger)
for turn in range(2): subprocess.run([sys.argv[1]], check=True)
assert all(held[at] == 1 for at in range(0, len(held), 4096))
";

/// What is said of a job of [`MEMBER`], and of how many processes an engine ran.
fn job(program: &Path, ledger: &str) -> (String, usize) {
    let directory = directory();
    let mut command = Command::new("env");
    command.arg(format!("XDG_RUNTIME_DIR={}", directory.path().display()));
    command.arg(env!("CARGO_BIN_EXE_userswap"));
    command.args(["run", "--ram", "64M", "--swap", "/var/tmp", "--stats"]);
    command.arg(directory.path().join("stats-%p.json"));
    command.args(["--", "python3", "-c", MEMBER]).arg(program).arg(ledger);
    let output = ended(&command);
    assert!(output.status.success(), "{ledger}: {}: {}", output.status, said(&output));
    let files = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|end| end == "json"));
    let texts: Vec<String> = files.map(|path| fs::read_to_string(path).unwrap()).collect();
    assert!(texts.len() >= 3, "{ledger}: each process has written its own");
    (said(&output), texts.iter().filter(|text| text.contains("\"engaged\": true")).count())
}

#[test]
fn members_that_cannot_open_the_ledger_have_the_whole_budget_each_and_say_so_once() {
    let directory = directory();
    let program = compile(directory.path(), "large.c");
    let (told, engines) = job(&program, "with");
    assert!(told.is_empty() && engines > 0, "together they need more: {engines} engines, {told}");
    let (told, engines) = job(&program, "without");
    assert_eq!((told.lines().count(), engines), (1, 0), "{told}");
    assert!(told.contains(".ledger: ") && told.contains("has a budget of its own"), "{told}");
}
