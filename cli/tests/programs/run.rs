//! What `run` passes through: arguments, input, exit status, signals, environment.

use crate::preload_support::served::{runtime, userswap_in};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};

fn run(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_userswap"));
    command.args(["run", "--ram", "64M"]).args(arguments);
    command
}

#[test]
fn arguments_reach_the_program_as_they_are() {
    let output = run(&["--", "printf", "%s|", "--ram", "-x", "a b", ""]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "--ram|-x|a b||");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let without_dashes = run(&["printf", "%s|", "-x", "--", "y"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&without_dashes.stdout), "-x|--|y|");
}

#[test]
fn the_exit_status_is_the_programs() {
    for status in [0, 1, 2, 77, 255] {
        let script = format!("exit {status}");
        assert_eq!(run(&["--", "sh", "-c", &script]).status().unwrap().code(), Some(status));
    }
}

#[test]
fn a_signal_that_kills_the_program_is_seen_from_outside() {
    let status = run(&["--", "sh", "-c", "kill -TERM $$"]).status().unwrap();
    assert_eq!(status.signal(), Some(15));
}

#[test]
fn standard_input_is_the_programs() {
    let mut child =
        run(&["--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"through").unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"through");
}

#[test]
fn the_library_is_in_the_program_and_only_its_user_can_change_it() {
    let output =
        run(&["--", "sh", "-c", "echo \"$LD_PRELOAD\"; cat /proc/$$/maps"]).output().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    let library = output.lines().next().unwrap();
    assert!(output.lines().skip(1).any(|line| line.ends_with(library)), "{output}");
    let directory = std::path::Path::new(library).parent().unwrap();
    for path in [directory, std::path::Path::new(library)] {
        let found = fs::metadata(path).unwrap();
        assert_eq!(found.permissions().mode() & 0o777, 0o755, "{}", path.display());
        assert_eq!(found.uid(), rustix::process::geteuid().as_raw());
    }
}

#[test]
fn a_script_runs_with_its_interpreter() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    for (name, first_line) in [("direct", "#!/bin/sh"), ("env", "#!/usr/bin/env sh"), ("none", "")]
    {
        let script = directory.path().join(name);
        fs::write(&script, format!("{first_line}\necho \"$0 $1\"\n")).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let script = script.to_str().unwrap();
        let output = run(&["--", script, "argument"]).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(printed, format!("{script} argument\n"), "{error}");
    }
}

#[test]
fn a_program_is_found_in_the_working_directory_only_when_path_says_so() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let script = directory.path().join("here");
    fs::write(&script, "#!/bin/sh\necho found\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let here =
        |path| run(&["--", "here"]).current_dir(&directory).env("PATH", path).output().unwrap();
    assert_eq!(here("/usr/bin:/bin").status.code(), Some(127));
    assert_eq!(here(":/usr/bin:/bin").stdout, b"found\n");
}

/// What a shell says to `script`, in which `$0` is userswap.
fn shell(script: &str) -> Output {
    Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_userswap")]).output().unwrap()
}

fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn an_ignored_sigpipe_is_passed_on_and_a_default_one_too() {
    for (before, ignored) in [("trap '' PIPE; ", 1), ("", 0)] {
        let output = shell(&format!("{before}exec \"$0\" run --ram 64M -- cat /proc/self/status"));
        let (status, error) = said(&output);
        let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let set = set.unwrap_or_else(|| panic!("{status}{error}"));
        let set = u64::from_str_radix(set.trim(), 16).unwrap();
        assert_eq!(set >> (13 - 1) & 1, ignored, "{before}: {status}");
    }
}

#[test]
fn a_removed_working_directory_stops_relative_names_only() {
    let removed = "d=$(mktemp -d) && cd \"$d\" && rmdir \"$d\" && ";
    let (ran, error) = said(&shell(&format!("{removed}\"$0\" run --ram 64M -- echo ran")));
    assert_eq!(ran, "ran\n", "{error}");
    for option in ["--stats s.json", "--swap ./swap"] {
        let (ran, error) = said(&shell(&format!("{removed}\"$0\" run {option} -- echo ran")));
        assert_eq!(ran, "");
        assert!(error.contains("working directory"), "{error}");
    }
}

#[test]
fn a_full_standard_error_keeps_no_program_from_running() {
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    // On a tmpfs there is a warning.
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let swap = memory.path().to_str().unwrap();
    let warned = ["run", "--ram", "64M", "--swap", swap, "--", "echo", "ran"];
    let userswap = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_userswap"));
        command.args(arguments);
        command
    };
    let output = userswap(&warned).output().unwrap();
    assert!(said(&output).1.contains("warning"), "{output:?}");
    let output = userswap(&warned).stderr(full()).output().unwrap();
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"ran\n"[..]));
    let refused = userswap(&["run", "--ram", "1M", "--", "true"]).stderr(full()).status().unwrap();
    assert_eq!(refused.code(), Some(2));
}

#[test]
fn a_reader_that_has_gone_ends_a_command_without_a_word() {
    // Programs of other tests may end while they are listed, which is said.
    let runtime = runtime();
    for arguments in [
        &["list"][..],
        &["sim", "list"],
        &["doctor", "--no-disk"],
        &["man"],
        &["bench", "jobs", "--list"],
        &["bench", "store", "--pages", "1", "--runs", "1"],
        &["usemem", "--help"],
        &["usemem", "-q", "-n", "2", "1m"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = userswap_in(&runtime, arguments).stdout(writer).output().unwrap();
        assert_eq!(said(&output).1, "", "{arguments:?}");
        assert_eq!(output.status.code(), Some(141), "{arguments:?}");
    }
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut list = Command::new(env!("CARGO_BIN_EXE_userswap"));
    let output = list.args(["sim", "list"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).1.starts_with("userswap: standard output: "), "{}", said(&output).1);
}

#[test]
fn a_bench_whose_progress_nobody_reads_prints_its_report() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut bench = Command::new(env!("CARGO_BIN_EXE_userswap"));
    bench.args(["bench", "swap-w-seq", "--ram", "16M", "--size", "24M", "--runs", "1"]);
    let output = bench.stderr(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(said(&output).0.starts_with("swap-w-seq: "), "{output:?}");
}
