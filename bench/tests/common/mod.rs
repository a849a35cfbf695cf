//! What the tests of whole programs share: finding the program, and waiting for what it does.
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// No step of a test takes this long, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What asks a program to stop, as a shell gives it to a program in the foreground: not ignored.
const HEARD: &str = "--default-signal=INT,TERM,HUP,QUIT";

/// The example `standalone`, which Cargo builds beside the tests. It hears the signals that ask it to stop also
/// where the tests do not: children of nohup and of background jobs inherit that these are ignored.
pub fn standalone() -> Command {
    let test = std::env::current_exe().unwrap();
    let path: PathBuf = test.parent().unwrap().parent().unwrap().join("examples/standalone");
    assert!(path.exists(), "{} is missing: cargo build --examples", path.display());
    let mut command = Command::new("env");
    command.arg(HEARD).arg(path);
    command
}

/// Runs `standalone` with the words of `line`.
pub fn run(line: &str) -> Output {
    standalone().args(line.split_whitespace()).output().unwrap()
}

/// What a program printed, as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A wrong value of a command line is named on one line, nothing else is printed, and the status is 2.
#[allow(dead_code, reason = "not every test has command lines that are wrong")]
pub fn refuses(line: &str, value: &str) {
    let output = run(line);
    assert_eq!(output.status.code(), Some(2), "{line}: {output:?}");
    assert!(output.stdout.is_empty(), "{line}: {output:?}");
    let message = text(&output.stderr);
    assert_eq!(message.lines().count(), 1, "{line}: {message}");
    assert!(message.contains(value), "{line}: {message}");
}

/// Looks again and again until `done` is true.
#[allow(dead_code, reason = "not every test waits")]
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(LOOK_AGAIN);
    }
}
