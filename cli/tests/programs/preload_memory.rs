//! The calls that change memory, by C programs that check every page, with a quarter of it as budget.

use crate::preload_support::{
    compile, compile_fixed, deliveries, directory, progress, run, succeed, with,
};
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn mappings_behave_like_the_kernels_under_pressure() {
    let directory = directory();
    let program = compile(directory.path(), "mappings.c");
    let file = directory.path().join("file");
    for (fault, seed) in [("thread", "1"), ("thread", "2"), ("signal", "3")] {
        let mut native = std::process::Command::new(&program);
        assert_eq!(
            succeed(native.arg(seed).arg(&file)),
            "exact\n",
            "the model itself, seed {seed}"
        );
        let mut managed = run("16M", fault);
        assert_eq!(
            succeed(managed.arg(&program).arg(seed).arg(&file)),
            "exact\n",
            "{fault}, seed {seed}"
        );
    }
}

#[test]
fn mappings_behave_like_the_kernels_before_the_engine_engages() {
    let directory = directory();
    let program = compile(directory.path(), "mappings.c");
    let mut managed = run("1G", "thread");
    assert_eq!(
        succeed(managed.arg(&program).arg("4").arg(directory.path().join("file"))),
        "exact\n"
    );
}

#[test]
fn blocks_of_several_threads_keep_their_bytes() {
    let directory = directory();
    let program = compile(directory.path(), "heap.c");
    for (ram, fault) in [("16M", "thread"), ("16M", "signal"), ("1G", "thread")] {
        assert_eq!(succeed(run(ram, fault).arg(&program)), "exact\n", "{ram} {fault}");
    }
}

#[test]
fn a_fork_with_most_pages_swapped_is_exact_on_all_sides() {
    let directory = directory();
    let program = compile(directory.path(), "fork.c");
    for fault in deliveries(0) {
        assert_eq!(succeed(run("16M", fault).arg(&program)), "exact\n", "mmap, {fault}");
    }
    assert_eq!(succeed(run("16M", "thread").arg(&program).arg("heap")), "exact\n", "malloc");
}

#[test]
fn a_child_whose_memory_is_read_from_outside_while_it_begins_has_its_own() {
    let directory = directory();
    let program = compile(directory.path(), "looked_at.c");
    for fault in deliveries(0) {
        assert_eq!(succeed(run("16M", fault).arg(&program)), "exact\n", "{fault}");
    }
}

#[test]
fn a_daemon_reads_the_slots_of_parents_that_have_gone_or_written_over_them() {
    let directory = directory();
    let program = compile(directory.path(), "borrowed.c");
    for fault in deliveries(0) {
        let file = directory.path().join("stats.json");
        let mut managed = std::process::Command::new(env!("CARGO_BIN_EXE_userswap"));
        managed.args(["run", "--ram", "16M", "--fault", fault, "--swap", "/var/tmp", "--stats"]);
        assert_eq!(succeed(managed.arg(&file).arg("--").arg(&program)), "exact\n", "{fault}");
        let stats = std::fs::read_to_string(&file).expect("the statistics were written");
        let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
        assert_eq!(stats["fork_slots_copied"], 0, "{stats}");
        assert!(stats["pswpout"].as_u64().unwrap() > 20_000, "{stats}");
    }
}

#[test]
fn system_calls_work_on_swapped_buffers() {
    let directory = directory();
    let program = compile(directory.path(), "calls.c");
    for fault in deliveries(0) {
        let mut managed = run("16M", fault);
        assert_eq!(
            succeed(managed.arg(&program).arg(directory.path().join("file"))),
            "exact\n",
            "{fault}"
        );
    }
}

#[test]
fn what_a_device_writes_stays_whichever_way_pages_travel() {
    let directory = directory();
    let program = compile(directory.path(), "direct.c");
    for (case, transfer) in ["move", "copy"].into_iter().enumerate() {
        for fault in deliveries(case) {
            let mut managed = std::process::Command::new(env!("CARGO_BIN_EXE_userswap"));
            managed.args(["run", "--ram", "16M", "--fault", fault, "--transfer", transfer, "--"]);
            let printed = succeed(managed.arg(&program).arg(directory.path().join("file")));
            assert_eq!(printed, "exact\n", "{transfer} {fault}");
        }
    }
}

#[test]
fn what_was_lent_to_a_pipe_is_read_as_it_was_written() {
    let directory = directory();
    let program = compile(directory.path(), "lent.c");
    for fault in deliveries(0) {
        assert_eq!(succeed(run("16M", fault).arg(&program)), "exact\n", "{fault}");
    }
}

#[test]
fn a_limit_of_address_space_does_not_count_what_is_ours() {
    let directory = directory();
    let program = compile(directory.path(), "address_limit.c");
    for (ram, fault) in [("32M", "thread"), ("32M", "signal"), ("1G", "thread")] {
        assert_eq!(succeed(run(ram, fault).arg(&program)), "exact\n", "{ram} {fault}");
    }
}

#[test]
fn a_programs_own_advice_decides_what_is_read_ahead() {
    let directory = directory();
    let program = compile(directory.path(), "advice.c");
    let program = program.to_str().unwrap();
    let ahead =
        |which: &str| stats("16M", "thread", &[program, which])["swap_ra"].as_u64().unwrap();
    let [normal, random, sequential, taken_back] = ["0", "1", "2", "3"].map(ahead);
    assert!(normal > 1000 && sequential > 1000 && taken_back > 1000, "{normal} {sequential}");
    assert_eq!(random, 0);
}

/// Natively, then in both modes past the budget.
fn replace(which: &str) {
    let directory = directory();
    let program = compile(directory.path(), "replace.c");
    let file = directory.path().join("file");
    let natively = format!("n{which}");
    let mut alone = std::process::Command::new(&program);
    assert_eq!(succeed(alone.arg(&natively).arg(&file)), "exact\n", "{which} without userswap");
    for (ram, fault, which) in
        [("1G", "thread", natively.as_str()), ("16M", "thread", which), ("16M", "signal", which)]
    {
        let mut managed = with(&run(ram, fault), &["--raw-calls", "pass"]);
        let printed = succeed(managed.arg(&program).arg(which).arg(&file));
        assert_eq!(printed, "exact\n", "{which}, {ram}, {fault}");
    }
}

#[test]
fn a_range_that_is_mapped_over_is_never_free_for_other_threads() {
    replace("race");
}

#[test]
fn memory_that_was_opened_unseen_is_empty_for_its_next_owner() {
    replace("unseen");
}

#[test]
fn memory_is_given_back_also_at_the_limit_on_mappings() {
    replace("limit");
}

#[test]
fn a_file_over_managed_memory_replaces_its_pages_and_no_others() {
    replace("foreign");
}

/// Runs a program to its end, which says "exact"; its statistics.
fn stats(ram: &str, fault: &str, words: &[&str]) -> serde_json::Value {
    let directory = directory();
    let file = directory.path().join("stats.json");
    let mut managed = std::process::Command::new(env!("CARGO_BIN_EXE_userswap"));
    managed.args(["run", "--ram", ram, "--fault", fault, "--stats"]).arg(&file).arg("--");
    assert_eq!(succeed(managed.args(words)), "exact\n", "{words:?}, {ram}, {fault}");
    serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap()
}

#[test]
fn a_program_that_ends_by_a_call_of_its_own_has_written_its_statistics() {
    let directory = directory();
    let program = compile(directory.path(), "raw_exit.c");
    for fault in deliveries(0) {
        let stats = stats("16M", fault, &[program.to_str().unwrap()]);
        assert!(stats["pswpout"].as_u64().unwrap() > 4000, "{fault}: {stats}");
    }
}

#[test]
fn memory_at_low_addresses_and_in_reservations_of_a_tebibyte_is_managed() {
    let directory = directory();
    let program = compile(directory.path(), "addresses.c");
    assert_eq!(succeed(&mut std::process::Command::new(&program)), "exact\n", "natively");
    let program = program.to_str().unwrap();
    for (ram, fault) in [("64M", "thread"), ("64M", "signal"), ("256G", "thread")] {
        let stats = stats(ram, fault, &[program]);
        let count = |name: &str| stats[name].as_u64().unwrap();
        assert_eq!(count("unmanaged_bytes"), 0, "{ram}, {fault}");
        if ram == "64M" {
            assert!(count("pswpout") > 10_000 && count("pswpin") > 10_000, "{fault}: {stats}");
            // Of the 8 GiB that one of them makes accessible, only what was touched is looked at again.
            assert!(count("pgdrop") < 100_000, "{fault}: {stats}");
        }
    }
}

/// Runs a program with a third of its memory; nothing of that is outside.
fn is_all_managed(words: &[&str]) {
    assert_eq!(succeed(Command::new(words[0]).args(&words[1..])), "exact\n", "natively");
    for fault in deliveries(0) {
        let stats = stats("24M", fault, words);
        let count = |name: &str| stats[name].as_u64().unwrap();
        assert_eq!(count("unmanaged_bytes"), 0, "{words:?}, {fault}");
        assert!(count("pswpout") > 5_000 && count("pswpin") > 5_000, "{fault}: {stats}");
    }
}

#[test]
fn memory_below_2_gib_is_managed_and_room_that_is_looked_for() {
    let directory = directory();
    let program = compile(directory.path(), "low.c");
    is_all_managed(&[program.to_str().unwrap()]);
    let program = compile_fixed(directory.path(), "low.c");
    is_all_managed(&[program.to_str().unwrap(), "fixed"]);
}

#[test]
fn addresses_that_are_the_kernels_in_the_midst_of_managed_memory_are_as_without_us() {
    let directory = directory();
    let programs = [compile(directory.path(), "gaps.c"), compile_fixed(directory.path(), "gaps.c")];
    for (case, program) in programs.into_iter().enumerate() {
        assert_eq!(succeed(&mut Command::new(&program)), "exact\n", "natively");
        for fault in deliveries(case) {
            let told = succeed(run("16M", fault).arg(&program));
            assert_eq!(told, "exact\n", "{}, {fault}", program.display());
        }
    }
}

#[test]
fn memory_behind_the_programs_data_is_managed() {
    let directory = directory();
    let program = compile(directory.path(), "break.c");
    is_all_managed(&[program.to_str().unwrap()]);
    let program = compile_fixed(directory.path(), "break.c");
    is_all_managed(&[program.to_str().unwrap(), "fixed"]);
}

#[test]
fn a_core_dump_holds_what_the_program_has_and_not_the_free_arena() {
    let directory = directory();
    let program = compile(directory.path(), "dumped.c");
    for (ram, fault) in [("16M", "thread"), ("16M", "signal"), ("1G", "thread")] {
        stats(ram, fault, &[program.to_str().unwrap()]);
    }
}

/// The middle of what `secrets.c` has in its pages: more than a register holds.
fn word() -> Vec<u8> {
    (16..64u32).map(|at| b'a' + ((at * at * 7 + at * 3 + at / 5) % 26) as u8).collect()
}

/// What a core dump has of memory. Before it, in the first segment, are notes: the registers of each thread, which keep
/// what was copied last.
fn memory_of(core: &[u8]) -> &[u8] {
    const NOTES: u64 = 4;
    let number = |at: usize| u64::from_le_bytes(core[at..at + 8].try_into().unwrap());
    let first = number(32) as usize;
    assert_eq!(number(first) & 0xffff_ffff, NOTES, "the type of the first segment");
    &core[(number(first + 8) + number(first + 32)) as usize..]
}

/// How often a core dump has in memory the word that `secrets.c` writes, which ends as it dumps.
fn words_in_core(directory: &Path, mut command: Command) -> usize {
    let mut dumping = Command::new("prlimit");
    dumping.arg("--core=unlimited").arg(command.get_program()).args(command.get_args());
    command = dumping;
    let output = command.current_dir(directory).output().unwrap();
    let is_core = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name == "core" || name.starts_with("core.")
    };
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let cores: Vec<_> = files.filter(is_core).collect();
    assert_eq!(cores.len(), 1, "{command:?} leaves one core dump: {output:?}");
    let core = std::fs::read(&cores[0]).unwrap();
    std::fs::remove_file(&cores[0]).unwrap();
    let (memory, word) = (memory_of(&core), word());
    let may_start = memory.iter().enumerate().filter(|(_, byte)| **byte == word[0]);
    may_start.filter(|(at, _)| memory[*at..].starts_with(&word)).count()
}

#[test]
fn a_core_dump_has_nothing_of_what_is_swapped_out() {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    if pattern.starts_with('|') || pattern.contains('/') {
        return progress(&format!("NOT TESTED: core dumps go elsewhere here, to {pattern}"));
    }
    let directory = directory();
    let program = compile(directory.path(), "secrets.c");
    let mut native = Command::new(&program);
    native.arg("resident");
    let all = words_in_core(directory.path(), native);
    assert_eq!(all, 12 << 10, "natively each page is in the dump");
    let tiers: [&[&str]; 4] = [
        &["--encrypt"],
        &["--encrypt", "--compress", "8M"],
        &["--swap", "zram:256M,pri=9"],
        &["--swap", "mem:128M,pri=9,encrypt"],
    ];
    for (fault, options) in ["thread", "signal"].iter().flat_map(|f| tiers.map(|o| (f, o))) {
        let mut command = with(&run("16M", fault), options);
        command.arg(&program);
        assert_eq!(words_in_core(directory.path(), command), 0, "{fault}, {options:?}");
    }
}

#[test]
fn a_program_that_insists_on_an_address_gets_it_from_the_kernel_and_no_other_does() {
    let directory = directory();
    let program = compile(directory.path(), "insist.c");
    let program = program.to_str().unwrap();
    let unmanaged =
        |how: &str| stats("1G", "thread", &[program, how])["unmanaged_bytes"].as_u64().unwrap();
    assert_eq!(unmanaged("kept"), 0);
    // What was reserved, and what was made of it.
    assert_eq!(unmanaged("insists"), 65 << 20);
    assert_eq!(unmanaged("large"), (5 << 40) + (1 << 20));
}

#[test]
fn a_program_with_files_in_its_reservations_engages_and_forks() {
    let directory = directory();
    let program = compile(directory.path(), "overlaid.c");
    for fault in deliveries(0) {
        assert_eq!(succeed(run("16M", fault).arg(&program)), "exact\n", "{fault}");
    }
}
