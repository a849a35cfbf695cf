//! A real terminal for programs that draw on one: a shell in tmux, whose screen can be looked at.
#![allow(dead_code, reason = "each user needs its part")]

use std::cell::Cell;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// No screen takes this long to change, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Screens are looked at this often.
const LOOK: Duration = Duration::from_millis(20);

/// A server of tmux with one shell; it ends with this.
pub struct Tmux {
    directory: TempDir,
    /// Commands that were run.
    commands: Cell<u32>,
}

impl Tmux {
    /// A shell with `variables`, on a terminal of so many columns and rows.
    pub fn start(variables: &[(&str, &str)], (columns, rows): (u16, u16)) -> Self {
        let tmux = Self { directory: tempfile::tempdir().unwrap(), commands: Cell::new(0) };
        let mut shell = "exec env -u NO_COLOR LC_ALL=C.UTF-8 PS1='ready> '".to_owned();
        for (name, value) in variables {
            shell.push_str(&format!(" {name}='{value}'"));
        }
        shell.push_str(" bash --norc --noprofile");
        let (columns, rows) = (columns.to_string(), rows.to_string());
        tmux.done(&["new-session", "-d", "-x", &columns, "-y", &rows, &shell]);
        tmux.shows("ready>");
        tmux
    }

    fn tmux(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("tmux");
        command.args(["-u", "-f", "/dev/null", "-S"]).arg(self.directory.path().join("tmux"));
        command.args(arguments).env_remove("TMUX").output().expect("tmux can be run")
    }

    fn done(&self, arguments: &[&str]) -> String {
        let output = self.tmux(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "tmux {arguments:?}: {}: {error}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }

    /// Types a command; returns what the screen shows when it has ended, up to its status.
    pub fn run(&self, command: &str) -> String {
        self.commands.set(self.commands.get() + 1);
        let end = format!("{}. has ended with ", self.commands.get());
        self.done(&["send-keys", "-l", &format!("clear; {command}; echo {end}$?")]);
        self.press(&["Enter"]);
        end
    }

    /// Presses keys by tmux's names for them, or types words.
    pub fn press(&self, keys: &[&str]) {
        self.done(&[&["send-keys"], keys].concat());
    }

    pub fn screen(&self) -> String {
        self.done(&["capture-pane", "-p"])
    }

    /// The screen with its colours.
    pub fn coloured_screen(&self) -> String {
        self.done(&["capture-pane", "-p", "-e"])
    }

    /// Waits until the screen has `part`.
    pub fn shows(&self, part: &str) -> String {
        self.waits_for(part, |screen| screen.contains(part))
    }

    /// Waits until the screen is as it must be.
    pub fn waits_for(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let screen = self.screen();
            if is_so(&screen) {
                return screen;
            }
            assert!(start.elapsed() < PATIENCE, "{what:?} does not come:\n{screen}");
            std::thread::sleep(LOOK);
        }
    }

    pub fn resize(&self, columns: u16, rows: u16) {
        self.done(&["resize-window", "-x", &columns.to_string(), "-y", &rows.to_string()]);
    }

    /// The process of the shell.
    pub fn shell(&self) -> u32 {
        self.done(&["display-message", "-p", "#{pane_pid}"]).trim().parse().unwrap()
    }

    /// Has the shell keep the settings of its terminal.
    pub fn remember_settings(&self) {
        let end = self.run(&format!("stty -g >{}", self.settings()));
        self.shows(&format!("{end}0"));
    }

    /// Its settings are those that were kept, its cursor is shown, and its first screen is back.
    pub fn is_as_remembered(&self) {
        let end = self.run(&format!("[ $(stty -g) = $(cat {}) ]", self.settings()));
        let is_known = |screen: &str| {
            ["0", "1"].iter().any(|status| screen.contains(&format!("{end}{status}")))
        };
        let screen = self.waits_for("whether the settings are the same", is_known);
        assert!(screen.contains(&format!("{end}0")), "other settings: {screen}");
        let state = self.done(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]);
        assert_eq!(state.trim(), "0 1", "the alternate screen, and whether the cursor is shown");
    }

    fn settings(&self) -> String {
        self.directory.path().join("settings").display().to_string()
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        // A test that fails has printed its screen.
        self.tmux(&["kill-server"]);
    }
}
