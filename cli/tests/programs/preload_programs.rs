//! Whole programs under `run`: shells, pipelines, statistics, exit status.

use crate::preload_support::{deliveries, directory, run, succeed};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

/// Builds and checks more than twice the budget.
const PYTHON: &str = "
import os, signal, sys
b = bytearray(40 << 20)
for i in range(0, len(b), 4096): b[i:i+4] = i.to_bytes(4, 'little')
assert all(int.from_bytes(b[i:i+4], 'little') == i for i in range(0, len(b), 4096))
";

fn with_stats(file: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_userswap"));
    command.args(["run", "--ram", "16M", "--swap", "/var/tmp", "--stats"]).arg(file).arg("--");
    command.args(arguments);
    command
}

fn stats(file: &Path) -> serde_json::Value {
    let text = std::fs::read_to_string(file).expect("the statistics were written");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_shell_and_its_pipelines_never_need_the_engine() {
    let directory = directory();
    let file = directory.path().join("stats.%p.json");
    let script = "seq 1 50000 | sort -rn | head -1; for i in 1 2 3; do (echo $i) & wait; done; x=$(echo a | tr a b); echo $x";
    assert_eq!(succeed(&mut with_stats(&file, &["bash", "-c", script])), "50000\n1\n2\n3\nb\n");
    let files: Vec<_> =
        std::fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(files.len() >= 4, "every process writes its own: {files:?}");
    for file in files {
        let stats = stats(&file);
        assert_eq!(stats["engaged"], false, "{stats}");
        assert_eq!(stats["pswpout"], 0, "{stats}");
        assert!(stats["accessible_pages"].as_u64().unwrap() < 1024, "{stats}");
    }
}

#[test]
fn statistics_tell_what_a_large_program_did() {
    let directory = directory();
    let file = directory.path().join("stats.json");
    succeed(&mut with_stats(&file, &["python3", "-c", PYTHON]));
    let stats = stats(&file);
    assert_eq!(stats["engaged"], true);
    assert_eq!(stats["ram_bytes"], 16 << 20);
    assert_eq!(stats["fault"], "thread");
    // What is outside the engine is charged, up to a quarter.
    let of_engine = stats["budget_pages"].as_u64().unwrap();
    assert!((3072..4096).contains(&of_engine), "{stats}");
    for name in
        ["pswpout", "pswpin", "pgfault", "pgmajfault", "pgsteal_kswapd", "fault_latency_p50_ns"]
    {
        assert!(stats[name].as_u64().unwrap() > 0, "{name}: {stats}");
    }
    for name in ["pgsteal_direct", "allocstall", "swap_ra", "swap_ra_hit", "fault_latency_p99_ns"] {
        assert!(stats[name].is_u64(), "{name}: {stats}");
    }
}

#[test]
fn exit_status_and_death_are_the_programs_also_under_the_engine() {
    for fault in deliveries(0) {
        let exit = format!("{PYTHON}\nos._exit(77)");
        let status = run("16M", fault).args(["python3", "-c", &exit]).status().unwrap();
        assert_eq!(status.code(), Some(77), "{fault}");
        let death = format!("{PYTHON}\nos.kill(os.getpid(), signal.SIGTERM)");
        let status = run("16M", fault).args(["python3", "-c", &death]).status().unwrap();
        assert_eq!(status.signal(), Some(libc_sigterm()), "{fault}");
        // A bad access is the program's own, not a fault to be served.
        let crash = format!("{PYTHON}\nimport ctypes; ctypes.string_at(64)");
        let status = run("16M", fault).args(["python3", "-c", &crash]).status().unwrap();
        assert_eq!(status.signal(), Some(11), "{fault}");
    }
}

/// SIGTERM's number, which is the same everywhere.
fn libc_sigterm() -> i32 {
    15
}

#[test]
fn python_forks_and_starts_others_with_its_memory_swapped() {
    let script = format!(
        "{PYTHON}
import multiprocessing, subprocess
def work(k): return sum(b[k:200000:4096])
multiprocessing.set_start_method('fork')
want = [work(k) for k in range(4)]
with multiprocessing.Pool(2) as pool: assert pool.map(work, range(4)) == want
print(subprocess.check_output('echo pipe | cat', shell=True, text=True), end='')
print(subprocess.run(['echo', 'other'], capture_output=True, text=True).stdout, end='')
"
    );
    for fault in deliveries(0) {
        assert_eq!(
            succeed(run("16M", fault).args(["python3", "-c", &script])),
            "pipe\nother\n",
            "{fault}"
        );
    }
}

#[test]
fn make_runs_its_jobs_in_parallel() {
    let directory = directory();
    std::fs::write(directory.path().join("Makefile"), "all: a b c\na b c: ; @echo $@ >> out\n")
        .unwrap();
    succeed(run("16M", "thread").args(["make", "-s", "-j2", "-C"]).arg(directory.path()));
    assert_eq!(std::fs::read_to_string(directory.path().join("out")).unwrap().lines().count(), 3);
}

#[test]
fn sorted_lines_are_those_of_a_native_sort() {
    let directory = directory();
    let input = directory.path().join("lines");
    let text: String = (0u64..300_000)
        .map(|number| format!("{:016x} {number}\n", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        .collect();
    std::fs::write(&input, text).unwrap();
    let sort = |mut command: Command| {
        succeed(command.args(["-S", "100M", "--parallel=2"]).arg(&input).env("LC_ALL", "C"))
    };
    let native = sort(Command::new("sort"));
    for fault in deliveries(0) {
        let mut managed = run("20M", fault);
        managed.arg("sort");
        assert!(sort(managed) == native, "{fault}");
    }
}

/// Tells the kernel about pages that have left, from both sides of a fork.
const TOLD: &str = "
import os
b = bytearray(40 << 20)
for i in range(0, len(b), 4096): b[i:i+11] = b'page%07d' % (i >> 12)
null = os.open('/dev/null', os.O_WRONLY)
def tell():
    for i in range(0, len(b), 65536): os.write(null, memoryview(b)[i:i+11])
tell()
if os.fork() == 0:
    tell()
    os._exit(0)
assert os.wait()[1] == 0
tell()
";

#[test]
fn strace_reads_memory_that_has_left_and_ends_with_the_program() {
    let directory = directory();
    let file = directory.path().join("calls");
    let mut strace = Command::new("timeout");
    strace.args(["-k", "1", "240", "strace", "-f", "-qq", "-e", "trace=write", "-o"]).arg(&file);
    let run = run("16M", "thread");
    strace.arg(run.get_program()).args(run.get_args()).args(["python3", "-c", TOLD]);
    succeed(&mut strace);
    let calls = std::fs::read_to_string(&file).expect("strace has written what it saw");
    let seen: Vec<_> = calls.lines().filter(|line| line.contains("\"page")).collect();
    assert_eq!(seen.len(), 3 * 640, "{calls}");
    for number in (0..10240).step_by(16) {
        let text = format!("\"page{number:07}\", 11) ");
        assert_eq!(seen.iter().filter(|line| line.contains(&text)).count(), 3, "{text}");
    }
}
