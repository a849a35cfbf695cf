//! The flow of pages in one node of the engine, as its `node.rs`, `fault.rs` and `reclaim.rs` have it, with
//! the same lists and decisions, one page at a time.
use userswap_policy::lru::{Link, ListId, Lists};
use userswap_policy::watermark::{Pressure, Watermarks, min_free_kib};
use userswap_policy::workingset::{Activity, Counts, Need, Shadow, Workingset};

/// Pages per batch of reclaim; the engine's 256 would be a large part of this small memory.
const BATCH: u32 = 64;
/// The engine's default.
const WATERMARK_SCALE: u32 = 300;

/// What an access met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// A mapped page.
    Hit,
    /// A page on its second chance.
    Soft,
    /// A page that had to be read, or was new.
    Miss,
}

impl Outcome {
    pub fn is_miss(self) -> bool {
        self == Outcome::Miss
    }
}

#[derive(Clone, Copy)]
enum State {
    Untouched,
    Mapped,
    Cached,
    Swapped(Shadow),
}

pub struct Ours {
    lists: Lists<Vec<Link>>,
    states: Vec<State>,
    workingset: Workingset,
    budget: u32,
    free: u32,
    marks: Watermarks,
    soft: u64,
}

impl Ours {
    /// Empty memory of so many pages for a trace.
    pub fn new(trace: &[u32], budget: u32) -> Self {
        let pages = trace.iter().max().map_or(0, |last| *last as usize + 1);
        let min_pages = min_free_kib(u64::from(budget) * 4) / 4;
        Self {
            lists: Lists::new(vec![Link::default(); pages]),
            states: vec![State::Untouched; pages],
            workingset: Workingset::default(),
            budget,
            free: budget,
            marks: Watermarks::new(min_pages, budget.into(), WATERMARK_SCALE),
            soft: 0,
        }
    }

    pub fn soft_faults(&self) -> u64 {
        self.soft
    }

    pub fn access(&mut self, page: u32) -> Outcome {
        let (activity, outcome) = match self.states[page as usize] {
            State::Mapped => return Outcome::Hit,
            State::Cached => {
                self.lists.remove(page);
                self.workingset.on_activation(page);
                self.soft += 1;
                (Activity::Active, Outcome::Soft)
            }
            State::Untouched => {
                self.take_frame();
                (self.workingset.on_first_touch(self.counts()), Outcome::Miss)
            }
            State::Swapped(shadow) => {
                self.take_frame();
                let refault = self.workingset.on_refault(page, shadow, Need::Asked, self.counts());
                (refault.activity(), Outcome::Miss)
            }
        };
        self.map(page, activity);
        self.reclaim();
        outcome
    }

    fn counts(&self) -> Counts {
        Counts {
            inactive: self.lists.len(ListId::Inactive),
            active: self.lists.len(ListId::Active),
            unmapped: self.lists.len(ListId::Cached) + self.free,
            budget: self.budget,
            reserved: self.marks.high,
        }
    }

    fn take_frame(&mut self) {
        if self.free == 0 {
            let page = self.lists.pop_oldest(ListId::Cached).expect("reclaim keeps some");
            self.states[page as usize] = State::Swapped(self.workingset.on_eviction());
            self.free += 1;
        }
        self.free -= 1;
    }

    fn map(&mut self, page: u32, activity: Activity) {
        self.states[page as usize] = State::Mapped;
        self.lists.push_newest(ListId::of(activity), page);
    }

    fn pressure(&self) -> Pressure {
        self.marks.pressure(self.free + self.lists.len(ListId::Cached))
    }

    fn reclaim(&mut self) {
        if self.pressure() < Pressure::Low {
            return;
        }
        while self.pressure() != Pressure::Balanced {
            let counts = self.counts();
            for _ in 0..self.workingset.demote_of(BATCH, counts) {
                let page = self.lists.pop_oldest(ListId::Active).expect("there are so many");
                self.workingset.on_demotion(page);
                self.lists.push_oldest(ListId::Inactive, page);
            }
            for _ in 0..BATCH {
                let Some(page) = self.lists.pop_oldest(ListId::Inactive) else { break };
                self.workingset.on_look(page);
                self.states[page as usize] = State::Cached;
                self.lists.push_newest(ListId::Cached, page);
            }
        }
    }
}
