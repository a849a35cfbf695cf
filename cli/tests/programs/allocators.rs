//! Programs that bring an allocator, fork in the middle of one, or end with a thread that is not the first.

use crate::preload_support::{
    compile, compile_with, deliveries, directory, is_long, run, succeed, with,
    with_an_allocator_in_it,
};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Well above what any of these takes beside others on a slow machine (120 s were not): a hang is a failure.
const SECONDS_MAX: &str = "300";

/// `run`, ended when it hangs.
fn run_for_a_while(ram: &str, fault: &str) -> Command {
    let inner = run(ram, fault);
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", SECONDS_MAX]).arg(inner.get_program()).args(inner.get_args());
    command
}

fn gives_exact_results(program: &Path) {
    std::thread::scope(|scope| {
        for (case, ram) in ["1G", "16M"].into_iter().enumerate() {
            for fault in deliveries(case) {
                scope.spawn(move || {
                    let mut command = run_for_a_while(ram, fault);
                    command.arg(program);
                    assert_eq!(succeed(&mut command), "exact\n", "{fault}, {ram}");
                });
            }
        }
    });
}

#[test]
fn a_program_with_an_allocator_in_it_keeps_to_that_one() {
    let directory = directory();
    let program = with_an_allocator_in_it(directory.path(), "foreign.c");
    assert_eq!(succeed(&mut Command::new(&program)), "exact\n", "natively");
    gives_exact_results(&program);
}

#[test]
fn a_program_with_an_allocator_in_a_library_keeps_to_that_one() {
    let directory = directory();
    let library: PathBuf =
        compile_with(directory.path(), "allocator.c", "liballocator.so", &["-fPIC", "-shared"]);
    let program = compile_with(
        directory.path(),
        "foreign.c",
        "foreign",
        &["-pthread", library.to_str().unwrap()],
    );
    assert_eq!(succeed(&mut Command::new(&program)), "exact\n", "natively");
    gives_exact_results(&program);
}

#[test]
fn what_comes_before_ours_in_ld_preload_has_its_environment_and_children_that_are_managed() {
    let directory = directory();
    let program = compile(directory.path(), "large.c");
    let natively = succeed(&mut Command::new(&program));
    // What counts blocks hands malloc on to glibc's, whose memory is not managed.
    let outside = "userswap: large: 48M of its memory is outside its budget";
    let cases = [
        (vec![], "wrapper: something", None),
        (vec!["-DCOUNTS"], "wrapper: something, blocks", Some(outside)),
    ];
    for (mut flags, wrapped, unmanaged) in cases {
        flags.extend(["-fPIC", "-shared"]);
        compile_with(directory.path(), "wrapper.c", "libwrapper.so", &flags);
        // By its name alone, as fakeroot does. What counts takes LD_PRELOAD away from the environment of the shell.
        let is_managed = r#"case $LD_PRELOAD in *libuserswap*) echo managed; esac"#;
        let script = format!(
            "export LD_LIBRARY_PATH={} LD_PRELOAD=libwrapper.so:$LD_PRELOAD WRAPPER_TOLD=something
            {}; export is_managed='{is_managed}'; exec sh -c 'sh -c \"$is_managed\"; true'",
            directory.path().display(),
            program.display()
        );
        for fault in deliveries(0) {
            let mut command = run_for_a_while("24M", fault);
            let output = command.args(["sh", "-c", &script]).output().unwrap();
            let told = String::from_utf8_lossy(&output.stderr);
            let printed = String::from_utf8_lossy(&output.stdout);
            assert_eq!(printed, format!("{natively}managed\n"), "{fault}: {told}");
            assert_eq!(told.lines().filter(|line| *line == wrapped).count(), 1, "{fault}: {told}");
            let is_ours =
                |line: &&str| line.starts_with("userswap: ") && !line.contains(": note: ");
            let said: Vec<_> = told.lines().filter(is_ours).collect();
            assert_eq!(said.len(), usize::from(unmanaged.is_some()), "{fault}: {told}");
            let starts = |start: &str| said.iter().all(|line| line.starts_with(start));
            assert!(unmanaged.is_none_or(starts), "{fault}: {told}");
        }
    }
}

#[test]
fn a_library_that_is_bound_past_others_shares_the_programs_functions() {
    let directory = directory();
    let flags = ["-fPIC", "-shared", "-DLIBRARY"];
    compile_with(directory.path(), "deep.c", "libdeep.so", &flags);
    let program = compile_with(directory.path(), "deep.c", "deep", &["-Wl,-rpath,$ORIGIN"]);
    for fault in deliveries(0) {
        let mut command = run_for_a_while("16M", fault);
        assert_eq!(succeed(command.arg(&program).arg("libdeep.so")), "exact\n", "{fault}");
    }
}

#[test]
fn relocated_data_of_libraries_is_mapped_from_a_file_and_stays_what_it_is() {
    let directory = directory();
    let flags = ["-fPIC", "-shared", "-DLIBRARY"];
    let libraries = ["one", "other", "third"]
        .map(|name| compile_with(directory.path(), "relocated.c", &format!("{name}.so"), &flags));
    let program = compile(directory.path(), "relocated.c");
    let natively = succeed(Command::new(&program).arg("stays").args(&libraries));
    assert_eq!(natively, "exact\n", "natively");
    // Where it could be read, would stay in memory all the same, or would have to be waited for, it stays.
    let cases = [
        ("moves", vec![]),
        ("moves", vec!["--compress", "8M"]),
        ("locked", vec![]),
        ("locked-heap", vec![]),
        ("stays", vec!["--encrypt"]),
    ];
    for (case, (becomes, options)) in cases.iter().enumerate() {
        for fault in deliveries(case) {
            let mut command = with(&run_for_a_while("40M", fault), options);
            let output = succeed(command.arg(&program).arg(becomes).args(&libraries));
            assert_eq!(output, "exact\n", "{fault}, {becomes}, {options:?}");
        }
    }
    for fault in deliveries(0) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_userswap"));
        command.args(["run", "--ram", "40M", "--fault", fault, "--swap", "mem:1G", "--"]);
        let output = succeed(command.arg(&program).arg("stays").args(&libraries));
        assert_eq!(output, "exact\n", "{fault}, in memory");
    }
}

#[test]
fn a_program_that_runs_handlers_of_fork_itself_has_children_with_its_memory() {
    let directory = directory();
    let flags = ["-fPIC", "-shared", "-DLIBRARY"];
    let library = compile_with(directory.path(), "bracketed.c", "libbracketed.so", &flags);
    let program = with_an_allocator_in_it(directory.path(), "bracketed.c");
    let natively = succeed(Command::new(&program).arg(&library));
    assert_eq!(natively, "exact\n", "natively");
    for fault in deliveries(0) {
        let mut command = run_for_a_while("16M", fault);
        assert_eq!(succeed(command.arg(&program).arg(&library)), "exact\n", "{fault}");
    }
}

#[test]
fn threads_know_their_stacks_where_memory_that_is_given_out_is_missing() {
    let directory = directory();
    let flags = ["-pthread", "-rdynamic", "-fno-builtin"];
    let program = compile_with(directory.path(), "attributes.c", "attributes", &flags);
    assert_eq!(succeed(&mut Command::new(&program)), "exact\n", "natively");
    for fault in deliveries(0) {
        let mut command = run_for_a_while("16M", fault);
        assert_eq!(succeed(command.arg(&program)), "exact\n", "{fault}");
    }
}

#[test]
fn an_allocators_memory_is_managed_through_its_mappings() {
    let directory = directory();
    let program = with_an_allocator_in_it(directory.path(), "foreign.c");
    let file = directory.path().join("stats.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_userswap"));
    command.args(["run", "--ram", "16M", "--swap", "/var/tmp", "--stats"]).arg(&file);
    assert_eq!(succeed(command.arg("--").arg(&program)), "exact\n");
    let stats = std::fs::read_to_string(&file).expect("the statistics were written");
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    assert_eq!(stats["engaged"], true, "{stats}");
    assert!(stats["pswpout"].as_u64().unwrap() > 4000, "{stats}");
}

#[test]
fn a_detached_thread_on_a_stack_of_the_programs_ends_when_its_table_is_swapped_out() {
    let directory = directory();
    let program = with_an_allocator_in_it(directory.path(), "detached.c");
    // Each run may begin such threads before, while and after the engine starts.
    for round in 0..if is_long() { 4 } else { 2 } {
        std::thread::scope(|scope| {
            for fault in ["thread", "signal"] {
                let mut command = run_for_a_while("16M", fault);
                command.arg(&program);
                scope.spawn(move || {
                    assert_eq!(succeed(&mut command), "exact\n", "{fault}, {round}")
                });
            }
        });
    }
}

#[test]
fn ends_of_stacks_of_the_programs_stay_while_the_engine_starts() {
    let directory = directory();
    // With an allocator of its own the program goes on while the engine takes its memory over.
    let program = with_an_allocator_in_it(directory.path(), "watched_stacks.c");
    for round in 0..10 {
        let mut command = run_for_a_while("16M", "signal");
        assert_eq!(succeed(command.arg(&program)), "exact\n", "{round}");
    }
}

#[test]
fn streams_and_directories_outlive_that_their_buffers_are_swapped_out() {
    let directory = directory();
    let program = with_an_allocator_in_it(directory.path(), "quiet_streams.c");
    for fault in deliveries(0) {
        let output = succeed(run_for_a_while("16M", fault).arg(&program));
        assert_eq!(output, "2000\nexact\n", "{fault}");
    }
}

/// Runs a program beside itself: with the library's allocator and its own, with both ways of faults.
fn is_exact_with_each_allocator(name: &str, ram: &str) {
    let directory = directory();
    let without = compile(directory.path(), name);
    let with = with_an_allocator_in_it(directory.path(), name);
    std::thread::scope(|scope| {
        for (case, program) in [&without, &with].into_iter().enumerate() {
            for fault in deliveries(case) {
                scope.spawn(move || {
                    let mut command = run_for_a_while(ram, fault);
                    assert_eq!(succeed(command.arg(program)), "exact\n", "{program:?}, {fault}");
                });
            }
        }
    });
}

#[test]
fn a_thread_forks_while_the_engine_starts_in_another() {
    is_exact_with_each_allocator("fork_early.c", "48M");
}

#[test]
fn a_fork_keeps_no_guard_of_a_stack_and_its_child_what_threads_begin_with() {
    is_exact_with_each_allocator("fork_guarded.c", "16M");
}

#[test]
fn what_threads_do_beside_their_memory_goes_on_while_the_engine_starts() {
    is_exact_with_each_allocator("busy.c", "48M");
}

#[test]
fn aio_is_carried_out_whoever_allocates_for_its_lists() {
    is_exact_with_each_allocator("aio.c", "16M");
    is_exact_with_each_allocator("aio_events.c", "16M");
}

#[test]
fn an_allocator_for_one_thread_is_called_by_no_other() {
    let directory = directory();
    let program = compile_with(directory.path(), "lone.c", "lone", &["-rdynamic"]);
    for fault in deliveries(0) {
        assert_eq!(succeed(run_for_a_while("16M", fault).arg(&program)), "exact\n", "{fault}");
    }
}

#[test]
fn a_sanitizer_finds_the_addresses_free_that_it_wants() {
    let directory = directory();
    let flags = ["-fsanitize=address", "-static-libasan"];
    let program = compile_with(directory.path(), "fork.c", "fork", &flags);
    let mut command = run_for_a_while("1G", "thread");
    command.env("ASAN_OPTIONS", "detect_leaks=0");
    assert_eq!(succeed(command.arg(&program)), "exact\n");
}

#[test]
fn no_child_finds_a_lock_of_malloc_taken() {
    let directory = directory();
    let program = compile(directory.path(), "fork_threads.c");
    assert_eq!(succeed(run_for_a_while("1G", "thread").arg(&program)), "exact\n");
}

#[test]
fn a_thread_forks_while_another_flushes_all_streams() {
    let directory = directory();
    let program = compile(directory.path(), "fork_flush.c");
    for fault in deliveries(0) {
        assert_eq!(succeed(run_for_a_while("32M", fault).arg(&program)), "exact\n", "{fault}");
    }
}

#[test]
fn a_coroutine_whose_stack_has_left_changes_memory() {
    let directory = directory();
    let program = compile(directory.path(), "cold_stack.c");
    for fault in deliveries(0) {
        assert_eq!(succeed(run_for_a_while("32M", fault).arg(&program)), "exact\n", "{fault}");
    }
}

#[test]
fn a_child_of_threads_that_fork_together_has_managed_malloc() {
    let directory = directory();
    let program = compile(directory.path(), "fork_together.c");
    assert_eq!(succeed(run_for_a_while("1G", "thread").arg(&program)), "exact\n");
}

#[test]
fn a_program_whose_main_thread_has_ended_ends_with_its_last_one() {
    let directory = directory();
    let program = compile(directory.path(), "last_thread.c");
    let all = [&["before"][..], &["after"], &["before", "cancelled"], &["after", "thrd"]];
    for (case, how) in all.into_iter().enumerate() {
        for fault in deliveries(case) {
            let mut command = run_for_a_while("16M", fault);
            let printed = succeed(command.arg(&program).args(how));
            assert_eq!(printed, "exact\nended\n", "{fault}, {how:?}");
        }
    }
}

#[test]
fn blocks_of_a_size_that_is_asked_for_often_take_what_they_need() {
    let directory = directory();
    let program = compile_with(directory.path(), "sizes.c", "sizes", &["-pthread"]);
    assert_eq!(succeed(&mut Command::new(&program)), "exact\n", "natively");
    gives_exact_results(&program);
    for (ram, fault) in [("1G", "thread"), ("16M", "thread"), ("16M", "signal")] {
        let mut forks = run_for_a_while(ram, fault);
        assert_eq!(succeed(forks.arg(&program).arg("handler")), "exact\n", "{fault}, {ram}");
    }
    let taken = succeed(run("1G", "thread").arg(&program).arg("memory"));
    let bytes: usize = taken.trim().parse().unwrap();
    // A size class above 4 KiB would be 5 KiB.
    assert!((4368..4600).contains(&bytes), "{bytes}");
}
