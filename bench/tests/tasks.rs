//! Loads of several tasks: they come to their end together, also where one of them dies.

mod common;

use common::{standalone, text, until};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

const TASKS: usize = 3;
/// The heap with a garbage collector, as `bench gc-heap` runs it.
const GC_HEAP: &str = include_str!("../src/outside/gc_heap.py");

/// Kills the first task of a load that waits for its signal, once all do; how the load ends.
fn end_without_one(load: &mut Command) -> Output {
    let mut load = load.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(load.stdout.as_mut().unwrap()).lines().map(Result::unwrap);
    let waiting: Vec<String> = lines.take(TASKS).collect();
    let task = waiting[0].strip_prefix("Read Process ").unwrap();
    let task = task.strip_suffix(" is waiting signal").unwrap();
    assert!(Command::new("kill").args(["-KILL", task]).status().unwrap().success());
    let output = ended(load);
    assert!(text(&output.stderr).contains(&format!("process {task} ")), "{output:?}");
    output
}

/// How a load ended, which does so by itself.
fn ended(mut load: Child) -> Output {
    until("the load ends", || load.try_wait().unwrap().is_some());
    load.wait_with_output().unwrap()
}

#[test]
fn a_process_that_dies_before_its_signal_ends_the_load() {
    for options in ["-W", "-W -x"] {
        let mut load = standalone();
        load.arg("usemem").args(options.split(' ')).args(["-n", &TASKS.to_string(), "1m"]);
        let output = end_without_one(&mut load);
        assert_eq!(output.status.code(), Some(1), "{options}: {output:?}");
    }
}

#[test]
fn a_process_of_a_heap_that_dies_before_its_signal_ends_the_load() {
    let mut load = Command::new("python3");
    load.args(["-I", "-S", "-c", GC_HEAP, &TASKS.to_string(), "65536", "1"]);
    let output = end_without_one(&mut load);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn tasks_meet_after_the_allocation_of_memory_that_they_share() {
    for tasks in ["-t", "-n"] {
        let mut load = standalone();
        load.args(["usemem", "-P", "-y", tasks, &TASKS.to_string(), "1m"]);
        let output = ended(load.stdout(Stdio::piped()).spawn().unwrap());
        assert!(output.status.success(), "{output:?}");
        assert_eq!(text(&output.stdout).lines().count(), TASKS, "{tasks}: {output:?}");
    }
}
