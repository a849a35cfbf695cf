//! One budget for a job: what all of its processes have in RAM together stays within it, and every byte is right.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::preload_support::{deliveries, directory};
use serde_json::Value;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const BUDGET: u64 = 96 * MIB;
/// What is in RAM beside managed memory (stacks, the C library, the engine's tables), and beyond the budget for a
/// moment: of each process.
const BEYOND_EACH: u64 = 8 * MIB;
/// What children of a fork make their own between two looks: docs/job.md has what was seen.
const INHERITED: u64 = BUDGET / 2;

/// Workers that fill memory of their own, twice, and check it.
const FILL: &str = "
import sys
def fill(mib):
    b = bytearray(mib << 20)
    for turn in range(2):
        for i in range(0, len(b), 4096): b[i:i+4] = (i + turn).to_bytes(4, 'little')
        assert all(int.from_bytes(b[i:i+4], 'little') == i + turn for i in range(0, len(b), 4096))
";

/// A parent with memory of its own; children that write to all of it, each its own.
const FORK: &str = "
import os, sys
size, children = int(sys.argv[1]) << 20, int(sys.argv[2])
b = bytearray(size)
for i in range(0, size, 4096): b[i:i+4] = i.to_bytes(4, 'little')
def is_right(at, add): return all(int.from_bytes(b[i+at:i+at+4], 'little') == i + add for i in range(0, size, 4096))
pids = []
for k in range(children):
    pid = os.fork()
    if pid == 0:
        for i in range(0, size, 4096): b[i+8:i+12] = (i + k).to_bytes(4, 'little')
        os._exit(0 if is_right(0, 0) and is_right(8, k) else 3)
    pids.append(pid)
assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * children
assert is_right(0, 0) and not any(b[8::4096])
";

/// A job with a runtime directory, and so with sockets, of its own.
struct Job {
    runtime: TempDir,
    child: Child,
}

/// What was seen of a job until its end.
struct Seen {
    /// The most bytes of anonymous memory of all processes together.
    most_bytes: u64,
    processes: usize,
    stats: Value,
}

impl Job {
    fn start(options: &[&str], command: &[&str]) -> Self {
        let runtime = directory();
        let swap = runtime.path().join("swap");
        fs::create_dir(&swap).unwrap();
        // Also for other users.
        fs::set_permissions(runtime.path(), Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&swap, Permissions::from_mode(0o777)).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_userswap"))
            .args(["run", "--ram", &BUDGET.to_string(), "--swap"])
            .arg(&swap)
            .arg("--stats")
            .arg(runtime.path().join("stats"))
            .args(options)
            .arg("--")
            .args(command)
            .env("XDG_RUNTIME_DIR", runtime.path())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        Self { runtime, child }
    }

    /// Looks at all processes until the first one has ended, which must be well.
    fn watch(mut self) -> Seen {
        let (mut most_bytes, mut processes) = (0, 0);
        drop(self.child.stdin.take());
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            let pids = tree(self.child.id());
            most_bytes = most_bytes.max(pids.iter().map(|pid| anonymous_bytes(*pid)).sum());
            processes = processes.max(pids.len());
            std::thread::sleep(Duration::from_millis(5));
        };
        assert!(status.success(), "{status}");
        let text = fs::read_to_string(self.runtime.path().join("stats")).unwrap();
        Seen { most_bytes, processes, stats: serde_json::from_str(&text).unwrap() }
    }

    /// The processes that have their turn, each with its share in bytes.
    fn turns(&self) -> Vec<(u64, u64)> {
        let member = |pid: u32| {
            let asked = Command::new(env!("CARGO_BIN_EXE_userswap"))
                .args(["status", &pid.to_string(), "--json"])
                .env("XDG_RUNTIME_DIR", self.runtime.path())
                .output()
                .unwrap();
            serde_json::from_slice::<Value>(&asked.stdout).ok()
        };
        let status = tree(self.child.id()).into_iter().find_map(member);
        let members = status.as_ref().and_then(|status| status["job"]["members"].as_array());
        let share = |member: &Value| {
            let pages = member["share_pages"].as_u64()?;
            (member["has_turn"] == true).then_some((member["pid"].as_u64()?, pages * 4096))
        };
        members.into_iter().flatten().filter_map(share).collect()
    }
}

impl Seen {
    fn keeps_its_budget(&self, inherited: u64) {
        let beyond = BEYOND_EACH * self.processes as u64 + inherited;
        let most = self.most_bytes;
        assert!(most <= BUDGET + beyond, "{} MiB, {} processes", most / MIB, self.processes);
        assert!(most > BUDGET / 2, "{} MiB: the job was looked at", most / MIB);
        assert_eq!(self.stats["job_budget_pages"], BUDGET / 4096);
    }
}

/// A process and all that it has started.
fn tree(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    for task in tasks {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        let children = children.split_whitespace().filter_map(|child| child.parse().ok());
        all.extend(children.flat_map(tree));
    }
    all
}

/// A page that several processes share counts for each in part; nothing for one that has just ended.
fn anonymous_bytes(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss_Anon:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// A script of the shell's starts four workers, whose program is its argument.
fn workers_share_the_budget(script: &str) {
    let workers = format!("{FILL}\nfill(64)");
    for fault in deliveries(0) {
        let job = Job::start(&["--fault", fault], &["sh", "-c", script, "sh", &workers]);
        let seen = job.watch();
        seen.keeps_its_budget(0);
        assert!(seen.processes >= 5);
    }
}

#[test]
fn processes_started_by_exec_share_the_budget() {
    let script = "for k in 1 2 3 4; do python3 -c \"$1\" & pids=\"$pids $!\"; done; for p in $pids; do wait $p || exit 1; done";
    workers_share_the_budget(script);
}

/// A server that becomes its own user (postgres, by setpriv) has workers that root's job cannot count by the ledger's name.
#[test]
fn programs_that_another_user_executes_share_the_budget() {
    let script = "setpriv --reuid=65534 --regid=65534 --clear-groups sh -c '
        for k in 1 2 3 4; do /usr/bin/python3 -c \"$1\" & pids=\"$pids $!\"; done
        for p in $pids; do wait $p || exit 1; done' sh \"$1\"";
    workers_share_the_budget(script);
}

/// A shell fills a fraction of the heap that it has begun; what it does not fill the large members lack.
#[test]
fn shells_take_little_of_the_budget() {
    let script = "for k in $(seq 20); do bash -c 'sleep 1; true' & done; wait";
    let seen = Job::start(&[], &["bash", "-c", script]).watch();
    let most = seen.stats["job_held_pages_max"].as_u64().unwrap() * 4096;
    // With all that they have begun it is 46 MiB. Beside much other work more of them begin at a time: 38 have been seen.
    assert!(seen.processes >= 40 && most < 42 * MIB, "{} MiB: {}", most / MIB, seen.stats);
}

#[test]
fn children_of_a_fork_that_write_to_what_they_inherit_share_the_budget() {
    // The parent fits without an engine, and does not.
    for (size, children) in [("40", "4"), ("160", "2")] {
        let seen = Job::start(&[], &["python3", "-c", FORK, size, children]).watch();
        seen.keeps_its_budget(INHERITED);
        assert_eq!(seen.stats["engaged"], true, "it had to give way: {}", seen.stats);
    }
}

#[test]
fn an_idle_process_gives_way_to_a_busy_one() {
    // The parent fits, has nearly all, and only waits. It is not asked by an allocation of its own.
    let parent = format!(
        "{FILL}
import os
b = bytearray(70 << 20)
for i in range(0, len(b), 4096): b[i:i+4] = i.to_bytes(4, 'little')
pid = os.fork()
if pid == 0: fill(70); fill(70); os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert all(int.from_bytes(b[i:i+4], 'little') == i for i in range(0, len(b), 4096))
"
    );
    let seen = Job::start(&[], &["python3", "-c", &parent]).watch();
    seen.keeps_its_budget(INHERITED);
    assert!(seen.stats["pswpout"].as_u64() > Some(5000), "{}", seen.stats);
}

#[test]
fn killed_members_leave_their_pages_to_the_others() {
    let script = format!(
        "{FILL}
import os, signal
for turn in range(6):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        b = bytearray(90 << 20)
        for i in range(0, len(b), 4096): b[i] = 1
        os.write(w, b'x')
        signal.pause()
    os.read(r, 1)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
fill(70)
"
    );
    let seen = Job::start(&[], &["python3", "-c", &script]).watch();
    seen.keeps_its_budget(INHERITED);
    assert_eq!(
        seen.stats["engaged"], false,
        "all of it fits when the others are dead: {}",
        seen.stats
    );
}

#[test]
fn each_process_has_the_whole_budget_where_that_is_asked_for() {
    let script = format!(
        "{FILL}\nimport os\npid = os.fork()\nfill(80)\nif pid: assert os.waitpid(pid, 0)[1] == 0"
    );
    let seen = Job::start(&["--ram-per-process"], &["python3", "-c", &script]).watch();
    assert_eq!((&seen.stats["engaged"], seen.stats.get("job_budget_pages")), (&false.into(), None));
}

/// Three members that all wait for their pages: with a third of the budget each none gets on, so they take turns to have what they
/// could use.
#[test]
fn members_that_thrash_take_turns() {
    let script = "
import os, random, sys
def use(k, size=42 << 20):
    r, b = random.Random(k), bytearray(size)
    for i in range(0, size, 4096): b[i] = k
    while True:
        i = r.randrange(size >> 12) << 12
        assert b[i] == k
        b[i + 1] = i & 255
for k in range(1, 4):
    if os.fork() == 0: use(k)
sys.stdin.read()
os.killpg(0, 9)
";
    let command = ["setsid", "--wait", "/usr/bin/python3", "-c", script];
    let mut job = Job::start(&[], &command);
    let mut favoured = std::collections::BTreeSet::new();
    let began = std::time::Instant::now();
    while favoured.len() < 2 {
        assert!(began.elapsed() < Duration::from_secs(240), "only {favoured:?} had a turn");
        std::thread::sleep(Duration::from_millis(200));
        // An even share is 32 MiB less what the others have; it does not hold what a member has.
        let turns = job.turns();
        let most = turns.into_iter().filter(|(_, share)| *share > 40 * MIB).map(|(pid, _)| pid);
        favoured.extend(most);
        assert!(job.child.try_wait().unwrap().is_none(), "the job goes on");
    }
    drop(job.child.stdin.take());
    job.child.wait().unwrap();
}
