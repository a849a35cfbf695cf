//! A program under `run` that is told what to do by lines, and answers by lines.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The program; it ends with this.
pub struct Served {
    pub child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Served {
    /// Starts `command` with the options of `run`, and its control socket in `runtime`.
    pub fn start(runtime: &TempDir, options: &[&str], command: &[impl AsRef<OsStr>]) -> Self {
        Self::start_with(runtime, &[], options, command)
    }

    /// The same with variables.
    pub fn start_with(
        runtime: &TempDir,
        variables: &[(&str, &str)],
        options: &[&str],
        command: &[impl AsRef<OsStr>],
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
        self.tell(line);
        self.hear()
    }

    pub fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
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

/// Fills as many MiB as its argument says, has children do the same, and ends as it is told to.
const FILLER: &str = "
import os, subprocess, sys
b = bytearray(int(sys.argv[1]) << 20)
def fill(stamp):
    for i in range(0, len(b), 4096): b[i:i+8] = (i + stamp).to_bytes(8, 'little')
def verify(stamp):
    assert all(int.from_bytes(b[i:i+8], 'little') == i + stamp for i in range(0, len(b), 4096))
if sys.argv[2:] == ['child']:
    fill(5); verify(5); sys.exit(0)
fill(1)
print('filled', flush=True)
for line in sys.stdin:
    word = line.strip()
    if word == 'fork':
        child = os.fork()
        if child == 0:
            verify(1); fill(2); verify(2); os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    if word == 'keep':
        (is_full, full), (is_over, over) = os.pipe(), os.pipe()
        kept = os.fork()
        if kept == 0:
            os.close(over)
            fill(2); os.write(full, b'2'); os.read(is_over, 1); verify(2); os._exit(0)
        assert os.read(is_full, 1) == b'2'
    if word == 'kept':
        os.close(over)
        assert os.waitpid(kept, 0)[1] == 0
    if word == 'child':
        subprocess.run([sys.executable, '-c', FILLER, sys.argv[1], 'child'], check=True, env={})
    if word == 'exec':
        os.execv('/bin/echo', ['echo', 'gone'])
    if word == 'end': break
    verify(1)
    print('right', flush=True)
";

/// The command of it.
pub fn filler(mib: usize) -> [String; 4] {
    let program = format!("FILLER = {FILLER:?}\nexec(FILLER)");
    ["python3".to_owned(), "-c".to_owned(), program, mib.to_string()]
}

/// Waits for what others will bring about.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    /// Nothing takes this long, even on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(60);
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "after a minute still not: {what}");
        thread::sleep(Duration::from_millis(20));
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
