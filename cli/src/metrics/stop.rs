//! Ctrl-C and SIGTERM end what serves or writes metrics, between two answers.

use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use crate::failure::Failure;

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// There is something to read.
    Ready,
    /// It took as long as it may.
    Late,
    /// The user wants an end.
    Stopped,
}

/// Signals that have come.
pub struct Stop(UnixStream);

impl Stop {
    /// From now on the two signals are noticed, and end nothing by themselves.
    ///
    /// # Errors
    /// No descriptor to be had.
    pub fn on_signals() -> Result<Stop, Failure> {
        let told = |error| Failure::unavailable(format!("signals cannot be handled: {error}"));
        let (sender, receiver) = UnixStream::pair().map_err(told)?;
        for signal in [SIGINT, SIGTERM] {
            pipe::register(signal, sender.try_clone().map_err(told)?).map_err(told)?;
        }
        receiver.set_nonblocking(true).map_err(told)?;
        Ok(Stop(receiver))
    }

    /// Waits until there is something to read, for at most `patience`.
    pub fn wait(&self, ready: Option<BorrowedFd>, patience: Option<Duration>) -> Woken {
        let patience = patience.map(|patience| Timespec {
            tv_sec: patience.as_secs() as i64,
            tv_nsec: patience.subsec_nanos().into(),
        });
        let signals = PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN);
        let ready = ready.map(|ready| PollFd::from_borrowed_fd(ready, PollFlags::IN));
        let mut watched: Vec<_> = [signals].into_iter().chain(ready).collect();
        let woken = poll(&mut watched, patience.as_ref());
        let is_ready = watched.get(1).is_some_and(|ready| !ready.revents().is_empty());
        let has_signal = (&self.0).read(&mut [0]).is_ok();
        match woken {
            _ if has_signal => Woken::Stopped,
            Ok(_) | Err(Errno::INTR) if is_ready => Woken::Ready,
            _ => Woken::Late,
        }
    }
}
