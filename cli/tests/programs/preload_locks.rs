//! Locks: memory that the program locks past the library, mlockall, and what is left of it in the child of a fork; mutexes, and
//! what else the kernel writes to, at the end of a thread.

use crate::preload_support::{compile, deliveries, directory, run, succeed, with};

#[test]
fn a_program_that_locks_memory_runs_beyond_its_budget() {
    let directory = directory();
    let program = compile(directory.path(), "locked.c");
    for (case, locks_all) in [false, true].into_iter().enumerate() {
        for fault in deliveries(case) {
            // One of its locks is made past the library.
            let mut managed = with(&run("16M", fault), &["--raw-calls", "pass"]);
            managed.arg(&program).arg(&program);
            if locks_all {
                managed.arg("all");
            }
            assert_eq!(succeed(&mut managed), "exact\n", "{fault}, mlockall: {locks_all}");
        }
    }
}

#[test]
fn what_malloc_gave_out_stays_in_ram_while_it_is_locked() {
    let directory = directory();
    let program = compile(directory.path(), "locked_heap.c");
    for fault in deliveries(0) {
        assert_eq!(succeed(run("16M", fault).arg(&program)), "exact\n", "{fault}");
        let mut locked_before = run("16M", fault);
        locked_before.arg(&program).arg("before the engine starts");
        assert_eq!(succeed(&mut locked_before), "exact\n", "{fault}, before");
    }
}

#[test]
fn an_engine_starts_while_what_is_to_stay_is_out_of_reach() {
    let directory = directory();
    let program = compile(directory.path(), "out_of_reach.c");
    for fault in deliveries(0) {
        assert_eq!(succeed(run("16M", fault).arg(&program)), "exact\n", "{fault}");
    }
}

#[test]
fn a_child_has_neither_the_locks_of_its_parent_nor_what_calls_of_its_threads_keep() {
    let directory = directory();
    let program = compile(directory.path(), "fork_pins.c");
    // By message calls keep nothing.
    for (fault, what) in [("thread", "locked"), ("signal", "locked"), ("signal", "read")] {
        let output = succeed(run("16M", fault).arg(&program).arg(what));
        assert_eq!(output, "exact\n", "{fault}, {what}");
    }
}

#[test]
fn what_the_kernel_writes_to_as_a_thread_ends_may_have_left() {
    let directory = directory();
    let program = compile(directory.path(), "ending_threads.c");
    let kinds =
        ["robust", "inheriting", "tried", "word", "early", "stack", "child", "exec", "exit"];
    for (case, kind) in kinds.into_iter().enumerate() {
        for fault in deliveries(case) {
            let printed = succeed(run("16M", fault).arg(&program).arg(kind));
            assert_eq!(printed, "exact\n", "{fault}, {kind}");
        }
    }
}
