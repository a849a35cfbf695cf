//! System calls, locks and stacks in memory that is swapped out, where the kernel cannot bring it back by itself.

use crate::preload_support::served::{Served, printed, runtime};
use crate::preload_support::{
    as_nobody, compile, compile_fixed, deliveries, directory, run, succeed, users,
};
use std::path::Path;
use std::process::Command;

/// As root, and as a user without the right to have the kernel's faults served.
fn everywhere(ram: &str, name: &str, arguments: impl Fn(&Path) -> Vec<std::path::PathBuf>) {
    let directory = directory();
    let program = compile(directory.path(), name);
    let arguments = arguments(directory.path());
    let is_exact = |managed: &mut Command, which: &str| {
        let printed = succeed(managed.arg(&program).args(&arguments));
        assert_eq!(printed, "exact\n", "{name} as {which}");
    };
    for (user, fault) in users(0) {
        let mut managed = match user {
            "root" => run(ram, fault),
            _ => as_nobody(directory.path(), ram, fault),
        };
        is_exact(&mut managed, &format!("{user}, {fault}"));
    }
}

#[test]
fn every_kind_of_call_works_on_swapped_memory_for_every_user() {
    everywhere("16M", "every_call.c", |directory| vec![directory.join("file")]);
}

#[test]
fn what_the_child_of_posix_spawn_reads_may_have_left() {
    everywhere("16M", "spawn.c", |_| Vec::new());
}

#[test]
fn transfers_are_as_long_as_without_us_whatever_is_behind_the_descriptor_or_the_buffer() {
    everywhere("16M", "parts.c", |_| Vec::new());
}

#[test]
fn what_few_programs_ask_for_works_or_is_refused_as_without_us() {
    everywhere("16M", "corners.c", |_| Vec::new());
}

#[test]
fn what_is_locked_doubled_too_long_or_given_to_a_shell_is_as_without_us() {
    everywhere("16M", "odd_calls.c", |_| Vec::new());
}

#[test]
fn the_c_library_gets_answers_in_blocks_that_nobody_has_touched() {
    everywhere("16M", "own_blocks.c", |_| Vec::new());
}

#[test]
fn what_is_written_to_the_end_of_a_file_stays_together() {
    everywhere("64M", "appended.c", |directory| vec![directory.join("file")]);
}

#[test]
fn signals_of_ours_stay_in_force_by_the_functions_of_older_systems_too() {
    everywhere("16M", "old_signals.c", |_| Vec::new());
}

#[test]
fn threads_with_little_stack_pass_the_budget_and_fork() {
    everywhere("16M", "small_stacks.c", |_| Vec::new());
}

#[test]
fn messages_longer_than_what_is_kept_at_once_are_whole() {
    everywhere("16M", "messages.c", |_| Vec::new());
}

#[test]
fn what_calls_name_in_other_memory_may_be_swapped_out_too() {
    everywhere("16M", "nested.c", |directory| vec![directory.join("file")]);
}

#[test]
fn processes_reach_each_others_memory_where_it_has_left() {
    everywhere("24M", "of_others.c", |_| Vec::new());
}

#[test]
fn aio_reaches_requests_and_buffers_that_are_swapped_out() {
    everywhere("16M", "aio.c", |_| Vec::new());
}

#[test]
fn aio_tells_waits_cancels_and_refuses_as_without_us() {
    everywhere("16M", "aio_events.c", |_| Vec::new());
}

#[test]
fn functions_of_timers_reach_what_has_left() {
    everywhere("16M", "timers.c", |_| Vec::new());
}

#[test]
fn memory_that_is_managed_cannot_be_sealed() {
    everywhere("16M", "sealed.c", |_| Vec::new());
}

#[test]
fn signals_of_ours_stay_in_force_whatever_a_program_asks_for() {
    everywhere("16M", "masks.c", |_| Vec::new());
}

#[test]
fn threads_wait_for_each_other_in_memory_that_keeps_leaving() {
    everywhere("16M", "waits.c", |_| Vec::new());
}

#[test]
fn stacks_of_coroutines_threads_and_handlers_may_be_managed() {
    everywhere("16M", "stacks.c", |_| Vec::new());
}

#[test]
fn a_stack_of_the_programs_own_making_is_kept_each_time_that_it_is_used_again() {
    everywhere("16M", "stacks_again.c", |_| Vec::new());
}

#[test]
fn only_what_a_call_is_about_is_pinned_and_what_is_locked_stays_so() {
    everywhere("16M", "pins.c", |_| Vec::new());
}

#[test]
fn a_daemon_has_its_memory_and_a_terminal_its_size_and_both_processes_end_in_order() {
    everywhere("16M", "daemons.c", |_| Vec::new());
    let directory = directory();
    let program = compile(directory.path(), "daemons.c");
    let stats = directory.path().join("%p.json");
    let mut managed = Command::new(env!("CARGO_BIN_EXE_userswap"));
    managed.args(["run", "--ram", "32M", "--swap", "/var/tmp", "--stats"]).arg(stats).arg("--");
    assert_eq!(succeed(managed.arg(program)), "exact\n");
    let files = std::fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().path());
    let files = files.filter(|file| file.extension().is_some_and(|end| end == "json"));
    // Also that of the terminal.
    assert_eq!(files.count(), 3, "each process tells how it was");
}

#[test]
fn signal_stacks_may_be_small_or_shared_by_all_threads() {
    everywhere("16M", "signal_stacks.c", |_| Vec::new());
}

#[test]
fn large_blocks_of_all_threads_are_managed_from_the_moment_the_engine_starts() {
    everywhere("16M", "blocks_at_once.c", |_| Vec::new());
}

#[test]
fn blocks_of_the_c_library_that_grow_are_managed() {
    everywhere("16M", "libc_blocks.c", |_| Vec::new());
}

#[test]
fn the_end_of_a_programs_data_goes_back_to_where_it_was() {
    everywhere("16M", "brk_back.c", |_| Vec::new());
}

#[test]
fn a_program_with_its_own_malloc_has_all_memory_behind_its_data_for_itself() {
    everywhere("16M", "own_break.c", |_| Vec::new());
    let directory = directory();
    let program = compile_fixed(directory.path(), "own_break.c");
    for fault in deliveries(0) {
        assert_eq!(succeed(run("16M", fault).arg(&program)), "exact\n", "{fault}");
    }
}

#[test]
fn what_may_make_next_to_no_calls_ends_as_it_says() {
    everywhere("16M", "filter_ends.c", |_| Vec::new());
}

#[test]
fn a_program_under_a_filter_that_refuses_an_engine_goes_on_and_is_told_of() {
    let directory = directory();
    let program = compile(directory.path(), "refused.c");
    for fault in deliveries(0) {
        let output = run("16M", fault).arg(&program).arg("all").output().expect("it starts");
        let told = String::from_utf8(output.stderr).expect("text");
        assert!(output.status.success() && output.stdout == b"exact\n", "{fault}: {told}");
        assert!(told.contains("refused: a filter of system calls (seccomp)"), "{fault}: {told}");
    }
    // Where it applies to one thread of two, the engine's are older.
    let output = run("16M", "thread").arg(&program).arg("one").output().expect("it starts");
    assert!(output.status.success() && output.stdout == b"exact\n", "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn memory_that_is_not_there_is_the_kernels_to_refuse() {
    everywhere("16M", "bad_pointers.c", |_| Vec::new());
}

#[test]
fn calls_that_pins_have_no_room_for_move_their_data_all_the_same() {
    everywhere("16M", "pins_full.c", |_| Vec::new());
}

#[test]
fn a_program_may_leave_itself_no_more_threads() {
    everywhere("16M", "no_threads.c", |_| Vec::new());
}

#[test]
fn calls_beside_guard_pages_of_the_heap_work_and_those_on_them_are_refused() {
    everywhere("16M", "guards.c", |directory| vec![directory.join("file")]);
}

#[test]
fn sigbus_that_is_the_programs_own_does_what_it_does_without_us() {
    everywhere("16M", "bus.c", |_| Vec::new());
}

#[test]
fn a_thread_that_is_cancelled_in_a_call_gives_its_pins_back() {
    everywhere("16M", "cancelled.c", |_| Vec::new());
}

#[test]
fn a_thread_that_may_be_cancelled_at_any_moment_ends_in_the_middle_of_a_fault() {
    everywhere("16M", "cancelled_anywhere.c", |_| Vec::new());
}

#[test]
fn what_other_threads_open_while_the_engine_starts_is_theirs_to_close() {
    everywhere("16M", "descriptors.c", |_| Vec::new());
}

#[test]
fn a_thread_may_have_descriptors_of_its_own() {
    everywhere("16M", "own_tables.c", |_| Vec::new());
}

#[test]
fn a_thread_with_descriptors_of_its_own_reaches_devices_that_come_later_and_keeps_its_files() {
    let directory = directory();
    let program = compile(directory.path(), "later_devices.c");
    for fault in deliveries(0) {
        let runtime = runtime();
        let [first, second] =
            ["first", "second"].map(|name| directory.path().join(name).display().to_string());
        let (own, swap) = (directory.path().join("own"), format!("{first}:128M"));
        let command = [program.as_os_str(), own.as_os_str()];
        let options = ["--ram", "16M", "--fault", fault, "--swap", &swap];
        let mut served = Served::start(&runtime, &options, &command);
        assert_eq!(served.hear(), "filled", "{fault}");
        let pid = served.pid();
        let mut says = |word, answer| assert_eq!(served.ask(word), answer, "{fault}, {word}");
        says("look", "right");
        says("child", "right");
        printed(&runtime, &["swapon", &pid, &format!("{second}:128M")]);
        says("look", "right");
        // Each number has its file.
        says("child", "refused");
        says("free", "free");
        says("child", "right");
        printed(&runtime, &["swapoff", &pid, &first]);
        // At the number of the first, which that thread has still.
        printed(&runtime, &["swapon", &pid, &format!("{first}:128M")]);
        for _ in 0..2 {
            says("look", "right");
        }
        says("child", "refused");
        assert_eq!(served.ask("end"), "exact", "{fault}");
        assert!(served.child.wait().unwrap().success(), "{fault}");
    }
}

#[test]
fn a_program_that_has_descriptors_of_its_own_from_the_beginning_writes_to_its_devices() {
    let directory = directory();
    let program = compile(directory.path(), "table_at_once.c");
    for (round, fault) in (0..4).flat_map(|round| [(round, "thread"), (round, "signal")]) {
        let mut managed = Command::new(env!("CARGO_BIN_EXE_userswap"));
        managed.args(["run", "--ram", "16M", "--fault", fault, "--"]).arg(&program);
        let output = managed.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.stdout, b"exact\n", "{fault}, round {round}: {said}");
        assert!(!said.contains("failed (errno"), "{fault}, round {round}: {said}");
    }
}

/// The value of a counter in a file of statistics.
fn counted(statistics: &Path, name: &str) -> u64 {
    let text = std::fs::read_to_string(statistics).expect("the program has written its statistics");
    let line = text.lines().find(|line| line.contains(&format!("\"{name}\"")));
    let value = line.and_then(|line| line.rsplit(": ").next());
    value.and_then(|value| value.trim_end_matches(',').parse().ok()).expect("the counter is there")
}

#[test]
fn what_io_uring_sends_without_copying_arrives_as_it_was() {
    let directory = directory();
    let program = compile(directory.path(), "sent.c");
    let statistics = directory.path().join("statistics");
    for fault in deliveries(0) {
        let mut managed = Command::new(env!("CARGO_BIN_EXE_userswap"));
        managed.args(["run", "--ram", "32M", "--fault", fault, "--stats"]).arg(&statistics);
        assert_eq!(succeed(managed.arg("--").arg(&program)), "exact\n", "{fault}");
        assert!(counted(&statistics, "frames_replaced") > 0, "{fault}: frames are filled again");
    }
}
