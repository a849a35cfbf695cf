//! Swap devices in use: which one is asked, its slots, their checksums.
//!
//! A slot is named engine-wide by one number, as in the kernel's swap entries: the device's index and the
//! slot on it. Locks nest CPU buffer, device, list: `table` (the list lock) is the innermost, taken with a
//! device's lock held when that device becomes full or gets room.
mod bad;
mod behind;
mod cache;
pub mod cipher;
pub mod compress;
mod counts;
mod far;
pub mod faulty;
pub mod inherit;
mod leaving;
mod lending;
pub mod loans;
pub mod open;
pub mod pack;
pub mod packs;
pub(crate) mod places;
pub mod queue;
pub mod record;
pub mod remote;
pub mod request;
pub mod retry;
pub mod s3;
mod silent;
pub mod spec;
mod spec_error;
mod spec_parts;
mod store;
mod sysfs;
pub mod throttle;
pub mod traffic;
pub mod zram;

use crate::base::error::Error;
use crate::base::index::{NodeId, PageIndex, Slot};
use crate::base::topology::Topology;
use crate::sys::lock::{Guard, Lock, LockUse};
use cache::Buffers;
pub use cache::SlotMode;
use cipher::Cipher;
use counts::{Counts, SlotCounts};
use leaving::Leaving;
use open::OpenDevice;
use record::{Cursor, Device, DeviceState, Label, Store, Supply, slots_of};
use spec::SwapSpec;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use sysfs::Hardware;
use userswap_policy::banks::{BANK_SLOTS, BANKS, Banks, bank_of, banks_from};
use userswap_policy::devices::{DEVICES_MAX, DeviceId, DeviceTable, Placement, Search};
use userswap_policy::free_batch::FreeOrder;
use zram::allowance::Allowance;

/// Slots of the largest device: 512 GiB. Larger ones are used in part.
pub const DEVICE_SLOTS: u32 = 2 * BANK_SLOTS;

/// Consecutive slots of one device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotSpan {
    /// The slot with the lowest number.
    pub first: Slot,
    /// Number of slots, at least one.
    pub count: u32,
}

impl SlotSpan {
    /// The first so many slots, and those after them.
    pub fn split(self, count: u32) -> (Option<Self>, Option<Self>) {
        let first = (count > 0).then_some(Self { count: count.min(self.count), ..self });
        let rest = self.slots().nth(count as usize);
        (first, rest.map(|rest| Self { first: rest, count: self.count - count }))
    }

    /// The slots one by one, in order.
    pub fn slots(self) -> impl Iterator<Item = Slot> {
        let number = self.first.0.get();
        (0..self.count).map(move |index| {
            Slot(NonZeroU32::new(number + index).expect("what follows a slot is not zero"))
        })
    }
}

/// What becomes of a slot that is not needed any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotEnd {
    /// It can hold another page.
    Free,
    /// The device refused it: it is never used again.
    Bad,
}

/// The swap devices of an engine.
pub struct Devices {
    /// As many as there can be. Not in here: an engine may be made on a signal's stack.
    records: Box<[Arc<Device>]>,
    /// The device that each bank of slot numbers belongs to, if it belongs to one.
    of_bank: [AtomicU8; BANKS as usize],
    table: Lock<DeviceTable>,
    /// How often the list lock was taken.
    pub list_lock: LockUse,
    /// As the table says, for the path of every flush, which keeps off the list lock.
    indexes_used: AtomicU32,
    counts: Counts,
    buffers: Buffers,
    /// Counts devices coming and going.
    pub changes: AtomicU32,
    /// How long trouble that passes is waited for.
    pub patience_ns: AtomicU64,
    leaving: Leaving,
    /// What encrypted devices have in common, as soon as there has been one.
    cipher: Arc<OnceLock<Cipher>>,
    /// The memory of compressed devices.
    pub allowance: Arc<Allowance>,
    /// Compressed devices that were ever in use.
    compressed: AtomicU32,
    /// Times that one had no memory, since all were looked at.
    shortages: AtomicU32,
    /// Devices that have been turned away, and have taken no write since.
    silences: AtomicU32,
}

impl Devices {
    /// Takes opened devices into use, in the order given.
    ///
    /// # Errors
    /// No memory for the tables of a device, a node that does not exist, too many devices.
    pub fn new(opened: Vec<OpenDevice>, topology: &Topology) -> Result<Self, Error> {
        let nodes = topology.nodes().len() as u16;
        let devices = Self {
            records: (0..DEVICES_MAX as u8)
                .map(|index| Arc::new(Device::absent(DeviceId(index))))
                .collect(),
            of_bank: [const { AtomicU8::new(0) }; BANKS as usize],
            table: Lock::new(DeviceTable::new(nodes, Placement::Near)),
            list_lock: LockUse::default(),
            indexes_used: AtomicU32::new(0),
            counts: Counts::default(),
            buffers: Buffers::new(),
            changes: AtomicU32::new(0),
            patience_ns: AtomicU64::new(retry::PATIENCE_NS),
            leaving: Leaving::default(),
            cipher: Arc::default(),
            allowance: Arc::new(Allowance::new()),
            compressed: AtomicU32::new(0),
            shortages: AtomicU32::new(0),
            silences: AtomicU32::new(0),
        };
        for device in opened {
            devices.swapon(device, topology)?;
        }
        Ok(devices)
    }

    /// Takes one more device into use. One caller at a time.
    ///
    /// # Errors
    /// As [`Self::new`]; nothing is changed then.
    pub fn swapon(&self, opened: OpenDevice, topology: &Topology) -> Result<DeviceId, Error> {
        let hardware = hardware_of(&opened, topology)?;
        self.take_into_use(opened, hardware)
    }

    fn take_into_use(&self, opened: OpenDevice, hardware: Hardware) -> Result<DeviceId, Error> {
        let (tier, priority) =
            (opened.tier.unwrap_or(0), opened.priority.map(|given| given as u16));
        let device = self.free_record()?;
        let slots = slots_of(opened.bytes);
        let bank = self.banks().take(slots).ok_or(Error::NoSlotNumbers(opened.bytes))?;
        let zram = self.zram_for(&opened)?;
        if opened.encrypt {
            self.begin_encryption()?;
        }
        let name = self.unique_name(opened.path.display().to_string());
        device.install(opened, name, hardware, self.buffers.cpus()).map_err(Error::Tables)?;
        self.compressed.fetch_add(u32::from(zram.is_some()), Ordering::Relaxed);
        device.set_zram(zram);
        let mut store = device.store().lock();
        self.number(device, bank, slots);
        let pages = store.slots.pages();
        let taken = self.table().swapon_in(tier, hardware.node, priority, pages);
        let taken = taken.map_err(Error::Swapon);
        if let Err(error) = taken {
            drop(store);
            drop(device.remove());
            return Err(error);
        }
        assert_eq!(taken.ok(), Some(device.id()), "records and table agree about what is free");
        // Relaxed: a batch that has a slot of the device comes after whoever was given that slot.
        self.indexes_used.fetch_max(u32::from(device.id().0) + 1, Ordering::Relaxed);
        store.state = DeviceState::On;
        self.counts.add(store.counts());
        drop(store);
        self.buffers.enable();
        self.changes.fetch_add(1, Ordering::Release);
        Ok(device.id())
    }

    /// Its slots have these numbers from now on; its lock is held.
    fn number(&self, device: &Device, bank: u32, slots: u32) {
        device.number_from(bank);
        for bank in banks_from(bank, slots) {
            self.of_bank[bank as usize].store(device.id().0, Ordering::Relaxed);
        }
    }

    /// Whether a device could be taken into use, before a file is made for it.
    ///
    /// # Errors
    /// It names a node that does not exist, or there are too many devices.
    pub fn check_swapon(&self, spec: &SwapSpec, topology: &Topology) -> Result<(), Error> {
        spec.node.map_or(Ok(None), |number| named_node(number, topology))?;
        self.check_tier(spec)?;
        self.free_record().map(|_| ())
    }

    fn free_record(&self) -> Result<&Device, Error> {
        let free = |device: &&Device| device.store().lock().state == DeviceState::Absent;
        self.records
            .iter()
            .map(|device| &**device)
            .find(free)
            .ok_or(Error::TooManyDevices(DEVICES_MAX))
    }

    /// Several files in one directory, or several memories, are told apart by a number.
    fn unique_name(&self, name: String) -> String {
        let is_taken = |name: &str| {
            self.list().any(|device| device.label().is_some_and(|label| label.name == name))
        };
        let numbered = (2..).map(|number| format!("{name}#{number}"));
        let mut names = std::iter::once(name.clone()).chain(numbered);
        names.find(|name| !is_taken(name)).expect("there are more numbers than devices")
    }

    /// The devices in use that have room of their own, by index.
    pub fn list(&self) -> impl Iterator<Item = &Device> {
        self.list_all().filter(|device| !device.is_packed())
    }

    /// Those and the packs on them.
    pub fn list_all(&self) -> impl Iterator<Item = &Device> {
        self.records.iter().map(|device| &**device).filter(|device| device.descriptor() >= 0)
    }

    /// A device by index.
    pub fn by_id(&self, id: DeviceId) -> &Device {
        &self.records[usize::from(id.0)]
    }

    /// The lists of all nodes, under their lock: the innermost one.
    pub fn table(&self) -> Guard<'_, DeviceTable> {
        self.table.lock_counted(&self.list_lock)
    }

    /// Allocates up to `want` consecutive slots for a CPU of the node `near`, from the device that its list
    /// has first.
    pub fn allocate(&self, want: u32, near: NodeId) -> Option<SlotSpan> {
        self.take_buffered(want, near).or_else(|| self.allocate_from(want, near, &Search::new()))
    }

    /// The same from the devices of a search, past the buffers.
    fn allocate_from(&self, want: u32, near: NodeId, among: &Search) -> Option<SlotSpan> {
        self.ask_devices(want, near, among).or_else(|| {
            // The slots in buffers may be the last there are, or those that children read no more.
            self.drain();
            self.list().for_each(|device| {
                self.take_back(device);
                self.look_for_supply(device);
            });
            self.ask_devices(want, near, among)
        })
    }

    /// Asks the devices themselves.
    fn ask_devices(&self, want: u32, near: NodeId, among: &Search) -> Option<SlotSpan> {
        let granted = self.counts.reserve(want)?;
        let mut search = among.clone();
        let span = std::iter::from_fn(|| self.table().next(near, &mut search))
            .find_map(|id| self.allocate_on(self.by_id(id), granted, near));
        let taken = span.map_or(0, |span| span.count);
        self.counts.add_free(granted - taken);
        span
    }

    fn allocate_on(&self, device: &Device, want: u32, near: NodeId) -> Option<SlotSpan> {
        let cursor = match self.buffers.mode() {
            SlotMode::Shared => Cursor::Shared,
            SlotMode::Clusters | SlotMode::Cache => Cursor::Cpu(self.buffers.cpu()),
        };
        let label = device.label()?;
        let want = self.trial_size(device, want);
        let mut store = device.store().lock_counted(&device.allocation);
        let run = store.allocate(cursor, want)?;
        // Relaxed, a hint: who looks for pages on the device finds those above it the next time.
        device.slots_ever.fetch_max(run.first + run.count, Ordering::Relaxed);
        self.note_full(device, &store);
        let asks = store.is_due(run.count);
        drop(store);
        if asks {
            self.take_back(device);
        }
        if !self.supplies(device, run) {
            return None;
        }
        if device.back_with_blocks(run, label.max) {
            device.placed[near.0 as usize].fetch_add(u64::from(run.count), Ordering::Relaxed);
            self.note_trial(device);
            return Some(device.span(run));
        }
        // The file system is full: what has blocks stays in use, the rest of the device is given up.
        let mut store = device.store().lock_counted(&device.allocation);
        let before = store.slots.pages();
        store.slots.free(run);
        if store.state != DeviceState::On || store.supply != Supply::Enough {
            // It has left meanwhile.
            self.forgo(&store, run.count);
            return None;
        }
        store.slots.limit(device.backed_slots());
        let lost = i64::from(before - store.slots.pages());
        self.counts.subtract(SlotCounts { free: lost, total: lost });
        self.table().resize(device.id(), store.slots.pages());
        let run = store.allocate(cursor, want);
        self.note_full(device, &store);
        Some(device.span(run?))
    }

    /// Takes a device without room off the lists; its lock is held.
    fn note_full(&self, device: &Device, store: &Store) {
        if store.is_full() {
            self.table().on_full(device.id());
        }
    }

    /// The checksum kept for a slot.
    pub fn checksum(&self, slot: Slot) -> u64 {
        // Relaxed: the page word that names the slot was published after the checksum was stored.
        let device = self.device_of(slot);
        device.checksums()[device.number_of(slot) as usize].load(Ordering::Relaxed)
    }

    /// Keeps a checksum for a slot.
    pub fn set_checksum(&self, slot: Slot, checksum: u64) {
        let device = self.device_of(slot);
        device.checksums()[device.number_of(slot) as usize].store(checksum, Ordering::Relaxed);
    }

    /// The page that was given a slot last; its word says whether that still holds.
    pub fn page_on(&self, slot: Slot) -> PageIndex {
        let device = self.device_of(slot);
        device.pages_on()[device.number_of(slot) as usize].load(Ordering::Relaxed)
    }

    /// Keeps which page is given a slot.
    pub fn set_page(&self, slot: Slot, page: PageIndex) {
        let device = self.device_of(slot);
        device.pages_on()[device.number_of(slot) as usize].store(page, Ordering::Relaxed);
    }

    /// Whether some device has to seek.
    pub fn any_rotational(&self) -> bool {
        self.list().any(Device::is_rotational)
    }

    /// The device of a slot, and the slot's number there.
    pub fn describe(&self, slot: Slot) -> (Arc<Label>, u32) {
        let device = self.device_of(slot);
        let label = device.label().expect("a slot in use is on a device in use");
        (label, device.number_of(slot))
    }

    /// The device of a slot.
    pub fn device_of(&self, slot: Slot) -> &Device {
        self.by_id(self.id_of(slot))
    }

    /// The index of a slot's device.
    fn id_of(&self, slot: Slot) -> DeviceId {
        // Relaxed: a bank changes hands while no slot of it is in use, and under the lock that slots come from.
        DeviceId(self.of_bank[bank_of(slot.0.get()) as usize].load(Ordering::Relaxed))
    }

    /// The number of a slot on its device.
    pub fn number_of(&self, slot: Slot) -> u32 {
        self.device_of(slot).number_of(slot)
    }

    /// Which numbers are taken.
    fn banks(&self) -> Banks {
        let mut banks = Banks::default();
        self.list_all().for_each(|device| {
            if let Some(label) = device.label() {
                banks.keep(device.first_bank(), label.max);
            }
        });
        banks
    }

    /// Empties the buffers and keeps them empty: a device is going.
    pub(crate) fn bar_buffers(&self) {
        self.buffers.disable();
        self.drain();
    }

    /// Lets buffers be used again.
    pub(crate) fn allow_buffers(&self) {
        self.buffers.enable();
    }

    /// Changes which device without a priority is asked first.
    pub fn set_placement(&self, placement: Placement) {
        self.table().set_placement(placement);
    }

    /// Changes how slots are allocated; what is in buffers goes back to the devices.
    pub fn set_mode(&self, mode: SlotMode) {
        self.buffers.set_mode(mode);
        self.drain();
    }

    /// How slots are allocated at this moment.
    pub fn mode(&self) -> SlotMode {
        self.buffers.mode()
    }

    /// Changes in which order batches are freed.
    pub fn set_free_order(&self, order: FreeOrder) {
        self.buffers.set_free_order(order);
    }

    /// In which order batches are freed.
    pub fn free_order(&self) -> FreeOrder {
        self.buffers.free_order()
    }
}

fn named_node(number: u16, topology: &Topology) -> Result<Option<NodeId>, Error> {
    let number = u32::from(number);
    let missing = || Error::NoNode(number, topology.numbers());
    topology.find(number).map(Some).ok_or_else(missing)
}

/// What a device is on: near to the node that was asked for, else to the one that sysfs says.
fn hardware_of(opened: &OpenDevice, topology: &Topology) -> Result<Hardware, Error> {
    let file = opened.file.as_ref();
    let node_of = |file| sysfs::node_of(topology.sysfs(), file);
    let node = match opened.node {
        Some(number) => named_node(number, topology)?,
        // On a made-up machine no device is near to a node.
        None if topology.nodes().iter().all(|node| node.memory.is_none()) => None,
        None => file.and_then(node_of).and_then(|number| topology.find(number)),
    };
    let is_rotational = file.is_some_and(|file| sysfs::is_rotational(topology.sysfs(), file));
    Ok(Hardware { node, is_rotational })
}
