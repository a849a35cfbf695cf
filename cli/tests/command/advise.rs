//! `advise` on programs whose use of memory is known.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::preload_support::{compile, directory};

/// Runs `advise` with its files in a directory, where it leaves none.
fn advise(directory: &Path, command: &[&str]) -> (Output, String) {
    let mut advise = Command::new(env!("CARGO_BIN_EXE_userswap"));
    advise.args(["advise", "--"]).args(command).env("TMPDIR", directory);
    let output = advise.output().expect("the command starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let names = fs::read_dir(directory).unwrap().flatten().map(|entry| entry.file_name());
    let left = names.filter(|name| name.to_string_lossy().starts_with("userswap-advise"));
    assert_eq!(left.count(), 0, "{said}");
    (output, said)
}

/// The same, which must end well and print nothing; returns what it says.
fn advised(directory: &Path, command: &[&str]) -> String {
    let (output, said) = advise(directory, command);
    assert!(output.status.success() && output.stdout.is_empty(), "{said}");
    said
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain name")
}

#[test]
fn advice_names_a_budget_that_holds_the_loop() {
    let directory = directory();
    let program = compile(directory.path(), "loop_then_hot.c");
    let said = advised(directory.path(), &[text(&program)]);
    let rest = said.split("of native speed: ").nth(1).unwrap_or_else(|| panic!("{said}"));
    let budget: u64 = rest.split('M').next().unwrap().parse().unwrap();
    assert!((40..=64).contains(&budget), "{said}");
    let said = advised(directory.path(), &["true"]);
    assert!(said.starts_with("The program fits 16M"), "{said}");
}

/// Goes through 192 MiB until it has a quarter of that, or very many times.
const GOES_ON: &str = "
import json, os, subprocess, sys
b = bytearray(192 << 20)
for turn in range(60):
    for i in range(0, len(b), 4096): b[i] = turn
    assert all(b[i] == turn for i in range(0, len(b), 4096))
    status = subprocess.run([sys.argv[1], 'status', '--json', str(os.getpid())], check=True, capture_output=True)
    if json.loads(status.stdout)['ram_bytes'] >= 40 << 20: break
";

#[test]
fn the_budget_follows_what_a_script_has_started() {
    let directory = directory();
    let script = directory.path().join("goes_on.py");
    fs::write(&script, GOES_ON).unwrap();
    let shell = ["sh", "-c", "python3 \"$0\" \"$1\"; true"];
    let command = [&shell[..], &[text(&script), env!("CARGO_BIN_EXE_userswap")]].concat();
    let said = advised(directory.path(), &command);
    // The table begins with the budget of the record: what a process has outside its engine is no part of that.
    let row = said.lines().skip_while(|line| !line.contains("PAGES BACK")).nth(1);
    let budget = row.and_then(|row| row.split_whitespace().next()?.strip_suffix('M'));
    let budget: f64 = budget.unwrap_or_else(|| panic!("{said}")).parse().unwrap();
    assert!(budget > 28.0, "{said}");
}

#[test]
fn a_record_that_cannot_be_read_does_not_take_the_others_with_it() {
    let directory = directory();
    let program = compile(directory.path(), "loop_then_hot.c");
    let spoils =
        "for at in \"$TMPDIR\"/userswap-advise-*; do echo nonsense > \"$at/record.bad\"; done";
    let run_and_spoil = format!("\"$0\"; {spoils}");
    let said = advised(directory.path(), &["sh", "-c", &run_and_spoil, text(&program)]);
    for part in ["a record is left out: ", "record.bad: is no trace", "of native speed: "] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // Without any nothing is known of the program.
    let (output, said) = advise(directory.path(), &["sh", "-c", spoils]);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no record is left: make room in ") && !said.contains("fits"), "{said}");
    let (output, said) = advise(directory.path(), &["sh", "-c", &format!("{spoils}; exit 3")]);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the program has failed (exit status: 3)"), "{said}");
}
