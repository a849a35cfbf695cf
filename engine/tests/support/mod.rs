//! What the tests of the engine share: a generator, page patterns, an audit of all books, child processes.
#![allow(clippy::multiple_unsafe_ops_per_block)]
#![allow(unsafe_code, dead_code)]
use std::collections::HashSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::process::{Command, Output};
use userswap::Engine;
use userswap::internals::Core;
use userswap::internals::NodeState;
use userswap::internals::PageState;
use userswap::internals::{PAGE_BYTES, pagemap};
use userswap::{Builder, Region};
use userswap::{FaultMode, Transfer};
use userswap_policy::lru::ListId;

pub const MIB: usize = 1 << 20;
pub const PAGE: usize = PAGE_BYTES;
pub const WORDS: usize = PAGE / 8;

/// Every way faults arrive and pages travel.
pub const WAYS: [(FaultMode, Transfer); 4] = [
    (FaultMode::Thread, Transfer::Auto),
    (FaultMode::Signal, Transfer::Auto),
    (FaultMode::Thread, Transfer::Copy),
    (FaultMode::Signal, Transfer::Copy),
];

/// The smallest budget and a small arena.
pub fn builder((fault, transfer): (FaultMode, Transfer)) -> Builder {
    Builder::new(16 << 20).fault(fault).transfer(transfer).arena_bytes(1 << 30)
}

pub fn engine(way: (FaultMode, Transfer)) -> Engine {
    builder(way).build().expect("root, or a permitted userfaultfd, and room in /var/tmp")
}

/// A hanging test ends its process: SIGALRM kills.
pub fn limit(seconds: u32) {
    // Tests of one program share the timer, and a busy machine is no hang.
    let generous = seconds.saturating_mul(4);
    // SAFETY: sets a timer of this process.
    unsafe { libc::alarm(generous) };
}

/// A small generator; whoever uses it prints the seed.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % bound
    }
}

/// A new seed, or the one from USERSWAP_SEED; printed, so that a failure can be repeated.
pub fn seed() -> u64 {
    let given = std::env::var("USERSWAP_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| RandomState::new().build_hasher().finish());
    println!("USERSWAP_SEED={seed}");
    seed
}

/// The word at `place` of `page` under a stamp; stamp 0 is a page of zeros.
pub fn word(stamp: u64, page: usize, place: usize) -> u64 {
    if stamp == 0 {
        return 0;
    }
    let mixed = stamp ^ (page as u64) << 40 ^ (place as u64) << 30;
    mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1
}

/// Pages by address: tests share a region between threads in ways that slices do not allow.
#[derive(Clone, Copy)]
pub struct Pages {
    pub address: usize,
    pub count: usize,
}

impl Pages {
    pub fn of(region: &Region) -> Self {
        Self { address: region.as_slice().as_ptr() as usize, count: region.len() / PAGE }
    }

    pub fn at(&self, page: usize) -> *mut u64 {
        assert!(page < self.count);
        (self.address + page * PAGE) as *mut u64
    }

    pub fn fill(&self, page: usize, stamp: u64) {
        for place in 0..WORDS {
            // SAFETY: the page lies in a live region, and the test gives each page one writer.
            unsafe { self.at(page).add(place).write_volatile(word(stamp, page, place)) };
        }
    }

    /// The first word that is not as it should be.
    pub fn wrong(&self, page: usize, stamp: u64) -> Option<String> {
        (0..WORDS).find_map(|place| {
            // SAFETY: as in `fill`; others only write to other pages.
            let found = unsafe { self.at(page).add(place).read_volatile() };
            let expected = word(stamp, page, place);
            (found != expected).then(|| {
                format!("page {page} word {place}: {found:#x}, not {expected:#x} (stamp {stamp})")
            })
        })
    }

    pub fn check(&self, page: usize, stamp: u64) {
        if let Some(wrong) = self.wrong(page, stamp) {
            panic!("{wrong}");
        }
    }

    /// Which pages are mapped at this moment.
    pub fn present(&self) -> Vec<bool> {
        let mut present = vec![false; self.count];
        let end = self.address + self.count * PAGE;
        pagemap::for_each_present(self.address, end, |from, to| {
            present[(from - self.address) / PAGE..(to - self.address) / PAGE].fill(true);
        })
        .unwrap();
        present
    }
}

/// Behind a closed gate all books must agree with each other and with the kernel's page tables: no frame
/// or slot belongs to two pages or to none, and no evictable page is missing from the lists.
pub fn audit(engine: &Engine) {
    let core: &Core = engine.core();
    core.gate.close();
    let faults = faults_in_books(core);
    core.gate.open();
    assert!(
        faults.is_empty(),
        "{} faults in the books: {:?}",
        faults.len(),
        &faults[..faults.len().min(10)]
    );
}

fn faults_in_books(core: &Core) -> Vec<String> {
    let mut faults = Vec::new();
    let (mut frames, mut slots) = (HashSet::new(), HashSet::new());
    let mut mapped = vec![false; core.pages.pages() as usize];
    let start = core.arena.address();
    pagemap::for_each_present(start, start + core.arena.bytes(), |from, to| {
        mapped[(from - start) / PAGE..(to - start) / PAGE].fill(true);
    })
    .unwrap();
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
            // A list may hold what is not evictable any more: whoever pops it forgets it.
            let is_mapped = |list| matches!(list, Some(ListId::Inactive | ListId::Active));
            let agree = found == wanted || is_mapped(found) && is_mapped(wanted);
            if wanted.is_some() && !agree {
                faults.push(format!("page {page} {word:?} is on list {found:?} of node {node}"));
            }
        }
        if frame_of.is_some_and(|frame| !frames.insert(frame)) {
            faults.push(format!("page {page} {word:?} shares its frame"));
        }
        if slot_of.is_some_and(|slot| !slots.insert(slot.0.get())) {
            faults.push(format!("page {page} {word:?} shares its slot"));
        }
        if mapped[page as usize] != matches!(word, PageState::Resident { .. }) {
            faults.push(format!("page {page} {word:?} is mapped: {}", mapped[page as usize]));
        }
    }
    for (node, state) in states.iter().enumerate() {
        faults.extend(faults_of_node(node, state, (resident[node], held[node])));
    }
    drop(states);
    if !core.devices.is_balanced() {
        faults.push(format!("free and total slots are not {:?}", core.devices.room()));
    }
    let used = core.devices.usage().used;
    if used != slots.len() as u64 {
        faults.push(format!("{used} slots are in use, {} belong to pages", slots.len()));
    }
    faults
}

/// What a node's numbers have to say against what the page words sum up to.
fn faults_of_node(node: usize, state: &NodeState, (resident, held): (u32, u32)) -> Vec<String> {
    let mut faults = Vec::new();
    if !state.is_balanced() {
        faults.push(format!("the books of node {node} do not balance"));
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

const CHILD: &str = "USERSWAP_TEST_CHILD";

/// Runs the test `name` again in a process of its own; None in that process, which then does the work.
pub fn in_child(name: &str, seconds: u32) -> Option<Output> {
    if std::env::var(CHILD).is_ok_and(|child| child == name) {
        limit(seconds);
        return None;
    }
    let program = std::env::current_exe().unwrap();
    let arguments = ["--exact", name, "--nocapture", "--test-threads=1"];
    let output = Command::new(program).args(arguments).env(CHILD, name).output().unwrap();
    Some(output)
}

/// As [`in_child`], for work that must end well: true in the child.
pub fn must_pass_in_child(name: &str, seconds: u32) -> bool {
    let Some(output) = in_child(name, seconds) else { return true };
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{text}\n{errors}", output.status);
    assert!(text.contains("1 passed"), "the child ran no test:\n{text}");
    false
}
