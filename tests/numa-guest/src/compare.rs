//! Holds a load under userswap against the same load on the kernel's swap.
//!
//! Order and priorities must be equal. The kernel reclaims on the load's CPU, because the limit of a control
//! group makes the load do it; under userswap the reclaimer of the load's node does it, but faults take
//! pages of other nodes meanwhile, and those nodes write to their own devices. How many depends on the speed
//! of the host. So it is what the load's node has put on each device that is held against the kernel's
//! writes; what other nodes did must follow their lists; and both together must be what the block layer
//! counts. Every way in which the sides differ is one line that names the case.
use crate::loads::{Devices, Load, Phase, Side, name_of};
use crate::migrated::pools_with_pages_elsewhere;
use crate::rfc;
use std::collections::BTreeMap;
use userswap::internals::PAGE_BYTES;
use userswap::internals::status::{DeviceState, NodeStatus, Status};

/// How far a device's share may differ, in percent: batches are of different sizes, and 3 was the most
/// that was measured.
const SHARE_DIFFERENCE_MAX: u64 = 15;
/// What the load's own node must have put on devices, of all, in percent. Measured: 97 to 100; 80 on a host
/// with three times as much to do as it has CPUs.
const OWN_NODE_MIN: u64 = 50;
/// The kernel's pages go to where its list says but for so many percent: pages of other programs. Measured:
/// less than 1, as long as no other task reclaims the load's memory.
const KERNEL_ELSEWHERE_MAX: u64 = 15;
/// Less than this is no load, in KiB.
const WRITTEN_KB_MIN: u64 = 4096;
/// The case whose load does not wait for its node's reclaimer: other nodes may do most of it.
const CASE_IN_HURRY: &str = "hurry";
/// Slots that are given and not yet written, in KiB: two batches, and a CPU's buffer for each node.
const UNWRITTEN_KB_MAX: u64 = (2 * BATCH_PAGES + 4 * 64) * PAGE_KB;
const PAGE_KB: u64 = PAGE_BYTES as u64 / 1024;
/// One batch of reclaim: so many pages may leave between two looks at them.
const BATCH_PAGES: u64 = 256;

/// Compares all loads; returns what is wrong.
pub fn compare(loads: &[Load], devices: &Devices) -> Vec<String> {
    let mut wrong = Vec::new();
    for load in loads {
        let mut note = |text: String| wrong.push(format!("{}: {text}", describe(load)));
        if !load.is_verified {
            note("its data was not verified".into());
        }
        if load.status != Some(0) {
            note(format!("it ended with status {:?}", load.status));
        }
    }
    for kernel in loads.iter().filter(|load| load.side == Side::Kernel) {
        let own = loads.iter().find(|load| is_pair(kernel, load));
        for (index, phase) in kernel.phases.iter().enumerate() {
            let ours = own.and_then(|own| own.phases.get(index)).filter(|p| p.name == phase.name);
            let before = own.zip(index.checked_sub(1)).and_then(|(own, p)| own.phases.get(p));
            let found = match ours {
                None => vec!["userswap did not come this far".into()],
                Some(ours) => {
                    let node = kernel.cpu;
                    let own_min = if kernel.case == CASE_IN_HURRY { 0 } else { OWN_NODE_MIN };
                    Moment { kernel: phase, own: ours, before, devices, node, own_min }.judge()
                }
            };
            let head = format!("{}, CPU {}, {}", kernel.case, kernel.cpu, phase.name);
            wrong.extend(found.into_iter().map(|text| format!("{head}: {text}")));
        }
    }
    wrong
}

fn percent(part: u64, whole: u64) -> u64 {
    part * 100 / whole.max(1)
}

fn describe(load: &Load) -> String {
    let side = match load.side {
        Side::Kernel => "the kernel's swap",
        Side::Userswap => "userswap",
    };
    format!("{}, CPU {}, {side}", load.case, load.cpu)
}

fn is_pair(kernel: &Load, other: &Load) -> bool {
    other.side == Side::Userswap && (&kernel.case, kernel.cpu) == (&other.case, other.cpu)
}

/// The same moment on both sides.
struct Moment<'a> {
    kernel: &'a Phase,
    own: &'a Phase,
    before: Option<&'a Phase>,
    devices: &'a Devices,
    /// The load's node: it has the number of its CPU.
    node: u32,
    /// How much of all, in percent, that node must have done.
    own_min: u64,
}

impl Moment<'_> {
    fn judge(&self) -> Vec<String> {
        let mut wrong = Vec::from_iter(self.kernel_follows_its_list());
        match &self.own.status {
            None => wrong.push("no status".into()),
            Some(status) => {
                wrong.extend(self.same_devices(status));
                wrong.extend(self.same_shares(status));
                wrong.extend(self.own_part(status));
                wrong.extend(self.written_is_what_was_placed(status));
                wrong.extend(status.nodes.iter().filter_map(|node| self.same_list(status, node)));
                wrong.extend(self.placed_by_the_list(status));
                wrong.extend(self.pages_are_where_their_pool_is(status));
            }
        }
        wrong
    }

    /// What the rule says of the kernel is what the kernel does.
    fn kernel_follows_its_list(&self) -> Option<String> {
        let list = rfc::list(&self.kernel.swaps, self.devices, self.node);
        let is_full = |name: &str| {
            self.kernel.swaps.iter().any(|swap| swap.device == name && swap.used_kb == swap.size_kb)
        };
        let head = list.iter().find(|(_, name)| !is_full(name))?.0;
        let expected = |name: &&String| {
            is_full(name) || list.iter().any(|(key, other)| other == *name && *key <= head)
        };
        let total: u64 = self.kernel.written_kb.values().sum();
        let elsewhere: u64 = self
            .kernel
            .written_kb
            .iter()
            .filter(|(name, _)| !expected(name))
            .map(|(_, written)| written)
            .sum();
        let is_wrong = total >= WRITTEN_KB_MIN && elsewhere * 100 > total * KERNEL_ELSEWHERE_MAX;
        is_wrong.then(|| {
            format!("the kernel does not follow the RFC: {elsewhere} of {total} KiB went elsewhere")
        })
    }

    /// Each device gets the same share of what the load's node swaps out. What a full device has got is its size on both
    /// sides, whatever they have swapped out: the shares are those of the others.
    fn same_shares(&self, status: &Status) -> Vec<String> {
        let is_full = |name: &&String| {
            self.kernel
                .swaps
                .iter()
                .any(|swap| swap.device == **name && swap.used_kb == swap.size_kb)
        };
        let written_kb: BTreeMap<&String, u64> = self
            .kernel
            .written_kb
            .iter()
            .filter(|(name, _)| !is_full(name))
            .map(|(name, kb)| (name, *kb))
            .collect();
        let kernel: u64 = written_kb.values().sum();
        if kernel < WRITTEN_KB_MIN {
            return Vec::new();
        }
        let own: u64 =
            written_kb.keys().map(|name| self.placed_kb(self.own_node(status), name)).sum();
        let mut wrong = Vec::new();
        for (name, written) in written_kb {
            let placed = self.placed_kb(self.own_node(status), name);
            let (theirs, ours) = (percent(written, kernel), percent(placed, own));
            if theirs.abs_diff(ours) > SHARE_DIFFERENCE_MAX {
                wrong.push(format!("{name} got {theirs} % from the kernel and {ours} % from us"));
            }
        }
        wrong
    }

    /// Most of what leaves does so by the load's node, full devices counted.
    fn own_part(&self, status: &Status) -> Option<String> {
        let names = || self.kernel.written_kb.keys();
        let own: u64 = names().map(|name| self.placed_kb(self.own_node(status), name)).sum();
        let all: u64 = names().map(|name| self.placed_kb(status.nodes.iter(), name)).sum();
        let is_load = self.kernel.written_kb.values().sum::<u64>() >= WRITTEN_KB_MIN;
        (is_load && percent(own, all) < self.own_min)
            .then(|| format!("the load's node has put out only {own} of {all} KiB"))
    }

    fn own_node<'s>(&self, status: &'s Status) -> impl Iterator<Item = &'s NodeStatus> {
        let own = self.node;
        status.nodes.iter().filter(move |node| u32::from(node.node) == own)
    }

    /// What some nodes have put on a device since the moment before.
    fn placed_kb<'n>(&self, nodes: impl Iterator<Item = &'n NodeStatus>, name: &str) -> u64 {
        let since = |node: &NodeStatus| -> u64 {
            let placed =
                node.placed.iter().filter(|placed| {
                    self.own.status.iter().flat_map(|status| &status.devices).any(|device| {
                        device.index == placed.device && self.name(&device.name) == name
                    })
                });
            placed
                .map(|placed| placed.slots.saturating_sub(self.slots_before(node, placed.device)))
                .sum()
        };
        nodes.map(since).sum::<u64>() * PAGE_KB
    }

    /// The block layer has counted what the engine says, but for what is still under way.
    fn written_is_what_was_placed(&self, status: &Status) -> Vec<String> {
        let mut wrong = Vec::new();
        for device in &status.devices {
            let name = self.name(&device.name);
            let placed = self.placed_kb(status.nodes.iter(), &name);
            let written = self.own.written_kb.get(&name).copied().unwrap_or(0);
            // The header, and what was under way at the moment before.
            let most = placed + UNWRITTEN_KB_MAX;
            if written > most || written + UNWRITTEN_KB_MAX < placed {
                wrong.push(format!("{name}: {placed} KiB placed, {written} KiB written"));
            }
        }
        wrong
    }

    /// The same devices with the same priorities, and the same ones full.
    fn same_devices(&self, status: &Status) -> Option<String> {
        let kernel: BTreeMap<String, (i32, bool)> = self
            .kernel
            .swaps
            .iter()
            .map(|swap| (swap.device.clone(), (swap.priority, swap.used_kb == swap.size_kb)))
            .collect();
        let own: BTreeMap<String, (i32, bool)> = status
            .devices
            .iter()
            .map(|device| {
                let is_full = device.state == DeviceState::Full;
                (self.name(&device.name), (device.priority, is_full))
            })
            .collect();
        (kernel != own).then(|| format!("devices (priority, full): {kernel:?}, ours {own:?}"))
    }

    /// A node asks in the order that the kernel's priorities give; full devices are not asked.
    fn same_list(&self, status: &Status, node: &NodeStatus) -> Option<String> {
        let is_full = |name: &str| {
            status
                .devices
                .iter()
                .any(|device| self.name(&device.name) == name && device.state == DeviceState::Full)
        };
        let mut expected = rfc::list(&self.kernel.swaps, self.devices, u32::from(node.node));
        expected.retain(|(_, name)| !is_full(name));
        let shown: Vec<(i32, String)> =
            node.swap_list.iter().map(|entry| (entry.key, self.name(&entry.name))).collect();
        let is_ordered = shown.is_sorted_by_key(|(key, _)| *key);
        let mut sorted = shown.clone();
        sorted.sort();
        (!is_ordered || sorted != expected)
            .then(|| format!("node {} asks {shown:?} instead of {expected:?}", node.node))
    }

    /// Whatever a node has reclaimed since the moment before is on the first devices of its list, or on
    /// ones that have become full.
    fn placed_by_the_list(&self, status: &Status) -> Vec<String> {
        let mut wrong = Vec::new();
        for node in &status.nodes {
            let head = node.swap_list.first().map(|entry| entry.key);
            for placed in &node.placed {
                let entry = node.swap_list.iter().find(|entry| entry.device == placed.device);
                let slots = placed.slots.saturating_sub(self.slots_before(node, placed.device));
                if let Some(entry) = entry.filter(|entry| slots > 0 && Some(entry.key) != head) {
                    let (node, name) = (node.node, self.name(&entry.name));
                    wrong.push(format!(
                        "node {node} has put {slots} pages on {name}, not its first"
                    ));
                }
            }
        }
        wrong
    }

    fn slots_before(&self, node: &NodeStatus, device: u32) -> u64 {
        let before = self.before.and_then(|before| before.status.as_ref());
        let nodes = before.map_or(&[][..], |before| &before.nodes);
        let node = nodes.iter().find(|other| other.node == node.node);
        let placed = node.map_or(&[][..], |node| &node.placed);
        placed.iter().find(|placed| placed.device == device).map_or(0, |placed| placed.slots)
    }

    /// Pool pages lie on their pool's node, and mapped pages on the nodes that account for them.
    fn pages_are_where_their_pool_is(&self, status: &Status) -> Vec<String> {
        let mut wrong = pools_with_pages_elsewhere(&self.own.maps);
        let plain = self.own.maps.iter().filter(|map| map.policy == "default");
        let Some(arena) = plain.max_by_key(|map| map.total()) else {
            wrong.push("no memory map".into());
            return wrong;
        };
        for node in &status.nodes {
            let there = arena.pages.get(&u32::from(node.node)).copied().unwrap_or(0);
            if there.abs_diff(node.resident_pages) > BATCH_PAGES {
                let (node, counted) = (node.node, node.resident_pages);
                wrong.push(format!(
                    "node {node} has {there} mapped pages, its accounting says {counted}"
                ));
            }
        }
        wrong
    }

    /// A device's name by its path; the path if it is none of ours.
    fn name(&self, path: &str) -> String {
        name_of(path, self.devices).unwrap_or_else(|| path.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loads::{Device, KernelSwap, Map};
    use serde_json::{Value, json};

    /// Two devices on two nodes, a load on node 0.
    fn devices() -> Devices {
        let device = |node| Device { node, path: format!("/dev/{node}") };
        BTreeMap::from([("A".into(), device(0)), ("B".into(), device(1))])
    }

    fn written(a: u64, b: u64) -> BTreeMap<String, u64> {
        BTreeMap::from([("A".into(), a), ("B".into(), b)])
    }

    fn kernel(a: u64, b: u64) -> Phase {
        let swap = |device: &str, priority| KernelSwap {
            device: device.into(),
            size_kb: 100_000,
            used_kb: 0,
            priority,
        };
        let swaps = vec![swap("A", -2), swap("B", -3)];
        Phase { written_kb: written(a, b), swaps, ..Phase::default() }
    }

    fn node(number: u8, lists: [(u32, i32); 2], placed: [u64; 2]) -> Value {
        let entry =
            |(device, key)| json!({"device": device, "name": format!("/dev/{device}"), "key": key});
        json!({
            "node": number, "cpus": [number], "budget_pages": 4096, "resident_pages": 3000,
            "cached_pages": 0, "writing_pages": 0, "free_pages": 0, "spare_pages": 0,
            "min_pages": 0, "low_pages": 0, "high_pages": 0,
            "placed": [{"device": 0, "slots": placed[0]}, {"device": 1, "slots": placed[1]}],
            "swap_list": lists.map(entry),
        })
    }

    fn status(priorities: [i32; 2], nodes: [Value; 2]) -> Status {
        let locks = json!({"acquisitions": 0, "waits": 0});
        let device = |index: usize| {
            json!({
                "index": index, "name": format!("/dev/{index}"), "kind": "block",
                "size_bytes": 1 << 26, "used_bytes": 0, "priority": priorities[index],
                "node": index, "state": "on", "alloc_lock": locks, "free_lock": locks,
                "slots_freed": 0,
            })
        };
        let latency = json!({"p50": 0, "p95": 0, "p99": 0, "max": 0});
        let status = json!({
            "pid": 1, "program": "load", "fault": "thread", "ram_bytes": 1 << 24,
            "placement": "near", "free_slots": 0, "total_slots": 0, "list_lock": locks,
            "devices": [device(0), device(1)], "nodes": nodes, "counters": {},
            "fault_latency_ns": latency,
        });
        serde_json::from_value(status).expect("the fields of a status")
    }

    /// Node 0 has put so many slots on A, node 1 so many on B.
    fn status_with(on_a: u64, on_b: u64) -> Status {
        let first = node(0, [(0, 1), (1, 3)], [on_a, 0]);
        status([-2, -3], [first, node(1, [(1, 1), (0, 2)], [0, on_b])])
    }

    fn own(a: u64, b: u64, status: Status) -> Phase {
        let map = |policy: &str, pages| Map { policy: policy.into(), pages: BTreeMap::from(pages) };
        let maps = vec![map("default", [(0, 3000), (1, 3010)]), map("prefer:1", [(0, 0), (1, 90)])];
        Phase { written_kb: written(a, b), status: Some(status), maps, ..Phase::default() }
    }

    fn judge(kernel: &Phase, own: &Phase) -> Vec<String> {
        let devices = devices();
        Moment { kernel, own, before: None, devices: &devices, node: 0, own_min: 50 }.judge()
    }

    #[test]
    fn the_same_order_passes_whatever_other_nodes_take_over() {
        let own = own(30_000, 9_600, status_with(7_700, 2_500));
        assert_eq!(judge(&kernel(40_000, 100), &own), [""; 0]);
    }

    #[test]
    fn a_load_that_other_nodes_serve_is_named() {
        let own = own(16_000, 24_000, status_with(4_000, 6_000));
        let expected = ["the load's node has put out only 16000 of 40000 KiB"];
        assert_eq!(judge(&kernel(40_000, 0), &own), expected);
    }

    #[test]
    fn writes_that_the_engine_does_not_know_are_named() {
        let own = own(40_000, 20_000, status_with(10_000, 0));
        assert_eq!(judge(&kernel(40_000, 0), &own), ["B: 0 KiB placed, 20000 KiB written"]);
    }

    #[test]
    fn a_kernel_without_the_lists_is_found_out() {
        let wrong = judge(&kernel(20_000, 20_000), &own(40_000, 0, status_with(10_000, 0)));
        assert_eq!(
            wrong,
            [
                "the kernel does not follow the RFC: 20000 of 40000 KiB went elsewhere",
                "A got 50 % from the kernel and 100 % from us",
                "B got 50 % from the kernel and 0 % from us",
            ]
        );
    }

    #[test]
    fn shares_are_those_of_the_devices_that_are_not_full() {
        let full_of = |first: KernelSwap| {
            let mut kernel = kernel(12_000, 14_000);
            kernel.swaps[0] = KernelSwap { size_kb: 12_000, used_kb: 12_000, ..first };
            kernel
        };
        let wrong = |status: Status| {
            let devices = devices();
            let kernel = full_of(kernel(0, 0).swaps[0].clone());
            let own = own(12_000, 9_000, status);
            let moment = Moment {
                kernel: &kernel,
                own: &own,
                before: None,
                devices: &devices,
                node: 0,
                own_min: 50,
            };
            let status = own.status.as_ref().expect("it was given one");
            moment.same_shares(status)
        };
        let placed = |on_a, on_b| {
            let first = node(0, [(0, 1), (1, 3)], [on_a, on_b]);
            status([-2, -3], [first, node(1, [(1, 1), (0, 2)], [0, 0])])
        };
        assert_eq!(
            wrong(placed(3_000, 2_250)),
            [""; 0],
            "57 % on the full one, 46 % of the kernel's"
        );
        assert_eq!(wrong(placed(3_000, 0)), ["B got 100 % from the kernel and 0 % from us"]);
    }

    #[test]
    fn another_priority_and_another_order_are_named() {
        let nodes = [node(0, [(1, 2), (0, 3)], [0, 0]), node(1, [(1, 1), (0, 2)], [0, 0])];
        let wrong = judge(&kernel(0, 0), &own(0, 0, status([-3, -2], nodes)));
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(wrong[0].starts_with("devices (priority, full): "), "{wrong:?}");
        assert!(wrong[1].starts_with("node 0 asks "), "{wrong:?}");
    }

    #[test]
    fn pages_on_a_device_that_is_not_the_first_are_named() {
        let nodes = [node(0, [(0, 1), (1, 3)], [10_000, 7]), node(1, [(1, 1), (0, 2)], [0, 0])];
        let wrong = judge(&kernel(40_000, 0), &own(40_000, 28, status([-2, -3], nodes)));
        assert_eq!(wrong, ["node 0 has put 7 pages on B, not its first"]);
    }

    #[test]
    fn pages_on_another_node_than_their_pool_s_are_named() {
        let mut own = own(40_000, 0, status_with(10_000, 0));
        own.maps[0].pages = BTreeMap::from([(0, 6_000), (1, 10)]);
        own.maps[1].pages = BTreeMap::from([(0, 1), (1, 89)]);
        let wrong = judge(&kernel(40_000, 0), &own);
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        assert!(wrong[0].starts_with("the pool of node 1 has pages elsewhere"), "{wrong:?}");
        assert_eq!(wrong[1], "node 0 has 6000 mapped pages, its accounting says 3000");
    }
}
