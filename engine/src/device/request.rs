//! A request to a device: one that the kernel carries out, or one that is done at once.
use crate::device::zram::Zram;
use crate::sys::request::{self as kernel, Pieces};
use std::io;
use std::sync::Arc;

/// A request to a device.
pub struct Request {
    plan: kernel::Request,
    /// Where the slots are, if not in a file.
    zram: Option<Arc<Zram>>,
}

impl Request {
    pub(super) fn new(plan: kernel::Request, zram: Option<Arc<Zram>>) -> Self {
        Self { plan, zram }
    }

    /// The same, not before a moment.
    #[must_use]
    pub fn no_sooner_than(self, moment_ns: u64) -> Self {
        Self { plan: self.plan.no_sooner_than(moment_ns), ..self }
    }

    /// What a queue can carry out; None for what is done at once.
    pub fn queued(&self) -> Option<kernel::Request> {
        self.zram.is_none().then_some(self.plan)
    }

    /// Does it at once, on the calling thread.
    ///
    /// # Errors
    /// What the kernel or the device says; `UnexpectedEof` when the device ends before the pieces do.
    pub fn transfer(&self, pieces: &Pieces) -> io::Result<()> {
        let Some(zram) = &self.zram else { return self.plan.transfer(pieces) };
        let kernel::Request { direction, offset, .. } = self.plan;
        self.plan.transfer_by(pieces, |pieces| zram.transfer(direction, offset, pieces))
    }
}
