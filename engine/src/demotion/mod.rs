//! DOWN: the pages that have been away for longest move on from compressed memory to the devices behind it.
//!
//! One thread keeps room ahead (`policy::tiers`), so that what leaves RAM finds compressed memory, whatever is in it. No
//! fault waits for it: a page stays where it is, and can be read there, until its copy on the other device is complete;
//! then its word exchanges one slot for the other, if it still is the page that was copied. Nothing passes through frames.
//! A mapped page's copy in compressed memory goes first, which costs nothing.
//!
//! What is looked for is in `look.rs`, how a batch moves in `batch.rs`, how much memory compressed pages may take in `size.rs`. With
//! nothing to move the thread compresses once more what stays, where that is asked for (`recompress.rs`).
mod batch;
mod look;
mod pack;
mod recompress;
mod size;

use crate::base::error::Error;
use crate::base::index::PageIndex;
use crate::base::limits::BATCH;
use crate::device::record::Device;
use crate::state::core::Core;
use crate::sys::PAGE_BYTES;
use crate::sys::mapping::Mapping;
use crate::sys::signal::Blocked;
use crate::sys::thread::Thread;
use std::io;
use std::sync::Arc;
use userswap_policy::devices::DeviceId;
use userswap_policy::tiers::Ages;

/// After a round in which nothing could move, the first rest and the longest.
const REST_NS: u64 = 20_000_000;
const REST_NS_MAX: u64 = 1_280_000_000;

/// What the device that is looked at has, and what of it moves next.
struct Mover {
    ages: Ages,
    /// Pages to be moved together.
    moving: Vec<Moving>,
    /// Room for their content, which is the engine's own beside the budget, 1 MiB, and for one more page that is looked at.
    buffer: Mapping,
}

/// A page that is to move on.
#[derive(Clone, Copy)]
struct Moving {
    page: PageIndex,
    /// The number of its slot on its device.
    number: u32,
    checksum: u64,
}

/// How much of a device is to move on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Extent {
    /// As much as makes up the room that it is short of, in pages.
    Missing(u32),
    /// Everything.
    All,
}

impl Extent {
    fn pages(self) -> u32 {
        match self {
            Self::Missing(pages) => pages,
            Self::All => u32::MAX,
        }
    }

    /// What is left of it after so many pages.
    fn after(self, pages: u32) -> Self {
        match self {
            Self::Missing(all) => Self::Missing(all.saturating_sub(pages)),
            Self::All => Self::All,
        }
    }
}

impl Mover {
    fn new() -> io::Result<Box<Self>> {
        let buffer = Mapping::undumped((BATCH + 1) * PAGE_BYTES)?;
        // No batch is under way at a fork: neither side pays for a copy.
        buffer.advise(0, buffer.bytes(), libc::MADV_WIPEONFORK)?;
        Ok(Box::new(Self { ages: Ages::default(), moving: Vec::with_capacity(BATCH), buffer }))
    }
}

impl Core {
    /// Moves on what the devices behind have room for, of all that is in compressed memory.
    pub(crate) fn demote_all(&self) {
        let front = |device: &&Device| device.is_compressed() && self.devices.is_in_front(device);
        let ids: Vec<DeviceId> = self
            .inside_gate(|| self.devices.list().filter(front).map(|device| device.id()).collect());
        let Some(mut mover) = (!ids.is_empty()).then(Mover::new).and_then(Result::ok) else {
            return;
        };
        let blocked = Blocked::new();
        ids.into_iter().for_each(|id| _ = self.demote(&mut mover, id, Extent::All));
        self.drain_slots();
        drop(blocked);
    }

    /// Slots that wait in a buffer still take memory.
    fn drain_slots(&self) {
        self.inside_gate(|| {
            self.devices.drain();
            self.settle_stored(self.node_here());
        });
    }

    /// Has pages move on for as long as compressed ones take more than a smaller budget would leave them, and some move.
    pub(crate) fn make_room_beside(&self, leaving: u32) {
        let Some(mut mover) = Mover::new().ok() else { return };
        let blocked = Blocked::new();
        let allowance = &self.devices.allowance;
        let mut stuck = Vec::new();
        allowance.bound_by(leaving);
        self.drain_slots();
        while allowance.taken() > leaving {
            // Another that shrinks at the same time may have taken it off.
            allowance.bound_by(leaving);
            let short = self.inside_gate(|| {
                self.settle_stored(self.node_here());
                self.devices.shortest(&stuck)
            });
            let Some((id, missing)) = short else { break };
            let moved = self.demote(&mut mover, id, Extent::Missing(missing));
            if moved == 0 {
                stuck.push(id);
            }
        }
        drop(blocked);
    }

    /// The thread's work, until the engine stops.
    fn keep_room_ahead(&self) {
        let (mut mover, mut rest_ns) = (None, REST_NS);
        let (mut sizing, mut stuck) = (None, Vec::new());
        let mut seen = self.demotion.wishes();
        while !self.is_stopping() {
            // What is wished while devices are looked at is not slept over.
            if stuck.is_empty() {
                seen = self.demotion.wishes();
            }
            let short = self.inside_gate(|| {
                self.follow(&mut sizing);
                self.devices.shortest(&stuck)
            });
            let Some((id, missing)) = short else {
                if !stuck.is_empty() {
                    rest_ns = self.rest_after_nothing(rest_ns);
                    stuck.clear();
                }
                // Looked at again once more is written, or at once if something was wished meanwhile. `stop` wakes after it
                // has told.
                let rest_ns = self.recompress();
                if !self.is_stopping() {
                    self.demotion.sleep(seen, rest_ns);
                }
                continue;
            };
            let moved = match mover_of(&mut mover) {
                Some(mover) => self.demote(mover, id, Extent::Missing(missing)),
                None => 0,
            };
            if moved > 0 {
                rest_ns = REST_NS;
                stuck.clear();
            } else {
                // Others may be short as well.
                stuck.push(id);
                self.drain_slots();
            }
        }
    }

    /// After a round in which nothing could move; how long the next rest is.
    fn rest_after_nothing(&self, rest_ns: u64) -> u64 {
        if !self.is_stopping() {
            self.demotion.rest(self.demotion.wishes(), rest_ns);
        }
        (rest_ns * 2).min(REST_NS_MAX)
    }
}

/// Made as late as it is needed: most engines have no compressed memory.
fn mover_of(mover: &mut Option<Box<Mover>>) -> Option<&mut Mover> {
    if mover.is_none() {
        *mover = Mover::new().ok();
    }
    mover.as_deref_mut()
}

/// Starts the thread of an engine; it ends when the engine stops.
///
/// # Errors
/// No thread to be had.
pub fn start(core: Arc<Core>) -> Result<Thread, Error> {
    Thread::spawn("userswap-demote", move || core.keep_room_ahead()).map_err(Error::Thread)
}
