//! What the tests of the injected library share: C programs, and running them under `userswap run`.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod served;

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A directory on a real file system for programs, swap and statistics.
pub fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/var/tmp").expect("/var/tmp is writable")
}

/// Whether the long forms are wanted.
pub fn is_long() -> bool {
    std::env::var("USERSWAP_TEST_LONG").is_ok_and(|value| value == "1")
}

/// Says on the terminal what takes its time; the test runner captures no such line.
pub fn progress(what: &str) {
    let _ = std::io::stderr().write_all(format!("{what}\n").as_bytes());
}

/// Compiles a C program of this directory.
pub fn compile(directory: &Path, name: &str) -> PathBuf {
    let program = Path::new(name).with_extension("");
    let program = program.to_str().expect("a plain name");
    compile_with(directory, name, program, &["-pthread"])
}

/// Compiles a C program of this directory with the allocator in it.
pub fn with_an_allocator_in_it(directory: &Path, name: &str) -> PathBuf {
    let allocator = compile_with(directory, "allocator.c", "allocator.o", &["-c"]);
    let flags = ["-pthread", allocator.to_str().unwrap(), "-rdynamic"];
    compile_with(directory, name, "with-allocator", &flags)
}

/// Compiles a C source of this directory with more flags, which may name other objects.
pub fn compile_with(directory: &Path, name: &str, output: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/preload_support").join(name);
    let output = directory.join(output);
    // More rounds in the long form.
    let times = if is_long() { 8 } else { 1 };
    if times > 1 {
        progress(&format!("{name}: the long form"));
    }
    let status = Command::new("gcc")
        .args(["-std=gnu11", "-O1", "-Wall", "-Werror"])
        .arg(format!("-DTIMES={times}"))
        .arg("-o")
        .arg(&output)
        .arg(&source)
        .args(flags)
        .status()
        .expect("gcc is installed: the tests of the injected library compile C programs");
    assert!(status.success(), "gcc refuses {}", source.display());
    output
}

/// Compiles a C source of this directory for a fixed address.
pub fn compile_fixed(directory: &Path, name: &str) -> PathBuf {
    compile_with(directory, name, &format!("{name}-fixed"), &["-no-pie", "-fno-pie"])
}

/// `userswap run --ram RAM --fault MODE -- …`.
pub fn run(ram: &str, fault: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_userswap"));
    command.args(["run", "--ram", ram, "--fault", fault, "--swap", "/var/tmp", "--"]);
    command
}

/// The same with more options.
pub fn with(command: &Command, options: &[&str]) -> Command {
    let words: Vec<_> = command.get_args().map(std::ffi::OsStr::to_owned).collect();
    let (last, first) = words.split_last().expect("the command ends with --");
    let mut longer = Command::new(command.get_program());
    longer.args(first).args(options).arg(last);
    longer
}

/// The same as `run` without root's rights: a user who is not served faults that system calls take. Needs root, to become
/// that user; everybody may write into the directory then.
pub fn as_nobody(directory: &Path, ram: &str, fault: &str) -> Command {
    let program = directory.join("userswap-for-all");
    if !program.exists() {
        std::fs::copy(env!("CARGO_BIN_EXE_userswap"), &program).expect("the binary can be copied");
    }
    let everybody = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(directory, everybody).expect("the directory is ours");
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]).arg(program);
    command.args(["run", "--ram", ram, "--fault", fault, "--swap", "/var/tmp", "--"]);
    command
}

/// How faults are delivered: by message and by signal in the long form; else by one of them, which follows from the test's name,
/// and for its next case by the other.
pub fn deliveries(case: usize) -> impl Iterator<Item = &'static str> {
    let chosen = turn(case, 2);
    ["thread", "signal"]
        .into_iter()
        .enumerate()
        .filter_map(move |(index, fault)| (is_long() || index == chosen).then_some(fault))
}

/// Who runs a program: as root or without rights, where nobody is served what system calls fault on, with a delivery of faults.
/// By signal root is not served that either. All in the long form, else two of them, by turns as well.
pub fn users(case: usize) -> impl Iterator<Item = (&'static str, &'static str)> {
    let left_out = turn(case, 3);
    let all = [("root", "thread"), ("nobody", "thread"), ("nobody", "signal"), ("root", "signal")];
    all.into_iter().enumerate().filter_map(move |(index, run)| {
        (is_long() || (index != left_out && index < 3)).then_some(run)
    })
}

/// A number below this one that follows from the name of the test, and the next one for the next case.
fn turn(case: usize, below: usize) -> usize {
    let thread = std::thread::current();
    let test = thread.name().expect("the test's own thread");
    (test.bytes().map(usize::from).sum::<usize>() + case) % below
}

/// Runs to the end and demands success; returns what was printed.
pub fn succeed(command: &mut Command) -> String {
    let output: Output = command.output().expect("the command starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{command:?}: {}\n{printed}\n{errors}", output.status);
    printed.into_owned()
}
