//! `userswap top` on a real terminal, beside a program that is served: what it shows and changes, and that every way out
//! leaves the terminal as it was.

use std::fs;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::preload_support::served::{Served, printed, runtime};
use crate::terminal_support::Tmux;
use serde_json::Value;
use tempfile::TempDir;

/// Fills three times its budget, and verifies it when it is told to; ends when nobody can tell it any more.
const PROGRAM: &str = "
import sys
b = bytearray(48 << 20)
for i in range(0, len(b), 4096): b[i:i+4] = i.to_bytes(4, 'little')
print('filled', flush=True)
for line in sys.stdin:
    assert all(int.from_bytes(b[i:i+4], 'little') == i for i in range(0, len(b), 4096))
    print('right', flush=True)
";

/// The program under `run`, in a runtime directory of its own.
struct Program {
    served: Served,
    runtime: TempDir,
}

impl Program {
    fn start(devices: &[&str]) -> Self {
        let runtime = runtime();
        let swap = devices.iter().flat_map(|device| ["--swap", device]);
        let options: Vec<_> = ["--ram", "16M"].into_iter().chain(swap).collect();
        let mut served = Served::start(&runtime, &options, &["python3", "-c", PROGRAM]);
        assert_eq!(served.hear(), "filled");
        Self { served, runtime }
    }

    fn verify(&mut self) {
        assert_eq!(self.served.ask("verify"), "right");
    }

    fn pid(&self) -> String {
        self.served.pid()
    }

    fn status(&self) -> Value {
        serde_json::from_str(&printed(&self.runtime, &["status", "--json", &self.pid()])).unwrap()
    }

    /// A terminal that runs `top`, and shows this program's screen: in the list there may be others, which are none of ours to
    /// change. And what the end of `top` looks like.
    fn top(&self, variables: &[(&str, &str)], options: &str) -> (Tmux, String) {
        let runtime = self.runtime.path().to_str().unwrap();
        let variables = [&[("XDG_RUNTIME_DIR", runtime)], variables].concat();
        let terminal = Tmux::start(&variables, (80, 24));
        terminal.remember_settings();
        let end = terminal.run(&format!(
            "{} top --pid {} {options}",
            env!("CARGO_BIN_EXE_userswap"),
            self.pid()
        ));
        terminal.shows("Nodes, devices, job");
        (terminal, end)
    }

    fn send(&self, signal: &str) {
        send(signal, &self.pid());
    }
}

fn send(signal: &str, pid: &str) {
    let status = Command::new("kill").args(["-s", signal, pid]).status().unwrap();
    assert!(status.success(), "kill -s {signal} {pid}");
}

/// The child of the terminal's shell: `top`.
fn child_of(shell: u32) -> String {
    let children = fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap();
    children.trim().to_owned()
}

#[test]
fn a_budget_set_in_top_is_the_programs() {
    let mut program = Program::start(&["/var/tmp"]);
    let (terminal, end) = program.top(&[], "--interval 0.2");
    terminal.press(&["b"]);
    terminal.shows("ram of");
    terminal.press(&["24M", "Enter"]);
    terminal.shows("ram = 24M");
    assert_eq!(program.status()["job"]["budget_pages"], 6144);
    terminal.press(&["b"]);
    terminal.press(&["1M", "Enter"]);
    terminal.shows("use a size of at least 16M");
    terminal.press(&["s"]);
    terminal.shows("swap_ra_policy");
    terminal.press(&["Down", "Down", "Enter"]);
    terminal.shows("placement of");
    terminal.press(&["s", "Enter"]);
    terminal.shows("placement = spread");
    assert_eq!(program.status()["placement"], "spread");
    terminal.press(&["Escape"]);
    terminal.shows("Nodes, devices, job");
    program.verify();
    terminal.press(&["q"]);
    terminal.shows(&format!("{end}0"));
    terminal.is_as_remembered();
}

#[test]
fn a_device_goes_when_it_was_asked_for_twice() {
    let mut program = Program::start(&["/var/tmp", "mem:128M"]);
    let (terminal, end) = program.top(&[], "--interval 0.2");
    terminal.press(&["o"]);
    terminal.shows("Which device");
    terminal.press(&["Enter"]);
    terminal.shows("swapoff /var/tmp of");
    terminal.press(&["y"]);
    terminal.shows("really?");
    terminal.press(&["y", "y"]);
    assert_eq!(
        program.status()["devices"].as_array().unwrap().len(),
        2,
        "y was said the first time"
    );
    terminal.press(&["Y"]);
    terminal.shows("done: the device is gone");
    let status = program.status();
    assert_eq!(status["devices"].as_array().unwrap().len(), 1);
    assert_eq!(status["devices"][0]["name"], "mem");
    program.verify();
    terminal.press(&["x", "q"]);
    terminal.shows(&format!("{end}0"));
    terminal.is_as_remembered();
}

#[test]
fn a_program_sleeps_and_wakes_and_is_seen_to() {
    let mut program = Program::start(&["/var/tmp"]);
    let (terminal, _) = program.top(&[], "--interval 0.2");
    terminal.press(&["h"]);
    terminal.shows("Hibernate");
    terminal.press(&["y"]);
    terminal.shows("hibernate = 1");
    terminal.shows(", hibernated");
    terminal.press(&["h"]);
    terminal.shows("Wake");
    terminal.press(&["y"]);
    terminal.waits_for("it is awake", |screen| !screen.contains(", hibernated"));
    program.verify();
}

#[test]
fn the_screen_follows_the_size_of_the_terminal() {
    let program = Program::start(&["/var/tmp"]);
    let (terminal, end) = program.top(&[], "--interval 0.2");
    terminal.resize(200, 50);
    terminal.shows("Stalled");
    terminal.resize(40, 10);
    terminal.shows("needs 80×24");
    terminal.resize(80, 24);
    let keys = "Esc back  t time  b budget  s set  o swapoff  h hibernate  ? help  q quit";
    // It may be looked at while it is drawn.
    terminal.waits_for("all of it, and no more", |screen| {
        screen.contains("Latency of faults")
            && !screen.contains("Stalled")
            && !screen.contains("needs")
            && screen.lines().last() == Some(keys)
    });
    terminal.press(&["q"]);
    terminal.shows(&format!("{end}0"));
    terminal.is_as_remembered();
}

#[test]
fn colour_is_left_out_where_it_is_not_wanted() {
    let program = Program::start(&["/var/tmp"]);
    // Cyan, of titles.
    let has_colour = |terminal: &Tmux| terminal.coloured_screen().contains("38;5;6m");
    let (terminal, _) = program.top(&[("TERM", "screen-256color")], "");
    assert!(has_colour(&terminal), "{:?}", terminal.coloured_screen());
    let (terminal, _) = program.top(&[("NO_COLOR", "1")], "");
    let screen = terminal.coloured_screen();
    assert!(!has_colour(&terminal) && screen.contains("Nodes, devices, job"), "{screen:?}");
}

#[test]
fn every_way_out_leaves_the_terminal_as_it_was() {
    let program = Program::start(&["/var/tmp"]);
    let runtime = program.runtime.path().to_str().unwrap();
    let terminal = Tmux::start(&[("XDG_RUNTIME_DIR", runtime)], (80, 24));
    terminal.remember_settings();
    let row = format!("{} python3", program.pid());
    let by_key = |key: &'static str| move |terminal: &Tmux| terminal.press(&[key]);
    let by_signal =
        |signal: &'static str| move |terminal: &Tmux| send(signal, &child_of(terminal.shell()));
    let ways: [&dyn Fn(&Tmux); 6] = [
        &by_key("q"),
        &by_key("Escape"),
        &by_key("C-c"),
        &by_signal("TERM"),
        &by_signal("HUP"),
        &by_signal("INT"),
    ];
    for way in ways {
        let end = terminal.run(&format!("{} top", env!("CARGO_BIN_EXE_userswap")));
        terminal.shows(&row);
        way(&terminal);
        let screen = terminal.shows(&format!("{end}0"));
        assert!(!screen.contains(&row), "its screen has gone: {screen}");
        terminal.is_as_remembered();
    }
}

#[test]
fn a_terminal_that_goes_takes_top_along() {
    let program = Program::start(&["/var/tmp"]);
    let (terminal, _) = program.top(&[], "");
    let top = child_of(terminal.shell());
    drop(terminal);
    let is_there = || fs::exists(format!("/proc/{top}")).unwrap();
    let start = Instant::now();
    while is_there() && start.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(20));
    }
    if is_there() {
        send("KILL", &top);
        panic!("top goes on without a terminal");
    }
}

#[test]
fn suspended_it_gives_the_terminal_to_the_shell_and_goes_on() {
    let program = Program::start(&["/var/tmp"]);
    let (terminal, _) = program.top(&[], "");
    terminal.press(&["C-z"]);
    terminal.shows("Stopped");
    terminal.is_as_remembered();
    terminal.run("fg");
    terminal.shows("Nodes, devices, job");
    terminal.press(&["q"]);
    terminal.waits_for("the shell", |screen| !screen.contains("q quit"));
    terminal.is_as_remembered();
}

#[test]
fn a_program_that_is_stopped_or_ends_is_shown_so_and_keeps_nobody_waiting() {
    let mut program = Program::start(&["/var/tmp"]);
    let (terminal, end) = program.top(&[], "--interval 0.2");
    program.send("STOP");
    terminal.shows("no answer for");
    terminal.press(&["s"]);
    terminal.shows("asked, no answer yet");
    terminal.press(&["Escape"]);
    program.send("CONT");
    terminal.waits_for("answers again", |screen| !screen.contains("no answer"));
    program.verify();
    program.send("KILL");
    terminal.shows(&format!("process {} has", program.pid()));
    terminal.press(&["Escape"]);
    let name = format!(" {} python3", program.pid());
    terminal.waits_for("a list without it", |screen| {
        screen.contains("userswap top") && !screen.contains(&name)
    });
    terminal.press(&["q"]);
    terminal.shows(&format!("{end}0"));
    terminal.is_as_remembered();
}

#[test]
fn what_it_cannot_do_is_one_line_and_touches_no_terminal() {
    let refused = |output: &Output, status: i32, part: &str| {
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{error}");
        assert!(error.starts_with("userswap: ") && error.lines().count() == 1, "{error}");
        assert!(error.contains(part) && output.stdout.is_empty(), "{error}");
    };
    let top = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_userswap"));
        command.arg("top").args(arguments).stdin(Stdio::null()).output().unwrap()
    };
    refused(&top(&[]), 1, "use `userswap list`");
    refused(&top(&["--pid", &i32::MAX.to_string()]), 1, "does not exist");
    refused(&top(&["--interval", "0"]), 2, "--interval: \"0\" is not allowed: use seconds");
    refused(&top(&["--pid", "x"]), 2, "such as 4711");
    let terminal = Tmux::start(&[("TERM", "dumb")], (80, 24));
    let end = terminal.run(&format!("{} top", env!("CARGO_BIN_EXE_userswap")));
    let screen = terminal.shows(&format!("{end}1"));
    assert!(screen.contains("userswap: TERM says"), "{screen}");
}
