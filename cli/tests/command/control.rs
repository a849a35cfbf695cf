//! `list`, `status`, `set`, `swapon`, `swapoff` on programs that run under userswap, and on those that do not.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::preload_support::served::{Served, is_refusal, printed, runtime, userswap_in};
use serde_json::Value;
use tempfile::TempDir;

/// Fills three times its budget, says so, and verifies it when it is told to; in between it does what
/// programs do to descriptors.
const PROGRAM: &str = "
import ctypes, os, subprocess, sys
os.closerange(3, 65536)
b = bytearray(48 << 20)
for i in range(0, len(b), 4096): b[i:i+4] = i.to_bytes(4, 'little')
os.closerange(3, 65536)
for line in sys.stdin:
    if line == 'fork\\n':
        if os.fork() > 0: os.wait()
    elif line == 'title\\n':
        # As servers do: over what /proc/PID/environ shows.
        first, end = map(int, open('/proc/self/stat').read().split()[49:51])
        ctypes.memset(first, 0, end - first)
    elif line == 'descriptors\\n':
        found = subprocess.run(['ls', '-l', '/proc/self/fd'], capture_output=True, close_fds=False).stdout
        print(found.count(b'socket:'), flush=True)
        continue
    elif line == 'verify\\n':
        assert all(int.from_bytes(b[i:i+4], 'little') == i for i in range(0, len(b), 4096))
        print('verified', flush=True)
        sys.exit(0)
    print(os.getpid(), flush=True)
";

/// No program takes this long to get an engine, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program of 16M, served in this mode.
fn served(runtime: &TempDir, fault: &str, command: &[&str]) -> Served {
    served_with(runtime, &["--fault", fault], command)
}

fn served_with(runtime: &TempDir, more: &[&str], command: &[&str]) -> Served {
    Served::start(runtime, &[&["--ram", "16M", "--swap", "/var/tmp"], more].concat(), command)
}

fn userswap(runtime: &TempDir, arguments: &[&str]) -> Output {
    userswap_in(runtime, arguments).output().unwrap()
}

fn json(runtime: &TempDir, arguments: &[&str]) -> Value {
    serde_json::from_str(&printed(runtime, arguments)).unwrap()
}

/// Expects status 1 and one line that has all of `parts`.
fn refused(runtime: &TempDir, arguments: &[&str], parts: &[&str]) {
    is_refusal(&userswap(runtime, arguments), 1, parts);
}

fn sockets(runtime: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(runtime.path().join("userswap")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| !name.ends_with(".so")).collect();
    names.sort_unstable();
    names
}

#[test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn a_running_program_is_listed_shown_and_set_while_its_data_stays_right() {
    for fault in ["thread", "signal"] {
        let runtime = runtime();
        let mut program = served(&runtime, fault, &["python3", "-c", PROGRAM]);
        let pid = program.pid();
        assert_eq!(program.ask("hello"), pid);
        let list = printed(&runtime, &["list"]);
        let mut lines = list.lines();
        let titles: Vec<_> = lines.next().unwrap().split_whitespace().collect();
        assert_eq!(titles, ["PID", "PROGRAM", "RAM", "RESIDENT", "SWAPPED"]);
        let row = lines.find(|line| line.split_whitespace().next() == Some(&pid)).unwrap();
        assert!(row.contains("python") && row.contains(" 16M "), "{row}");

        let text = printed(&runtime, &["status", &pid]);
        for part in ["NAME", "TYPE", "SIZE", "USED", "PRIO", "NODE", "/var/tmp", "list lock: "] {
            assert!(text.contains(part), "{part:?} is not in: {text}");
        }
        assert!(text.contains("node 0 (cpus 0") && text.contains(": 16M of RAM,"), "{text}");
        assert!(printed(&runtime, &["status"]).contains(&text.lines().next().unwrap().to_owned()));

        let status = json(&runtime, &["status", &pid, "--json"]);
        assert_eq!(status["pid"].to_string(), pid);
        assert_eq!((&status["fault"], &status["ram_bytes"]), (&fault.into(), &(16 << 20).into()));
        assert!(status["devices"][0]["used_bytes"].as_u64() > Some(16 << 20), "{status}");
        let all = json(&runtime, &["status", "--json"]);
        assert!(all.as_array().unwrap().iter().any(|one| one["pid"] == status["pid"]), "{all}");

        assert_eq!(printed(&runtime, &["set", &pid, "ram", "24M"]), "ram = 24M\n");
        let settings = printed(&runtime, &["set", &pid]);
        let row = settings.lines().find(|line| line.starts_with("ram ")).unwrap();
        assert!(row.contains(" 24M ") && row.contains("a size of at least 16M"), "{settings}");
        assert_eq!(program.ask("goon"), pid);
        assert_eq!(printed(&runtime, &["set", &pid, "ram", "16M"]), "ram = 16M\n");
        let parked = printed(&runtime, &["set", &pid, "hibernate", "1"]);
        assert!(parked.starts_with("hibernate = 1"), "{parked}");
        let parked = json(&runtime, &["status", &pid, "--json"]);
        // The program waits for a line: hardly any page of it has come back meanwhile.
        let resident = parked["nodes"][0]["resident_pages"].as_u64().unwrap();
        assert!(parked["hibernated"] == true && resident < 1000, "{parked}");
        assert_eq!(program.ask("goon"), pid);
        assert_eq!(printed(&runtime, &["set", &pid, "hibernate", "0"]), "hibernate = 0\n");
        refused(&runtime, &["set", &pid, "speed", "9"], &["\"speed\"", "ram"]);
        refused(&runtime, &["set", &pid, "speed"], &["\"speed\"", "ram"]);
        refused(&runtime, &["set", &pid, "ram", "1M"], &["\"1M\"", "at least 16M"]);
        refused(&runtime, &["set", &pid, "ram", "-1"], &["\"-1\"", "512M"]);
        refused(&runtime, &["swapoff", &pid, "/no/such"], &["/no/such"]);

        assert_eq!(program.ask("verify"), "verified");
        assert!(program.child.wait().unwrap().success());
        assert_eq!(sockets(&runtime), Vec::<String>::new(), "at the end nothing is left");
        refused(&runtime, &["status", &pid], &[&pid, "does not exist", "userswap list"]);
    }
}

#[test]
fn usage_errors_end_with_status_two() {
    let runtime = runtime();
    let me = std::process::id().to_string();
    for pid in ["0", "-1", "abc", "1-1"] {
        is_refusal(&userswap(&runtime, &["status", "--", pid]), 2, &[pid, "4711"]);
    }
    is_refusal(&userswap(&runtime, &["swapon", &me, "/x:12Q"]), 2, &["12Q"]);
    let wrong = userswap(&runtime, &["swapoff", &me, "/x", "--readahead", "vma"]);
    is_refusal(&wrong, 2, &["vma", "device, scaling, fixed"]);
    for arguments in [&["swapon", &me][..], &["swapoff"], &["list", "x"]] {
        assert_eq!(userswap(&runtime, arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_program_that_is_not_served_is_told_from_one_that_is_not_served_yet() {
    let runtime = runtime();
    let me = std::process::id().to_string();
    for arguments in [
        &["status", &me][..],
        &["status", &me, "--json"],
        &["set", &me, "ram", "1G"],
        &["swapon", &me, "/var/tmp:1G"],
        &["swapoff", &me, "/var/tmp"],
    ] {
        refused(&runtime, arguments, &[&me, "not served by userswap", "userswap run"]);
    }
    let script = "while read line; do echo $line; done";
    let mut small = served(&runtime, "thread", &["sh", "-c", script]);
    assert_eq!(small.ask("hello"), "hello");
    refused(&runtime, &["status", &small.pid()], &["no engine yet", "fits its budget"]);
    // Engines of other programs of this user may be there.
    let all = json(&runtime, &["status", "--json"]);
    let pid = small.child.id();
    let is_small = |one: &Value| one["pid"] == pid;
    assert!(!all.as_array().unwrap().iter().any(is_small), "{all}");
}

#[test]
fn descriptors_are_out_of_the_programs_way_and_out_of_its_children() {
    let runtime = runtime();
    let mut program = served(&runtime, "thread", &["python3", "-c", PROGRAM]);
    let pid = program.pid();
    assert_eq!(program.ask("hello"), pid);
    assert_eq!(program.ask("descriptors"), "0");
    assert_eq!(json(&runtime, &["status", &pid, "--json"])["pid"].to_string(), pid);
}

#[test]
fn a_forked_child_is_reached_under_its_own_number() {
    let runtime = runtime();
    let options = ["--ram-per-process"];
    let mut program = served_with(&runtime, &options, &["python3", "-c", PROGRAM]);
    let pid = program.pid();
    assert_eq!(program.ask("hello"), pid);
    let child = program.ask("fork");
    assert_ne!(child, pid);
    assert_eq!(printed(&runtime, &["set", &child, "ram", "20M"]), "ram = 20M\n");
    for (pid, ram) in [(&pid, 16u64 << 20), (&child, 20 << 20)] {
        let status = json(&runtime, &["status", pid, "--json"]);
        assert_eq!((status["pid"].to_string(), &status["ram_bytes"]), (pid.clone(), &ram.into()));
    }
    assert_eq!(program.ask("verify"), "verified");
    assert_eq!(program.hear(), pid, "the parent has waited for its child");
    assert_eq!(sockets(&runtime), [format!("{pid}.sock")]);
    assert_eq!(program.ask("verify"), "verified");
    assert!(program.child.wait().unwrap().success());
}

#[test]
fn a_server_that_writes_over_its_environment_is_reached() {
    let (runtime, elsewhere) = (runtime(), runtime());
    let mut program = served(&runtime, "thread", &["python3", "-c", PROGRAM]);
    assert_eq!(program.ask("title"), program.pid());
    let environment = fs::read(format!("/proc/{}/environ", program.pid())).unwrap();
    assert!(environment.iter().all(|byte| *byte == 0));
    let status = json(&elsewhere, &["status", &program.pid(), "--json"]);
    assert_eq!(status["pid"].to_string(), program.pid());
    assert_eq!(program.ask("verify"), "verified");
}

#[test]
fn what_a_killed_program_leaves_is_cleaned_up_by_the_list() {
    let runtime = runtime();
    let mut program = served(&runtime, "thread", &["python3", "-c", PROGRAM]);
    let pid = program.pid();
    assert_eq!(program.ask("hello"), pid);
    drop(program);
    assert_eq!(sockets(&runtime), [format!("{pid}-1.ledger"), format!("{pid}.sock")]);
    refused(&runtime, &["status", &pid], &[&pid, "does not exist"]);
    let list = printed(&runtime, &["list"]);
    assert!(list.lines().all(|line| line.split_whitespace().next() != Some(&pid)), "{list}");
    assert_eq!(sockets(&runtime), Vec::<String>::new());
}

#[test]
fn programs_that_are_stopped_are_told_as_such_and_hide_no_other() {
    let runtime = runtime();
    let start = || {
        let mut program = served(&runtime, "thread", &["python3", "-c", PROGRAM]);
        assert_eq!(program.ask("hello"), program.pid());
        program
    };
    let (stopped, running) = ([start(), start()], start());
    for program in &stopped {
        assert!(Command::new("kill").args(["-STOP", &program.pid()]).status().unwrap().success());
    }
    for command in ["list", "status"] {
        let output = userswap(&runtime, &[command]);
        assert!(output.status.success(), "{output:?}");
        let [told, silent] =
            [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
        let is_told =
            |pid: &str| told.lines().any(|line| line.split_whitespace().next() == Some(pid));
        assert!(is_told(&running.pid()), "{told}");
        for pid in stopped.each_ref().map(Served::pid) {
            let line = format!("userswap: process {pid} is stopped: continue it first");
            assert!(!is_told(&pid) && silent.contains(&line), "{told}{silent}");
        }
    }
    let pid = stopped[0].pid();
    for command in [&["status", &pid][..], &["set", &pid, "ram", "24M"], &["swapoff", &pid, "x"]] {
        refused(&runtime, command, &["is stopped", &format!("kill -CONT {pid}")]);
    }
    assert!(Command::new("kill").args(["-CONT", &pid]).status().unwrap().success());
    let there = printed(&runtime, &["set", &pid, "ram"]);
    assert!(there.lines().count() == 2 && there.contains("16M"), "nothing was changed: {there}");
}

/// The binary where any user can run it, beside the directory `userswap` that root's engines have there.
const FOR_ALL: &str = "for-all";

/// That binary as another user.
fn as_nobody(directory: &Path) -> Command {
    let user = fs::read_to_string("/proc/self/status").unwrap();
    let is_root = user.lines().any(|line| line.starts_with("Uid:\t0\t0\t"));
    assert!(is_root, "this test needs root, to become another user: run it as root");
    let program: PathBuf = directory.join(FOR_ALL);
    if !program.exists() {
        fs::copy(env!("CARGO_BIN_EXE_userswap"), &program).unwrap();
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]).arg(program);
    command
}

#[test]
fn a_stranger_is_refused_and_root_may_ask_all() {
    let runtime = runtime();
    let home = runtime.path();
    let mine = served(&runtime, "thread", &["sh", "-c", "read line"]);
    let output = as_nobody(home).args(["status", &mine.pid()]).output().unwrap();
    is_refusal(&output, 1, &[&mine.pid(), "belongs to user 0", "as root"]);

    // A directory that root would not look into by itself.
    let theirs = home.join("theirs");
    fs::create_dir(&theirs).unwrap();
    std::os::unix::fs::chown(&theirs, Some(65534), Some(65534)).unwrap();
    let program = home.join(FOR_ALL);
    // Writes, then waits for a signal that never comes.
    let mut child = as_nobody(home)
        .args(["run", "--ram", "16M", "--swap", "/var/tmp", "--"])
        .arg(program)
        .args(["usemem", "-q", "-W", "48m"])
        .env("XDG_RUNTIME_DIR", &theirs)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id().to_string();
    let started = Instant::now();
    let mut status = None;
    while status.is_none() && started.elapsed() < PATIENCE {
        let output = userswap(&runtime, &["status", &pid, "--json"]);
        match output.status.success() {
            true => status = Some(serde_json::from_slice::<Value>(&output.stdout).unwrap()),
            false => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(status.expect("it has an engine after a while")["pid"].to_string(), pid);
}

/// Plays the engine of this very process for one swapoff.
struct Engine {
    stream: UnixStream,
    swapoff: Child,
}

impl Engine {
    fn start(runtime: &TempDir) -> Self {
        let directory = runtime.path().join("userswap");
        fs::create_dir(&directory).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
        let me = std::process::id().to_string();
        let listener = UnixListener::bind(directory.join(format!("{me}.sock"))).unwrap();
        let swapoff = Command::new(env!("CARGO_BIN_EXE_userswap"))
            .args(["swapoff", &me, "/swap"])
            .env("XDG_RUNTIME_DIR", runtime.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The first connection only looks whether a server listens.
        drop(listener.accept().unwrap());
        let stream = listener.accept().unwrap().0;
        let mut engine = Self { stream, swapoff };
        assert_eq!(engine.hear(), "{\"request\":\"swapoff\",\"path\":\"/swap\"}\n");
        engine.say("{\"answer\":\"progress\",\"pages_left\":5,\"pages_total\":9}");
        engine
    }

    fn say(&mut self, line: &str) {
        writeln!(self.stream, "{line}").unwrap();
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        match BufReader::new(&self.stream).read_line(&mut line) {
            // A process that ends with lines unread closes that way.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => String::new(),
            read => {
                read.unwrap();
                line
            }
        }
    }

    fn interrupt(&self) {
        let pid = self.swapoff.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    }
}

#[test]
fn a_swapoff_ends_in_silence_or_with_the_engines_reason() {
    for (answer, status, parts) in [
        ("{\"answer\":\"done\"}", 0, [""; 2]),
        ("{\"answer\":\"error\",\"message\":\"no room for 5 pages\"}", 1, ["no room", "process"]),
    ] {
        let mut engine = Engine::start(&runtime());
        engine.say(answer);
        let output = engine.swapoff.wait_with_output().unwrap();
        match status {
            0 => assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..])),
            status => is_refusal(&output, status, &parts),
        }
    }
}

#[test]
fn an_interrupted_swapoff_says_that_the_device_stays() {
    let mut engine = Engine::start(&runtime());
    engine.interrupt();
    assert_eq!(engine.hear(), "{\"request\":\"cancel\"}\n");
    engine.say("{\"answer\":\"cancelled\"}");
    let output = engine.swapoff.wait_with_output().unwrap();
    is_refusal(&output, 130, &["/swap", "cancelled", "stays in use"]);
}

#[test]
fn a_second_interrupt_ends_a_swapoff_at_once() {
    let mut engine = Engine::start(&runtime());
    engine.interrupt();
    assert_eq!(engine.hear(), "{\"request\":\"cancel\"}\n");
    engine.interrupt();
    assert_eq!(engine.swapoff.wait().unwrap().code(), Some(130));
    assert_eq!(engine.hear(), "", "the connection is closed, which cancels");
}
