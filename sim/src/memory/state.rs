//! Pages, frames and lists: all that changes without time passing.

use userswap_policy::frames::{FrameRun, Pool};
use userswap_policy::lru::{Link, ListId, Lists};
use userswap_policy::reclaim::Health;
use userswap_policy::watermark::{Pressure, Watermarks, min_free_kib};
use userswap_policy::workingset::{Activity, Counts, Need, Shadow, Workingset};

use super::{Replacement, Rules, Slot};
use crate::machine::Machine;

/// A page of a program, counted through all programs.
pub type PageId = u32;

/// A page frame: a node's, by its index there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The node.
    pub node: u16,
    /// Among the node's frames.
    pub index: u32,
}

/// What a page is; its owner alone ends a state in which it is busy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// It reads as zeros.
    Untouched,
    /// Busy: a thread gets a frame for it.
    Filling,
    /// Mapped.
    Resident(Frame),
    /// Busy: reclaim has taken it from its program.
    Leaving(Frame),
    /// Busy: on its way to a slot.
    Writing(Frame, Slot),
    /// On a device, since its node's clock said so.
    Swapped(Slot, Shadow),
    /// Busy: on its way back.
    Reading(Slot),
    /// It could not be read back.
    Lost,
}

impl Word {
    /// Whether only its owner may change it.
    pub fn is_busy(self) -> bool {
        matches!(self, Word::Filling | Word::Leaving(_) | Word::Writing(..) | Word::Reading(_))
    }
}

/// A page, and what a program has written to it.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// What it is.
    pub word: Word,
    /// Writes so far: what must be read back.
    pub version: u32,
}

/// What a frame or a slot holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Content {
    pub page: PageId,
    pub version: u32,
}

/// One node's frames and lists; items of the lists are frames.
pub struct Node {
    pub pool: Pool,
    pub lists: Lists<Vec<Link>>,
    pub marks: Watermarks,
    pub workingset: Workingset,
    pub health: Health,
    pub contents: Vec<Option<Content>>,
    /// Its reclaimer has been woken and has not yet looked.
    pub is_woken: bool,
}

impl Node {
    fn new(machine: &Machine) -> Self {
        let frames = machine.frames_per_node() as u32;
        let total = u64::from(frames) * u64::from(machine.nodes());
        // Marks follow the size of the real machine, then the scale.
        let scale = *machine.scale.get_ref();
        let marks_scale = machine.marks_scale.unwrap_or(scale).max(1);
        let min = min_free_kib(total * scale * 4) / 4 / marks_scale;
        let share =
            Watermarks::share(min.max(u64::from(machine.nodes()) * 8), frames.into(), total);
        let managed = u64::from(frames) * scale / marks_scale;
        let mut pool = Pool::new(frames);
        while let Some(run) = pool.take_holes(frames) {
            pool.put_free(run);
        }
        Self {
            pool,
            lists: Lists::new(vec![Link::default(); frames as usize]),
            marks: Watermarks::new(share.min(u64::from(frames) / 8), managed, 10),
            workingset: Workingset::default(),
            health: Health::default(),
            contents: vec![None; frames as usize],
            is_woken: false,
        }
    }

    pub fn pressure(&self) -> Pressure {
        self.marks.pressure(self.pool.free())
    }

    fn counts(&self) -> Counts {
        Counts {
            inactive: self.lists.len(ListId::Inactive),
            active: self.lists.len(ListId::Active),
            unmapped: self.pool.free(),
            budget: self.pool.positions(),
            reserved: self.marks.high,
        }
    }
}

/// All pages and nodes.
pub struct State {
    pub pages: Vec<Page>,
    pub nodes: Vec<Node>,
    replacement: Replacement,
    /// Grows with every change that a check could find wrong.
    pub revision: u64,
}

impl State {
    pub fn new(machine: &Machine, rules: Rules, pages: u32) -> Self {
        let page = Page { word: Word::Untouched, version: 0 };
        Self {
            pages: vec![page; pages as usize],
            nodes: (0..machine.nodes()).map(|_| Node::new(machine)).collect(),
            replacement: rules.replacement,
            revision: 0,
        }
    }

    pub fn word(&self, page: PageId) -> Word {
        self.pages[page as usize].word
    }

    /// Publishes a page's state.
    pub fn publish(&mut self, page: PageId, word: Word) {
        self.revision += 1;
        self.pages[page as usize].word = word;
    }

    pub fn content(&mut self, frame: Frame) -> &mut Option<Content> {
        &mut self.nodes[usize::from(frame.node)].contents[frame.index as usize]
    }

    /// A free frame of a node.
    pub fn take(&mut self, node: u16) -> Option<Frame> {
        let run = self.nodes[usize::from(node)].pool.take_free(1)?;
        Some(Frame { node, index: run.first })
    }

    pub fn free(&mut self, frame: Frame) {
        self.revision += 1;
        *self.content(frame) = None;
        let node = &mut self.nodes[usize::from(frame.node)];
        node.pool.put_free(FrameRun { first: frame.index, count: 1 });
        node.health.on_progress();
    }

    /// Lists a page that was mapped: by the word it had before.
    pub fn list(&mut self, page: PageId, frame: Frame, before: Word) {
        let replacement = self.replacement;
        let node = &mut self.nodes[usize::from(frame.node)];
        let activity = match (replacement, before) {
            (Replacement::Queue, _) => Activity::Inactive,
            (Replacement::WorkingSet, Word::Swapped(_, shadow)) => {
                let counts = node.counts();
                node.workingset.on_refault(page, shadow, Need::Asked, counts).activity()
            }
            (Replacement::WorkingSet, _) => node.workingset.on_first_touch(node.counts()),
        };
        node.lists.push_newest(ListId::of(activity), frame.index);
    }

    /// Takes up to `most` of a node's oldest pages for reclaim: they are Leaving then.
    pub fn isolate(&mut self, node: u16, most: u32) -> Vec<(PageId, Frame)> {
        self.demote(node);
        let mut victims = Vec::new();
        while victims.len() < most as usize {
            let Some(index) = self.nodes[usize::from(node)].lists.pop_oldest(ListId::Inactive)
            else {
                break;
            };
            let frame = Frame { node, index };
            let page = self.content(frame).expect("a listed frame holds a page").page;
            assert_eq!(self.word(page), Word::Resident(frame), "a listed page is resident");
            self.publish(page, Word::Leaving(frame));
            victims.push((page, frame));
        }
        victims
    }

    fn demote(&mut self, node: u16) {
        let node = &mut self.nodes[usize::from(node)];
        for _ in 0..node.workingset.demote(node.counts()) {
            let index = node.lists.oldest(ListId::Active).expect("there are so many active pages");
            let page = node.contents[index as usize].expect("a listed frame holds a page").page;
            node.workingset.on_demotion(page);
            node.lists.push_newest(ListId::Inactive, index);
        }
    }

    /// A page that was to leave stays.
    pub fn put_back(&mut self, page: PageId, frame: Frame) {
        self.publish(page, Word::Resident(frame));
        self.nodes[usize::from(frame.node)].lists.push_newest(ListId::Inactive, frame.index);
    }

    /// A page whose write has ended is on its slot only.
    pub fn evict(&mut self, page: PageId, frame: Frame, slot: Slot) {
        let shadow = self.nodes[usize::from(frame.node)].workingset.on_eviction();
        self.publish(page, Word::Swapped(slot, shadow));
        self.free(frame);
    }
}
