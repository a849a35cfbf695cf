//! Programs that give their rights up outgrow their budget, and fork, all the same.

use crate::preload_support::{
    compile, deliveries, directory, run, succeed, with_an_allocator_in_it,
};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// How a program of rights.c gives rights up.
const WAYS: [&str; 9] = [
    "user",
    "user-for-good",
    "root",
    "root-and-user",
    "capabilities",
    "dumpable",
    "landlock",
    "descriptors",
    "daemon",
];

fn require_root() {
    assert!(rustix::process::geteuid().is_root(), "only root has rights to give up: run as root");
}

/// A directory that every user can reach, with an empty one in it.
fn public_directory() -> tempfile::TempDir {
    require_root();
    let directory = directory();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(directory.path().join("empty")).unwrap();
    directory
}

/// The kernel counts what a process had before its exec as its peak, and these tests may have much.
fn from_a_small_process(command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$@\"; exit $?", "sh"]).arg(command.get_program()).args(command.get_args());
    shell
}

fn gives_up(directory: &Path, program: &Path, when: &str) {
    let by_signal = ["user", "daemon"].map(|way| (way, "signal"));
    std::thread::scope(|scope| {
        for (way, fault) in WAYS.map(|way| (way, "thread")).into_iter().chain(by_signal) {
            let mut managed = run("16M", fault);
            managed.arg(program).args([way, when]).arg(directory.join("empty"));
            scope.spawn(move || {
                assert_eq!(
                    succeed(&mut from_a_small_process(&managed)),
                    "exact\n",
                    "{way}, {when}, {fault}"
                )
            });
        }
    });
}

#[test]
fn a_program_gives_rights_up_before_it_outgrows_its_budget() {
    let directory = public_directory();
    let program = compile(directory.path(), "rights.c");
    gives_up(directory.path(), &program, "before");
}

#[test]
fn a_program_gives_rights_up_under_an_engine() {
    let directory = public_directory();
    let program = compile(directory.path(), "rights.c");
    gives_up(directory.path(), &program, "after");
}

#[test]
fn a_child_of_a_program_without_rights_outgrows_its_budget() {
    let directory = public_directory();
    let program = compile(directory.path(), "rights.c");
    gives_up(directory.path(), &program, "in-child");
}

#[test]
fn children_in_a_pid_namespace_of_their_own_are_served() {
    let directory = public_directory();
    let program = compile(directory.path(), "pid_namespace.c");
    for fault in deliveries(0) {
        assert_eq!(succeed(run("16M", fault).arg(&program)), "exact\n", "{fault}");
    }
}

#[test]
fn a_program_that_allows_itself_no_files_outgrows_its_budget_and_forks() {
    let directory = directory();
    let program = compile(directory.path(), "file_limit.c");
    for (case, when) in ["before", "after", "back"].into_iter().enumerate() {
        for fault in deliveries(case) {
            let output = run("16M", fault).arg(&program).arg(when).output().unwrap();
            let told = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.stdout, b"exact\n", "{when}, {fault}: {}: {told}", output.status);
            assert!(told.lines().all(|line| !line.contains("errno")), "{when}, {fault}: {told}");
            // Of the children, which have no swap of their own.
            assert!(told.contains("(ulimit -f)"), "{when}, {fault}: {told}");
        }
    }
}

#[test]
fn statistics_that_a_limit_of_files_forbids_are_said_to_be_missing_and_leave_the_status_alone() {
    let directory = directory();
    let at = |name: &str| directory.path().join(name);
    std::fs::write(at("stats"), "old").unwrap();
    let run = |script: &str, error: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_userswap"));
        command.args(["run", "--ram", "16M", "--swap", "/var/tmp", "--stats"]).arg(at("stats"));
        command.args(["--trace".as_ref(), at("trace").as_os_str()]);
        command.args(["--", "sh", "-c", script]).stderr(error).output().unwrap()
    };
    let output = run("ulimit -f 0; exit 3", Stdio::piped());
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{}: {told}", output.status);
    assert!(told.contains("--stats ") && told.contains("(ulimit -f)"), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    assert_eq!(std::fs::read_to_string(at("stats")).unwrap(), "old");
    // A message to a file is none that ends it, either.
    let file = std::fs::File::create(at("error")).unwrap();
    let output = run("ulimit -f 0; exit 3", file.into());
    assert_eq!(output.status.code(), Some(3), "{}", output.status);
}

#[test]
fn a_program_that_brings_an_allocator_gives_rights_up() {
    let directory = public_directory();
    let program = with_an_allocator_in_it(directory.path(), "rights.c");
    for (way, when) in [("user", "before"), ("root", "in-child"), ("landlock", "after")] {
        let mut managed = run("16M", "thread");
        managed.arg(&program).args([way, when]).arg(directory.path().join("empty")).arg("late");
        assert_eq!(succeed(&mut managed), "exact\n", "{way}, {when}");
    }
}
