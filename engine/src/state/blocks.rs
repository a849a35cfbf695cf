//! Memory for a block of pages on its way out, allocated beforehand, and the address that it is taken to.
use crate::base::index::{FrameIndex, PageIndex};
use crate::state::core::Core;
use crate::state::page::{PageState, Word};
use crate::state::scratch::Unmapped;
use crate::state::threads::Threads;
use crate::sys::alias::{Alias, HELD_MAX};
use crate::sys::futex;
use std::sync::atomic::{AtomicU32, Ordering};
use userswap_policy::block::{BLOCK_PAGES, ReclaimWay, Ways};

/// A reclaimer's memory for one block.
pub(crate) struct Blocks {
    pub alias: Option<Alias>,
    /// No other address was to be had, or the kernel does not do what is needed.
    impossible: bool,
    pub ways: Ways,
    /// The words before their pages were owned.
    pub seen: Box<[Word; BLOCK_PAGES as usize]>,
    pub outcomes: Box<[Unmapped; BLOCK_PAGES as usize]>,
    /// Held frames that have no page yet.
    pub frames: Vec<FrameIndex>,
    /// Pages of the last block that something holds.
    pub held: Vec<PageIndex>,
}

impl Blocks {
    pub fn new() -> Self {
        let untouched = Word::new(PageState::Untouched);
        Self {
            alias: None,
            impossible: false,
            ways: Ways::default(),
            seen: Box::new([untouched; BLOCK_PAGES as usize]),
            outcomes: Box::new([Unmapped::Stayed; BLOCK_PAGES as usize]),
            frames: Vec::with_capacity(HELD_MAX),
            held: Vec::with_capacity(HELD_MAX),
        }
    }

    /// Whether there is an address to take blocks to, and nothing is known that would keep them; gets one at the first
    /// call. So many filters of system calls do no harm.
    pub fn open(&mut self, threads: &Threads, filters: u32) -> bool {
        if self.alias.is_none() && !self.impossible {
            self.alias = Alias::new(filters).ok();
            self.impossible = self.alias.is_none();
            let descriptors = self.alias.iter().flat_map(Alias::descriptors);
            threads.note_fds(descriptors);
        }
        self.alias.as_ref().is_some_and(Alias::may_take)
    }
}

/// Mappings on their way back to their places, counted.
///
/// Such a mapping gets the protection that its place has at that moment. What a program changes of that after the look would be
/// undone: a change during which a mapping has gone back is made once more.
#[derive(Debug, Default)]
pub struct PutBacks {
    begun: AtomicU32,
    ended: AtomicU32,
}

impl PutBacks {
    /// Puts a mapping back; looks at its place are part of it.
    pub fn put<R>(&self, act: impl FnOnce() -> R) -> R {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let result = act();
        self.ended.fetch_add(1, Ordering::SeqCst);
        futex::wake_all(&self.ended);
        result
    }

    /// How many have gone back.
    pub fn made(&self) -> u32 {
        self.ended.load(Ordering::SeqCst)
    }

    /// Changes protections, by a call that may be made several times.
    pub fn protect<R>(&self, mut change: impl FnMut() -> R) -> R {
        loop {
            let ended = self.ended.load(Ordering::SeqCst);
            let result = change();
            let begun = self.begun.load(Ordering::SeqCst);
            if begun == ended {
                return result;
            }
            // None that was under way may come after the next change.
            futex::wait(&self.ended, ended);
        }
    }
}

/// Relaxed: it orders nothing, and the next batch is early enough.
const ORDER: Ordering = Ordering::Relaxed;

impl Core {
    /// Which way scattered pages leave.
    pub fn reclaim_way(&self) -> ReclaimWay {
        ReclaimWay::of_index(self.reclaim_way.load(ORDER))
    }

    /// Changes it.
    pub fn set_reclaim_way(&self, way: ReclaimWay) {
        self.reclaim_way.store(way.index(), ORDER);
    }
}
