//! What the tests use of the engine beside its public names: the one place that names its modules.
pub use userswap::internals::{
    Arena, BORROWERS_MAX, CONNECTIONS_MAX, Cipher, Core, Device, DeviceState, Holding, Mapped,
    NodeState, Options, PAGE_BYTES, PageRange, PageState, Parts, Slot, SlotMode, Stored, bench,
    clock, fd, mapping, mapping::Access, numa, own_fd, pagemap::Pagemap,
    protocol::REQUEST_BYTES_MAX, settings, signal, signal::Blocked, status::Status,
};
pub use userswap::list_lru::{Code, Group, ListLru, ShrinkRequest, Taken, Visit};
pub use userswap::{
    AddressOrder, FaultMode, IoBackend, NodeId, OnFull, ReadaheadPolicy, ShrinkResult, Shrinker,
    SwapSpec, Transfer,
};
pub use userswap_policy::kernel::contention::Contention;
pub use userswap_policy::lru::ListId;
