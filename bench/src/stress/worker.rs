//! A worker: a thread with areas of its own, which does everything to them that a program may, in random order, and
//! knows what every page must hold.
mod files;
mod locks;
mod processes;

use super::content::Stamp;
use super::history::{ENTRY_WORDS, Entry, History, KEPT};
use super::{Load, OwnRing, Part};
use crate::random::Random;
pub use files::Files;
use locks::Held;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use userswap::internals::bench::stress::{Area, Span, StressRing, lost_here, lost_since};

/// Areas of a worker.
pub const AREAS: usize = 3;

/// Pages of the smallest area, but for a member's first ones.
const AREA_PAGES_MIN: usize = 64;

/// Pages of the largest area.
pub const AREA_PAGES_MAX: usize = 4096;

/// Words of shared memory that a worker takes: its stamps and its history.
pub const SHARED_WORDS: usize = AREAS * AREA_PAGES_MAX + KEPT * ENTRY_WORDS;

/// Pages that most operations are about, at most.
const SPAN_MAX: u64 = 300;

/// Linux's numbers of advice.
mod advice {
    pub const DONTNEED: i32 = 4;
    pub const WILLNEED: i32 = 3;
    pub const FREE: i32 = 8;
    pub const COLD: i32 = 20;
    pub const PAGEOUT: i32 = 21;
}

/// What all workers do it with.
pub struct Shared<'a> {
    /// Stamps and histories.
    pub words: &'a [AtomicU64],
    /// What is read and written.
    pub files: &'a Files,
    /// What they are the workers of.
    pub load: Load,
    /// Where a member makes files of its own.
    pub directory: &'a Path,
    /// Operations done, by worker.
    pub done: &'a [AtomicU64],
    /// Pages found as they must be.
    pub verified: AtomicU64,
    /// Forks.
    pub forks: AtomicU64,
    /// Members started.
    pub members: AtomicU64,
    /// Calls that the kernel or the engine refused.
    pub refused: AtomicU64,
}

/// A page that is wrong, in words.
pub struct Wrong(pub String);

/// One of them.
pub struct Worker<'a> {
    id: usize,
    random: Random,
    areas: Vec<Area>,
    locks: Vec<Held>,
    stamps: &'a [AtomicU64],
    history: History<'a>,
    versions: u64,
    ring: Option<StressRing>,
    shared: &'a Shared<'a>,
}

type Operation = (&'static str, fn(&mut Worker, usize, Span) -> Result<(), Wrong>);

/// What is done; what is there more often is done more often.
const OPERATIONS: [Operation; 21] = [
    ("write", |worker, area, span| worker.write(area, span)),
    ("write", |worker, area, span| worker.write(area, span)),
    ("write", |worker, area, span| worker.write(area, span)),
    ("write", |worker, area, span| worker.write(area, span)),
    ("verify", |worker, area, span| worker.verify(area, span)),
    ("verify", |worker, area, span| worker.verify(area, span)),
    ("verify", |worker, area, span| worker.verify(area, span)),
    ("verify one by one", |worker, area, span| worker.verify_scattered(area, span)),
    ("MADV_DONTNEED", |worker, area, span| worker.drop_pages(area, span)),
    ("MADV_FREE", |worker, area, span| worker.free_pages(area, span)),
    ("MADV_PAGEOUT", |worker, area, span| worker.advise(area, span, advice::PAGEOUT)),
    ("MADV_COLD", |worker, area, span| worker.advise(area, span, advice::COLD)),
    ("MADV_WILLNEED", |worker, area, span| worker.advise(area, span, advice::WILLNEED)),
    ("mprotect PROT_READ", |worker, area, span| worker.protect(area, span)),
    ("mprotect PROT_NONE", |worker, area, span| worker.hide(area, span)),
    ("MAP_FIXED", |worker, area, span| worker.replace(area, span)),
    ("mlock", |worker, area, span| worker.lock(area, span)),
    ("read by O_DIRECT", |worker, area, span| worker.read_file(area, span)),
    ("written by O_DIRECT", |worker, area, span| worker.write_file(area, span)),
    ("read by io_uring", |worker, area, span| worker.read_by_ring(area, span)),
    ("mremap, munmap, fork or exec", |worker, area, span| worker.seldom(area, span)),
];

impl<'a> Worker<'a> {
    /// A worker with its areas, all zeros.
    ///
    /// # Errors
    /// As mmap's.
    pub fn new(id: usize, seed: u64, shared: &'a Shared<'a>) -> io::Result<Self> {
        let words = &shared.words[id * SHARED_WORDS..][..SHARED_WORDS];
        let (stamps, history) = words.split_at(AREAS * AREA_PAGES_MAX);
        let mut random = Random::new(seed.wrapping_mul(31).wrapping_add(id as u64));
        let least = match shared.load.part {
            Part::First(_) => AREA_PAGES_MIN,
            Part::Member => AREA_PAGES_MAX / 2,
        };
        let pages = |random: &mut Random| least + random.below(AREA_PAGES_MAX as u64 / 2) as usize;
        let areas = (0..AREAS).map(|_| Area::map(pages(&mut random)));
        let areas = areas.collect::<io::Result<Vec<_>>>()?;
        let ring = match shared.load.own_ring {
            OwnRing::Used => StressRing::new().ok(),
            OwnRing::Unsafe => None,
        };
        let history = History::new(history);
        let locks = Vec::new();
        Ok(Self { id, random, areas, locks, stamps, history, versions: 0, ring, shared })
    }

    /// One operation.
    ///
    /// # Errors
    /// A page was wrong.
    pub fn step(&mut self) -> Result<(), Wrong> {
        self.unlock_due();
        let operation = self.random.below(OPERATIONS.len() as u64) as usize;
        let area = self.random.below(AREAS as u64) as usize;
        let pages = self.areas[area].pages();
        let count = 1 + self.random.below(SPAN_MAX.min(pages as u64)) as usize;
        let first = self.random.below((pages - count + 1) as u64) as usize;
        let span = Span { first, count };
        self.history.note(Entry { operation, area, span, stamp: Stamp(self.versions) });
        OPERATIONS[operation].1(self, area, span)?;
        self.shared.done[self.id].fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// All of its pages are as they must be.
    ///
    /// # Errors
    /// One is not.
    pub fn verify_all(&mut self) -> Result<(), Wrong> {
        (0..AREAS).try_for_each(|area| self.verify(area, self.whole(area)))
    }

    /// Whether its load is one that another has started.
    pub fn is_member(&self) -> bool {
        matches!(self.shared.load.part, Part::Member)
    }

    /// All of its pages are written once.
    ///
    /// # Errors
    /// One was wrong.
    pub fn write_all(&mut self) -> Result<(), Wrong> {
        (0..AREAS).try_for_each(|area| self.write(area, self.whole(area)))
    }

    fn whole(&self, area: usize) -> Span {
        Span { first: 0, count: self.areas[area].pages() }
    }

    fn stamp(&self, area: usize, page: usize) -> Stamp {
        Stamp(self.stamps[area * AREA_PAGES_MAX + page].load(Ordering::Relaxed))
    }

    fn set_stamp(&self, area: usize, page: usize, stamp: Stamp) {
        self.stamps[area * AREA_PAGES_MAX + page].store(stamp.0, Ordering::Relaxed);
    }

    fn set_stamps(&self, area: usize, span: Span, stamp: Stamp) {
        pages_of(span).for_each(|page| self.set_stamp(area, page, stamp));
    }

    /// A page that is lost meanwhile is written again.
    fn fill(&self, area: usize, page: usize, stamp: Stamp) {
        loop {
            let before = lost_here();
            self.areas[area].fill(page, |index| stamp.word(index));
            if lost_here() == before {
                return self.set_stamp(area, page, stamp);
            }
        }
    }

    fn write(&mut self, area: usize, span: Span) -> Result<(), Wrong> {
        for page in pages_of(span) {
            self.versions += 1;
            // Half of them after a look.
            if self.versions.is_multiple_of(2) {
                self.verify_page(area, page)?;
            }
            self.fill(area, page, Stamp::by(self.id, self.versions));
        }
        Ok(())
    }

    fn verify(&mut self, area: usize, span: Span) -> Result<(), Wrong> {
        pages_of(span).try_for_each(|page| self.verify_page(area, page))
    }

    fn verify_scattered(&mut self, area: usize, _: Span) -> Result<(), Wrong> {
        for _ in 0..20 {
            let page = self.random.below(self.areas[area].pages() as u64) as usize;
            self.verify_page(area, page)?;
        }
        Ok(())
    }

    fn verify_page(&self, area: usize, page: usize) -> Result<(), Wrong> {
        let (stamp, before) = (self.stamp(area, page), lost_here());
        let wrong = self.areas[area].wrong(page, |index| stamp.word(index));
        if lost_here() != before {
            // A page of zeros is there now.
            self.set_stamp(area, page, Stamp::ZEROS);
            return Ok(());
        }
        self.shared.verified.fetch_add(1, Ordering::Relaxed);
        wrong.map_or(Ok(()), |index| Err(self.report(area, page, index)))
    }

    fn report(&self, area: usize, page: usize, index: usize) -> Wrong {
        let (expected, found) = (self.stamp(area, page), &self.areas[area]);
        let mut lines = vec![format!(
            "worker {}, area {area}, page {page}: word {index} is {:#x}, not {:#x}; expected {}, found {}",
            self.id,
            found.word(page, index),
            expected.word(index),
            expected.describe(),
            Stamp(found.word(page, 0)).describe(),
        )];
        lines.extend(self.history.of(area, page).iter().map(|entry| {
            let Span { first, count } = entry.span;
            let name = OPERATIONS[entry.operation].0;
            format!("  {name} of {count} pages from {first} on, after write {}", entry.stamp.0)
        }));
        Wrong(lines.join("\n"))
    }

    /// Of pages that a call of this thread's found lost pages of zeros are left.
    fn find_lost(&self, area: usize, before: u64) {
        let lost = lost_since(before).filter_map(|address| self.areas[area].page_at(address));
        lost.for_each(|page| self.set_stamp(area, page, Stamp::ZEROS));
    }

    fn note_refusal(&self) {
        self.shared.refused.fetch_add(1, Ordering::Relaxed);
    }

    fn advise(&mut self, area: usize, span: Span, advice: i32) -> Result<(), Wrong> {
        if self.areas[area].advise(span, advice).is_err() {
            self.note_refusal();
        }
        Ok(())
    }

    fn drop_pages(&mut self, area: usize, span: Span) -> Result<(), Wrong> {
        match self.areas[area].advise(span, advice::DONTNEED) {
            Ok(()) => self.set_stamps(area, span, Stamp::ZEROS),
            Err(_) => {
                self.note_refusal();
                self.find_dropped(area, span);
            }
        }
        Ok(())
    }

    /// Every page is what it was or zeros, until it is written.
    fn free_pages(&mut self, area: usize, span: Span) -> Result<(), Wrong> {
        self.advise(area, span, advice::FREE)?;
        for page in pages_of(span) {
            let before = self.stamp(area, page);
            if self.areas[area].wrong(page, |index| Stamp::ZEROS.word(index)).is_none() {
                self.set_stamp(area, page, Stamp::ZEROS);
            }
            self.verify_page(area, page)?;
            self.fill(area, page, before);
        }
        Ok(())
    }

    fn protect(&mut self, area: usize, span: Span) -> Result<(), Wrong> {
        const PROT_READ: i32 = 1;
        let page = span.first;
        let (stamp, before) = (self.stamp(area, page), lost_here());
        let mut wrong = None;
        let look = |area: &Area| wrong = area.wrong(page, |index| stamp.word(index));
        if self.areas[area].protect(span, PROT_READ, look).is_err() {
            self.note_refusal();
        }
        match wrong {
            Some(_) if lost_here() != before => self.set_stamp(area, page, Stamp::ZEROS),
            Some(index) => return Err(self.report(area, page, index)),
            None => {}
        }
        Ok(())
    }

    fn hide(&mut self, area: usize, span: Span) -> Result<(), Wrong> {
        const PROT_NONE: i32 = 0;
        if self.areas[area].protect(span, PROT_NONE, |_| {}).is_err() {
            self.note_refusal();
        }
        Ok(())
    }

    fn replace(&mut self, area: usize, span: Span) -> Result<(), Wrong> {
        match self.areas[area].replace(span) {
            Ok(()) => self.set_stamps(area, span, Stamp::ZEROS),
            Err(_) => self.note_refusal(),
        }
        Ok(())
    }

    /// What is dear.
    fn seldom(&mut self, area: usize, span: Span) -> Result<(), Wrong> {
        match self.random.below(16) {
            0..4 => self.resize(area),
            4..8 => self.map_anew(area),
            8..12 => self.fork(area, span),
            12 => self.start_member(),
            _ => Ok(()),
        }
    }

    fn resize(&mut self, area: usize) -> Result<(), Wrong> {
        let before = self.areas[area].pages();
        // Only what is locked as a whole, or not at all, can grow.
        if self.random.below(4) > 0 {
            self.unlock_all_of(area);
        }
        let room = AREA_PAGES_MAX - AREA_PAGES_MIN;
        let pages = AREA_PAGES_MIN + self.random.below(room as u64) as usize;
        match self.areas[area].resize(pages) {
            Ok(()) => {
                (before..pages).for_each(|page| self.set_stamp(area, page, Stamp::ZEROS));
                self.forget_locks(area, pages);
            }
            Err(_) => self.note_refusal(),
        }
        Ok(())
    }

    fn map_anew(&mut self, area: usize) -> Result<(), Wrong> {
        let room = AREA_PAGES_MAX / 2;
        let pages = AREA_PAGES_MIN + self.random.below(room as u64) as usize;
        match Area::map(pages) {
            Ok(new) => {
                self.areas[area] = new;
                self.forget_locks(area, 0);
                self.set_stamps(area, self.whole(area), Stamp::ZEROS);
            }
            Err(_) => self.note_refusal(),
        }
        Ok(())
    }
}

fn pages_of(span: Span) -> std::ops::Range<usize> {
    span.first..span.first + span.count
}

#[cfg(test)]
mod tests {
    use super::super::Losses;
    use super::files::FILE_PAGES;
    use super::*;
    use std::time::Duration;

    /// Has a worker act that belongs to a small load, outside `run`.
    fn with_a_worker(act: impl FnOnce(Worker<'_>)) {
        let words: Vec<AtomicU64> = (0..SHARED_WORDS).map(|_| AtomicU64::new(0)).collect();
        let directory = Path::new("/var/tmp");
        let files = Files::new(directory, 1).unwrap();
        let load = Load {
            time: Duration::ZERO,
            seed: 5,
            own_ring: OwnRing::Unsafe,
            losses: Losses::None,
            part: Part::Member,
        };
        let done = [AtomicU64::new(0)];
        let shared = Shared {
            words: &words,
            files: &files,
            load,
            directory,
            done: &done,
            verified: AtomicU64::new(0),
            forks: AtomicU64::new(0),
            members: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        };
        act(Worker::new(0, 5, &shared).unwrap());
    }

    #[test]
    fn a_word_that_changes_by_itself_is_found_and_its_history_told() {
        with_a_worker(|mut worker| {
            let span = Span { first: 3, count: 40 };
            let entry = Entry { operation: 0, area: 1, span, stamp: Stamp(0) };
            worker.history.note(entry);
            assert!(worker.write(1, span).is_ok() && worker.verify_all().is_ok());
            assert!(worker.drop_pages(1, Span { first: 10, count: 1 }).is_ok());
            assert!(worker.verify_all().is_ok());
            let stamp = worker.stamp(1, 20);
            worker.areas[1].fill(20, |index| stamp.word(index) ^ u64::from(index == 77));
            let Err(Wrong(text)) = worker.verify_all() else {
                panic!("one bit of a word has changed")
            };
            for part in [
                "area 1, page 20: word 77 is ",
                "write 18 of worker 0",
                "write of 40 pages from 3 on",
            ] {
                assert!(text.contains(part), "{text}");
            }
        });
    }

    #[test]
    fn a_page_that_is_not_what_a_device_wrote_is_found() {
        with_a_worker(|mut worker| {
            let span = Span { first: 3, count: 40 };
            assert!(worker.write(1, span).is_ok() && worker.write_file(1, span).is_ok());
            let (first, stamp) = (worker.stamp(1, 3), worker.stamp(1, 4));
            let in_file = (0..FILE_PAGES).find(|page| worker.look_at_file(1, 3, *page).is_ok());
            worker.set_stamp(1, 3, stamp);
            let found = worker.look_at_file(1, 3, in_file.expect("it was written"));
            let text = found.unwrap_err().to_string();
            assert!(text.contains(&format!("{:#x} from word 0", first.0)), "{text}");
        });
    }

    #[test]
    fn what_a_lock_keeps_is_known_from_what_is_dropped_before_it() {
        with_a_worker(|mut worker| {
            assert!(worker.write_all().is_ok());
            assert!(worker.lock(1, Span { first: 50, count: 4 }).is_ok());
            assert!(worker.drop_pages(1, Span { first: 40, count: 20 }).is_ok());
            assert!(worker.verify_all().is_ok());
            let dropped = (40..60).filter(|page| worker.stamp(1, *page) == Stamp::ZEROS);
            assert!(dropped.eq(40..50), "the kernel ends there");
            worker.forget_locks(1, 52);
            worker.unlock_all_of(1);
            assert!(worker.drop_pages(1, Span { first: 40, count: 12 }).is_ok());
            assert_eq!(worker.stamp(1, 51), Stamp::ZEROS);
        });
    }
}
