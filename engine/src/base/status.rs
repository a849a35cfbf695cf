//! What an engine is and has at one moment, as plain data: for `status`, `list`, and any client of the control
//! socket (docs/control.md has the JSON).
//!
//! Only data, which the room `control` collects. Fields may be added: a reader ignores those it does not know.
use crate::base::counters::{Histogram, Percentiles};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An engine and its process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The number of its process.
    pub pid: u32,
    /// The name of the program's file.
    pub program: String,
    /// How faults are delivered: `thread` or `signal`.
    pub fault: String,
    /// The RAM budget: that of all nodes, and what a job's process is charged with outside them.
    pub ram_bytes: u64,
    /// The job that it is a member of; None where its budget is its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobStatus>,
    /// Which device without a priority is asked first: `near` or `spread`.
    pub placement: String,
    /// What is read ahead of its use.
    #[serde(default)]
    pub readahead: ReadaheadStatus,
    /// Everything was paged out on request and not prefetched since; what the program touches is swapped in.
    #[serde(default)]
    pub hibernated: bool,
    /// Pins on pages, which keep them in RAM.
    #[serde(default)]
    pub pins: u64,
    /// Memory of the process in RAM that is neither the engine's to manage nor of files.
    #[serde(default)]
    pub unmanaged_bytes: u64,
    /// Programs that its whole job has executed that userswap could not be in.
    #[serde(default)]
    pub unmanaged_children: u64,
    /// Slots that can be allocated on all devices.
    pub free_slots: u64,
    /// Usable slots of all devices.
    pub total_slots: u64,
    /// The lock of the nodes' device lists, as taken to choose a device.
    pub list_lock: LockStatus,
    /// The locks under which pages are unmapped.
    #[serde(default, rename = "removal")]
    pub unmap_lock: UnmapLockStatus,
    /// The devices, in the order in which they were taken into use.
    pub devices: Vec<DeviceStatus>,
    /// The program's caches.
    #[serde(default)]
    pub shrinkers: Vec<ShrinkerStatus>,
    /// The nodes, by the engine's number.
    pub nodes: Vec<NodeStatus>,
    /// Event counts since the engine started, by name.
    pub counters: BTreeMap<String, u64>,
    /// How long faults took.
    pub fault_latency_ns: Percentiles,
    /// The same, all of it.
    #[serde(default)]
    pub fault_latency: Histogram,
    /// Nanoseconds in which a thread of the program waited for a page's read, or for reclaim: PSI's "some".
    #[serde(default)]
    pub stall_ns: u64,
}

/// A job: processes that share one budget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobStatus {
    /// The process that it began with.
    pub root_pid: u32,
    /// The budget of all together.
    pub budget_pages: u64,
    /// Of these, held by members.
    pub held_pages: u64,
    /// The most that was held at once.
    pub held_pages_max: u64,
    /// Pages that members took beyond the budget, each time that they did.
    pub exceeded_pages: u64,
    /// Programs that its processes have executed that userswap could not be in.
    #[serde(default)]
    pub unmanaged_children: u64,
    /// Its processes.
    pub members: Vec<MemberStatus>,
}

/// A process of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// The number of the process.
    pub pid: u32,
    /// Whether it has an engine.
    pub engaged: bool,
    /// What it holds of the job's budget.
    pub share_pages: u64,
    /// What it uses.
    pub used_pages: u64,
    /// What it could use.
    pub demand_pages: u64,
    /// Pages that it refaults in a second: it rises at once, and falls by half in a second. 0 without an engine.
    pub refaults_per_second: u64,
    /// The part of its time in which it did not wait for pages, of a thousand, the last two seconds counting most; 0 without an engine.
    pub speed: u32,
    /// Whether it has the swap token: its turn to have what it could use.
    pub has_turn: bool,
}

/// What is read ahead of its use, as set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadaheadStatus {
    /// `scaling`, `fixed`, `vma`, `stream` or `off`.
    pub swap_ra_policy: String,
    /// Binary logarithm of the largest window of the kernel's policies.
    pub page_cluster: u8,
    /// Whether `scaling` may read in address order.
    pub vma_ra_enabled: bool,
}

/// How a lock has been used since the engine started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockStatus {
    /// Times it was taken.
    pub acquisitions: u64,
    /// Times a thread found it taken and had to wait.
    pub waits: u64,
}

/// How unmapping pages from regions has gone since the engine started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnmapLockStatus {
    /// What a reclaimer does that finds a region's unmap lock taken: `wait`, `stall` or `skip`.
    pub contention: String,
    /// The unmap locks of all regions together.
    pub lock: LockStatus,
    /// Nanoseconds spent waiting for them, sleeps included.
    pub wait_ns: u64,
    /// Times a reclaimer slept because another node's had its turn.
    pub stalled: u64,
    /// Batches for which a reclaimer looked elsewhere.
    pub skipped: u64,
    /// The node whose turn it is to contend.
    pub exclusive: Option<u16>,
}

/// One swap device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// Its number, which [`ListEntry`] refers to.
    pub index: u32,
    /// As the user named it.
    pub name: String,
    /// `temporary`, `file`, `block`, `memory` or `zram`.
    pub kind: String,
    /// Bytes of its usable slots.
    pub size_bytes: u64,
    /// Bytes of its slots in use.
    pub used_bytes: u64,
    /// Bytes of slots that the program has freed, but that children which it forked still read.
    #[serde(default)]
    pub lent_bytes: u64,
    /// Whether nobody can read on it what was swapped.
    #[serde(default)]
    pub encrypt: bool,
    /// What compressed memory holds; None for every other device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compressed: Option<CompressedStatus>,
    /// What has moved on to it compressed; None while there is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packed: Option<PackedStatus>,
    /// As given, or negative when it was given automatically.
    pub priority: i32,
    /// Its tier, if devices have tiers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<u8>,
    /// The number of the node it is near to; None when it is near to none.
    pub node: Option<u16>,
    /// Whether new pages can go to it.
    pub state: DeviceState,
    /// The lock, as taken to allocate slots.
    pub alloc_lock: LockStatus,
    /// The lock, as taken to free slots.
    pub free_lock: LockStatus,
    /// Slots freed since it was taken into use.
    pub slots_freed: u64,
    /// What was read from it since it was taken into use.
    #[serde(default)]
    pub reads: TrafficStatus,
    /// What was written to it since it was taken into use.
    #[serde(default)]
    pub writes: TrafficStatus,
    /// Nanoseconds in which it had a request under way.
    #[serde(default)]
    pub busy_ns: u64,
}

/// Requests to a device, in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficStatus {
    /// Those that succeeded.
    pub requests: u64,
    /// What they transferred: for reads also the slots between those that were wanted.
    pub bytes: u64,
    /// Those that failed; each repeat is one of its own.
    pub errors: u64,
}

/// The content of a compressed device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompressedStatus {
    /// Pages of content.
    pub pages: u64,
    /// Of these, kept as the single value that they repeat.
    pub same_pages: u64,
    /// Of these, kept as they are, as they hardly compress.
    pub huge_pages: u64,
    /// Bytes that all of them were compressed to.
    pub compressed_bytes: u64,
    /// Bytes of memory that they take.
    pub pool_bytes: u64,
}

/// What is compressed on a device that is not memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackedStatus {
    /// Pages of content.
    pub pages: u64,
    /// Bytes of the slots that they share, which are in use as others are.
    pub slot_bytes: u64,
}

/// Whether new pages can go to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceState {
    /// They can go to it.
    On,
    /// They could, if it had room.
    Full,
    /// It does not take any for the moment, and others do: it is asked now and then.
    Silent,
    /// It failed too often and gets no new pages.
    Retired,
    /// Its swapoff is under way.
    GoingOff,
    /// It is the device of the process from which this one was forked, and gets no new pages.
    Borrowed,
}

/// One of the program's caches, as its shrinker has been asked since it was registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShrinkerStatus {
    /// As the program named it.
    pub name: String,
    /// Objects it was asked to look at.
    pub objects_scanned: u64,
    /// Objects it freed.
    pub objects_freed: u64,
}

/// One NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The number that users know it by.
    pub node: u16,
    /// The numbers of its CPUs.
    pub cpus: Vec<u32>,
    /// Its share of the budget.
    pub budget_pages: u64,
    /// Mapped in regions.
    pub resident_pages: u64,
    /// Of the mapped ones that reclaim may take: those that go first.
    #[serde(default)]
    pub inactive_pages: u64,
    /// Of the mapped ones that reclaim may take: those that have proved to be used.
    #[serde(default)]
    pub active_pages: u64,
    /// On their second chance, or read ahead.
    pub cached_pages: u64,
    /// Mapped and found unable to leave: held by a device, locked.
    #[serde(default)]
    pub unevictable_pages: u64,
    /// Held by the program's own caches.
    #[serde(default)]
    pub charged_pages: u64,
    /// Held by compressed pages.
    #[serde(default)]
    pub compressed_pages: u64,
    /// In frames whose write is under way.
    pub writing_pages: u64,
    /// Present and unused.
    pub free_pages: u64,
    /// Not yet taken from the kernel.
    pub spare_pages: u64,
    /// Below this many available pages only reclaim gets any.
    pub min_pages: u64,
    /// Background reclaim starts here.
    pub low_pages: u64,
    /// Background reclaim stops here.
    pub high_pages: u64,
    /// How hard the last background round pressed: 12 is least, 1 most.
    #[serde(default)]
    pub reclaim_priority: u8,
    /// Background rounds that reclaimed nothing since the last that did.
    #[serde(default)]
    pub reclaim_failures: u32,
    /// After 16 of them: the node's reclaimer sleeps until another thread makes progress.
    #[serde(default)]
    pub hopeless: bool,
    /// Slots that CPUs of this node have been given, by device.
    pub placed: Vec<Placed>,
    /// The devices in the order in which this node asks them.
    pub swap_list: Vec<ListEntry>,
}

/// Slots of one device that CPUs of one node have been given since it was taken into use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// The device's number.
    pub device: u32,
    /// Slots of it, freed ones included.
    pub slots: u64,
}

/// One device of a node's list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListEntry {
    /// The device's number.
    pub device: u32,
    /// The device's name.
    pub name: String,
    /// Smaller keys are asked first, equal ones in turn.
    pub key: i32,
}
