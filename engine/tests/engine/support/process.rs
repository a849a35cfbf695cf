//! Processes of a test's own: the same test run again in one, and children made by fork.
use super::internals::Blocked;
use super::internals::bench::memory::{Backing, Memory, Populate, Protection};
use super::internals::bench::process;
pub use super::internals::bench::process::end;
use super::{is_long, limit, progress};
use rustix::process::{Pid, Resource, Rlimit, WaitOptions, setrlimit, waitpid};
use std::any::type_name;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use userswap::{Engine, Error};

const CHILD: &str = "USERSWAP_TEST_CHILD";

/// Has `work`, a closure of the test itself, done in a process of the test's own, and demands that it ends
/// well. No other test's engine, handler, limit or fork is there.
pub fn alone(seconds: u32, work: impl FnOnce()) {
    let Some(output) = in_child(seconds, work) else { return };
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{text}\n{errors}", output.status);
}

/// As [`alone`], however it ends; None in the child, once the work is done.
pub fn in_child<W: FnOnce()>(seconds: u32, work: W) -> Option<Output> {
    let name = test_of::<W>();
    if std::env::var(CHILD).is_ok_and(|child| child == name) {
        limit(seconds);
        work();
        return None;
    }
    if is_long() {
        progress("in a process of its own");
    }
    let program = std::env::current_exe().unwrap();
    let arguments = ["--exact", name, "--nocapture", "--test-threads=1"];
    let output = Command::new(program).args(arguments).env(CHILD, name).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("running 1 test"), "{name} is no test:\n{text}");
    Some(output)
}

/// The name of the test that runs, in a process of its own as well.
pub fn test_name() -> String {
    let of_thread = |_| {
        std::thread::current().name().expect("the test's own thread, or one with a name").to_owned()
    };
    std::env::var(CHILD).unwrap_or_else(of_thread)
}

/// The test that a closure was written in: its path without the crate.
fn test_of<W>() -> &'static str {
    let closure = type_name::<W>();
    let test = closure.strip_suffix("::{{closure}}").expect("the work is a closure of the test");
    test.split_once("::").expect("a test lies in a crate").1
}

/// Forks; the child runs `work` and ends with 0, or with 1 if that panics, or by SIGALRM.
pub fn fork(engine: &Engine, work: impl FnOnce()) -> i32 {
    fork_with(engine, |outcome| {
        outcome.unwrap();
        work();
    })
}

/// As [`fork`]; in the child the engine is the work's own, to be dropped.
pub fn fork_away(engine: &mut Option<Engine>, work: impl FnOnce(Option<Engine>)) -> i32 {
    match halved(engine.as_ref().unwrap()) {
        Half::Parent(child) => child,
        Half::Child(outcome) => end_after(|| {
            outcome.unwrap();
            work(engine.take());
        }),
    }
}

/// As [`fork`], with what the child's engine says of its start.
pub fn fork_with(engine: &Engine, work: impl FnOnce(Result<(), Error>)) -> i32 {
    match halved(engine) {
        Half::Parent(child) => child,
        Half::Child(outcome) => end_after(|| work(outcome)),
    }
}

/// One of the two that come back from a fork.
enum Half {
    /// The one that forked; the other's id.
    Parent(i32),
    /// The new one; what its engine says of its start.
    Child(Result<(), Error>),
}

fn halved(engine: &Engine) -> Half {
    let blocked = Blocked::new();
    let ticket = engine.fork_prepare();
    let child = forked();
    let half = if child > 0 {
        engine.fork_parent(ticket);
        Half::Parent(child)
    } else {
        limit(25);
        Half::Child(engine.fork_child(ticket))
    };
    drop(blocked);
    half
}

fn end_after(work: impl FnOnce()) -> ! {
    let work = std::panic::AssertUnwindSafe(work);
    end(i32::from(std::panic::catch_unwind(work).is_err()))
}

/// fork past every engine; the child goes on with the accounting as it is, and misses no thread: see [`alone`].
pub fn forked() -> i32 {
    match process::fork().expect("fork works") {
        process::Fork::Child => 0,
        process::Fork::Parent { child } => child,
    }
}

/// As [`forked`]; the child runs `work` and ends with 0, or with 1 if that panics.
pub fn apart(work: impl FnOnce()) -> i32 {
    match forked() {
        0 => end_after(work),
        child => child,
    }
}

/// Whatever becomes of the test, this child is not left.
pub fn end_with_parent() {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
}

/// What a child does that is only there, until its parent is not, which may fail.
pub fn rest() -> ! {
    end_with_parent();
    loop {
        std::thread::park();
    }
}

pub fn send(child: i32, signal: i32) {
    process::send(child, signal).unwrap();
}

pub fn kill(child: i32) {
    send(child, libc::SIGKILL);
    assert_eq!(libc::WTERMSIG(ended(child)), libc::SIGKILL);
}

/// Stops a child. It is told until it does: one was seen to run on, with no signal pending any more.
pub fn stop(child: i32) {
    let options = WaitOptions::UNTRACED | WaitOptions::NOHANG;
    loop {
        send(child, libc::SIGSTOP);
        std::thread::yield_now();
        if waitpid(Pid::from_raw(child), options).unwrap().is_some() {
            return;
        }
    }
}

/// The status that a child ended with.
pub fn ended(child: i32) -> i32 {
    process::wait(child).unwrap().status.into_raw()
}

/// Waits for a child that must end well.
pub fn join(child: i32) {
    let status = ended(child);
    assert_eq!(status, 0, "a child ended with {status:#x}");
}

/// Has this process write no file beyond so many bytes; that is EFBIG then, not a signal.
pub fn limit_files(bytes: u64) {
    process::ignore(libc::SIGXFSZ);
    setrlimit(Resource::Fsize, Rlimit { current: Some(bytes), maximum: None }).unwrap();
}

/// Sets a variable of this process, in which no other thread reads one.
pub fn set_variable(name: &str, value: &str) {
    process::set_variable(name, value);
}

/// This process may lock no memory, unless it is root.
pub fn lock_nothing() {
    setrlimit(Resource::Memlock, Rlimit { current: Some(0), maximum: Some(0) }).unwrap();
}

/// Takes this process's rights away: it is another user's from here on.
pub fn become_user(id: u32) {
    process::become_user(id).unwrap();
}

/// Keeps the calling thread on one CPU.
pub fn stay_on(cpu: usize) {
    process::bind_to_cpu(cpu).unwrap();
}

/// Whether a descriptor of this process is another process's under the same number.
pub fn is_shared_with(process: i32, number: i32) -> bool {
    process::shares_descriptor(process, number).unwrap()
}

/// Numbers that the processes of a test share, zeros at first; they stay to the end of the process.
pub fn shared_words(count: usize) -> &'static [AtomicU64] {
    let file = tempfile::tempfile().unwrap();
    let bytes = count * size_of::<AtomicU64>();
    file.set_len(bytes as u64).unwrap();
    let backing = Backing::Shared(&file, 0);
    let memory = Memory::new(&backing, bytes, Protection::ReadWrite, Populate::OnTouch).unwrap();
    Box::leak(Box::new(memory)).words()
}

/// Does `work`, in which a signal has `handler` called 5000 times a second of CPU time.
pub fn interrupted_by(handler: extern "C" fn(i32), work: impl FnOnce()) {
    process::interrupt(handler, Duration::from_micros(200)).unwrap();
    work();
    process::interrupt(handler, Duration::ZERO).unwrap();
}
