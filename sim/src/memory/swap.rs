//! Swap devices: policy's table and slots, the locks around them, and what each slot holds.

use std::cell::{Cell, RefCell, RefMut};

use userswap_policy::devices::{DeviceId, DeviceTable, NodeId, Phase, Search};
use userswap_policy::slots::{ClusterCursor, SlotRun, Slots};

use super::state::Content;
use super::{Costs, Rules};
use crate::clock::{Lock, Ns, Thread, Waiting};
use crate::machine::{Device, Drive, IoError, Machine};

/// Failed writes after which a device gets no new pages.
pub const WRITE_ERRORS_MAX: u32 = 16;

/// Room for a page on a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Slot {
    /// The device.
    pub device: u8,
    /// Counted from its header.
    pub index: u32,
}

/// One device: what it is made of, and what is on it.
pub struct Store {
    pub drive: Drive,
    /// Guards the slots.
    lock: Lock,
    /// Guards the index of pages that are on the device and in memory (the kernel's swap cache).
    pub index_lock: Lock,
    pub slots: RefCell<Slots>,
    pub contents: RefCell<Vec<Option<Content>>>,
    cursors: RefCell<Vec<ClusterCursor>>,
    write_errors: Cell<u32>,
    /// How it is swapped on again.
    pub node: Option<NodeId>,
    pub priority: Option<u16>,
    pub pages: u32,
}

/// All devices.
pub struct Swap {
    pub stores: Vec<Store>,
    pub table: RefCell<DeviceTable>,
    list_lock: Lock,
    choose_hold: Ns,
    slot_hold: Ns,
    turn: u32,
    /// Grows with every change that a check could find wrong.
    pub revision: Cell<u64>,
    /// Slots out of a turn that were not asked for yet, by CPU.
    ready: RefCell<Vec<Vec<Slot>>>,
}

impl Swap {
    pub fn new(
        machine: &Machine,
        rules: Rules,
        costs: &Costs,
        drives: Vec<(&Device, u64, Drive)>,
    ) -> Self {
        let nodes = u16::try_from(machine.nodes()).expect("the machine was checked");
        let mut table = DeviceTable::new(nodes, rules.placement);
        let cpus = (machine.nodes() * *machine.cpus_per_node.get_ref()) as usize;
        let stores = drives.into_iter().map(|(device, pages, drive)| {
            let pages = u32::try_from(pages).expect("a scenario's devices are small").max(2);
            let node = device.node.as_ref().filter(|_| device.is_listed_by_node);
            let node = node.map(|node| NodeId(*node.get_ref() as u16));
            table.swapon(node, device.priority, pages - 1).expect("the scenario was checked");
            Store {
                drive,
                lock: Lock::new(Waiting::Queued, 2),
                index_lock: Lock::new(Waiting::Queued, costs.index_lines),
                slots: RefCell::new(Slots::new(pages)),
                contents: RefCell::new(vec![None; pages as usize]),
                cursors: RefCell::new(vec![ClusterCursor::new(); cpus]),
                write_errors: Cell::new(0),
                node,
                priority: device.priority,
                pages,
            }
        });
        Self {
            stores: stores.collect(),
            table: RefCell::new(table),
            list_lock: Lock::new(Waiting::Queued, 2),
            choose_hold: costs.choose_hold.0,
            slot_hold: costs.slot_hold.0,
            turn: costs.slots_per_turn.get(),
            revision: Cell::new(0),
            ready: RefCell::new(vec![Vec::new(); cpus]),
        }
    }

    /// The device of a slot.
    pub fn store(&self, device: u8) -> &Store {
        &self.stores[usize::from(device)]
    }

    /// What happened to the lock of the device lists.
    pub fn list_counts(&self) -> crate::clock::LockCounts {
        self.list_lock.counts()
    }

    /// Whether there is any use in taking pages from programs: all that leaves needs a slot.
    pub fn has_room(&self) -> bool {
        self.table.borrow().listed(NodeId(0)).next().is_some()
    }

    /// A slot for a page that leaves, from the first device that the thread's node asks and that has one.
    pub async fn allocate(&self, thread: &Thread) -> Option<Slot> {
        thread.settle().await;
        if let Some(slot) = self.ready.borrow_mut()[thread.cpu().0 as usize].pop() {
            return Some(slot);
        }
        let mut search = Search::new();
        loop {
            let next = || self.table().next(NodeId(thread.node() as u16), &mut search);
            let device = thread.with(&self.list_lock, self.choose_hold, next).await?;
            let store = self.store(device.0);
            let hold = self.slot_hold * Ns::from(self.turn);
            let cpu = thread.cpu().0 as usize;
            let run = thread.with(&store.lock, hold, || self.take(device, cpu)).await;
            if let Some(run) = run {
                return Some(self.keep(run, device.0, cpu));
            }
        }
    }

    /// With the device's lock held. A swapoff may have begun, or even ended, while the thread waited for that.
    fn take(&self, device: DeviceId, cpu: usize) -> Option<SlotRun> {
        if self.table().device(device).is_none_or(|device| device.phase != Phase::On) {
            return None;
        }
        let store = self.store(device.0);
        let mut slots = store.slots.borrow_mut();
        let run = slots.allocate_at(&mut store.cursors.borrow_mut()[cpu], self.turn);
        if slots.is_full() {
            self.table().on_full(device);
        }
        run
    }

    /// The first slot of a run; the others are kept for the CPU.
    fn keep(&self, run: SlotRun, device: u8, cpu: usize) -> Slot {
        let slot = |index| Slot { device, index };
        let others = (run.first + 1..run.first + run.count).rev().map(slot);
        self.ready.borrow_mut()[cpu].extend(others);
        slot(run.first)
    }

    /// Gives a slot back whose page is in memory, or gone.
    pub async fn free(&self, thread: &Thread, slot: Slot) {
        let store = self.store(slot.device);
        thread.with(&store.lock, self.slot_hold, || self.free_now(slot)).await;
    }

    /// Gives the slots back that CPUs keep for later: a swapoff begins.
    pub fn drain(&self) {
        let kept: Vec<_> = self.ready.borrow_mut().iter_mut().flat_map(std::mem::take).collect();
        kept.into_iter().for_each(|slot| self.free_now(slot));
    }

    fn free_now(&self, slot: Slot) {
        let store = self.store(slot.device);
        store.contents.borrow_mut()[slot.index as usize] = None;
        store.slots.borrow_mut().free(SlotRun { first: slot.index, count: 1 });
        let mut table = self.table();
        if store.write_errors.get() < WRITE_ERRORS_MAX
            && table.device(DeviceId(slot.device)).is_some()
        {
            table.on_not_full(DeviceId(slot.device));
        }
    }

    /// A write has failed twice: the slot is never used again, and the device only while it fails rarely.
    pub fn on_write_error(&self, slot: Slot, error: IoError) {
        let store = self.store(slot.device);
        store.contents.borrow_mut()[slot.index as usize] = None;
        let mut slots = store.slots.borrow_mut();
        slots.mark_bad(slot.index);
        let errors = match error {
            IoError::Once => store.write_errors.get() + 1,
            IoError::Dead => WRITE_ERRORS_MAX,
        };
        store.write_errors.set(errors);
        let mut table = self.table();
        let id = DeviceId(slot.device);
        if table.device(id).is_some() {
            table.resize(id, slots.pages());
            if slots.is_full() || errors >= WRITE_ERRORS_MAX {
                table.on_full(id);
            }
        }
    }

    /// A swapoff has failed: the device is listed again, if it has room and does not fail.
    pub fn back_again(&self, id: DeviceId) {
        let store = self.store(id.0);
        let mut table = self.table();
        table.swapoff_failed(id);
        if store.slots.borrow().is_full() || store.write_errors.get() >= WRITE_ERRORS_MAX {
            table.on_full(id);
        }
    }

    /// The devices, to ask and to change.
    pub fn table(&self) -> RefMut<'_, DeviceTable> {
        self.revision.set(self.revision.get() + 1);
        self.table.borrow_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Memory, Setup, Swapoff};
    use super::*;
    use crate::clock::{Ns, Stop};
    use crate::machine::Source;
    use serde::Deserialize;
    use std::rc::Rc;

    #[derive(Deserialize)]
    struct Parts {
        machine: Machine,
        device: Vec<Device>,
    }

    const PARTS: &str = "[machine]\nnodes = 1\ncpus_per_node = 4\nmemory_per_node = \"1 MiB\"\n\
        line_same_node = \"40 ns\"\nline_other_node = \"40 ns\"\n\
        [[device]]\nkind = \"copy\"\nsize = \"1 MiB\"\npage = \"1 us\"\n";

    #[test]
    fn a_thread_that_waits_for_a_devices_lock_gets_no_slot_once_the_device_has_gone() {
        let parts: Parts = Source::new("parts", PARTS).read().unwrap();
        let text = include_str!("../../scenarios/stress-costs.toml");
        let costs = Source::new("costs", text).read().unwrap();
        let setup = Setup { pages: 1, costs, rules: Rules::default(), seed: 1 };
        let memory = Memory::start(&parts.machine, &parts.device, setup);
        let (holder, waiter, leaver) = (Rc::clone(&memory), Rc::clone(&memory), Rc::clone(&memory));
        memory.sim().program(async move {
            let thread = holder.system_thread(0);
            thread.with(&holder.swap().store(0).lock, 1_000_000, || ()).await;
        });
        memory.sim().program(async move {
            let thread = waiter.system_thread(0);
            waiter.sim().sleep(10_000).await;
            assert_eq!(waiter.swap().allocate(&thread).await, None);
            assert!(waiter.sim().now() > 1_000_000, "it waited for the holder");
        });
        memory.sim().program(async move {
            let thread = leaver.system_thread(0);
            leaver.sim().sleep(20_000).await;
            assert_eq!(leaver.swapoff(&thread, 0).await, Swapoff::Done);
        });
        assert_eq!(memory.sim().run(Ns::MAX, || memory.check()), Stop::Done);
    }
}
