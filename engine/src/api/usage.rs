//! What the pages of the budget are used for.
use crate::state::core::Core;
use crate::state::node::Node;

/// What the pages of the budget, and the slots, are used for at one moment; all numbers are pages of 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The budget: physical pages that the engine may use.
    pub budget: u32,
    /// Mapped in regions.
    pub resident: u32,
    /// Not mapped, but in RAM: on their second chance before they leave, or read ahead.
    pub cached: u32,
    /// Held by the program's own caches: charged to an [`Account`](crate::Account).
    pub charged: u32,
    /// Held by compressed pages: the memory of `zram:` devices.
    pub compressed: u32,
    /// Being written to a device.
    pub writing: u32,
    /// Allocated from the kernel, and unused.
    pub free: u32,
    /// Not yet allocated from the kernel.
    pub spare: u32,
    /// In use beyond the budget, which was made smaller or had to be exceeded.
    pub debt: u32,
    /// Pages on slots of all devices: those that have moved on compressed share slots, and are counted each.
    pub slots_used: u64,
    /// Usable slots of all devices.
    pub slots: u64,
}

impl Core {
    /// Adds up the nodes and the devices.
    pub(crate) fn usage(&self) -> Usage {
        use userswap_policy::lru::ListId;
        let _inside = self.gate.enter();
        let slots = self.devices.usage();
        let mut usage = Usage { slots_used: slots.used, slots: slots.usable, ..Usage::default() };
        for node in &self.nodes {
            let state = node.lock();
            usage.budget += state.budget;
            usage.resident += state.resident;
            usage.cached += state.lists.len(ListId::Cached);
            usage.charged += state.charged;
            usage.compressed += state.stored;
            usage.writing += state.writing;
            usage.free += state.pool.free();
            usage.spare += state.spare;
            usage.debt += state.debt;
        }
        usage
    }

    /// Pages of the budget that are in RAM for the program, mapped or not; None where it would have to wait.
    pub(crate) fn try_pages_in_ram(&self) -> Option<u32> {
        let _inside = self.gate.try_enter()?;
        let of = |node: &Node| node.try_lock().map(|state| state.in_ram());
        self.nodes.iter().map(of).sum()
    }
}
