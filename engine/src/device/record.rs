//! One swap device: its file, its slots under the device's lock, a checksum for each slot.
//!
//! A device is a record that is never freed but used again, as in the kernel: from the number of a slot its
//! record is found without a lock. What a record holds changes only while the gate is closed, or under the
//! record's lock.
use super::cipher::Seals;
use super::far::Far;
use super::faulty::{Doom, Faulty};
use super::loans::Loans;
use super::open::{DeviceKind, OpenDevice, memory_device};
use super::pack::Pack;
pub use super::store::{Cursor, Store};
use super::sysfs::Hardware;
use super::throttle::{Distance, Link, Throttle};
use super::traffic::Traffic;
use super::zram::Zram;
use super::{DEVICE_SLOTS, SlotSpan};
use crate::base::index::{NodeId, Slot};
use crate::base::limits::NODES_MAX;
use crate::sys::PAGE_BYTES;
use crate::sys::fd;
use crate::sys::file_limit;
use crate::sys::lock::{Lock, LockUse};
use crate::sys::mapping::ZeroedSlice;
use crate::sys::own_fd::Own;
use crate::sys::request::Direction;
use std::fs::File;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use userswap_policy::banks::{BANK_SLOTS, bank_of};
use userswap_policy::devices::DeviceId;
use userswap_policy::slots::{ClusterCursor, SlotRun};

/// Blocks of a file are allocated this far at a time: a full file system is noticed before a page is on
/// its way, and the file stays as small as what was swapped.
const ALLOCATE_BYTES_MAX: u64 = 128 << 20;
/// As many again as there are, but not fewer than this: a hundred small processes do not take a hundred times as much.
const ALLOCATE_BYTES_MIN: u64 = 8 << 20;
/// Write errors after which a device gets no new pages.
const ERRORS_MAX: u32 = 16;
/// The descriptor of a record without a device.
const NOTHING: RawFd = -1;
/// The tier of a device that has none.
const NO_TIER: u8 = u8::MAX;

/// What does not change while a device is in use.
#[derive(Clone, Debug)]
pub struct Label {
    /// As the user named it, with a number if that is not unique.
    pub name: String,
    /// The path as it was opened; `mem` for memory.
    pub path: PathBuf,
    /// What the path turned out to be.
    pub kind: DeviceKind,
    /// Slots, the header included.
    pub max: u32,
    /// The engine's number of its node.
    pub node: Option<NodeId>,
    /// Where more temporary files like it can be made.
    pub(super) directory: Option<Arc<Own<OwnedFd>>>,
}

/// Whether a record is a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceState {
    /// There is no device here.
    Absent,
    /// It takes pages.
    On,
    /// It keeps what it has and takes nothing new: it refused too many writes, or is another process's.
    Retired,
    /// Its swapoff is under way.
    Leaving,
}

/// Whose a device is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holding {
    /// This process allocates its slots.
    Own,
    /// Another process does, from which this one was forked: slots are read and dropped.
    Borrowed,
}

/// Whether free slots can be filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Supply {
    /// As far as is known.
    Enough,
    /// It is a compressed device, and there is no memory for more.
    Short,
    /// It takes no writes for the moment, and others do.
    Silent,
}

/// A record, with a device or without.
pub struct Device {
    id: DeviceId,
    descriptor: AtomicI32,
    /// Among the numbers of all slots, that of its header.
    first_number: AtomicU32,
    label: Lock<Option<Arc<Label>>>,
    store: Lock<Store>,
    checksums: OnceLock<ZeroedSlice<AtomicU64>>,
    /// The page that was given each slot last.
    pages_on: OnceLock<ZeroedSlice<AtomicU32>>,
    /// What is kept of the page on each slot, if they are encrypted.
    pub(super) seals: Seals,
    is_rotational: AtomicBool,
    /// Whether its file is memory.
    is_memory: AtomicBool,
    tier: AtomicU8,
    /// The link to it, if it is throttled.
    link: Lock<Option<Arc<Link>>>,
    /// By which plan it fails, for tests.
    faulty: Lock<Option<Arc<Faulty>>>,
    /// Where its pages are, if it is a compressed one.
    zram: Lock<Option<Arc<Zram>>>,
    is_compressed: AtomicBool,
    /// Where its pages are, if they are packed on another.
    pack: Lock<Option<Arc<Pack>>>,
    is_packed: AtomicBool,
    /// Where its pages are, if it is a remote one; the store's is the same.
    pub(super) remote: Lock<Option<Arc<dyn Far>>>,
    /// Whether its pages are on servers.
    pub(super) is_remote: AtomicBool,
    /// Whether it has one of the two.
    is_hampered: AtomicBool,
    /// It was waited for in vain, and has not answered since.
    pub is_given_up: AtomicBool,
    /// When it was turned away, if it has taken no write since; else 0.
    pub(super) silent_ns: AtomicU64,
    /// Bytes of the file that have blocks.
    backed: Lock<u64>,
    /// Write errors so far.
    pub errors: AtomicU32,
    /// The device's lock, taken to allocate.
    pub allocation: LockUse,
    /// The device's lock, taken to free.
    pub freeing: LockUse,
    /// Slots freed since it was taken into use.
    pub freed: AtomicU64,
    /// All slots that it has given out are below this one.
    pub slots_ever: AtomicU32,
    /// Its requests since it was taken into use.
    pub traffic: Traffic,
    /// Slots given to the CPUs of each node since it was taken into use.
    pub placed: [AtomicU64; NODES_MAX],
}

impl Device {
    /// An empty record.
    pub fn absent(id: DeviceId) -> Self {
        let store = Store::new(DeviceState::Absent, 0);
        Self {
            id,
            descriptor: AtomicI32::new(NOTHING),
            first_number: AtomicU32::new(0),
            label: Lock::new(None),
            store: Lock::new(store),
            checksums: OnceLock::new(),
            pages_on: OnceLock::new(),
            seals: Seals::default(),
            is_rotational: AtomicBool::new(false),
            is_memory: AtomicBool::new(false),
            tier: AtomicU8::new(NO_TIER),
            link: Lock::new(None),
            faulty: Lock::new(None),
            zram: Lock::new(None),
            is_compressed: AtomicBool::new(false),
            pack: Lock::new(None),
            is_packed: AtomicBool::new(false),
            remote: Lock::new(None),
            is_remote: AtomicBool::new(false),
            is_hampered: AtomicBool::new(false),
            is_given_up: AtomicBool::new(false),
            silent_ns: AtomicU64::new(0),
            backed: Lock::new(0),
            errors: AtomicU32::new(0),
            allocation: LockUse::default(),
            freeing: LockUse::default(),
            freed: AtomicU64::new(0),
            slots_ever: AtomicU32::new(0),
            traffic: Traffic::default(),
            placed: [const { AtomicU64::new(0) }; NODES_MAX],
        }
    }

    /// Puts an opened device into the record, taking no pages yet.
    ///
    /// # Errors
    /// No memory for its tables.
    pub fn install(
        &self,
        opened: OpenDevice,
        name: String,
        hardware: Hardware,
        cpus: usize,
    ) -> io::Result<()> {
        file_limit::note();
        self.make_tables(&opened)?;
        let max = slots_of(opened.bytes);
        // Of a compressed device nothing is in its file, nor of a remote one.
        let bytes = if opened.kind == DeviceKind::Memory { opened.bytes } else { 0 };
        let file = opened.file.map_or_else(|| memory_device(bytes), Ok)?;
        let file = Own::raised(file);
        self.is_rotational.store(hardware.is_rotational, Ordering::Relaxed);
        self.is_memory.store(opened.kind == DeviceKind::Memory, Ordering::Relaxed);
        self.tier.store(opened.tier.unwrap_or(NO_TIER), Ordering::Relaxed);
        let has_blocks = !matches!(opened.kind, DeviceKind::Temporary | DeviceKind::File);
        *self.backed.lock() = if has_blocks { u64::MAX } else { PAGE_BYTES as u64 };
        *self.label.lock() = Some(Arc::new(Label {
            name,
            path: opened.path,
            kind: opened.kind,
            max,
            node: hardware.node,
            directory: opened.directory.map(Arc::new),
        }));
        *self.link.lock() = opened.throttle.map(|throttle| Arc::new(Link::new(throttle)));
        *self.faulty.lock() = opened.faulty.map(|plan| Arc::new(Faulty::new(plan)));
        let is_hampered = opened.throttle.is_some() || opened.faulty.is_some();
        self.is_hampered.store(is_hampered, Ordering::Release);
        self.is_given_up.store(false, Ordering::Relaxed);
        self.errors.store(0, Ordering::Relaxed);
        self.traffic.reset();
        self.slots_ever.store(0, Ordering::Relaxed);
        self.placed.iter().for_each(|placed| placed.store(0, Ordering::Relaxed));
        self.descriptor.store(file.as_raw_fd(), Ordering::Release);
        let mut store = Store::new(DeviceState::Leaving, max);
        store.cursors = vec![ClusterCursor::new(); cpus];
        store.file = Some(file);
        store.loans = loans_of(opened.kind, max);
        *self.store.lock() = store;
        self.set_remote(opened.remote.map(Arc::from));
        Ok(())
    }

    /// What is kept of each slot, for the largest device: the record may hold another one later. Only address space.
    fn make_tables(&self, opened: &OpenDevice) -> io::Result<()> {
        if self.checksums.get().is_none() {
            let _ = self.checksums.set(ZeroedSlice::new(DEVICE_SLOTS as usize)?);
            let _ = self.pages_on.set(ZeroedSlice::new(DEVICE_SLOTS as usize)?);
        }
        if opened.encrypt {
            return self.seals.begin();
        }
        self.seals.end();
        Ok(())
    }

    /// Its file is another one, which no other process reads, with blocks where there is content; the device's lock is held.
    pub(super) fn set_unshared(&self, label: &Label, store: &mut Store) {
        *self.backed.lock() = if label.kind.is_file() { PAGE_BYTES as u64 } else { u64::MAX };
        store.loans = loans_of(label.kind, label.max);
    }

    /// Where its pages are from now on; no slot of it is in use.
    pub(super) fn set_zram(&self, zram: Option<Arc<Zram>>) {
        // Release pairs with the acquire in `is_compressed`.
        self.is_compressed.store(zram.is_some(), Ordering::Release);
        *self.zram.lock() = zram;
    }

    /// Whether its pages are compressed in memory.
    pub fn is_compressed(&self) -> bool {
        self.is_compressed.load(Ordering::Acquire)
    }

    /// Where its pages are, if it is a compressed one.
    pub fn zram(&self) -> Option<Arc<Zram>> {
        if !self.is_compressed() {
            return None;
        }
        self.zram.lock().clone()
    }

    /// Its pages are packed on another device from now on; no slot of it is in use.
    pub(super) fn set_pack(&self, pack: Option<Arc<Pack>>) {
        // Release pairs with the acquire in `is_packed`.
        let is_packed = pack.is_some();
        *self.pack.lock() = pack;
        self.is_packed.store(is_packed, Ordering::Release);
    }

    /// Whether its pages are packed on another device.
    pub fn is_packed(&self) -> bool {
        self.is_packed.load(Ordering::Acquire)
    }

    /// How they are.
    pub fn pack(&self) -> Option<Arc<Pack>> {
        if !self.is_packed() {
            return None;
        }
        self.pack.lock().clone()
    }

    /// Changes what does not change while it is in use: in a child that has just been made.
    pub(super) fn set_label(&self, label: Label) {
        self.is_memory.store(label.kind == DeviceKind::Memory, Ordering::Relaxed);
        *self.label.lock() = Some(Arc::new(label));
    }

    /// How slow it is made to be.
    pub fn throttle(&self) -> Option<Throttle> {
        self.link.lock().as_ref().map(|link| link.throttle())
    }

    /// Empties the record; the file is closed when the returned value is dropped. No thread may be using
    /// the device: the gate is closed, or it was never listed.
    pub fn remove(&self) -> Option<Own<File>> {
        self.descriptor.store(NOTHING, Ordering::Release);
        *self.label.lock() = None;
        self.set_zram(None);
        self.set_pack(None);
        self.remote().into_iter().for_each(|remote| remote.leave());
        self.set_remote(None);
        let empty = Store::new(DeviceState::Absent, 0);
        std::mem::replace(&mut *self.store.lock(), empty).file
    }

    /// Its index among the engine's devices.
    pub fn id(&self) -> DeviceId {
        self.id
    }

    /// What does not change while it is in use; None when it is not.
    pub fn label(&self) -> Option<Arc<Label>> {
        self.label.lock().clone()
    }

    /// Whether this process allocates its slots, and it takes pages.
    pub fn is_own_and_on(&self) -> bool {
        let store = self.store.lock();
        store.state == DeviceState::On && store.holding == Holding::Own
    }

    /// The descriptor, whose number stays the same while the device is in use.
    pub fn descriptor(&self) -> RawFd {
        self.descriptor.load(Ordering::Acquire)
    }

    /// Whether a request is a copy, and takes no longer than that.
    pub fn is_copied(&self) -> bool {
        // Relaxed: either way of a request is right.
        self.is_memory.load(Ordering::Relaxed) && !self.is_hampered()
    }

    /// Whether it is made slower or worse than it is.
    pub fn is_hampered(&self) -> bool {
        self.is_hampered.load(Ordering::Acquire)
    }

    /// The plan by which it fails, if any.
    pub fn faulty(&self) -> Option<Arc<Faulty>> {
        self.faulty.lock().clone()
    }

    /// What is to be done to the next request, for slots from the number `first` on.
    pub fn doom(&self, direction: Direction, first: u32, bytes: usize) -> Doom {
        let slots = (bytes / PAGE_BYTES) as u32;
        self.faulty().map_or(Doom::default(), |faulty| faulty.next(direction, first, slots))
    }

    /// The moment before which a request that starts now does not end, for a CPU of `near`; 0 for a device
    /// that is as fast as it is.
    pub fn not_before_ns(&self, bytes: usize, near: NodeId) -> u64 {
        let node = self.label().and_then(|label| label.node);
        let is_near = node.is_none_or(|node| node == near);
        let distance = if is_near { Distance::Local } else { Distance::Remote };
        let link = self.link.lock().clone();
        link.map_or(0, |link| link.reserve(bytes, distance))
    }

    /// Its slots; the lock nests inside a buffer's and around the table's.
    pub fn store(&self) -> &Lock<Store> {
        &self.store
    }

    /// The checksums of its slots.
    pub fn checksums(&self) -> &[AtomicU64] {
        self.checksums.get().expect("a device with slots has checksums")
    }

    /// The page that was given each of its slots last.
    pub fn pages_on(&self) -> &[AtomicU32] {
        self.pages_on.get().expect("a device with slots remembers their pages")
    }

    /// Its tier, if devices have tiers.
    pub fn tier(&self) -> Option<u8> {
        // Relaxed: it is stored before the device is in use.
        Some(self.tier.load(Ordering::Relaxed)).filter(|tier| *tier != NO_TIER)
    }

    /// Whether it has to seek, as the kernel says.
    pub fn is_rotational(&self) -> bool {
        self.is_rotational.load(Ordering::Relaxed)
    }

    /// Whether it has refused too many writes to be given any more.
    pub fn has_failed(&self) -> bool {
        self.errors.load(Ordering::Relaxed) >= ERRORS_MAX
    }

    /// Slots in use by this process.
    pub fn used(&self) -> u32 {
        self.store.lock().used()
    }

    /// The table of those who read its slots.
    pub fn loans(&self) -> Option<Arc<Loans>> {
        self.store.lock().loans.clone()
    }

    /// Usable slots: those that are not bad and have room on the file system.
    pub fn pages(&self) -> u32 {
        self.store.lock().slots.pages()
    }

    /// Its slots are numbered from that bank on; it has none in use yet.
    pub(super) fn number_from(&self, bank: u32) {
        self.first_number.store(bank * BANK_SLOTS, Ordering::Relaxed);
    }

    /// The bank of its first slot.
    pub(super) fn first_bank(&self) -> u32 {
        bank_of(self.first())
    }

    fn first(&self) -> u32 {
        // Relaxed: it is stored under the device's lock, before any slot of the device is given out.
        self.first_number.load(Ordering::Relaxed)
    }

    /// The number of one of its slots on it.
    pub fn number_of(&self, slot: Slot) -> u32 {
        // It wraps for a slot that is not its own any more, which only messages of the watchdog can name.
        slot.0.get().wrapping_sub(self.first())
    }

    /// The slot of that number on it.
    pub fn slot(&self, number: u32) -> Slot {
        let slot = NonZeroU32::new(self.first() + number);
        Slot(slot.expect("slot 0 is the header, and no page's"))
    }

    /// Consecutive slots of this device, engine-wide.
    pub fn span(&self, run: SlotRun) -> SlotSpan {
        SlotSpan { first: self.slot(run.first), count: run.count }
    }

    /// Makes sure the file has blocks for `run`; false when the file system is full.
    pub fn back_with_blocks(&self, run: SlotRun, max: u32) -> bool {
        let end = u64::from(run.first + run.count) * PAGE_BYTES as u64;
        let mut backed = self.backed.lock();
        while *backed < end {
            let ahead = (*backed).clamp(ALLOCATE_BYTES_MIN, ALLOCATE_BYTES_MAX);
            let bytes = ahead.min(u64::from(max) * PAGE_BYTES as u64 - *backed);
            match fd::allocate(self.descriptor(), *backed, bytes) {
                Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => return false,
                // Where it cannot be done ahead, the write itself will tell.
                Ok(()) | Err(_) => *backed += bytes,
            }
        }
        true
    }

    /// Slots that have blocks.
    pub fn backed_slots(&self) -> u32 {
        (*self.backed.lock() / PAGE_BYTES as u64).min(u64::from(u32::MAX)) as u32
    }
}

/// Who else reads a new device's slots: nobody yet. Of a compressed one a child has a copy, as of one in objects.
fn loans_of(kind: DeviceKind, max: u32) -> Option<Arc<Loans>> {
    let is_copied = matches!(kind, DeviceKind::Compressed(_) | DeviceKind::Packed | DeviceKind::S3);
    if is_copied { None } else { Loans::new(max).ok().map(Arc::new) }
}

/// Slots of a device of that size, the header included.
pub(super) fn slots_of(bytes: u64) -> u32 {
    (bytes / PAGE_BYTES as u64).min(u64::from(DEVICE_SLOTS)) as u32
}
