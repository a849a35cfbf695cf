//! Per-CPU slot caches: slots fetched and given back 64 at a time, so that a device's lock is taken
//! once per batch.
//!
//! Decides when a batch is due; fetching and freeing are the caller's. Every CPU has a [`Ready`] buffer
//! of slots to hand out and a [`Returned`] buffer of slots on their way back, each behind a lock of its
//! own. A returned slot is never handed out directly: it goes back to its device first, where slots that
//! lie together become one run again. Slots in buffers count as used, so buffers are given up while few
//! slots are free: [`Switch`] is the state for that, behind one lock for all CPUs.
//!
//! What the switch said may be wrong by the time a buffer's lock is held: the thread that holds it asks
//! [`Switch::source`] again and passes the answer on.

use alloc::vec::Vec;

/// Slots in one request to a device, and in each buffer.
pub const BATCH: usize = 64;

/// Free slots per CPU above which buffers are taken into use: 5 batches.
const ACTIVATE_SLOTS: i64 = 5 * BATCH as i64;
/// Free slots per CPU below which they are given up: 2 batches, both buffers full on every CPU.
const DEACTIVATE_SLOTS: i64 = 2 * BATCH as i64;

/// Where slots come from and go to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// Buffers may be filled.
    Buffers,
    /// One slot at a time, from and to the devices.
    Devices,
}

/// What to do before a slot is allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Take one from there.
    Allocate(Source),
    /// Drain the buffers of all CPUs, then ask the devices for one slot.
    DrainAll,
}

/// Whether buffers are in use at all.
#[derive(Clone, Debug)]
pub struct Switch {
    cpus: u32,
    /// There is a device, and none is being swapped off.
    enabled: bool,
    /// There are enough free slots.
    active: bool,
}

impl Switch {
    /// Buffers are not in use yet, and disabled.
    pub const fn new(cpus: u32) -> Self {
        Self { cpus, enabled: false, active: false }
    }

    /// Lets buffers be used: a device was swapped on, or devices are left after a swapoff has ended.
    pub fn enable(&mut self) {
        self.enabled = true;
    }

    /// Bars all buffers because a swapoff begins; the caller drains those of all CPUs, after the device
    /// has stopped giving out slots and before it reads anything back.
    pub fn disable(&mut self) {
        self.enabled = false;
    }

    /// Whether buffers may be used now.
    pub fn source(&self) -> Source {
        if self.enabled && self.active { Source::Buffers } else { Source::Devices }
    }

    /// Decides about buffers by the free slots of all devices, before a slot is allocated.
    pub fn before_allocation(&mut self, free_slots: i64) -> Decision {
        let cpus = i64::from(self.cpus);
        if !self.enabled {
            return Decision::Allocate(Source::Devices);
        }
        if self.active && free_slots < cpus * DEACTIVATE_SLOTS {
            self.active = false;
            return Decision::DrainAll;
        }
        self.active |= free_slots > cpus * ACTIVATE_SLOTS;
        Decision::Allocate(self.source())
    }
}

/// Where a slot is to be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Take<S> {
    /// Here it is.
    Slot(S),
    /// The buffer is empty: fetch [`BATCH`] slots, all from one device, and pass what came to
    /// [`Ready::refill`].
    Refill,
    /// Ask the devices for one.
    Devices,
}

/// Slots that a CPU hands out.
#[derive(Debug)]
pub struct Ready<S> {
    slots: Vec<S>,
    /// Slots before this one were handed out.
    next: usize,
}

impl<S: Copy> Ready<S> {
    /// An empty buffer; nothing allocates later.
    pub fn new() -> Self {
        Self { slots: Vec::with_capacity(BATCH), next: 0 }
    }

    /// Number of slots that can be handed out.
    pub fn len(&self) -> usize {
        self.slots.len() - self.next
    }

    /// Is there nothing to hand out?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The slot that would be handed out next.
    pub fn peek(&self) -> Option<S> {
        self.slots.get(self.next).copied()
    }

    /// Hands out a slot, in the order in which they came. What is there is used up even if buffers are
    /// not to be filled any more.
    pub fn take(&mut self, source: Source) -> Take<S> {
        match (self.hand_out(), source) {
            (Some(slot), _) => Take::Slot(slot),
            (None, Source::Buffers) => Take::Refill,
            (None, Source::Devices) => Take::Devices,
        }
    }

    /// Fills the buffer and hands out the first slot; the devices are to be asked once more for one if
    /// nothing came.
    ///
    /// # Panics
    /// When the buffer is not empty, or `slots` are more than [`BATCH`].
    pub fn refill(&mut self, slots: &[S]) -> Take<S> {
        assert!(self.is_empty(), "{} slots are still to be handed out", self.len());
        assert!(slots.len() <= BATCH, "{} slots in one batch", slots.len());
        self.slots.clear();
        self.slots.extend_from_slice(slots);
        self.next = 0;
        self.hand_out().map_or(Take::Devices, Take::Slot)
    }

    /// Empties the buffer: the slots to free, if there are any.
    #[must_use = "the slots must be freed"]
    pub fn drain(&mut self) -> Option<Batch<S>> {
        let batch = Batch::new(&self.slots[self.next..]);
        self.slots.clear();
        self.next = 0;
        batch
    }

    fn hand_out(&mut self) -> Option<S> {
        let slot = self.peek()?;
        self.next += 1;
        Some(slot)
    }
}

impl<S: Copy> Default for Ready<S> {
    fn default() -> Self {
        Self::new()
    }
}

/// What becomes of a slot that was given back.
#[derive(Debug)]
#[must_use = "what is not stored must be freed"]
pub enum Put<S> {
    /// It waits in the buffer.
    Stored,
    /// It waits in the buffer, which was full: these slots are to be freed.
    Flush(Batch<S>),
    /// The buffer is not to be used: the slot itself is to be freed.
    Free(S),
}

/// Slots that a CPU got back and has not yet freed.
#[derive(Debug)]
pub struct Returned<S> {
    slots: Vec<S>,
}

impl<S: Copy> Returned<S> {
    /// An empty buffer; nothing allocates later.
    pub fn new() -> Self {
        Self { slots: Vec::with_capacity(BATCH) }
    }

    /// Number of slots that wait.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Does no slot wait?
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Keeps a slot, getting rid of those before it when there are [`BATCH`] of them: the 65th does that,
    /// and is itself kept.
    ///
    /// A flush that is freed after the buffer's lock was given up is missed by a drain meanwhile; a
    /// swapoff that relies on drains needs it freed before.
    pub fn put(&mut self, slot: S, source: Source) -> Put<S> {
        if source == Source::Devices {
            return Put::Free(slot);
        }
        let flushed = if self.len() == BATCH { self.drain() } else { None };
        self.slots.push(slot);
        flushed.map_or(Put::Stored, Put::Flush)
    }

    /// Empties the buffer: the slots to free, if there are any.
    #[must_use = "the slots must be freed"]
    pub fn drain(&mut self) -> Option<Batch<S>> {
        let batch = Batch::new(&self.slots);
        self.slots.clear();
        batch
    }
}

impl<S: Copy> Default for Returned<S> {
    fn default() -> Self {
        Self::new()
    }
}

/// Between 1 and [`BATCH`] slots on their way back to their devices, held without allocating.
#[derive(Clone, Debug)]
pub struct Batch<S> {
    /// After `count`, copies that only fill the array.
    slots: [S; BATCH],
    count: usize,
}

impl<S: Copy> Batch<S> {
    fn new(slots: &[S]) -> Option<Self> {
        let filler = *slots.first()?;
        let at = |index| slots.get(index).copied().unwrap_or(filler);
        Some(Self { slots: core::array::from_fn(at), count: slots.len() })
    }

    /// The slots, for a batched free to sort.
    pub fn slots(&mut self) -> &mut [S] {
        &mut self.slots[..self.count]
    }
}

#[cfg(test)]
mod tests;
