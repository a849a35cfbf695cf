//! What went to a device and came from it, and for how long it had anything to do.
use crate::base::busy::Busy;
use crate::base::counters::count;
use crate::sys::request::Direction;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Requests of one direction that have ended.
#[derive(Debug, Default)]
pub struct Flow {
    /// Those that succeeded.
    pub requests: AtomicU64,
    /// What they transferred: for reads also the slots between those that were wanted.
    pub bytes: AtomicU64,
    /// Those that failed; each repeat is one of its own.
    pub errors: AtomicU64,
}

/// The requests of a device since it was taken into use.
#[derive(Debug, Default)]
pub struct Traffic {
    /// From it.
    pub reads: Flow,
    /// To it.
    pub writes: Flow,
    /// With a request under way, the pause before a repeat included.
    pub busy: Busy,
    /// With a read under way: of what a thread may wait for.
    pub reading: Busy,
}

impl Traffic {
    /// A request begins.
    pub(super) fn begin(&self, direction: Direction) {
        self.busy.begin();
        if direction == Direction::Read {
            self.reading.begin();
        }
    }

    /// A request that had begun has ended.
    pub(super) fn end(&self, direction: Direction, bytes: usize, outcome: &io::Result<()>) {
        let flow = match direction {
            Direction::Read => &self.reads,
            Direction::Write => &self.writes,
        };
        if outcome.is_ok() {
            count(&flow.requests, 1);
            count(&flow.bytes, bytes as u64);
        } else {
            count(&flow.errors, 1);
        }
        self.busy.end();
        if direction == Direction::Read {
            self.reading.end();
        }
    }

    /// The record holds another device.
    pub(super) fn reset(&self) {
        for flow in [&self.reads, &self.writes] {
            for counter in [&flow.requests, &flow.bytes, &flow.errors] {
                counter.store(0, Ordering::Relaxed);
            }
        }
        self.busy.reset();
        self.reading.reset();
    }
}
