//! Threads of the engine. One that panics ends the process: what it owned would stay owned, and a fault that waits for
//! it would wait for ever, in a program that only looks alive.
use crate::sys::{futex, process};
use std::io;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{Builder, JoinHandle, ScopedJoinHandle};

/// Threads that the standard library has made and not yet handed over. In a program whose `main` is Rust's it takes a
/// lock meanwhile: the child of a fork at that moment could start no thread.
static STARTING: AtomicU32 = AtomicU32::new(0);

/// Starts a thread of the engine; its name has at most 15 bytes, as the kernel keeps it.
///
/// # Errors
/// No thread is to be had.
pub fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    STARTING.fetch_add(1, Ordering::Relaxed);
    let thread = Builder::new().name(name).spawn(move || {
        has_started();
        let _end = EndOnPanic;
        body();
    });
    if thread.is_err() {
        has_started();
    }
    thread
}

fn has_started() {
    // Release pairs with the acquire in `wait_for_starts`.
    STARTING.fetch_sub(1, Ordering::Release);
    futex::wake_all(&STARTING);
}

/// Waits, before fork, until all threads of the engine have started.
pub fn wait_for_starts() {
    loop {
        match STARTING.load(Ordering::Acquire) {
            0 => return,
            starting => futex::wait(&STARTING, starting),
        }
    }
}

/// Waits for helpers to their very end, where they have the standard library's locks: a fork may follow at once.
pub fn join_all(helpers: Vec<ScopedJoinHandle<'_, ()>>) {
    for helper in helpers {
        helper.join().unwrap_or_else(|panic| resume_unwind(panic));
    }
}

/// Held by a thread of the engine for as long as it runs.
pub struct EndOnPanic;

impl Drop for EndOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            process::say(&[
                "userswap: a thread of the engine panicked (see above): the program ends, as nobody would serve its memory\n",
            ]);
            process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    /// Set for the process that panics.
    const PANICS: &str = "USERSWAP_TEST_THREAD_PANICS";

    #[test]
    fn a_thread_that_panics_ends_the_process_and_says_so() {
        if std::env::var_os(PANICS).is_some() {
            let panics = || std::panic::resume_unwind(Box::new("as a broken assertion would"));
            let _ = spawn("panics".into(), panics).unwrap().join();
            return;
        }
        let name = "base::thread::tests::a_thread_that_panics_ends_the_process_and_says_so";
        let mut again = Command::new(std::env::current_exe().unwrap());
        let ended = again.args(["--exact", name, "--nocapture"]).env(PANICS, "1").output().unwrap();
        assert_eq!(ended.status.signal(), Some(libc::SIGABRT), "{ended:?}");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(said.contains("a thread of the engine panicked"), "{said}");
    }
}
