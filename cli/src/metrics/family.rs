//! Families of metrics: what is told of a program, a node and a device, each with a name and a unit that stay.
//!
//! Tables only, a row per metric. How rows become text is `exposition`'s; the engine's counters are `counters`'.

use userswap::internals::status::{DeviceState, DeviceStatus, NodeStatus, Status};

/// What a number of the status counts. Outside, memory is in bytes and time in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Bytes,
    Pages,
    Nanoseconds,
    /// Events or things.
    Number,
}

/// Whether it can become less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
}

/// One metric of every `T`.
pub struct Metric<T> {
    /// Without the prefix, unit and `_total`.
    pub name: &'static str,
    pub kind: Kind,
    pub unit: Unit,
    pub help: &'static str,
    /// None where it means nothing.
    pub value: fn(&T) -> Option<u64>,
}

const fn gauge<T>(
    name: &'static str,
    unit: Unit,
    help: &'static str,
    value: fn(&T) -> Option<u64>,
) -> Metric<T> {
    Metric { name, kind: Kind::Gauge, unit, help, value }
}

const fn counter<T>(
    name: &'static str,
    unit: Unit,
    help: &'static str,
    value: fn(&T) -> Option<u64>,
) -> Metric<T> {
    Metric { name, kind: Kind::Counter, unit, help, value }
}

/// Of each program.
pub const PROGRAM: &[Metric<Status>] = &[
    gauge("budget", Unit::Bytes, "The RAM budget: a job's process has that of the job", |status| {
        Some(status.ram_bytes)
    }),
    gauge("job_budget", Unit::Bytes, "The budget that all processes of the job share", |status| {
        status.job.as_ref().map(|job| job.budget_pages * PAGE_BYTES)
    }),
    gauge("job_held", Unit::Bytes, "Of the job's budget, held by its processes", |status| {
        status.job.as_ref().map(|job| job.held_pages * PAGE_BYTES)
    }),
    gauge("unmanaged", Unit::Bytes, "In RAM, neither managed nor of files", |status| {
        Some(status.unmanaged_bytes)
    }),
    counter(
        "unmanaged_children",
        Unit::Number,
        "Programs that the whole job has executed that userswap could not be in",
        |status| Some(status.unmanaged_children),
    ),
    gauge("pins", Unit::Number, "Pins that keep pages in RAM", |status| Some(status.pins)),
    gauge("hibernated", Unit::Number, "Whether everything was paged out on request", |status| {
        Some(status.hibernated.into())
    }),
    counter(
        "stall",
        Unit::Nanoseconds,
        "Time in which at least one thread waited for a read or for reclaim",
        |status| Some(status.stall_ns),
    ),
    counter(
        "unmap_lock_wait",
        Unit::Nanoseconds,
        "Time spent waiting for the locks under which pages are unmapped",
        |status| Some(status.unmap_lock.wait_ns),
    ),
];

/// Of each node of a program.
pub const NODE: &[Metric<NodeStatus>] = &[
    gauge("node_budget", Unit::Pages, "The node's share of the budget", |node| {
        Some(node.budget_pages)
    }),
    gauge("node_resident", Unit::Pages, "Mapped", |node| Some(node.resident_pages)),
    gauge("node_active", Unit::Pages, "Mapped, and has proved to be used", |node| {
        Some(node.active_pages)
    }),
    gauge("node_inactive", Unit::Pages, "Mapped, and goes first", |node| Some(node.inactive_pages)),
    gauge("node_cached", Unit::Pages, "On its second chance, or read ahead", |node| {
        Some(node.cached_pages)
    }),
    gauge("node_unevictable", Unit::Pages, "Mapped and unable to leave", |node| {
        Some(node.unevictable_pages)
    }),
    gauge("node_charged", Unit::Pages, "Held by the program's caches", |node| {
        Some(node.charged_pages)
    }),
    gauge("node_compressed", Unit::Pages, "Held by compressed pages", |node| {
        Some(node.compressed_pages)
    }),
    gauge("node_writing", Unit::Pages, "In frames that are being written", |node| {
        Some(node.writing_pages)
    }),
    gauge("node_free", Unit::Pages, "Present and unused", |node| Some(node.free_pages)),
    gauge("node_spare", Unit::Pages, "Not yet taken from the kernel", |node| {
        Some(node.spare_pages)
    }),
    gauge("node_min_watermark", Unit::Pages, "Below it only reclaim gets memory", |node| {
        Some(node.min_pages)
    }),
    gauge("node_low_watermark", Unit::Pages, "Background reclaim starts here", |node| {
        Some(node.low_pages)
    }),
    gauge("node_high_watermark", Unit::Pages, "Background reclaim stops here", |node| {
        Some(node.high_pages)
    }),
    gauge(
        "node_hopeless",
        Unit::Number,
        "Whether 16 background rounds in a row reclaimed nothing",
        |node| Some(node.hopeless.into()),
    ),
];

/// Of each device of a program.
pub const DEVICE: &[Metric<DeviceStatus>] = &[
    gauge("device_size", Unit::Bytes, "Usable slots", |device| Some(device.size_bytes)),
    gauge("device_used", Unit::Bytes, "Slots in use", |device| Some(device.used_bytes)),
    gauge("device_lent", Unit::Bytes, "Slots freed, but still read by forked children", |device| {
        Some(device.lent_bytes)
    }),
    gauge("device_on", Unit::Number, "Whether new pages can go to it", |device| {
        Some((device.state == DeviceState::On).into())
    }),
    gauge("device_content", Unit::Pages, "Pages that it holds compressed", |device| {
        device.compressed.map(|held| held.pages)
    }),
    gauge("device_same", Unit::Pages, "Of these, kept as the value that they repeat", |device| {
        device.compressed.map(|held| held.same_pages)
    }),
    gauge("device_huge", Unit::Pages, "Of these, kept as they are", |device| {
        device.compressed.map(|held| held.huge_pages)
    }),
    gauge("device_compressed", Unit::Bytes, "What they were compressed to", |device| {
        device.compressed.map(|held| held.compressed_bytes)
    }),
    gauge("device_pool", Unit::Bytes, "Memory that they take", |device| {
        device.compressed.map(|held| held.pool_bytes)
    }),
    gauge("device_packed", Unit::Pages, "Pages that have moved on to it compressed", |device| {
        device.packed.map(|held| held.pages)
    }),
    gauge("device_packed_slots", Unit::Bytes, "Slots that these share", |device| {
        device.packed.map(|held| held.slot_bytes)
    }),
    counter(
        "device_read",
        Unit::Bytes,
        "Read from it, with what lies between wanted slots",
        |device| Some(device.reads.bytes),
    ),
    counter("device_written", Unit::Bytes, "Written to it", |device| Some(device.writes.bytes)),
    counter("device_reads", Unit::Number, "Read requests that succeeded", |device| {
        Some(device.reads.requests)
    }),
    counter("device_writes", Unit::Number, "Write requests that succeeded", |device| {
        Some(device.writes.requests)
    }),
    counter("device_read_errors", Unit::Number, "Read requests that failed", |device| {
        Some(device.reads.errors)
    }),
    counter("device_write_errors", Unit::Number, "Write requests that failed", |device| {
        Some(device.writes.errors)
    }),
    counter(
        "device_busy",
        Unit::Nanoseconds,
        "Time in which it had a request under way",
        |device| Some(device.busy_ns),
    ),
];

const PAGE_BYTES: u64 = crate::memory::PAGE_BYTES;
