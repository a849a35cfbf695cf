//! A request to a device: one that the kernel carries out, one that a server does, or one that is done at once.
use crate::base::index::{NodeId, Slot};
use crate::device::Devices;
use crate::device::far::Far;
use crate::device::pack::Pack;
use crate::device::record::Device;
use crate::device::zram::Zram;
use crate::sys::aio::{Reader, Seen};
use crate::sys::own_table::Here;
use crate::sys::request::{self as kernel, Direction, Pieces};
use crate::sys::{PAGE_BYTES, clock, file_limit, own_stack};
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
    /// In its file, which a write reaches by way of a mapping only, done at once.
    Mapped,
    /// Compressed in memory.
    Zram(Arc<Zram>),
    /// Compressed, in slots of another device.
    Packed(Arc<Pack>),
    /// On servers.
    Remote(Arc<dyn Far>),
}

impl Backing {
    /// Where those of a device are.
    pub fn of(device: &Device) -> Self {
        if let Some(pack) = device.pack() {
            return Self::Packed(pack);
        }
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

impl Devices {
    /// A request for consecutive slots, by a CPU of `near`; its end is told by [`Self::note_end`].
    pub fn request(
        &self,
        direction: Direction,
        first: Slot,
        bytes: usize,
        near: NodeId,
    ) -> Request {
        let device = self.device_of(first);
        device.traffic.begin(direction);
        let number = device.number_of(first);
        let offset = u64::from(number) * PAGE_BYTES as u64;
        let request = kernel::Request::new(device.descriptor(), direction, offset);
        let mut backing = Backing::of(device);
        if direction == Direction::Write
            && matches!(backing, Backing::File | Backing::Memory)
            && file_limit::applies(device.descriptor(), offset + bytes as u64)
        {
            backing = Backing::Mapped;
        }
        // What is on another device is as slow, and fails as that does.
        let (device, number, bytes) = match &backing {
            Backing::Packed(pack) => {
                let slots = pack.slots_of(number, (bytes / PAGE_BYTES) as u32);
                (pack.below(), slots.start, slots.len() * PAGE_BYTES)
            }
            _ => (device, number, bytes),
        };
        if !device.is_hampered() {
            return Request::new(request, backing);
        }
        let doom = device.doom(direction, number, bytes);
        let late = if doom.late_ns > 0 { clock::now_ns() + doom.late_ns } else { 0 };
        let not_before_ns = device.not_before_ns(bytes, near);
        let slowed = request.no_sooner_than(not_before_ns).no_sooner_than(late);
        Request::new(kernel::Request { injected: doom.injected, ..slowed }, backing)
    }
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
            let here = Here::of(self.plan.fd)?;
            let place = (here.number(), self.plan.offset);
            let (how, outcome) = reader.read(place, pieces, until_ns);
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
            Backing::Mapped => self.plan.transfer_by(pieces, |pieces| {
                let here = Here::of(self.plan.fd)?;
                file_limit::write(here.number(), offset, pieces)
            }),
            Backing::Zram(zram) => {
                self.plan.transfer_by(pieces, |pieces| zram.transfer(direction, offset, pieces))
            }
            Backing::Packed(pack) => {
                assert_eq!(direction, Direction::Read, "a pack is written by who moves pages on");
                self.plan.transfer_by(pieces, |pieces| pack.read(offset, pieces, self.is_repeated))
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
