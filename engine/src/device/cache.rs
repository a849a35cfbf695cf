//! Slots on their way to and from the devices: the per-CPU buffers, and freeing in batches.
//!
//! What to do is decided in `policy::slot_cache` and `policy::free_batch`; here are the locks. A buffer's
//! lock is held while its batch is freed: after a drain has passed it, no slot of it is still on its way.
use super::record::{Device, Store};
use super::{Devices, SlotSpan};
use crate::base::index::{NodeId, Slot};
use crate::sys::lock::{Guard, Lock};
use crate::sys::{clock, numa};
use std::sync::atomic::{AtomicU8, Ordering};
use userswap_policy::devices::{DeviceId, Search};
use userswap_policy::free_batch::{self, FreeOrder, Invalid};
use userswap_policy::named_choice;
use userswap_policy::slot_cache::{BATCH, Decision, Put, Ready, Returned, Source, Switch, Take};
use userswap_policy::slots::SlotRun;

named_choice! {
    /// How slots are allocated.
    pub enum SlotMode, "way to allocate slots" {
        /// From per-CPU buffers (Linux 4.11 to 6.14), which are filled from per-CPU clusters.
        Cache = "cache",
        /// From per-CPU clusters under the device's lock.
        Clusters = "clusters",
        /// From one cluster per device under the device's lock.
        Shared = "shared",
    }
}

/// One CPU's buffers; a cache line apart from the next one's.
#[repr(align(128))]
struct CpuBuffers {
    ready: Lock<Ready<Slot>>,
    returned: Lock<Returned<Slot>>,
}

/// All buffers, and whether they are in use.
pub(super) struct Buffers {
    cpus: Box<[CpuBuffers]>,
    switch: Lock<Switch>,
    /// What the switch said last, to be read without its lock.
    source: AtomicU8,
    mode: AtomicU8,
    order: AtomicU8,
}

impl Buffers {
    pub(super) fn new() -> Self {
        let cpus = clock::cpus();
        let cpu =
            |_| CpuBuffers { ready: Lock::new(Ready::new()), returned: Lock::new(Returned::new()) };
        Self {
            cpus: (0..cpus).map(cpu).collect(),
            switch: Lock::new(Switch::new(cpus)),
            source: AtomicU8::new(Source::Devices as u8),
            mode: AtomicU8::new(SlotMode::Cache.index()),
            order: AtomicU8::new(FreeOrder::Grouped.index()),
        }
    }

    pub(super) fn cpus(&self) -> usize {
        self.cpus.len()
    }

    /// The number of this CPU's buffers; a thread may move on at once, the locks keep that safe.
    pub(super) fn cpu(&self) -> usize {
        numa::cpu() as usize % self.cpus.len()
    }

    pub(super) fn enable(&self) {
        self.switch.lock().enable();
    }

    /// Bars all buffers; the caller drains them then.
    pub(super) fn disable(&self) {
        self.switch.lock().disable();
        self.source.store(Source::Devices as u8, Ordering::SeqCst);
    }

    fn source(&self) -> Source {
        if self.source.load(Ordering::SeqCst) == Source::Buffers as u8 {
            Source::Buffers
        } else {
            Source::Devices
        }
    }

    /// Asks the switch, and keeps its answer for [`Self::source`].
    fn decide(&self, free_slots: i64) -> Decision {
        let mut switch = self.switch.lock();
        let decision = switch.before_allocation(free_slots);
        self.source.store(switch.source() as u8, Ordering::SeqCst);
        decision
    }

    /// Slots in all buffers; takes each buffer's locks in turn.
    pub(super) fn slots(&self) -> u64 {
        let of = |cpu: &CpuBuffers| cpu.ready.lock().len() + cpu.returned.lock().len();
        self.cpus.iter().map(|cpu| of(cpu) as u64).sum()
    }

    pub(super) fn mode(&self) -> SlotMode {
        SlotMode::of_index(self.mode.load(Ordering::Relaxed))
    }

    pub(super) fn set_mode(&self, mode: SlotMode) {
        self.mode.store(mode.index(), Ordering::Relaxed);
    }

    pub(super) fn free_order(&self) -> FreeOrder {
        FreeOrder::of_index(self.order.load(Ordering::Relaxed))
    }

    pub(super) fn set_free_order(&self, order: FreeOrder) {
        self.order.store(order.index(), Ordering::Relaxed);
    }
}

impl Devices {
    /// Slots from this CPU's buffer, as many as follow each other; None when the devices are to be asked.
    pub(super) fn take_buffered(&self, want: u32, near: NodeId) -> Option<SlotSpan> {
        if self.buffers.mode() != SlotMode::Cache {
            return None;
        }
        // A large request is a batch by itself. What it is given can be freed one by one.
        if want as usize >= BATCH {
            if self.buffers.source() == Source::Devices {
                self.buffers.decide(self.room().free);
            }
            return None;
        }
        let cpu = &self.buffers.cpus[self.buffers.cpu()];
        if cpu.ready.lock().is_empty() {
            match self.buffers.decide(self.room().free) {
                Decision::Allocate(Source::Buffers) => {}
                Decision::Allocate(Source::Devices) => return None,
                Decision::DrainAll => {
                    self.drain();
                    return None;
                }
            }
        }
        let mut ready = cpu.ready.lock();
        let first = match ready.take(self.buffers.source()) {
            Take::Slot(slot) => slot,
            Take::Devices => return None,
            Take::Refill => self.refill(&mut ready, near)?,
        };
        let mut span = SlotSpan { first, count: 1 };
        while span.count < want
            && ready.peek().is_some_and(|next| next.0.get() == first.0.get() + span.count)
        {
            let _ = ready.take(Source::Devices);
            span.count += 1;
        }
        Some(span)
    }

    fn refill(&self, ready: &mut Ready<Slot>, near: NodeId) -> Option<Slot> {
        let span = self.ask_devices(BATCH as u32, near, &Search::new())?;
        let mut slots = [span.first; BATCH];
        for (entry, slot) in slots.iter_mut().zip(span.slots()) {
            *entry = slot;
        }
        match ready.refill(&slots[..span.count as usize]) {
            Take::Slot(slot) => Some(slot),
            Take::Refill | Take::Devices => unreachable!("a span has a slot"),
        }
    }

    /// Frees slots, by way of this CPU's buffer if that is in use; they must be in use and of one device.
    pub fn free(&self, span: SlotSpan) {
        if self.buffers.source() == Source::Devices || span.count as usize >= BATCH {
            let device = self.device_of(span.first);
            let mut store = device.store().lock_counted(&device.freeing);
            let run = SlotRun { first: device.number_of(span.first), count: span.count };
            return self.free_run(device, &mut store, run);
        }
        let cpu = &self.buffers.cpus[self.buffers.cpu()];
        let mut returned = cpu.returned.lock();
        for slot in span.slots() {
            // Asked under the buffer's lock: a drain that came before would miss what is stored now.
            match returned.put(slot, self.buffers.source()) {
                Put::Stored => {}
                Put::Flush(mut batch) => self.free_batch(batch.slots()),
                Put::Free(slot) => self.free_batch(&mut [slot]),
            }
        }
    }

    /// Gives what is in the buffers of all CPUs back to the devices.
    pub(crate) fn drain(&self) {
        for cpu in &self.buffers.cpus {
            let mut ready = cpu.ready.lock();
            if let Some(mut batch) = ready.drain() {
                self.free_batch(batch.slots());
            }
            drop(ready);
            let mut returned = cpu.returned.lock();
            if let Some(mut batch) = returned.drain() {
                self.free_batch(batch.slots());
            }
        }
    }

    /// Frees slots of whatever devices, in use and in no buffer; in which order, and under how many locks, policy says.
    pub fn free_batch(&self, slots: &mut [Slot]) {
        let indexes_used = self.indexes_used.load(Ordering::Relaxed);
        let mut freeing = Freeing { devices: self, held: None, run: None };
        let done =
            free_batch::free_all(self.buffers.free_order(), indexes_used, slots, &mut freeing);
        assert_eq!(done.freed as usize, slots.len(), "only slots in use are given back");
    }
}

/// The devices as a batched free visits them: neighbours are freed as one run.
struct Freeing<'a> {
    devices: &'a Devices,
    held: Option<(&'a Device, Guard<'a, Store>)>,
    run: Option<SlotRun>,
}

impl Freeing<'_> {
    fn free_pending(&mut self) {
        if let (Some(run), Some((device, store))) = (self.run.take(), &mut self.held) {
            self.devices.free_run(device, store, run);
        }
    }
}

impl free_batch::Devices for Freeing<'_> {
    type Entry = Slot;

    fn device_of(&self, slot: Slot) -> DeviceId {
        self.devices.id_of(slot)
    }

    fn check(&mut self, _: Slot) -> Result<(), Invalid> {
        Ok(())
    }

    fn acquire(&mut self, id: DeviceId) {
        let device = self.devices.by_id(id);
        self.held = Some((device, device.store().lock_counted(&device.freeing)));
    }

    fn release(&mut self, _: DeviceId) {
        self.free_pending();
        self.held = None;
    }

    fn free(&mut self, slot: Slot) -> Result<(), Invalid> {
        let (device, _) = self.held.as_ref().expect("the lock of the slot's device is held");
        let number = device.number_of(slot);
        match &mut self.run {
            Some(run) if run.first + run.count == number => run.count += 1,
            _ => {
                self.free_pending();
                self.run = Some(SlotRun { first: number, count: 1 });
            }
        }
        // A slot that is not in use is a broken promise of ours: freeing its run says so and ends it.
        Ok(())
    }
}
