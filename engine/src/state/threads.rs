//! What the engine's own threads, the server and the reclaimers, share: how they are woken, and that they shall end.
use crate::state::core::Core;
use crate::sys::fd::Event;
use crate::sys::lock::Lock;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// The threads' common state.
pub struct Threads {
    /// Descriptors of the threads' queues, and of a trace: a forked child has none of those threads.
    pub queue_fds: Lock<Vec<RawFd>>,
    /// Wakes the server for readahead.
    pub server_wanted: Event,
    stopping: AtomicBool,
}

impl Threads {
    /// No thread yet.
    ///
    /// # Errors
    /// No descriptor to be had.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            queue_fds: Lock::new(Vec::new()),
            server_wanted: Event::new()?,
            stopping: AtomicBool::new(false),
        })
    }
}

impl Core {
    /// Tells all threads to end.
    pub(crate) fn stop(&self) {
        self.threads.stopping.store(true, Ordering::Release);
        // Nobody needs the pages any more.
        self.devices.set_patience_ns(0);
        self.nodes.iter().for_each(|node| node.reclaim_wanted.signal());
        self.threads.server_wanted.signal();
        self.shrinkers.wake();
        self.member.get().into_iter().for_each(|member| member.wake());
        self.wake_watchdog();
    }

    /// Has the watchdog look at what has changed.
    pub fn wake_watchdog(&self) {
        // Release pairs with the acquire of the watchdog: it sees what was changed before.
        self.waits.changes.fetch_add(1, Ordering::Release);
        crate::sys::futex::wake_all(&self.waits.changes);
    }

    /// Whether the threads shall end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.threads.stopping.load(Ordering::Acquire)
    }
}
