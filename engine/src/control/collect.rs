//! Collecting the status of an engine, for a client of the control socket.
use crate::base::index::NodeId;
use crate::base::status::{
    CompressedStatus, DeviceState, DeviceStatus, ListEntry, LockStatus, NodeStatus, PackedStatus,
    Placed, ReadaheadStatus, Status, TrafficStatus, UnmapLockStatus,
};
use crate::device::open::DeviceKind;
use crate::device::record::{Device, DeviceState as Phase, Holding};
use crate::device::traffic::Flow;
use crate::device::zram::Stored;
use crate::state::core::Core;
use crate::state::node::Node;
use crate::sys::lock::LockCounts;
use crate::sys::told::Told;
use crate::sys::{PAGE_BYTES, process};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use userswap_policy::devices as policy;
use userswap_policy::lru::ListId;
use userswap_policy::readahead::AddressOrder;

impl Core {
    /// The status at this moment; the counters are read after the rest.
    pub fn status(&self) -> Status {
        let inside = self.gate.enter();
        let devices: Vec<DeviceStatus> =
            self.devices.list().map(|device| self.device_status(device)).collect();
        let nodes: Vec<NodeStatus> =
            self.nodes.iter().map(|node| self.node_status(node, &devices)).collect();
        let room = self.devices.room();
        let placement = self.devices.table().placement();
        let list_lock = lock_status(self.devices.list_lock.read());
        let shrinkers = self.shrinkers.status();
        let in_ram: u64 = self.nodes.iter().map(|node| u64::from(node.lock().in_ram())).sum();
        drop(inside);
        let counters = self.counters.snapshot();
        let of_engine: u64 = nodes.iter().map(|node| node.budget_pages).sum();
        let budget_pages = of_engine + self.member().map_or(0, |member| member.outside().into());
        let values = counters.values().into_iter().map(|(name, value)| (name.to_owned(), value));
        Status {
            pid: std::process::id(),
            program: program_name(),
            fault: self.tuning.fault.to_string(),
            ram_bytes: budget_pages * PAGE_BYTES as u64,
            job: self.member().map(|member| member.ledger.status()),
            placement: placement.to_string(),
            readahead: self.readahead_status(),
            hibernated: self.hibernated.load(Ordering::Relaxed),
            pins: self.devices.allowance.pins.load(Ordering::Relaxed).into(),
            unmanaged_bytes: process::anonymous_bytes()
                .map_or(0, |bytes| bytes.saturating_sub(in_ram * PAGE_BYTES as u64)),
            unmanaged_children: Told::ours().map_or(0, Told::children),
            free_slots: room.free.max(0) as u64,
            total_slots: room.total.max(0) as u64,
            list_lock,
            unmap_lock: self.unmap_lock_status(),
            devices,
            shrinkers,
            nodes,
            counters: values.collect(),
            fault_latency_ns: counters.fault_latency_ns,
            fault_latency: self.counters.latency.histogram(),
            stall_ns: self.waits.stalled.ns(),
        }
    }

    fn unmap_lock_status(&self) -> UnmapLockStatus {
        let used = &self.unmap_locks.used;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let exclusive = self.unmap_locks.exclusive.owner();
        UnmapLockStatus {
            contention: self.unmap_locks.contention().to_string(),
            lock: LockStatus {
                acquisitions: read(&used.acquisitions),
                waits: read(&used.contended),
            },
            wait_ns: read(&used.wait_ns),
            stalled: read(&used.stalled),
            skipped: read(&used.skipped),
            exclusive: exclusive.map(|node| self.topology.nodes()[node as usize].number as u16),
        }
    }

    fn readahead_status(&self) -> ReadaheadStatus {
        let settings = self.readahead.settings();
        ReadaheadStatus {
            swap_ra_policy: settings.policy.to_string(),
            page_cluster: settings.page_cluster,
            vma_ra_enabled: settings.address_order == AddressOrder::Enabled,
        }
    }

    fn device_status(&self, device: &Device) -> DeviceStatus {
        let label = device.label().expect("a listed device has a label");
        let priority = self.devices.table().device(device.id()).map_or(-1, |known| known.priority);
        let store = device.store().lock();
        let (used, pages, phase) = (store.used(), store.slots.pages(), store.state);
        let is_silent = store.is_silent();
        let (is_full, holding, lent) = (store.is_full(), store.holding, store.lent.count());
        drop(store);
        let number = |node: NodeId| self.topology.nodes()[node.0 as usize].number as u16;
        DeviceStatus {
            index: device.id().0.into(),
            name: label.name.clone(),
            kind: kind_name(label.kind).to_owned(),
            size_bytes: u64::from(pages) * PAGE_BYTES as u64,
            used_bytes: u64::from(used) * PAGE_BYTES as u64,
            encrypt: device.is_encrypted(),
            compressed: device.stored().map(compressed_status),
            packed: self.packed_status(device),
            priority: priority.into(),
            tier: device.tier(),
            node: label.node.map(number),
            lent_bytes: u64::from(lent) * PAGE_BYTES as u64,
            state: match phase {
                _ if holding == Holding::Borrowed && phase != Phase::Leaving => {
                    DeviceState::Borrowed
                }
                Phase::On if is_silent => DeviceState::Silent,
                Phase::On if is_full => DeviceState::Full,
                Phase::On | Phase::Absent => DeviceState::On,
                Phase::Retired => DeviceState::Retired,
                Phase::Leaving => DeviceState::GoingOff,
            },
            alloc_lock: lock_status(device.allocation.read()),
            free_lock: lock_status(device.freeing.read()),
            slots_freed: device.freed.load(Ordering::Relaxed),
            reads: traffic_status(&device.traffic.reads),
            writes: traffic_status(&device.traffic.writes),
            busy_ns: device.traffic.busy.ns(),
        }
    }

    fn packed_status(&self, device: &Device) -> Option<PackedStatus> {
        let packed = self.devices.packed_on(device);
        let slot_bytes = u64::from(packed.slots) * PAGE_BYTES as u64;
        (packed.slots > 0).then_some(PackedStatus { pages: packed.pages.into(), slot_bytes })
    }

    fn placed_near(&self, node: &Node) -> Vec<Placed> {
        let placed = self.devices.list().map(|device| Placed {
            device: device.id().0.into(),
            slots: device.placed[node.id.0 as usize].load(Ordering::Relaxed),
        });
        placed.collect()
    }

    fn node_status(&self, node: &Node, devices: &[DeviceStatus]) -> NodeStatus {
        let known = &self.topology.nodes()[node.id.0 as usize];
        let table = self.devices.table();
        let listed: Vec<_> = table.listed(node.id).collect();
        drop(table);
        let name_of = |index: u32| {
            let found = devices.iter().find(|device| device.index == index);
            found.map_or_else(String::new, |device| device.name.clone())
        };
        let entry = |(id, key): (policy::DeviceId, i32)| {
            let device = u32::from(id.0);
            ListEntry { device, name: name_of(device), key }
        };
        let placed = self.placed_near(node);
        let state = node.lock();
        NodeStatus {
            node: known.number as u16,
            cpus: known.cpus.clone(),
            budget_pages: state.budget.into(),
            resident_pages: state.resident.into(),
            inactive_pages: state.lists.len(ListId::Inactive).into(),
            active_pages: state.lists.len(ListId::Active).into(),
            cached_pages: state.lists.len(ListId::Cached).into(),
            unevictable_pages: state.lists.len(ListId::Unevictable).into(),
            charged_pages: state.charged.into(),
            compressed_pages: state.stored.into(),
            writing_pages: state.writing.into(),
            free_pages: state.pool.free().into(),
            spare_pages: state.spare.into(),
            min_pages: state.watermarks.min.into(),
            low_pages: state.watermarks.low.into(),
            high_pages: state.watermarks.high.into(),
            reclaim_priority: state.priority,
            reclaim_failures: state.health.failures(),
            hopeless: state.health.is_hopeless(),
            placed,
            swap_list: listed.into_iter().map(entry).collect(),
        }
    }
}

fn lock_status(LockCounts { acquisitions, waits }: LockCounts) -> LockStatus {
    LockStatus { acquisitions, waits }
}

fn compressed_status(stored: Stored) -> CompressedStatus {
    CompressedStatus {
        pages: stored.pages,
        same_pages: stored.same_pages,
        huge_pages: stored.huge_pages,
        compressed_bytes: stored.compressed_bytes,
        pool_bytes: stored.slab_bytes,
    }
}

fn traffic_status(flow: &Flow) -> TrafficStatus {
    TrafficStatus {
        requests: flow.requests.load(Ordering::Relaxed),
        bytes: flow.bytes.load(Ordering::Relaxed),
        errors: flow.errors.load(Ordering::Relaxed),
    }
}

fn kind_name(kind: DeviceKind) -> &'static str {
    match kind {
        DeviceKind::Temporary => "temporary",
        DeviceKind::File => "file",
        DeviceKind::Block => "block",
        DeviceKind::Memory => "memory",
        DeviceKind::Compressed(_) => "zram",
        DeviceKind::Packed => "packed",
        DeviceKind::Remote => "remote",
        DeviceKind::S3 => "s3",
    }
}

/// The program's file, by a way that takes no descriptor: the program's own numbers stay as they are.
fn program_name() -> String {
    name_of(&std::fs::read_link("/proc/thread-self/exe").unwrap_or_default())
}

/// Its name stays the same when a newer one takes the place of the file that runs, which the kernel then marks.
fn name_of(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.strip_suffix(" (deleted)").unwrap_or(&name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_keeps_its_name_when_its_file_is_replaced() {
        for (file, name) in [
            ("/usr/bin/python3.11", "python3.11"),
            ("/usr/bin/python3.11 (deleted)", "python3.11"),
            ("/opt/a b/c d", "c d"),
            ("", ""),
        ] {
            assert_eq!(name_of(Path::new(file)), name, "{file}");
        }
    }
}
