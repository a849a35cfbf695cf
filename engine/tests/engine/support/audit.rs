//! The audit: what the engine counts, its page words and the kernel's page tables must agree.
use super::PAGE;
use super::internals::{Core, Device, ListId, NodeState, PageRange, PageState, Pagemap};
use std::collections::HashSet;
use std::time::Duration;
use userswap::Engine;
use userswap_policy::workingset::Activity;

/// A page that the kernel moves elsewhere in RAM, to make memory compact, is not mapped for a moment; what is wrong stays wrong.
const LOOKS: usize = 5;

/// While the gate is closed all accounting must agree with each other and with the kernel's page tables: no frame
/// or slot belongs to two pages or to none, and no evictable page is missing from the lists.
pub fn audit(engine: &Engine) {
    let core: &Core = engine.core();
    core.gate.close();
    let mut faults = faults_in_accounting(core);
    for _ in 1..LOOKS {
        if faults.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
        faults = faults_in_accounting(core);
    }
    core.gate.open();
    assert!(
        faults.is_empty(),
        "{} faults in the accounting: {:?}",
        faults.len(),
        &faults[..faults.len().min(10)]
    );
}

#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn faults_in_accounting(core: &Core) -> Vec<String> {
    let mut faults = Vec::new();
    let (mut frames, mut slots, mut below) = (HashSet::new(), HashSet::new(), HashSet::new());
    let mut mapped = vec![false; core.pages.pages() as usize];
    let start = core.arena.address();
    Pagemap::open()
        .for_each_present(start, start + core.arena.bytes(), |from, to| {
            mapped[(from - start) / PAGE..(to - start) / PAGE].fill(true);
        })
        .unwrap();
    // What the program has mapped over is the kernel's, and present as it likes.
    let whole = PageRange { first: 0, count: core.pages.pages() };
    for foreign in core.arena.foreign_within(whole) {
        mapped[foreign.first as usize..foreign.end() as usize].fill(false);
    }
    let states: Vec<_> = core.nodes.iter().map(|node| node.lock()).collect();
    let mut resident = vec![0; states.len()];
    let mut held = vec![0; states.len()];
    for page in 0..core.pages.pages() {
        let word = core.pages.state(page);
        let mut frame_of = None;
        let mut slot_of = None;
        let mut list = None;
        match word {
            PageState::Untouched => {}
            PageState::Resident { slot, pins, node } => {
                resident[node.0 as usize] += 1;
                slot_of = slot;
                list = (pins == 0).then_some((node.0, ListId::Inactive));
            }
            PageState::Clean { slot, node } => {
                resident[node.0 as usize] += 1;
                (slot_of, list) = (Some(slot), Some((node.0, ListId::Inactive)));
                let address = start + page as usize * PAGE;
                if !core.uffd.pagemap.entries().unwrap().is_protected(address) {
                    faults.push(format!("page {page} {word:?} may be written to"));
                }
            }
            PageState::Cached { frame, slot, .. } => {
                let node = core.node_of_frame(frame).id.0;
                held[node as usize] += 1;
                (frame_of, slot_of, list) = (Some(frame), slot, Some((node, ListId::Cached)));
            }
            PageState::Swapped { slot } => slot_of = Some(slot),
            PageState::Lost => continue,
            _ => faults.push(format!("page {page} is in transition: {word:?}")),
        }
        for (node, state) in states.iter().enumerate() {
            let wanted = list.filter(|(of, _)| *of as usize == node).map(|(_, list)| list);
            let found = state.lists.list_of(page);
            // A list may hold what is not evictable any more: reclaim forgets what it pops.
            let is_mapped = |list| {
                matches!(list, Some(ListId::Inactive | ListId::Active | ListId::Unevictable))
            };
            let agree = found == wanted || is_mapped(found) && is_mapped(wanted);
            if wanted.is_some() && !agree {
                faults.push(format!("page {page} {word:?} is on list {found:?} of node {node}"));
            }
            let activity = core.pages.load(page).standing().activity;
            if wanted.is_some() && found == Some(ListId::Active) && activity != Activity::Active {
                faults.push(format!("page {page} {word:?} is active, and its word denies it"));
            }
        }
        if frame_of.is_some_and(|frame| !frames.insert(frame)) {
            faults.push(format!("page {page} {word:?} shares its frame"));
        }
        below.extend(slot_of.map(|slot| core.devices.under(slot).0.get()));
        if slot_of.is_some_and(|slot| !slots.insert(slot.0.get())) {
            faults.push(format!("page {page} {word:?} shares its slot"));
        }
        if mapped[page as usize] != word.mapped().is_some() {
            faults.push(format!("page {page} {word:?} is mapped: {}", mapped[page as usize]));
        }
    }
    for (node, state) in states.iter().enumerate() {
        faults.extend(faults_of_node(node, state, (resident[node], held[node])));
    }
    drop(states);
    let slab_bytes: u64 =
        core.devices.list().filter_map(Device::stored).map(|stored| stored.slab_bytes).sum();
    let charged: u32 = core.nodes.iter().map(|node| node.lock().stored).sum();
    let unsettled = core.devices.allowance.unsettled();
    if slab_bytes as i64 / PAGE as i64 != i64::from(charged) + unsettled {
        faults.push(format!(
            "{slab_bytes} bytes of compressed pages, {charged} charged, {unsettled} to be"
        ));
    }
    if !core.devices.is_balanced() {
        faults.push(format!("free and total slots are not {:?}", core.devices.room()));
    }
    faults.extend(fault_below(core, &below));
    let used = core.devices.usage().used;
    if used != slots.len() as u64 {
        faults.push(format!("{used} slots are in use, {} belong to pages", slots.len()));
    }
    faults
}

/// Of devices on which pages are packed, those slots are in use that pages are on, and no others.
fn fault_below(core: &Core, below: &HashSet<u32>) -> Option<String> {
    if !core.devices.list_all().any(Device::is_packed) {
        return None;
    }
    // What waits in buffers has no page, and keeps its slot below.
    core.devices.set_mode(core.devices.mode());
    let used: usize = core.devices.list().map(|device| device.used() as usize).sum();
    (used != below.len()).then(|| format!("{used} slots are in use, pages are on {}", below.len()))
}

/// What a node's numbers have to say against what the page words sum up to.
fn faults_of_node(node: usize, state: &NodeState, (resident, held): (u32, u32)) -> Vec<String> {
    let mut faults = Vec::new();
    if !state.is_balanced() {
        faults.push(format!("the accounting of node {node} does not balance"));
    }
    if state.writing != 0 {
        faults.push(format!("{} pages of node {node} are being written", state.writing));
    }
    if state.resident != resident {
        let said = state.resident;
        faults.push(format!("{resident} pages are resident on node {node}, it says {said}"));
    }
    if state.pool.held() != held {
        let said = state.pool.held();
        faults.push(format!("{said} frames of node {node} are held, {held} pages cached"));
    }
    faults
}
