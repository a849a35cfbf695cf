//! A program under `run` that is told what to do by lines, and answers by lines.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use tempfile::TempDir;

/// The program; it ends with this.
pub struct Served {
    pub child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Served {
    /// Starts `command` with the options of `run`, and its control socket in `runtime`.
    pub fn start(runtime: &TempDir, options: &[&str], command: &[&str]) -> Self {
        Self::start_with(runtime, &[], options, command)
    }

    /// The same with variables.
    pub fn start_with(
        runtime: &TempDir,
        variables: &[(&str, &str)],
        options: &[&str],
        command: &[&str],
    ) -> Self {
        let mut child = userswap_in(runtime, &["run"])
            .envs(variables.iter().copied())
            .args(options)
            .arg("--")
            .args(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    pub fn ask(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").unwrap();
        self.hear()
    }

    pub fn hear(&mut self) -> String {
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    }

    pub fn pid(&self) -> String {
        self.child.id().to_string()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended in order.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A runtime directory of the test's own: other tests' programs are not in it.
pub fn runtime() -> TempDir {
    let runtime = super::directory();
    fs::set_permissions(runtime.path(), fs::Permissions::from_mode(0o755)).unwrap();
    runtime
}

/// A command of ours that looks for programs there only.
pub fn userswap_in(runtime: &TempDir, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_userswap"));
    command.args(arguments).env("XDG_RUNTIME_DIR", runtime.path());
    command
}

/// What it prints when it ends well.
pub fn printed(runtime: &TempDir, arguments: &[&str]) -> String {
    let output: Output = userswap_in(runtime, arguments).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {}: {error}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// One line of ours that has all of `parts`, and the status of a refusal.
pub fn is_refusal(output: &Output, status: i32, parts: &[&str]) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{error}");
    assert!(error.starts_with("userswap: ") && error.lines().count() == 1, "{error}");
    parts.iter().for_each(|part| assert!(error.contains(part), "{part:?} is not in: {error}"));
    assert!(output.stdout.is_empty());
}
