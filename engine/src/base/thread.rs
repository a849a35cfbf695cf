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
