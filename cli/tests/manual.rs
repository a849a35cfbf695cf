//! Man pages for every command, and completion that asks what runs.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use tempfile::TempDir;

fn userswap() -> Command {
    Command::new(env!("CARGO_BIN_EXE_userswap"))
}

fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_command_has_a_page() {
    let directory = tempfile::tempdir().unwrap();
    let pages = directory.path().join("man1");
    printed(userswap().arg("man").arg(&pages));
    let help = printed(userswap().arg("--help"));
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands: Vec<_> = commands
        .map_while(|line| line.split_whitespace().next())
        .filter(|it| *it != "help")
        .collect();
    assert!(commands.contains(&"run") && commands.contains(&"doctor"), "{commands:?}");
    for name in commands {
        let page = fs::read_to_string(pages.join(format!("userswap-{name}.1"))).expect(name);
        assert!(page.contains(&format!(".TH userswap-{name} 1")), "{name}: {page}");
        assert!(page.contains(".SH EXAMPLES\n"), "{name}: {page}");
    }
    let run = fs::read_to_string(pages.join("userswap-run.1")).unwrap();
    assert!(run.contains("userswap.toml") && run.contains("USERSWAP_RAM"), "{run}");
    assert!(pages.join("userswap-bench-swapoff.1").exists());
    assert!(!pages.join("userswap-demo-load.1").exists(), "a hidden command has a page");
    assert_eq!(
        printed(userswap().arg("man")),
        fs::read_to_string(pages.join("userswap.1")).unwrap()
    );
}

/// A program that has outgrown its budget and waits for its standard input to end.
struct Grown {
    child: Child,
    input: Option<ChildStdin>,
    runtime: TempDir,
}

impl Grown {
    fn start() -> Grown {
        let runtime = tempfile::tempdir().unwrap();
        let mut child = userswap()
            .args(["run", "--ram", "16M", "--swap", "mem:64M", "--", "python3", "-c"])
            .arg("import sys; big = bytearray(32 << 20); print('grown', flush=True); sys.stdin.read()")
            .env("XDG_RUNTIME_DIR", runtime.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "grown\n");
        let input = child.stdin.take();
        Grown { child, input, runtime }
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// What bash offers for the last of these words, by the script that it was given.
    fn bash(&self, words: &[&str]) -> Vec<String> {
        let mut bash = Command::new("bash");
        bash.args(["--norc", "--noprofile", "-c", BASH, "bash"]).args(words).env("PATH", path());
        let said = printed(bash.env("XDG_RUNTIME_DIR", self.runtime.path()));
        said.lines().map(str::to_owned).collect()
    }

    /// What another shell is told.
    fn other(&self, shell: &str, words: &[&str]) -> String {
        let mut asked = userswap();
        asked.arg("--").args(words).env("USERSWAP_COMPLETE", shell);
        asked.env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string()).env("_CLAP_IFS", "\n");
        printed(asked.env("XDG_RUNTIME_DIR", self.runtime.path()))
    }
}

impl Drop for Grown {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

/// Completes the last argument as bash does when Tab is pressed after it.
const BASH: &str = r#"
. <(userswap completions bash)
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_TYPE=9 COMPREPLY=()
_clap_complete_userswap userswap "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}" 2>/dev/null
printf '%s\n' "${COMPREPLY[@]}"
"#;

/// With the binary's own directory first.
fn path() -> String {
    let here = Path::new(env!("CARGO_BIN_EXE_userswap")).parent().unwrap();
    format!("{}:{}", here.display(), std::env::var("PATH").unwrap())
}

#[test]
fn processes_settings_and_devices_are_completed_as_they_are() {
    let program = Grown::start();
    let pid = program.pid();
    let pid = pid.as_str();
    for (words, offered) in [
        (&["sw"][..], &["swapon", "swapoff"][..]),
        (&["status", ""], &[pid]),
        (&["set", pid, "pla"], &["placement"]),
        (&["set", pid, "placement", ""], &["near", "spread"]),
        (&["set", pid, "ram", ""], &["16M"]),
        (&["swapoff", pid, ""], &["mem"]),
        (&["swapoff", "--readahead", "device", pid, ""], &["mem"]),
        (&["completions", "f"], &["fish"]),
    ] {
        let words: Vec<_> = ["userswap"].iter().chain(words).copied().collect();
        let found = program.bash(&words);
        for value in offered {
            assert!(
                found.iter().any(|it| it.trim_end() == *value),
                "{words:?}: {value} is not in {found:?}"
            );
        }
    }
    for shell in ["zsh", "fish"] {
        let script = printed(userswap().args(["completions", shell]));
        assert!(script.contains("USERSWAP_COMPLETE") && script.contains("userswap"), "{script}");
        let said = program.other(shell, &["userswap", "set", pid, "swap_ra_policy", "s"]);
        assert!(said.contains("stream") && said.contains("scaling"), "{shell}: {said}");
        let said = program.other(shell, &["userswap", "status", ""]);
        assert!(said.contains(pid) && said.contains("python3"), "{shell}: {said}");
    }
}

#[test]
fn programs_are_completed_from_the_path() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a-program-of-ours");
    fs::File::create(&file).unwrap().write_all(b"#!/bin/sh\n").unwrap();
    let ask = || {
        let mut asked = userswap();
        asked
            .args(["--", "userswap", "run", "--ram", "16M", "--", "a-pro"])
            .env("PATH", directory.path());
        printed(asked.env("USERSWAP_COMPLETE", "fish"))
    };
    assert!(!ask().contains("a-program-of-ours"), "it cannot be executed");
    let mut mode = fs::metadata(&file).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
    fs::set_permissions(&file, mode).unwrap();
    assert!(ask().contains("a-program-of-ours"));
}
