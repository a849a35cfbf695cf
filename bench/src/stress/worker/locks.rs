//! Locks (mlock) that stay while other things are done to the same pages.
use super::{Worker, Wrong, pages_of};
use crate::stress::content::Stamp;
use std::sync::atomic::Ordering;
use userswap::internals::bench::stress::{Span, lost_here};

/// Locks that a worker has at once.
const LOCKS_MAX: usize = 6;

/// Pages of a lock. All workers' are less than a quarter of the smallest budget, of which three quarters may be pinned.
const LOCK_PAGES_MAX: usize = 32;

/// Operations after which a lock ends, at most.
const KEPT_MAX: u64 = 100;

/// A lock.
#[derive(Clone, Copy)]
pub struct Held {
    area: usize,
    span: Span,
    /// The number of the worker's operation that ends it.
    until: u64,
}

impl Worker<'_> {
    pub(super) fn lock(&mut self, area: usize, span: Span) -> Result<(), Wrong> {
        let span = Span { count: span.count.min(LOCK_PAGES_MAX), ..span };
        let lock = Held { area, span, until: self.steps() + self.random.below(KEPT_MAX) };
        if self.locks.len() == LOCKS_MAX {
            let oldest = self.locks.remove(0);
            self.unlock(oldest);
        }
        let before = lost_here();
        match self.areas[area].lock(span) {
            Ok(()) => self.locks.push(lock),
            Err(_) => {
                self.note_refusal();
                self.unlock(lock);
            }
        }
        self.find_lost(area, before);
        self.verify(area, span)
    }

    fn unlock(&self, Held { area, span, .. }: Held) {
        if self.areas[area].unlock(span).is_err() {
            self.note_refusal();
        }
    }

    /// Ends those that have been there long enough.
    pub(super) fn unlock_due(&mut self) {
        let now = self.steps();
        self.unlock_those(|lock| lock.until <= now);
    }

    /// Ends those of an area.
    pub(super) fn unlock_all_of(&mut self, area: usize) {
        self.unlock_those(|lock| lock.area == area);
    }

    fn unlock_those(&mut self, ends: impl Fn(&Held) -> bool) {
        while let Some(index) = self.locks.iter().position(&ends) {
            let lock = self.locks.swap_remove(index);
            self.unlock(lock);
        }
    }

    fn steps(&self) -> u64 {
        self.shared.done[self.id].load(Ordering::Relaxed)
    }

    /// The pages of an area from this one on are gone, and their locks with them.
    pub(super) fn forget_locks(&mut self, area: usize, pages: usize) {
        for lock in self.locks.iter_mut().filter(|lock| lock.area == area) {
            lock.span.count = lock.span.count.min(pages.saturating_sub(lock.span.first));
        }
        self.locks.retain(|lock| lock.span.count > 0);
    }

    /// MADV_DONTNEED ends at a locked page, and has dropped what is before it.
    pub(super) fn find_dropped(&self, area: usize, span: Span) {
        let locks = self.locks.iter().filter(|lock| lock.area == area);
        let last = locks
            .flat_map(|lock| pages_of(lock.span))
            .filter(|page| pages_of(span).contains(page))
            .max();
        let is_zeros = |page: &usize| {
            self.areas[area].wrong(*page, |index| Stamp::ZEROS.word(index)).is_none()
        };
        let before = last.map_or(span.first..span.first, |last| span.first..last);
        before.filter(is_zeros).for_each(|page| self.set_stamp(area, page, Stamp::ZEROS));
    }
}
