//! Man pages for every command, and completion that asks what runs, in the shells themselves.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::terminal_support::Tmux;
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

    fn send(&self, signal: &str) -> bool {
        Command::new("kill").args([signal, &self.pid()]).status().unwrap().success()
    }

    /// What bash offers for the last of these words, by the script that it was given.
    fn bash(&self, words: &[&str]) -> Vec<String> {
        let mut bash = Command::new("bash");
        bash.args(["--norc", "--noprofile", "-c", BASH, "bash"]).args(words).env("PATH", path());
        let said = printed(bash.env("XDG_RUNTIME_DIR", self.runtime.path()));
        said.lines().map(str::to_owned).collect()
    }

    /// The same by fish, which finds the script where docs/install.md puts it.
    fn fish(&self, words: &[&str]) -> Vec<String> {
        let home = tempfile::tempdir().unwrap();
        install("fish", &home.path().join(".config/fish/completions/userswap.fish"));
        let mut fish = Command::new("fish");
        fish.args(["-c", "complete --do-complete $argv[1]", &words.join(" ")]);
        fish.env("HOME", home.path()).env("PATH", path());
        for variable in ["XDG_CONFIG_HOME", "XDG_DATA_HOME"] {
            fish.env_remove(variable);
        }
        let said = printed(fish.env("XDG_RUNTIME_DIR", self.runtime.path()));
        // A tab comes before what a word means.
        said.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect()
    }

    /// What zsh shows when Tab is pressed after `line`, with the set-up of docs/install.md.
    fn zsh(&self, line: &str, shown: &str) {
        let home = tempfile::tempdir().unwrap();
        install("zsh", &home.path().join(".zfunc/_userswap"));
        fs::write(home.path().join(".zshrc"), ZSHRC).unwrap();
        let home = home.path().to_str().unwrap();
        let variables = [
            ("HOME", home),
            ("ZDOTDIR", home),
            ("PATH", &path()),
            ("XDG_RUNTIME_DIR", self.runtime.path().to_str().unwrap()),
        ];
        let tmux = Tmux::start(&variables, (100, 24));
        tmux.run("exec zsh");
        tmux.shows("zsh is ready");
        tmux.press(&[line, "Tab"]);
        tmux.shows(shown);
    }
}

impl Drop for Grown {
    fn drop(&mut self) {
        // A test may have failed while it was stopped.
        self.send("-CONT");
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

/// Not `compinit -D` alone: a directory that others may write is asked about.
const ZSHRC: &str = r"
fpath+=~/.zfunc
autoload -U compinit && compinit -u -D
PS1='zsh is ready> '
";

/// Puts the script for a shell where the shell looks for it.
fn install(shell: &str, file: &Path) {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, printed(userswap().args(["completions", shell]))).unwrap();
}

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
        for (shell, found) in [("bash", program.bash(&words)), ("fish", program.fish(&words))] {
            for value in offered {
                assert!(
                    found.iter().any(|it| it.trim_end() == *value),
                    "{shell}: {words:?}: {value} is not in {found:?}"
                );
            }
        }
    }
}

#[test]
fn a_program_that_is_stopped_is_completed_without_its_name() {
    let program = Grown::start();
    assert!(program.send("-STOP"));
    let found = program.bash(&["userswap", "status", ""]);
    assert!(found.iter().any(|it| it.trim_end() == program.pid()), "{found:?}");
}

#[test]
fn zsh_completes_what_runs_at_the_first_tab() {
    let program = Grown::start();
    let pid = program.pid();
    // Of several all are shown, with what is known of them; a word that nothing else begins like is completed.
    program.zsh("userswap status ", &pid);
    program.zsh(&format!("userswap set {pid} pla"), &format!("userswap set {pid} placement"));
    program.zsh(&format!("userswap set {pid} placement "), "as it is");
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
