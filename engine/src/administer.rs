//! What an administrator asks of a running engine: devices on and off, and how it is doing.
//!
//! Who asks is `control`'s concern; this is what happens then.
use crate::core::Core;
use crate::device::open::DeviceKind;
use crate::device::spec::SwapSpec;
use crate::device::{Device, Devices};
use crate::error::Error;
use crate::node::Node;
use crate::status::{DeviceState, DeviceStatus, ListEntry, LockUse, NodeStatus, Status};
use crate::sys::PAGE_BYTES;
use crate::sys::clock;
use std::path::Path;
use userswap_policy::lru::ListId;

/// How far a device is emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Pages still on the device.
    pub pages_left: u64,
    /// Pages on it when emptying began.
    pub pages_total: u64,
}

/// Whether emptying a device goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proceed {
    /// It does.
    GoOn,
    /// The device stays in use.
    Cancel,
}

impl Core {
    /// Takes one more device into use while the program runs.
    ///
    /// # Errors
    /// The device cannot be used, or is in use already; nothing is changed then.
    pub fn swap_on(&self, spec: &SwapSpec) -> Result<(), Error> {
        Err(Error::NotYet(format!("swapon {spec}")))
    }

    /// Brings everything on a device back or elsewhere and lets go of it; `watch` is told about progress
    /// between batches and may cancel. It makes system calls: no lock is held, and it is outside the gate.
    ///
    /// # Errors
    /// There is no such device, there is no room for its pages, or it was cancelled: the device stays.
    pub fn swap_off(
        &self,
        path: &Path,
        watch: &mut dyn FnMut(Progress) -> Proceed,
    ) -> Result<(), Error> {
        let _ = watch;
        Err(Error::NotYet(format!("swapoff {}", path.display())))
    }

    /// Devices, lists and nodes at this moment.
    pub fn status(&self) -> Status {
        self.gate.enter();
        let (used, total) = self.devices.usage();
        let devices = device_statuses(&self.devices);
        let nodes: Vec<NodeStatus> =
            self.nodes.iter().map(|node| node_status(node, used, &devices)).collect();
        self.gate.leave();
        let counters = self.counters.snapshot();
        let budget_pages: u64 = nodes.iter().map(|node| node.budget_pages).sum();
        Status {
            pid: std::process::id(),
            program: program_name(),
            fault: self.tuning.fault.to_string(),
            ram_bytes: budget_pages * PAGE_BYTES as u64,
            placement: "near".to_owned(),
            free_slots: total - used,
            total_slots: total,
            list_lock: LockUse::default(),
            devices,
            nodes,
            counters: counters
                .values()
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
            fault_latency_ns: counters.fault_latency_ns,
        }
    }
}

/// The program's file, by a way that takes no descriptor: the program's own numbers stay as they are.
fn program_name() -> String {
    let file = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn device_statuses(devices: &Devices) -> Vec<DeviceStatus> {
    (0..).zip(devices.list()).map(|(index, device)| device_status(index, device)).collect()
}

fn device_status(index: u32, device: &Device) -> DeviceStatus {
    let (used, pages) = (device.used(), device.pages());
    let kind = match device.kind {
        DeviceKind::Temporary => "temporary",
        DeviceKind::File => "file",
        DeviceKind::Block => "block",
        DeviceKind::Memory => "memory",
    };
    DeviceStatus {
        index,
        name: device.name.clone(),
        kind: kind.to_owned(),
        size_bytes: u64::from(pages) * PAGE_BYTES as u64,
        used_bytes: u64::from(used) * PAGE_BYTES as u64,
        priority: -2 - index as i32,
        node: None,
        state: if used == pages { DeviceState::Full } else { DeviceState::On },
        alloc_lock: LockUse::default(),
        free_lock: LockUse::default(),
        slots_freed: 0,
    }
}

fn node_status(node: &Node, slots_used: u64, devices: &[DeviceStatus]) -> NodeStatus {
    let entry = |device: &DeviceStatus| ListEntry {
        device: device.index,
        name: device.name.clone(),
        key: -device.priority,
    };
    let swap_list = devices.iter().map(entry).collect();
    let state = node.lock();
    NodeStatus {
        node: node.id.0,
        cpus: (0..clock::cpus()).collect(),
        budget_pages: state.budget.into(),
        resident_pages: state.resident.into(),
        cached_pages: state.lists.len(ListId::Cached).into(),
        writing_pages: state.writing.into(),
        free_pages: state.pool.free().into(),
        spare_pages: state.spare.into(),
        min_pages: state.watermarks.min.into(),
        low_pages: state.watermarks.low.into(),
        high_pages: state.watermarks.high.into(),
        slots_used,
        swap_list,
    }
}
