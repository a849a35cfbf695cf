//! A program's answer, for tests.

use std::collections::BTreeMap;

use userswap::internals::status::{
    DeviceState, DeviceStatus, JobStatus, ListEntry, LockStatus, MemberStatus, NodeStatus, Status,
};

/// `python3.11` with 16M of RAM on one node and one device.
pub fn status() -> Status {
    let counters = [
        ("pgfault", 1000),
        ("pswpin", 5000),
        ("pswpout", 9000),
        ("swap_ra", 4000),
        ("swap_ra_wasted", 100),
    ];
    let counters: BTreeMap<_, _> =
        counters.map(|(name, value)| (name.to_owned(), value)).into_iter().collect();
    Status {
        pid: 4711,
        program: "python3.11".to_owned(),
        fault: "thread".to_owned(),
        ram_bytes: 16 << 20,
        job: Some(JobStatus {
            root_pid: 4711,
            budget_pages: 4096,
            held_pages: 4000,
            held_pages_max: 4096,
            members: vec![MemberStatus { pid: 4711, engaged: true, ..MemberStatus::default() }; 2],
            ..JobStatus::default()
        }),
        placement: "near".to_owned(),
        readahead: Default::default(),
        hibernated: false,
        pins: 0,
        unmanaged_bytes: 0,
        unmanaged_children: 0,
        free_slots: 1000,
        total_slots: 2000,
        list_lock: LockStatus::default(),
        unmap_lock: Default::default(),
        devices: vec![device(0, "/var/tmp")],
        shrinkers: Vec::new(),
        nodes: vec![node(0)],
        counters,
        fault_latency_ns: Default::default(),
        fault_latency: Default::default(),
        stall_ns: 0,
    }
}

/// The same, with so many faults that took less than 1024 ns, 2048 ns, and so on.
pub fn with_latency(counts: &[u64]) -> Status {
    let bucket = |(power, count): (usize, &u64)| serde_json::json!({ "below_ns": 1024u64 << power, "count": count });
    let buckets: Vec<_> = counts.iter().enumerate().map(bucket).collect();
    let latency = serde_json::json!({ "buckets": buckets, "count": 0, "sum_ns": 0 });
    let fault_latency = serde_json::from_value(latency).expect("a histogram is so written");
    Status { fault_latency, ..status() }
}

/// A device with 40M in use.
pub fn device(index: u32, name: &str) -> DeviceStatus {
    DeviceStatus {
        index,
        name: name.to_owned(),
        kind: "temporary".to_owned(),
        size_bytes: 64 << 30,
        used_bytes: 40 << 20,
        lent_bytes: 0,
        encrypt: false,
        compressed: None,
        packed: None,
        priority: -2,
        tier: None,
        node: None,
        state: DeviceState::On,
        alloc_lock: LockStatus::default(),
        free_lock: LockStatus::default(),
        slots_freed: 0,
        reads: Default::default(),
        writes: Default::default(),
        busy_ns: 0,
    }
}

/// A node with the whole budget.
pub fn node(node: u16) -> NodeStatus {
    NodeStatus {
        node,
        cpus: vec![0, 1, 2, 3],
        budget_pages: 4096,
        resident_pages: 3000,
        inactive_pages: 1000,
        active_pages: 1900,
        cached_pages: 500,
        unevictable_pages: 100,
        charged_pages: 0,
        compressed_pages: 0,
        writing_pages: 64,
        free_pages: 32,
        spare_pages: 500,
        min_pages: 64,
        low_pages: 248,
        high_pages: 432,
        reclaim_priority: 12,
        reclaim_failures: 0,
        hopeless: false,
        placed: Vec::new(),
        swap_list: vec![ListEntry { device: 0, name: "/var/tmp".to_owned(), key: 2 }],
    }
}
