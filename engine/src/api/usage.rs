//! Where the budget is.
use crate::state::core::Core;

/// Where the budget is, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Physical pages allowed.
    pub budget: u32,
    /// Mapped in regions.
    pub resident: u32,
    /// Second chance or read ahead.
    pub cached: u32,
    /// Held by the program's own caches.
    pub charged: u32,
    /// Being written.
    pub writing: u32,
    /// Present and unused.
    pub free: u32,
    /// Not yet taken from the kernel.
    pub spare: u32,
    /// Over the budget.
    pub debt: u32,
    /// Slots in use on all devices.
    pub slots_used: u64,
    /// Usable slots of all devices.
    pub slots: u64,
}

impl Core {
    /// Where the budget is at this moment.
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
            usage.writing += state.writing;
            usage.free += state.pool.free();
            usage.spare += state.spare;
            usage.debt += state.debt;
        }
        usage
    }
}
