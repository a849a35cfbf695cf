//! Swap devices of a running program, from the command line: the lists of the RFC's machine, devices coming
//! and going, and everything that has to be refused.

use std::process::Output;

use crate::preload_support::directory;
use crate::preload_support::served::{Served, is_refusal, printed, runtime, userswap_in};
use serde_json::Value;
use tempfile::TempDir;

/// Fills three times its budget, and verifies or changes all of it when it is told to.
const PROGRAM: &str = "
import sys
b = bytearray(48 << 20)
stamp = 0
def fill():
    for i in range(0, len(b), 4096): b[i:i+8] = (i + stamp).to_bytes(8, 'little')
def verify():
    assert all(int.from_bytes(b[i:i+8], 'little') == i + stamp for i in range(0, len(b), 4096))
fill()
print('filled', flush=True)
for line in sys.stdin:
    verify()
    if line == 'change\\n':
        stamp += 7
        fill()
    print('right', flush=True)
";

/// The program under `run`, in a runtime directory of its own.
struct Program {
    served: Served,
    runtime: TempDir,
}

impl Program {
    fn start(options: &[&str]) -> Self {
        let runtime = runtime();
        let mut served = Served::start(&runtime, options, &["python3", "-c", PROGRAM]);
        assert_eq!(served.hear(), "filled");
        Self { served, runtime }
    }

    /// Has it verify its memory, and change it if `line` says so.
    fn ask(&mut self, line: &str) {
        assert_eq!(self.served.ask(line), "right");
    }

    fn userswap(&self, verb: &str, arguments: &[&str]) -> Output {
        let pid = self.served.pid();
        userswap_in(&self.runtime, &[&[verb, &pid], arguments].concat()).output().unwrap()
    }

    fn done(&self, verb: &str, arguments: &[&str]) -> String {
        printed(&self.runtime, &[&[verb, &self.served.pid()], arguments].concat())
    }

    fn refused(&self, verb: &str, arguments: &[&str], parts: &[&str]) {
        is_refusal(&self.userswap(verb, arguments), 1, parts);
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.done("status", &["--json"])).unwrap()
    }

    /// Name and priority of every device.
    fn priorities(&self) -> Vec<(String, i64)> {
        let status = self.status();
        let devices = status["devices"].as_array().unwrap().iter();
        devices
            .map(|device| (text(&device["name"]), device["priority"].as_i64().unwrap()))
            .collect()
    }

    /// Each node's list as `name:key` in order.
    fn lists(&self) -> Vec<String> {
        let status = self.status();
        let nodes = status["nodes"].as_array().unwrap().iter();
        let entry = |entry: &Value| format!("{}:{}", text(&entry["name"]), entry["key"]);
        let list = |node: &Value| {
            let entries = node["swap_list"].as_array().unwrap().iter().map(entry);
            entries.collect::<Vec<_>>().join(" ")
        };
        nodes.map(list).collect()
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn named(pairs: &[(&str, i64)]) -> Vec<(String, i64)> {
    pairs.iter().map(|(name, priority)| ((*name).to_owned(), *priority)).collect()
}

/// The vectors D1 to D5 of the specification: four nodes, a device on each, in a running program.
#[test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn the_lists_of_a_running_program_are_those_of_the_rfcs_machine() {
    let devices: Vec<String> = (0..4).map(|node| format!("mem:128M,node={node}")).collect();
    let mut options = vec!["--ram", "32M", "--fake-numa", "4"];
    devices.iter().for_each(|device| options.extend(["--swap", device]));
    let mut program = Program::start(&options);
    let (a, b, c, d) = ("mem", "mem#2", "mem#3", "mem#4");
    assert_eq!(program.priorities(), named(&[(a, -2), (b, -3), (c, -4), (d, -5)]));
    let d1 = [
        "mem:1 mem#2:3 mem#3:4 mem#4:5",
        "mem#2:1 mem:2 mem#3:4 mem#4:5",
        "mem#3:1 mem:2 mem#2:3 mem#4:5",
        "mem#4:1 mem:2 mem#2:3 mem#3:4",
    ];
    assert_eq!(program.lists(), d1);
    program.ask("change");

    program.done("swapoff", &[b]);
    assert_eq!(program.priorities(), named(&[(a, -2), (c, -3), (d, -4)]));
    let d2 = [
        "mem:1 mem#3:3 mem#4:4",
        "mem:2 mem#3:3 mem#4:4",
        "mem#3:1 mem:2 mem#4:4",
        "mem#4:1 mem:2 mem#3:3",
    ];
    assert_eq!(program.lists(), d2);
    program.ask("verify");

    program.done("swapon", &["mem:128M,node=1"]);
    assert_eq!(program.priorities(), named(&[(a, -2), (b, -5), (c, -3), (d, -4)]));
    let d3 = [
        "mem:1 mem#3:3 mem#4:4 mem#2:5",
        "mem#2:1 mem:2 mem#3:3 mem#4:4",
        "mem#3:1 mem:2 mem#4:4 mem#2:5",
        "mem#4:1 mem:2 mem#3:3 mem#2:5",
    ];
    assert_eq!(program.lists(), d3);

    program.done("swapon", &["mem:64M,node=2,pri=5"]);
    assert!(program.lists().iter().all(|list| list.starts_with("mem#5:-5 ")));
    program.done("set", &["placement", "spread"]);
    let priorities = program.priorities();
    let automatic = priorities.iter().filter(|(name, _)| name != "mem#5");
    assert!(automatic.map(|(_, priority)| *priority).eq([-1; 4]), "{priorities:?}");
    program.ask("change");
    program.ask("verify");
}

#[test]
fn what_cannot_be_done_to_a_running_program_is_refused_and_changes_nothing() {
    let directory = directory();
    let file = directory.path().join("swap");
    let spec = format!("{}:256M", file.display());
    let mut program = Program::start(&["--ram", "16M", "--swap", &spec]);
    let path = file.display().to_string();
    let before = program.lists();
    program.refused("swapon", &[&spec], &[&path]);
    program.refused("swapon", &["mem:1G,node=9"], &["no node 9"]);
    program.refused("swapon", &["/nowhere/swap"], &["/nowhere"]);
    program.refused("swapoff", &["/nowhere"], &["/nowhere", &path]);
    // 48 MiB do not fit the budget, and this is the only device.
    program.refused("swapoff", &[&path], &[&path, "room for"]);
    program.refused("set", &["placement", "hop"], &["hop", "near or spread"]);
    program.done("set", &["swap_ra_policy", "1"]);
    program.refused("set", &["swap_ra_policy", "2"], &["\"2\"", "vma, stream or off"]);
    program.refused("set", &["page_cluster", "11"], &["\"11\"", "from 0 to 10"]);
    program.refused("set", &["vma_ra_enabled", "10"], &["\"10\"", "true or false"]);
    program.refused("set", &["speed", "9"], &["speed", "placement"]);
    assert_eq!(program.lists(), before);
    program.ask("change");

    // With more RAM it can go, and come again.
    program.done("set", &["ram", "64M"]);
    program.done("swapoff", &[&path, "--readahead", "scaling"]);
    assert_eq!(program.lists(), [""]);
    program.ask("change");
    program.done("swapon", &[&spec]);
    program.done("set", &["ram", "16M"]);
    program.ask("change");
    program.ask("verify");
    assert!(program.status()["devices"][0]["used_bytes"].as_u64().unwrap() > 16 << 20);
}

/// Fills three times its budget with a sentence, and verifies it when it is told to; locks nothing any more on `unlock`.
const SENTENCES: &str = "
import ctypes, sys
b = bytearray(48 << 20)
def sentence(i): return b'attack at dawn, number %09d' % i
for i in range(0, len(b), 4096): b[i:i+32] = sentence(i).ljust(32)
print('filled', flush=True)
for line in sys.stdin:
    if line == 'unlock\\n': ctypes.CDLL(None).munlockall()
    assert all(b[i:i+32] == sentence(i).ljust(32) for i in range(0, len(b), 4096))
    print('right', flush=True)
";

/// How often a sentence is in a file.
fn sentences_in(file: &std::path::Path) -> usize {
    let bytes = std::fs::read(file).unwrap();
    bytes.windows(15).filter(|part| part == b"attack at dawn,").count()
}

/// Kilobytes of a process that are locked.
fn locked_kilobytes(pid: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_swap_file_shows_what_was_swapped_unless_it_is_encrypted() {
    let directory = directory();
    let file = directory.path().join("swap");
    let plain = format!("{}:256M", file.display());
    let encrypted = format!("{plain},encrypt");
    let start = |options: &[&str]| {
        let runtime = runtime();
        let options = [&["--ram", "16M", "--swap"], options].concat();
        let mut served = Served::start(&runtime, &options, &["python3", "-c", SENTENCES]);
        assert_eq!(served.hear(), "filled");
        Program { served, runtime }
    };
    let mut program = start(&[&plain]);
    program.ask("verify");
    assert!(sentences_in(&file) > 1000);
    assert_eq!(program.status()["devices"][0]["encrypt"], false);
    drop(program);
    std::fs::remove_file(&file).unwrap();
    for options in [&[&*encrypted][..], &[&plain, "--encrypt"]] {
        let mut program = start(options);
        program.ask("verify");
        assert!(program.status()["devices"][0]["used_bytes"].as_u64().unwrap() > 16 << 20);
        assert_eq!(sentences_in(&file), 0, "{options:?}");
        assert_eq!(program.status()["devices"][0]["encrypt"], true);
        assert!(program.done("status", &[]).contains(" encrypted\n"));
        assert_eq!(locked_kilobytes(&program.served.pid()), 4, "its key");
        program.ask("unlock");
        assert_eq!(locked_kilobytes(&program.served.pid()), 4, "still its key");
        program.done("swapon", &["mem:256M"]);
        let both = program.status();
        assert_eq!(both["devices"][1]["encrypt"], options.len() > 1);
        program.ask("verify");
    }
}

#[test]
fn a_device_that_draws_a_warning_draws_it_from_a_running_program_too() {
    let mut program = Program::start(&["--ram", "16M", "--swap", "mem:256M"]);
    for (spec, word) in [("faulty:mem:64M,seed=3", "fail"), ("/dev/shm:64M", "memory")] {
        let output = program.userswap("swapon", &[spec]);
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{told}");
        assert!(told.starts_with("userswap: warning: ") && told.contains(word), "{spec}: {told}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
    let output = program.userswap("swapon", &["mem:64M"]);
    assert!(output.status.success() && output.stderr.is_empty());
    program.ask("verify");
}
