//! The load of `userswap stress`: it ends with who watches it.

use crate::preload_support::directory;
use crate::preload_support::served::eventually;
use std::fs;
use std::process::{Command, Stdio};

fn userswap(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_userswap"));
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// The load that a process has started.
fn load_of(stress: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{stress}/task/{stress}/children")).ok()?;
    let mut children = children.split_whitespace().filter_map(|pid| pid.parse().ok());
    children.find(|pid| is_load(*pid))
}

fn is_load(pid: u32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).contains("stress-load")
}

#[test]
fn a_load_that_nobody_watches_any_more_ends() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let directory = directory();
    // Its time is longer than any test waits.
    let mut load = userswap(&["stress-load", "1", "600000"]);
    let mut load = load.arg(directory.path()).stdout(writer).spawn().unwrap();
    eventually("the load ends", || load.try_wait().unwrap().is_some());
    assert_eq!(load.wait().unwrap().code(), Some(1));
}

#[test]
fn a_stress_that_is_killed_takes_its_load_with_it() {
    let mut stress = userswap(&["stress", "--seconds", "600"]).spawn().unwrap();
    let mut load = None;
    eventually("a load runs", || {
        load = load_of(stress.id());
        load.is_some()
    });
    stress.kill().unwrap();
    stress.wait().unwrap();
    eventually("the load ends", || !is_load(load.unwrap()));
}
