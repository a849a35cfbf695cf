//! Processes of a test's own: the same test run again in one, and children made by fork.
use super::internals::Blocked;
use super::{is_long, limit, progress};
use std::any::type_name;
use std::process::{Command, Output};
use std::sync::atomic::AtomicU32;
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
    let shared: *const Engine = engine.as_ref().unwrap();
    // SAFETY: `fork` uses the engine in the parent, where nothing takes it, and in the child before the work does.
    fork(unsafe { &*shared }, || work(engine.take()))
}

/// As [`fork`], with what the child's engine says of its start.
pub fn fork_with(engine: &Engine, work: impl FnOnce(Result<(), Error>)) -> i32 {
    let blocked = Blocked::new();
    let ticket = engine.fork_prepare();
    let child = forked();
    if child > 0 {
        engine.fork_parent(ticket);
        drop(blocked);
        return child;
    }
    limit(25);
    let outcome = engine.fork_child(ticket);
    drop(blocked);
    let work = std::panic::AssertUnwindSafe(|| work(outcome));
    let code = i32::from(std::panic::catch_unwind(work).is_err());
    end(code)
}

/// fork past every engine.
pub fn forked() -> i32 {
    // SAFETY: the child goes on with the accounting as it is, and misses no thread: see `alone`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork works");
    child
}

/// What a child does that is only there.
pub fn rest() -> ! {
    loop {
        std::thread::park();
    }
}

/// Ends a child without running what belongs to its parent.
pub fn end(code: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(code) }
}

pub fn send(child: i32, signal: i32) {
    // SAFETY: to a child of this process.
    assert_eq!(unsafe { libc::kill(child, signal) }, 0);
}

pub fn kill(child: i32) {
    send(child, libc::SIGKILL);
    assert_eq!(libc::WTERMSIG(ended(child)), libc::SIGKILL);
}

/// Stops a child. It is told until it does: one was seen to run on, with no signal pending any more.
pub fn stop(child: i32) {
    let options = libc::WUNTRACED | libc::WNOHANG;
    loop {
        send(child, libc::SIGSTOP);
        std::thread::yield_now();
        // SAFETY: looks at a child of this process, and wants no more than that it has stopped.
        match unsafe { libc::waitpid(child, std::ptr::null_mut(), options) } {
            0 => {}
            stopped => return assert_eq!(stopped, child),
        }
    }
}

/// The status that a child ended with.
pub fn ended(child: i32) -> i32 {
    let mut status = 0;
    // SAFETY: waits for a child of this process.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    status
}

/// Waits for a child that must end well.
pub fn join(child: i32) {
    let status = ended(child);
    assert_eq!(status, 0, "a child ended with {status:#x}");
}

/// Has this process write no file beyond so many bytes; that is EFBIG then, not a signal.
pub fn limit_files(bytes: u64) {
    // SAFETY: ignores a signal that nothing here waits for.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a limit of this process alone.
    unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) };
}

/// This process may lock no memory, unless it is root.
pub fn lock_nothing() {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: sets a limit of this process.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &none) }, 0);
}

/// Takes this process's rights away: it is another user's from here on.
pub fn become_user(id: u32) {
    // SAFETY: changes this process, which is the test's own.
    assert_eq!(unsafe { libc::setresuid(id, id, id) }, 0);
}

/// Keeps the calling thread on one CPU.
pub fn stay_on(cpu: usize) {
    // SAFETY: all zero is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: a set of this thread's own.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the set lives, and its size is given.
    assert_eq!(unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) }, 0);
}

/// Whether a descriptor of this process is another process's under the same number: the same open file, not only the same path.
pub fn is_shared_with(process: i32, number: i32) -> bool {
    const KCMP_FILE: i32 = 0;
    let this = std::process::id();
    let call = libc::SYS_kcmp;
    // SAFETY: compares two descriptors by number.
    let order = unsafe { libc::syscall(call, this, process, KCMP_FILE, number, number) };
    assert!(order >= 0, "kcmp: {}", std::io::Error::last_os_error());
    order == 0
}

/// Numbers that the processes of a test share.
pub fn shared_words<const COUNT: usize>() -> &'static [AtomicU32; COUNT] {
    let bytes = size_of::<[AtomicU32; COUNT]>();
    let (access, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping touches nothing that exists.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
    assert_ne!(address, libc::MAP_FAILED);
    // SAFETY: zeros, which stay to the end of the process.
    unsafe { &*address.cast() }
}

/// Does `work`, in which a signal has `handler` called 5000 times a second of CPU time.
pub fn interrupted_by(handler: extern "C" fn(i32), work: impl FnOnce()) {
    let every = |tv_usec| {
        let time = libc::timeval { tv_sec: 0, tv_usec };
        let timer = libc::itimerval { it_interval: time, it_value: time };
        // SAFETY: a timer of CPU time for this process.
        unsafe { libc::setitimer(libc::ITIMER_VIRTUAL, &timer, std::ptr::null_mut()) };
    };
    // SAFETY: the handler does what a handler may.
    unsafe { libc::signal(libc::SIGVTALRM, handler as *const () as usize) };
    every(200);
    work();
    every(0);
    // SAFETY: a signal that is already on its way is ignored.
    unsafe { libc::signal(libc::SIGVTALRM, libc::SIG_IGN) };
}
