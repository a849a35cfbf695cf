//! Threads of the engine.
//!
//! One that panics ends the process: what it owned would stay owned, and a fault that waits for it would wait for ever, in a
//! program that only looks alive. None takes a lock of the standard library's: where `main` is Rust's, a thread of its own
//! takes one as it begins and as it ends, and the child of a fork at such a moment could start no thread.
use super::signal::Blocked;
use super::{futex, process, untraced};
use std::ffi::{CString, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// As the standard library gives its own, in bytes.
const STACK_BYTES: usize = 2 << 20;

/// A thread of the engine. It goes on when this is dropped, and keeps its stack until it is joined or detached.
#[derive(Debug)]
pub struct Thread {
    thread: libc::pthread_t,
    stage: Arc<AtomicU32>,
}

/// How far a thread is.
const STARTING: u32 = 0;
const RUNNING: u32 = 1;
const ENDED: u32 = 2;

struct Start<F> {
    name: CString,
    body: F,
    stage: Arc<AtomicU32>,
}

impl Thread {
    /// Starts a thread, and returns once it runs; its name has at most 15 bytes, as the kernel keeps it. What the C library
    /// looks at as a thread begins (the locale) may be in memory that this very thread is to serve.
    ///
    /// # Errors
    /// No thread is to be had.
    pub fn spawn<F>(name: &str, body: F) -> io::Result<Self>
    where
        F: FnOnce() + Send + 'static,
    {
        let stage = Arc::new(AtomicU32::new(STARTING));
        let start = Start { name: CString::new(name)?, body, stage: stage.clone() };
        let start = Box::into_raw(Box::new(start));
        let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
        // SAFETY: makes them valid.
        unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) };
        // SAFETY: they are valid; a size that is refused leaves the usual one.
        unsafe { libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK_BYTES) };
        let mut thread = MaybeUninit::uninit();
        // SAFETY: `run` takes the box, of this very type, and what is in it may be sent to another thread.
        let error = unsafe {
            libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), run::<F>, start.cast())
        };
        // SAFETY: they are not used any more.
        unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
        if error != 0 {
            // SAFETY: no thread has taken the box.
            drop(unsafe { Box::from_raw(start) });
            return Err(io::Error::from_raw_os_error(error));
        }
        while stage.load(Ordering::Acquire) == STARTING {
            futex::wait(&stage, STARTING);
        }
        // SAFETY: written by the call that has succeeded.
        Ok(Self { thread: unsafe { thread.assume_init() }, stage })
    }

    /// Whether joining it would not wait for its body.
    pub fn has_ended(&self) -> bool {
        self.stage.load(Ordering::Acquire) == ENDED
    }

    /// Whether it is the one that asks.
    pub fn is_current(&self) -> bool {
        // SAFETY: has no conditions.
        let current = unsafe { libc::pthread_self() };
        // SAFETY: compares two numbers.
        unsafe { libc::pthread_equal(current, self.thread) != 0 }
    }

    /// Leaves it to itself.
    pub fn detach(self) {
        // SAFETY: a thread that nobody has joined, as this takes its only handle.
        unsafe { libc::pthread_detach(self.thread) };
    }

    /// Waits for its end.
    pub fn join(self) {
        // SAFETY: a thread that nobody has joined, as this takes its only handle.
        unsafe { libc::pthread_join(self.thread, std::ptr::null_mut()) };
    }
}

/// Does some work on `helpers` threads more, of that name, besides what the caller does meanwhile, and waits for all. With
/// fewer threads it only takes longer. None is interrupted by a signal, and all are waited for to their very end, where they
/// have the standard library's locks: a fork may follow at once.
pub fn helped(name: &str, helpers: u32, work: &(impl Fn() + Sync), own: impl FnOnce()) {
    std::thread::scope(|scope| {
        let blocked = Blocked::new();
        let helper = |_| {
            let builder = std::thread::Builder::new().name(name.into());
            builder.spawn_scoped(scope, || guarded(work)).ok()
        };
        let helpers: Vec<_> = (0..helpers).filter_map(helper).collect();
        drop(blocked);
        guarded(own);
        // What panics has ended the process.
        helpers.into_iter().for_each(|helper| _ = helper.join());
    });
}

/// What the thread runs.
extern "C" fn run<F: FnOnce()>(start: *mut c_void) -> *mut c_void {
    // SAFETY: `spawn` made the box for this thread.
    let start = unsafe { Box::from_raw(start.cast::<Start<F>>()) };
    let Start { name, body, stage } = *start;
    // SAFETY: names this thread; of a longer name the kernel takes the beginning. The raw system call passes by an
    // interposed prctl.
    unsafe { libc::syscall(libc::SYS_prctl, libc::PR_SET_NAME, name.as_ptr()) };
    untraced::run(move || work(body, &stage));
    std::ptr::null_mut()
}

fn work(body: impl FnOnce(), stage: &AtomicU32) {
    stage.store(RUNNING, Ordering::Release);
    futex::wake_all(stage);
    guarded(body);
    stage.store(ENDED, Ordering::Release);
}

/// Does what must not end halfway: a panic ends the process.
fn guarded(body: impl FnOnce()) {
    // What it would leave behind is not looked at again.
    if catch_unwind(AssertUnwindSafe(body)).is_err() {
        process::say(&[
            "userswap: a thread of the engine panicked (see above): the program ends, as nobody would serve its memory\n",
        ]);
        process::abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::panic::resume_unwind;
    use std::process::Command;

    /// Set for the process that panics.
    const PANICS: &str = "USERSWAP_TEST_THREAD_PANICS";

    #[test]
    fn a_thread_that_panics_ends_the_process_and_says_so() {
        let panics = || resume_unwind(Box::new("as a broken assertion would"));
        // What a caller catches is the end all the same.
        let caught = |helpers, own: &dyn Fn()| {
            _ = catch_unwind(AssertUnwindSafe(|| helped("panics", helpers, &panics, own)));
        };
        match std::env::var(PANICS).as_deref() {
            Ok("thread") => return Thread::spawn("panics", panics).unwrap().join(),
            Ok("helper") => return caught(1, &|| {}),
            Ok("caller") => return caught(0, &panics),
            _ => {}
        }
        let name = "sys::thread::tests::a_thread_that_panics_ends_the_process_and_says_so";
        for which in ["thread", "helper", "caller"] {
            let mut again = Command::new(std::env::current_exe().unwrap());
            let ended = again.args(["--exact", name, "--nocapture"]).env(PANICS, which).output();
            let ended = ended.unwrap();
            assert_eq!(ended.status.signal(), Some(libc::SIGABRT), "{which}: {ended:?}");
            let said = String::from_utf8_lossy(&ended.stderr);
            assert!(said.contains("a thread of the engine panicked"), "{which}: {said}");
        }
    }

    #[test]
    fn a_thread_has_begun_when_it_is_handed_over() {
        for _ in 0..200 {
            let thread = Thread::spawn("userswap-begun", || {}).unwrap();
            assert_ne!(thread.stage.load(Ordering::Relaxed), STARTING);
            thread.join();
        }
    }

    #[test]
    fn a_thread_runs_its_body_under_its_name_and_is_waited_for() {
        let sum = Arc::new(AtomicU32::new(0));
        let threads: Vec<_> = (1..=10)
            .map(|part| {
                let sum = sum.clone();
                let body = move || {
                    let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
                    assert_eq!(name, "userswap-plain\n");
                    sum.fetch_add(part, Ordering::Relaxed);
                };
                Thread::spawn("userswap-plain", body).unwrap()
            })
            .collect();
        threads.into_iter().for_each(Thread::join);
        assert_eq!(sum.load(Ordering::Relaxed), 55);
    }
}
