//! Threads of the engine. One that panics ends the process: what it owned would stay owned, and a fault that waits for
//! it would wait for ever, in a program that only looks alive.
use crate::sys::process;
use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread of the engine; its name has at most 15 bytes, as the kernel keeps it.
///
/// # Errors
/// No thread is to be had.
pub fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name).spawn(move || {
        let _end = EndOnPanic;
        body();
    })
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
