//! Which swap devices there are, their priorities, and which one is asked first on which node.
//!
//! Every node has a list of the devices that have room, sorted by key: 0 and below for priorities that
//! users gave, 1 for a device without one on its own node, 2 and above for such a device elsewhere.
//! All devices of a lower tier come before those of a higher one, whatever their keys: the lists are those of each tier, one
//! after the other. Devices with the same tier and key take turns, on each node for itself. That is [`Placement::Near`], the
//! per-node lists of the kernel from 4.14 on; [`Placement::Spread`] is what took their place in late
//! 2025: one list, in which all devices without a user's priority are equal.
//!
//! A table belongs inside one lock, taken after a device's own lock. Slots live elsewhere: the table is
//! told when a device becomes full or gets room, by the thread that sees it happen and still holds the device's
//! lock, so that reports arrive in the order of events. Where kernels were wrong the table is not:
//!
//! - [`Search`] visits a device at most once. Kernels alternate for ever between two equal devices that
//!   are listed but yield nothing; only removal of full devices ends that.
//! - A full device leaves the lists of all nodes. The RFC of 2016 removed it from one.
//! - A device being swapped off is never listed again, whatever reports come. Before April 2023 a slot
//!   freed at the wrong moment listed it, and the next device of that number corrupted the lists.
//! - Renumbering happens under the lock that guards the lists. Kernels with such lists did without it.

use crate::named_choice;
use crate::plist::{IDS_MAX, List};
use alloc::vec;
use alloc::vec::Vec;

/// Most devices at a time.
pub const DEVICES_MAX: usize = IDS_MAX;
/// Nodes that a machine can have: kernels are built for so many at most.
pub const MACHINE_NODES_MAX: u16 = 1024;
/// Highest priority that a user can give: the kernel's interface carries 15 bits.
pub const PRIORITY_MAX: u16 = 0x7fff;

/// Highest tier that a device can be of; the lowest is 0, which is asked first.
pub const TIER_MAX: u8 = 15;

/// What a tier adds to a key: more than keys differ by.
const TIER_KEYS: i32 = 1 << 17;

/// Where numbering of priorities that no user gave starts; no device has it where devices are told apart.
const PRIORITY_NONE: i16 = -1;
/// Key of a device without a user's priority on its own node.
const KEY_PROMOTED: i32 = 1;

/// A device's index in its table; used again once the device is gone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeviceId(pub u8);

/// A NUMA node, counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u16);

named_choice! {
    /// What happens to devices without a user's priority.
    pub enum Placement, "placement" {
        /// Each node asks its own devices first, then the others in the order of swap-on.
        Near = "near",
        /// All are equal on every node.
        Spread = "spread",
    }
}

/// Whether a device gives out slots, as far as that is for users to say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// It is swapped on, full or not.
    On,
    /// It is being swapped off: no new pages.
    Leaving,
}

/// Whether a device has free slots, as last reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// There was one at least.
    Left,
    /// There was none.
    None,
}

/// What the table knows about a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Device {
    /// The higher, the earlier it is asked; negative if no user gave it.
    pub priority: i16,
    /// The node it is close to, if it is close to one.
    pub node: Option<NodeId>,
    /// All of a lower one are asked before.
    pub tier: u8,
    /// Usable slots, in use or not: no header, no bad ones.
    pub pages: u32,
    /// Swapped on, or on its way out.
    pub phase: Phase,
    /// As last reported, also while the device is being swapped off.
    pub room: Room,
}

impl Device {
    /// Is it on the nodes' lists?
    pub fn is_listed(&self) -> bool {
        self.phase == Phase::On && self.room == Room::Left
    }

    fn is_automatic(&self) -> bool {
        self.priority < 0
    }

    /// What it is sorted by in the list of all devices: ascending.
    fn key(&self) -> i32 {
        self.first_key() - i32::from(self.priority)
    }

    /// Around it are the keys of its tier.
    fn first_key(&self) -> i32 {
        i32::from(self.tier) * TIER_KEYS
    }

    /// What it is sorted by in the list of `node`.
    fn key_on(&self, node: usize, placement: Placement) -> i32 {
        let is_own = self.node.is_some_and(|own| usize::from(own.0) == node);
        match placement {
            Placement::Near if is_own && self.is_automatic() => self.first_key() + KEY_PROMOTED,
            Placement::Near | Placement::Spread => self.key(),
        }
    }
}

/// Why a device cannot be swapped on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SwaponError {
    /// There are [`DEVICES_MAX`] devices already.
    TooManyDevices,
    /// The device has no usable slot.
    Empty,
    /// The machine does not have that node.
    NoSuchNode(NodeId),
    /// The priority is above [`PRIORITY_MAX`].
    PriorityTooHigh(u16),
    /// The tier is above [`TIER_MAX`].
    TierTooHigh(u8),
}

/// Why a device cannot be swapped off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SwapoffError {
    /// It is not swapped on, or is being swapped off already.
    NotOn(DeviceId),
}

/// One search for a device that yields slots. A caller that needs all slots from one device, and rather none
/// than from later ones, asks once and gives the walk up.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// Bit per device that was returned.
    visited: u64,
    /// The list that is walked, and the device that came after the one returned last.
    successor: Option<(NodeId, u8)>,
}

impl Search {
    /// A search that starts at the head of a list.
    pub fn new() -> Self {
        Self::default()
    }

    /// One that passes by the devices with these bits.
    pub fn without(devices: u64) -> Self {
        Self { visited: devices, successor: None }
    }

    fn is_unvisited(&self, id: u8) -> bool {
        self.visited & (1 << id) == 0
    }
}

/// All swap devices, in the order in which each node asks them.
#[derive(Debug)]
pub struct DeviceTable {
    devices: [Option<Device>; DEVICES_MAX],
    /// Devices that are swapped on, full or not.
    active: List,
    /// Devices with room, per node; only the first list is used while devices are spread.
    available: Vec<List>,
    placement: Placement,
    priority_least: i16,
    indexes_used: u32,
}

impl DeviceTable {
    /// A table without devices for a machine of `nodes` nodes.
    ///
    /// # Panics
    /// When `nodes` is 0.
    pub fn new(nodes: u16, placement: Placement) -> Self {
        assert!(nodes > 0, "a machine has a node");
        Self {
            devices: [None; DEVICES_MAX],
            active: List::new(),
            available: vec![List::new(); usize::from(nodes)],
            placement,
            priority_least: PRIORITY_NONE,
            indexes_used: 0,
        }
    }

    /// Adds a device of `pages` usable slots, all of them free, under the lowest index not in use.
    ///
    /// # Errors
    /// See [`SwaponError`]; nothing has changed.
    pub fn swapon(
        &mut self,
        node: Option<NodeId>,
        priority: Option<u16>,
        pages: u32,
    ) -> Result<DeviceId, SwaponError> {
        self.swapon_in(0, node, priority, pages)
    }

    /// As [`Self::swapon`], in a tier.
    ///
    /// # Errors
    /// See [`SwaponError`]; nothing has changed.
    pub fn swapon_in(
        &mut self,
        tier: u8,
        node: Option<NodeId>,
        priority: Option<u16>,
        pages: u32,
    ) -> Result<DeviceId, SwaponError> {
        if tier > TIER_MAX {
            return Err(SwaponError::TierTooHigh(tier));
        }
        if let Some(node) = node
            && usize::from(node.0) >= self.available.len()
        {
            return Err(SwaponError::NoSuchNode(node));
        }
        let priority = match priority {
            Some(priority @ 0..=PRIORITY_MAX) => priority as i16,
            Some(priority) => return Err(SwaponError::PriorityTooHigh(priority)),
            None => PRIORITY_NONE,
        };
        if pages == 0 {
            return Err(SwaponError::Empty);
        }
        let index = self.devices.iter().position(Option::is_none);
        let id = DeviceId(index.ok_or(SwaponError::TooManyDevices)? as u8);
        self.indexes_used = self.indexes_used.max(u32::from(id.0) + 1);
        // It is where a device is whose swapoff failed, and goes on from there.
        let (phase, room) = (Phase::Leaving, Room::Left);
        let device = Device { priority, node, tier, pages, phase, room };
        self.devices[usize::from(id.0)] = Some(device);
        self.enable(id);
        Ok(id)
    }

    /// Takes a device off all lists, so that its pages can be swapped in, and closes the gap in the
    /// numbering.
    ///
    /// # Errors
    /// See [`SwapoffError`]; nothing has changed.
    pub fn swapoff_begin(&mut self, id: DeviceId) -> Result<(), SwapoffError> {
        if !self.active.contains(id.0) {
            return Err(SwapoffError::NotOn(id));
        }
        self.unlist(id);
        self.active.remove(id.0);
        let device = self.known(id);
        device.phase = Phase::Leaving;
        let gone = *device;
        if gone.is_automatic() && self.placement == Placement::Near {
            self.close_gap(gone.priority);
        }
        Ok(())
    }

    /// Forgets a device without pages; its index may be used again.
    ///
    /// # Panics
    /// When it is not being swapped off.
    pub fn swapoff_done(&mut self, id: DeviceId) {
        self.assert_leaving(id);
        self.devices[usize::from(id.0)] = None;
    }

    /// Puts a device back whose pages could not all be swapped in. It keeps a user's priority; any
    /// other is new and the lowest, as at swap-on.
    ///
    /// # Panics
    /// When it is not being swapped off.
    pub fn swapoff_failed(&mut self, id: DeviceId) {
        self.assert_leaving(id);
        self.enable(id);
    }

    /// Takes note that a device has no free slot left; may be told again.
    ///
    /// # Panics
    /// When there is no such device, as in [`Self::on_not_full`] and [`Self::resize`].
    pub fn on_full(&mut self, id: DeviceId) {
        self.known(id).room = Room::None;
        self.unlist(id);
    }

    /// Takes note that a device has free slots; may be told again. A device being swapped off is not
    /// listed, but remembered to have room.
    pub fn on_not_full(&mut self, id: DeviceId) {
        let was_listed = self.known(id).is_listed();
        self.known(id).room = Room::Left;
        if !was_listed && self.known(id).is_listed() {
            self.list(id);
        }
    }

    /// Takes note of how many slots are usable now. Whether they are all in use is told separately.
    pub fn resize(&mut self, id: DeviceId, pages: u32) {
        self.known(id).pages = pages;
    }

    /// The next device to ask for slots, for a caller that runs on `node`; `None` once every listed
    /// device was asked. It goes after the devices that equal it on that node.
    ///
    /// Devices may come, go and move between two calls, and the caller may move to another node: a walk
    /// stays on the list it started with, and starts again where the caller is if the device that it
    /// would ask next has left.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn next(&mut self, node: NodeId, walk: &mut Search) -> Option<DeviceId> {
        let unvisited = |id: &u8| walk.is_unvisited(*id);
        let following = walk.successor.and_then(|(node, id)| {
            let found = self.available(node).from(id).find(unvisited)?;
            Some((node, found))
        });
        let first = || self.available(node).iter().map(|(id, _)| id).find(unvisited);
        // What moved to the front meanwhile has been passed: no device with room may be missed.
        let (node, id) = following.or_else(|| Some((node, first()?)))?;
        let list = match self.placement {
            Placement::Near => &mut self.available[usize::from(node.0)],
            Placement::Spread => &mut self.available[0],
        };
        walk.visited |= 1 << id;
        walk.successor = list.after(id).map(|next| (node, next));
        list.requeue(id);
        Some(DeviceId(id))
    }

    /// What is done with devices without a user's priority.
    pub fn placement(&self) -> Placement {
        self.placement
    }

    /// Changes what is done with devices without a user's priority: they get new ones in the order in
    /// which they are active, and turns start anew.
    pub fn set_placement(&mut self, placement: Placement) {
        if placement == self.placement {
            return;
        }
        self.placement = placement;
        self.priority_least = PRIORITY_NONE;
        self.available.fill(List::new());
        let active = self.active.clone();
        for (id, _) in active.iter() {
            if self.known(DeviceId(id)).is_automatic() {
                self.known(DeviceId(id)).priority = self.lowest_priority();
            }
            if self.known(DeviceId(id)).is_listed() {
                self.list(DeviceId(id));
            }
        }
        self.rekey();
    }

    /// How many different indexes devices have ever had; never shrinks.
    pub fn indexes_used(&self) -> u32 {
        self.indexes_used
    }

    /// What is known about a device, if there is one of that index.
    pub fn device(&self, id: DeviceId) -> Option<&Device> {
        self.devices.get(usize::from(id.0))?.as_ref()
    }

    /// All devices by index, also those being swapped off.
    pub fn devices(&self) -> impl Iterator<Item = (DeviceId, &Device)> + '_ {
        let ids = (0..).map(DeviceId);
        ids.zip(&self.devices).filter_map(|(id, device)| Some((id, device.as_ref()?)))
    }

    /// The devices with room in the order in which `node` asks them, with their keys in their tiers.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn listed(&self, node: NodeId) -> impl Iterator<Item = (DeviceId, i32)> + '_ {
        let listed = self.available(node).iter().map(|(id, key)| (DeviceId(id), key));
        listed.map(|(id, key)| (id, key - self.device(id).map_or(0, Device::first_key)))
    }

    /// Makes a device that is on no list take part, under a new priority unless a user gave it one.
    fn enable(&mut self, id: DeviceId) {
        let lowest = match self.known(id).is_automatic() {
            true => Some(self.lowest_priority()),
            false => None,
        };
        let device = self.known(id);
        device.phase = Phase::On;
        device.priority = lowest.unwrap_or(device.priority);
        let device = *device;
        self.active.add(id.0, device.key());
        if device.is_listed() {
            self.list(id);
        }
    }

    /// The priority of the next device that no user gave one.
    fn lowest_priority(&mut self) -> i16 {
        if self.placement == Placement::Near {
            self.priority_least -= 1;
        }
        self.priority_least
    }

    /// Moves the devices below the priority `gone` up by one. Their order stays, so keys can change in
    /// place; promoted keys and those of users do not change.
    fn close_gap(&mut self, gone: i16) {
        let active = self.devices.iter_mut().flatten().filter(|device| device.phase == Phase::On);
        for device in active.filter(|device| device.priority < gone) {
            device.priority += 1;
        }
        self.priority_least += 1;
        self.rekey();
    }

    /// Brings the keys in the lists up to the devices' priorities.
    fn rekey(&mut self) {
        let Self { devices, active, available, placement, .. } = self;
        let device = |id: u8| devices[usize::from(id)].expect("only devices are listed");
        active.rekey(|id| device(id).key());
        for (node, list) in available.iter_mut().enumerate() {
            list.rekey(|id| device(id).key_on(node, *placement));
        }
    }

    fn list(&mut self, id: DeviceId) {
        let (device, placement) = (*self.known(id), self.placement);
        let lists = match placement {
            Placement::Near => &mut self.available[..],
            Placement::Spread => &mut self.available[..1],
        };
        for (node, list) in lists.iter_mut().enumerate() {
            list.add(id.0, device.key_on(node, placement));
        }
    }

    fn unlist(&mut self, id: DeviceId) {
        self.available.iter_mut().for_each(|list| _ = list.remove(id.0));
    }

    fn available(&self, node: NodeId) -> &List {
        let node = usize::from(node.0);
        assert!(node < self.available.len(), "node {node} of {}", self.available.len());
        match self.placement {
            Placement::Near => &self.available[node],
            Placement::Spread => &self.available[0],
        }
    }

    fn known(&mut self, id: DeviceId) -> &mut Device {
        let device = self.devices.get_mut(usize::from(id.0)).and_then(Option::as_mut);
        device.unwrap_or_else(|| panic!("there is no device {}", id.0))
    }

    fn assert_leaving(&mut self, id: DeviceId) {
        let phase = self.known(id).phase;
        assert!(phase == Phase::Leaving, "device {} is not being swapped off", id.0);
    }
}

#[cfg(test)]
mod tests;
