//! A request to a device: one that the kernel carries out, one that a server does, or one that is done at once.
use crate::device::far::Far;
use crate::device::record::Device;
use crate::device::zram::Zram;
use crate::sys::aio::{Reader, Seen};
use crate::sys::own_stack;
use crate::sys::request::{self as kernel, Direction, Pieces};
use std::cell::Cell;
use std::io;
use std::sync::Arc;

/// Where the slots of a device are.
#[derive(Clone)]
pub enum Backing {
    /// In its file.
    File,
    /// In its file, which is memory: a request is a copy.
    Memory,
    /// Compressed in memory.
    Zram(Arc<Zram>),
    /// On servers.
    Remote(Arc<dyn Far>),
}

impl Backing {
    /// Where those of a device are.
    pub fn of(device: &Device) -> Self {
        match (device.zram(), device.remote()) {
            (Some(zram), _) => Self::Zram(zram),
            (None, Some(remote)) => Self::Remote(remote),
            (None, None) if device.is_copied() => Self::Memory,
            (None, None) => Self::File,
        }
    }
}

/// A request to a device.
#[derive(Clone)]
pub struct Request {
    /// What the kernel is asked.
    pub(super) plan: kernel::Request,
    /// Where its slots are.
    pub backing: Backing,
    /// What came before was wrong, or nothing.
    is_repeated: bool,
}

impl Request {
    pub(super) fn new(plan: kernel::Request, backing: Backing) -> Self {
        Self { plan, backing, is_repeated: false }
    }

    /// The same, not before a moment.
    #[must_use]
    pub fn no_sooner_than(self, moment_ns: u64) -> Self {
        Self { plan: self.plan.no_sooner_than(moment_ns), ..self }
    }

    /// The same, or for another copy of the same slots: of what has come wrong, or not at all.
    #[must_use]
    pub fn repeated(self, is_repeated: bool) -> Self {
        Self { is_repeated, ..self }
    }

    /// As [`Self::transfer`], for a read from a file: how its end was seen, which is looked for until a moment.
    ///
    /// # Errors
    /// As there.
    pub fn look_for(
        &self,
        pieces: &Pieces,
        reader: &Reader,
        until_ns: u64,
    ) -> (Seen, io::Result<()>) {
        let seen = Cell::new(Seen::Sleeping);
        let outcome = self.plan.transfer_by(pieces, |pieces| {
            let (how, outcome) = reader.read((self.plan.fd, self.plan.offset), pieces, until_ns);
            seen.set(how);
            outcome
        });
        (seen.get(), outcome)
    }

    /// Does it at once, on the calling thread.
    ///
    /// # Errors
    /// What the kernel or the device says; `UnexpectedEof` when the device ends before the pieces do.
    pub fn transfer(&self, pieces: &Pieces) -> io::Result<()> {
        let kernel::Request { direction, offset, .. } = self.plan;
        match &self.backing {
            Backing::File | Backing::Memory => self.plan.transfer(pieces),
            Backing::Zram(zram) => {
                self.plan.transfer_by(pieces, |pieces| zram.transfer(direction, offset, pieces))
            }
            Backing::Remote(remote) if self.is_repeated && direction == Direction::Read => {
                self.plan.transfer_by(pieces, |pieces| {
                    own_stack::in_handler(|| remote.read_again(offset, pieces))
                })
            }
            Backing::Remote(remote) => self.plan.transfer_by(pieces, |pieces| {
                own_stack::in_handler(|| remote.transfer(direction, offset, pieces))
            }),
        }
    }
}
