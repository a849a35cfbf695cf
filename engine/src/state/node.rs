//! One NUMA node: its frame pool, its share of the budget, its lists, under one lock.
//!
//! The budget counts physical pages: frames present in the pool, pages mapped in regions, and `spare`, the
//! pages it may still take from the kernel. A page that is moved in leaves a hole in the pool, one that is
//! moved out fills one: the sum never changes. Lists are hints: a page word decides, a list only says where
//! to look. The owner of a page enlists it after publishing, where its word says by then; a page whose word says
//! otherwise is forgotten when it is popped.
use crate::base::index::{FrameIndex, NodeId, PageIndex};
use crate::base::limits::{BATCH, RESERVE};
use crate::state::page::{GENERATIONS, PageState, PageTable};
use crate::sys::fd::Event;
use crate::sys::lock::{Guard, Lock};
use crate::sys::mapping::ZeroedSlice;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64};
use userswap_policy::compress::Refaults;
use userswap_policy::frames::{FrameRun, Pool};
use userswap_policy::lru::{Link, ListId, Lists};
use userswap_policy::reclaim::Health;
use userswap_policy::watermark::{Pressure, Watermarks};
use userswap_policy::workingset::{Counts, Workingset};

/// What a fault gets to put its page into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grant {
    /// Held frames, to be filled and moved in.
    Frames(FrameRun),
    /// The right to take so many pages from the kernel.
    Spare(u32),
}

impl Grant {
    /// Number of pages, at least one.
    pub fn pages(self) -> u32 {
        match self {
            Grant::Frames(run) => run.count,
            Grant::Spare(count) => count,
        }
    }
}

/// What pages are asked for: how far down the available ones may be taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asker {
    /// A fault: stops at the minimum.
    Fault,
    /// A fault that could have a page of another node: stops at the low watermark.
    FaultNearby,
    /// Readahead: stops at the low watermark, and does not take what it has read itself.
    Readahead,
    /// Work that can do without, or wait: stops at the low watermark.
    Background,
    /// More zeros than the fault asked for: stops a little above the minimum.
    ZerosAhead,
    /// Reclaim: may use everything.
    Reclaim,
}

/// Unevictable pages that one batch tries again at most: a quarter of it.
const RETRIED_MAX: u32 = BATCH as u32 / 4;

/// A node's data, guarded by its lock.
pub struct NodeState {
    /// The frames, numbered from 0.
    pub pool: Pool,
    /// Inactive, active, cached and unevictable pages, oldest first.
    pub lists: Lists<ZeroedSlice<Link>>,
    /// What is remembered of pages that left.
    pub workingset: Workingset,
    /// Pages that came back, where that decides about compressed memory.
    pub refaults: Option<Box<Refaults>>,
    /// Whether reclaim leads anywhere.
    pub health: Health,
    /// The priority that the last background round reached.
    pub priority: u8,
    /// The mapped page whose slot was asked for last when devices had no room.
    pub slots_looked_at: Option<PageIndex>,
    /// Pages enlisted as resident since the generation began.
    added: u32,
    generation: u8,
    /// Unevictable pages that the next batch tries again.
    retried: u32,
    /// Pages that are the next to leave because somebody said so. Some may have gone another way.
    cold: u32,
    /// Physical pages that may still be taken from the kernel.
    pub spare: u32,
    /// Pages mapped in regions.
    pub resident: u32,
    /// Pages that the program's own caches hold.
    pub charged: u32,
    /// Pages of memory that compressed pages take.
    pub stored: u32,
    /// Frames whose write is under way.
    pub writing: u32,
    /// Physical pages allowed.
    pub budget: u32,
    /// Where reclaim starts and stops.
    pub watermarks: Watermarks,
    /// Pages over the budget after it was shrunk, to be given back as they become free.
    pub debt: u32,
    /// Pages read ahead that lost their frame before they were used, to be counted.
    pub unused: u64,
    id: NodeId,
    first_frame: FrameIndex,
    positions: u32,
}

/// A node: what is read without its lock, and its data.
pub struct Node {
    /// The engine's number of it.
    pub id: NodeId,
    first_frame: FrameIndex,
    positions: u32,
    /// Its part of any budget: as much as it has of the first one.
    pub weight: u32,
    /// Wakes the node's reclaimer.
    pub reclaim_wanted: Event,
    /// The reclaimer is running or has been woken.
    pub reclaim_awake: AtomicBool,
    /// The reclaimer is not woken until there is progress; follows the node's health.
    pub hopeless: AtomicBool,
    /// When the last background batch was taken, if it was a block of scattered pages; else 0.
    pub block_taken_ns: AtomicU64,
    state: Lock<NodeState>,
}

impl Node {
    /// A node with a budget, the frames it can have, and links for `pages` pages.
    ///
    /// # Errors
    /// No address space for the links, no descriptor.
    pub fn new(
        id: NodeId,
        frames: FrameRun,
        budget: u32,
        watermarks: Watermarks,
        pages: u32,
    ) -> io::Result<Self> {
        let state = NodeState {
            pool: Pool::new(frames.count),
            lists: Lists::new(ZeroedSlice::new(pages as usize)?),
            refaults: None,
            spare: budget,
            resident: 0,
            charged: 0,
            stored: 0,
            writing: 0,
            budget,
            watermarks,
            workingset: Workingset::default(),
            health: Health::default(),
            priority: userswap_policy::reclaim::PRIORITY_DEFAULT,
            slots_looked_at: None,
            added: 0,
            generation: 0,
            retried: 1,
            cold: 0,
            debt: 0,
            unused: 0,
            id,
            first_frame: frames.first,
            positions: frames.count,
        };
        Ok(Self {
            id,
            first_frame: frames.first,
            positions: frames.count,
            weight: budget,
            reclaim_wanted: Event::new()?,
            reclaim_awake: AtomicBool::new(false),
            hopeless: AtomicBool::new(false),
            block_taken_ns: AtomicU64::new(0),
            state: Lock::new(state),
        })
    }

    /// Takes the node's lock.
    pub fn lock(&self) -> Guard<'_, NodeState> {
        self.state.lock()
    }

    /// Takes the node's lock, if it is free.
    pub fn try_lock(&self) -> Option<Guard<'_, NodeState>> {
        self.state.try_lock()
    }

    /// Whether a frame belongs to this node.
    pub fn owns(&self, frame: FrameIndex) -> bool {
        (self.first_frame..self.first_frame + self.positions).contains(&frame)
    }

    /// The number of its first frame.
    pub fn first_frame(&self) -> FrameIndex {
        self.first_frame
    }

    /// Frames that the node can have, present or not.
    pub fn positions(&self) -> u32 {
        self.positions
    }

    /// How often a thread had to wait for the node's lock.
    pub fn contended(&self) -> u64 {
        self.state.contended()
    }
}

impl NodeState {
    /// Pages of memory that the program's pages take in RAM, mapped or not, as they are or compressed.
    pub fn in_ram(&self) -> u32 {
        self.pool.present() + self.resident + self.stored
    }

    /// Pages that can be had without unmapping any.
    pub fn available(&self) -> u32 {
        self.pool.free() + self.spare + self.lists.len(ListId::Cached)
    }

    /// Nearer to where readahead has to stop than to where reclaim stops.
    pub fn is_sinking(&self) -> bool {
        self.available() < self.watermarks.low.midpoint(self.watermarks.high)
    }

    /// The engine's number of it.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// The generation of pages that are mapped now.
    pub fn generation(&self) -> u8 {
        self.generation
    }

    /// How many pages are on which list.
    pub fn counts(&self) -> Counts {
        let held = self.charged + self.stored + self.lists.len(ListId::Unevictable);
        Counts {
            inactive: self.lists.len(ListId::Inactive),
            active: self.lists.len(ListId::Active),
            unmapped: self.pool.present() + self.spare,
            budget: self.budget.saturating_sub(held),
            reserved: self.watermarks.high,
        }
    }

    /// Makes the oldest active pages inactive before so many are looked at, as the working set says, and a run of them
    /// when there is nothing else to look at; returns how many.
    pub fn demote(&mut self, looks: u32) -> u32 {
        let counts = self.counts();
        let at_least = if counts.inactive == 0 { RESERVE.min(counts.active) } else { 0 };
        let demoted = self.workingset.demote_of(looks, counts).max(at_least);
        for _ in 0..demoted {
            let page = self.lists.pop_oldest(ListId::Active).expect("there are so many");
            self.workingset.on_demotion(page);
            match self.cold {
                // The next to go: its second chance is the first look at it.
                0 => self.lists.push_oldest(ListId::Inactive, page),
                _ => self.lists.push_newest(ListId::Inactive, page),
            }
        }
        demoted
    }

    /// Takes the oldest inactive page off its list.
    pub fn pop_inactive(&mut self) -> Option<PageIndex> {
        self.cold = self.cold.saturating_sub(1);
        self.lists.pop_oldest(ListId::Inactive)
    }

    /// A page that was to leave could not: it is out of the way until it is tried again.
    ///
    /// Published as resident before; whoever has taken it off the inactive list since sees to it.
    pub fn set_unevictable(&mut self, page: PageIndex) {
        self.retried = 1;
        if self.lists.list_of(page) == Some(ListId::Inactive) {
            self.lists.push_newest(ListId::Unevictable, page);
        }
    }

    /// Lets some of the pages that could not leave be the next to try, the longest kept ones: one by one, twice as
    /// many each time as long as they do leave, and a whole batch when there is nothing else to look at. Nothing tells
    /// when a device or a lock lets go of a page.
    pub fn retry_unevictable(&mut self) {
        let others = self.lists.len(ListId::Inactive) + self.lists.len(ListId::Active);
        let retried = if others == 0 { BATCH as u32 } else { self.retried };
        for _ in 0..retried {
            let Some(page) = self.lists.pop_oldest(ListId::Unevictable) else { return };
            self.lists.push_oldest(ListId::Inactive, page);
        }
        self.retried = (self.retried * 2).min(RETRIED_MAX);
    }

    /// What the watermarks say.
    pub fn pressure(&self) -> Pressure {
        self.watermarks.pressure(self.available())
    }

    /// Up to `want` pages for `asker`; None when it has to wait or reclaim.
    pub fn grant(&mut self, want: u32, asker: Asker, pages: &PageTable) -> Option<Grant> {
        let kept = match asker {
            Asker::Fault => self.watermarks.min,
            Asker::Readahead | Asker::Background | Asker::FaultNearby => self.watermarks.low,
            Asker::ZerosAhead => self.watermarks.min + RESERVE,
            Asker::Reclaim => 0,
        };
        let want = want.min(self.available().saturating_sub(kept));
        if want == 0 {
            return None;
        }
        // Taken before they are needed to the last: frames of one batch left in one run, and together they
        // make long runs again.
        if self.pool.free() + self.spare < want {
            let missing = want - self.pool.free() - self.spare;
            match asker {
                Asker::Readahead => self.steal_cached_before_marks(missing, pages),
                _ => self.steal_cached(missing, pages),
            }
        }
        if let Some(run) = self.take_free(want) {
            return Some(Grant::Frames(run));
        }
        let count = want.min(self.spare);
        self.spare -= count;
        (count > 0).then_some(Grant::Spare(count))
    }

    /// As [`Self::steal_cached`], for readahead: it does not take what it has read itself.
    fn steal_cached_before_marks(&mut self, want: u32, pages: &PageTable) {
        for _ in 0..want {
            let Some(oldest) = self.lists.oldest(ListId::Cached) else { return };
            if matches!(pages.state(oldest), PageState::Cached { marker: true, .. }) {
                return;
            }
            self.steal_cached(1, pages);
        }
    }

    /// Takes frames of the oldest cached pages; their content is on their slots.
    pub fn steal_cached(&mut self, want: u32, pages: &PageTable) {
        let mut stolen = 0;
        while stolen < want {
            let Some(page) = self.lists.pop_oldest(ListId::Cached) else { return };
            let seen = pages.load(page);
            let PageState::Cached { frame, slot: Some(slot), marker } = seen.state() else {
                continue;
            };
            // A page that was meanwhile swapped in on another node is on that node's list.
            if !self.owns(frame) {
                continue;
            }
            if pages.evict(page, seen, slot, (self.id, self.workingset.on_eviction())) {
                self.put_free(FrameRun { first: frame, count: 1 });
                self.unused += u64::from(marker);
                stolen += 1;
            }
        }
    }

    /// Up to `max` free frames in one run, held from now on.
    pub fn take_free(&mut self, max: u32) -> Option<FrameRun> {
        self.pool.take_free(max).map(|run| self.shift(run))
    }

    /// Up to `max` frames without a physical page, held from now on, to move pages out to. There are some, unless debt has
    /// let the program have more pages than the pool has frames.
    pub fn take_holes(&mut self, max: u32) -> Option<FrameRun> {
        self.pool.take_holes(max).map(|run| self.shift(run))
    }

    /// Frames whose content is not needed any more.
    pub fn put_free(&mut self, run: FrameRun) {
        self.pool.put_free(self.unshift(run));
    }

    /// Frames whose physical page has gone.
    pub fn put_hole(&mut self, run: FrameRun) {
        self.pool.put_hole(self.unshift(run));
    }

    /// Pages that were mapped by moving; `frames` are the holes that they leave.
    pub fn on_moved_in(&mut self, frames: FrameRun) {
        self.put_hole(frames);
        self.resident += frames.count;
    }

    /// Pages that left their region for held frames by moving.
    pub fn on_moved_out(&mut self, count: u32) {
        self.resident =
            self.resident.checked_sub(count).expect("no more pages leave than are resident");
    }

    /// Pages whose physical page went back to the kernel.
    pub fn on_released(&mut self, count: u32) {
        let repaid = self.debt.min(count);
        self.debt -= repaid;
        self.spare += count - repaid;
    }

    /// Puts each page on the list that its word names, as its newest, if that is a list of this node.
    ///
    /// Called by the thread that published a state, after publishing it, and thus maybe after others have changed
    /// it again: they enlist the page themselves, and an old claim must not put it on the wrong list.
    pub fn enlist(&mut self, pages: &PageTable, first: PageIndex, count: u32) {
        for page in first..first + count {
            let word = pages.load(page);
            if let Some(mapped) = word.state().mapped() {
                if mapped.node == self.id {
                    self.lists.push_newest(ListId::of(word.standing().activity), page);
                    self.on_lru_add();
                }
            } else if matches!(word.state(), PageState::Cached { frame, .. } if self.owns(frame)) {
                self.lists.push_newest(ListId::Cached, page);
            }
        }
    }

    /// A generation is a sixteenth of the budget: half of them are on the lists, the others tell them from
    /// those that come after going round.
    fn on_lru_add(&mut self) {
        self.added += 1;
        if self.added >= self.budget / u32::from(GENERATIONS / 2) {
            self.added = 0;
            self.generation = (self.generation + 1) % GENERATIONS;
        }
    }

    /// The accounting balances: what is present, mapped, spare and the program's own is the budget (plus what it
    /// is still over it).
    pub fn is_balanced(&self) -> bool {
        let held = self.pool.present() + self.resident + self.charged + self.stored;
        held + self.spare == self.budget + self.debt
    }

    fn owns(&self, frame: FrameIndex) -> bool {
        (self.first_frame..self.first_frame + self.positions).contains(&frame)
    }

    fn shift(&self, run: FrameRun) -> FrameRun {
        FrameRun { first: run.first + self.first_frame, count: run.count }
    }

    fn unshift(&self, run: FrameRun) -> FrameRun {
        FrameRun { first: run.first - self.first_frame, count: run.count }
    }

    /// Makes a page the next to leave its list's kind: an active one is inactive then. One on no list
    /// (pinned, or on its way) stays there.
    pub(crate) fn make_oldest(&mut self, page: PageIndex) {
        match self.lists.list_of(page) {
            Some(ListId::Inactive | ListId::Active) => {
                self.lists.push_oldest(ListId::Inactive, page);
                self.cold += 1;
            }
            Some(ListId::Cached) => self.lists.push_oldest(ListId::Cached, page),
            Some(ListId::Unevictable) | None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEWCOMER: PageIndex = 511;

    /// Short of newcomers: one is inactive, all pages below it are active.
    fn node_with_newcomer() -> Node {
        let budget = 2048;
        let marks = Watermarks { min: 64, low: 80, high: 96 };
        let frames = FrameRun { first: 0, count: 4 * budget };
        let node = Node::new(NodeId(0), frames, budget, marks, NEWCOMER + 1).unwrap();
        let mut state = node.lock();
        state.spare = 0;
        state.lists.push_newest(ListId::Inactive, NEWCOMER);
        (0..NEWCOMER).for_each(|page| state.lists.push_newest(ListId::Active, page));
        drop(state);
        node
    }

    #[test]
    fn active_pages_that_give_way_leave_before_all_inactive_ones() {
        let node = node_with_newcomer();
        let mut state = node.lock();
        let demoted = state.demote(32);
        assert!((16..32).contains(&demoted), "some looks are for newcomers: {demoted}");
        let mut left: Vec<_> = std::iter::from_fn(|| state.pop_inactive()).collect();
        assert_eq!(left.pop(), Some(NEWCOMER));
        left.sort_unstable();
        assert_eq!(left, (0..demoted).collect::<Vec<_>>(), "the oldest gave way");
    }

    #[test]
    fn what_somebody_called_cold_leaves_before_pages_that_give_way() {
        let node = node_with_newcomer();
        let mut state = node.lock();
        state.make_oldest(NEWCOMER);
        assert!(state.demote(32) > 0);
        assert_eq!(state.pop_inactive(), Some(NEWCOMER));
    }
}
