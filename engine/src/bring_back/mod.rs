//! Bringing pages back from a device: in the device's own order, with several large requests in flight.
//!
//! swapoff empties a device with it, prefetching everything fills RAM with it. A pass over the page words
//! (`sweep`) finds the page on each slot, and at once deals with what needs no read; then a few threads
//! (`readers`) take spans of slots one after the other, read each into frames, check it, and find its pages
//! a place (`place`): mapped in runs, or written to another device from the same frames. Each span passes
//! the gate by itself, so neither a fork nor a fault waits for longer than a few requests. The kernel's way
//! is there for comparison (`walk`); which one is used is a swapoff's `method`.
mod method;
mod place;
mod read;
mod readers;
mod room;
mod sweep;
mod walk;

pub use method::{NoSuchMethod, SwapoffMethod};
pub use room::room_in_ram;

use crate::core::Core;
use crate::device::record::Device;
use crate::error::Error;
use crate::swap_off::Proceed;
use sweep::Found;
use walk::Windows;

/// Pages of one request: 1 MiB, from where on larger ones gain nothing (docs/swapoff.md).
pub const READ_PAGES: u32 = 256;
/// Threads that read and place, the caller among them.
const READERS: u32 = 6;
/// A budget has room for this many times what is read at once.
const BUDGET_SHARE: u32 = 8;
/// How long one wait for frames or for pages in transition lasts.
pub const WAIT_NS: u64 = 10_000_000;
/// How long no progress means that there is no room.
pub const PATIENCE_NS: u64 = 2_000_000_000;

/// Why pages are brought back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// The device goes: what RAM has no room for goes to another one.
    Empty,
    /// The program will want them: as many as RAM has room for, and their slots stay theirs.
    Fill,
}

/// What is brought back.
#[derive(Clone, Copy)]
pub struct Task<'a> {
    /// Where it is.
    pub device: &'a Device,
    /// What for.
    pub purpose: Purpose,
}

impl Core {
    /// One pass over a device, by the method asked for.
    ///
    /// # Errors
    /// As for [`Self::sweep`].
    pub(crate) fn pass(
        &self,
        task: Task<'_>,
        method: SwapoffMethod,
        between: &mut dyn FnMut() -> Proceed,
    ) -> Result<(), Error> {
        match method {
            SwapoffMethod::Device => self.sweep(task, between),
            SwapoffMethod::Scaling => self.walk(task, Windows::Scaling, between),
            SwapoffMethod::Fixed => self.walk(task, Windows::Fixed, between),
        }
    }

    /// One pass over a device in its order: in parts, each of them first looked for and then read. `between` is asked
    /// between steps whether to go on.
    ///
    /// # Errors
    /// Cancelled, or no room: what was not brought back stays where it is.
    pub(crate) fn sweep(
        &self,
        task: Task<'_>,
        between: &mut dyn FnMut() -> Proceed,
    ) -> Result<(), Error> {
        for part in self.parts_in_use(task.device) {
            let mut found = Found::new(part);
            for range in self.look_ranges() {
                self.look(task, range, &mut found);
                if task.purpose == Purpose::Empty && self.devices.must_yield() {
                    return Err(Error::NoRoomInRam);
                }
                if between() == Proceed::Cancel {
                    return Err(Error::SwapOffCancelled);
                }
            }
            self.read_all(task, &found.map, between)?;
        }
        Ok(())
    }

    /// The requests of a swapoff: the most pages of one, and how many are in flight.
    pub fn swapoff_requests(&self) -> (u32, u32) {
        (READ_PAGES, self.readers())
    }

    /// Threads that a budget has room for, whichever way the pages go.
    pub(crate) fn readers(&self) -> u32 {
        let budget = self.inside_gate(|| self.budget_pages());
        (budget / (BUDGET_SHARE * READ_PAGES)).clamp(1, READERS)
    }
}
