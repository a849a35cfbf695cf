//! A worker: a thread with areas of its own, which does everything to them that a program may, in random order, and
//! knows what every page must hold.
use super::content::Stamp;
use super::history::{ENTRY_WORDS, Entry, History, KEPT};
use crate::random::Random;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use userswap::internals::bench::stress::{Area, Span, StressRing, in_child, lost_here, lost_since};

/// Areas of a worker.
pub const AREAS: usize = 3;

/// Pages of the largest area.
pub const AREA_PAGES_MAX: usize = 4096;

/// Pages of the file that is read.
pub const FILE_PAGES: usize = 256;

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

/// Whether the program may hand its memory to an io_uring of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnRing {
    /// It may.
    Used,
    /// docs/limits.md says where not.
    Unsafe,
}

/// What all workers do it with.
pub struct Shared<'a> {
    /// Stamps and histories.
    pub words: &'a [AtomicU64],
    /// A file whose pages hold [`Stamp::of_file`], opened with O_DIRECT.
    pub file: &'a File,
    /// Whether io_uring is among the operations.
    pub own_ring: OwnRing,
    /// Operations done, by worker.
    pub done: &'a [AtomicU64],
    /// Pages found as they must be.
    pub verified: AtomicU64,
    /// Forks.
    pub forks: AtomicU64,
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
    stamps: &'a [AtomicU64],
    history: History<'a>,
    versions: u64,
    ring: Option<StressRing>,
    shared: &'a Shared<'a>,
}

type Operation = (&'static str, fn(&mut Worker, usize, Span) -> Result<(), Wrong>);

/// What is done; what is there more often is done more often.
const OPERATIONS: [Operation; 20] = [
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
    ("O_DIRECT", |worker, area, span| worker.read_file(area, span)),
    ("io_uring", |worker, area, span| worker.read_by_ring(area, span)),
    ("mremap, munmap or fork", |worker, area, span| worker.seldom(area, span)),
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
        let pages = |random: &mut Random| 64 + random.below(AREA_PAGES_MAX as u64 / 2) as usize;
        let areas = (0..AREAS).map(|_| Area::map(pages(&mut random)));
        let areas = areas.collect::<io::Result<Vec<_>>>()?;
        let ring = match shared.own_ring {
            OwnRing::Used => StressRing::new().ok(),
            OwnRing::Unsafe => None,
        };
        let history = History::new(history);
        Ok(Self { id, random, areas, stamps, history, versions: 0, ring, shared })
    }

    /// One operation.
    ///
    /// # Errors
    /// A page was wrong.
    pub fn step(&mut self) -> Result<(), Wrong> {
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
            Err(_) => self.note_refusal(),
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

    fn lock(&mut self, area: usize, span: Span) -> Result<(), Wrong> {
        let span = Span { count: span.count.min(32), ..span };
        let before = lost_here();
        if self.areas[area].lock(span, |_| {}).is_err() {
            self.note_refusal();
        }
        // Pages of zeros are where it found lost ones.
        let lost = lost_since(before).filter_map(|address| self.areas[area].page_at(address));
        lost.for_each(|page| self.set_stamp(area, page, Stamp::ZEROS));
        self.verify(area, span)
    }

    fn read_file(&mut self, area: usize, span: Span) -> Result<(), Wrong> {
        let page = self.random.below(FILE_PAGES as u64) as usize;
        let span = Span { count: span.count.min(FILE_PAGES - page), ..span };
        let read = self.areas[area].read(span, self.shared.file, page * 4096);
        self.have_read(area, span, page, read)
    }

    fn read_by_ring(&mut self, area: usize, span: Span) -> Result<(), Wrong> {
        let page = self.random.below(FILE_PAGES as u64) as usize;
        let span = Span { count: span.count.min(FILE_PAGES - page), ..span };
        let Some(ring) = &mut self.ring else { return Ok(()) };
        let read = self.areas[area].read_by_ring(span, self.shared.file, page * 4096, ring);
        self.have_read(area, span, page, read)
    }

    /// After a read that failed nobody knows what has come.
    fn have_read(
        &mut self,
        area: usize,
        span: Span,
        first: usize,
        read: io::Result<()>,
    ) -> Result<(), Wrong> {
        for (page, of_file) in pages_of(span).zip(first..) {
            match &read {
                Ok(()) => self.set_stamp(area, page, Stamp::of_file(of_file)),
                Err(_) => self.fill(area, page, Stamp::of_file(of_file)),
            }
        }
        if read.is_err() {
            self.note_refusal();
        }
        self.verify(area, span)
    }

    /// What is dear.
    fn seldom(&mut self, area: usize, span: Span) -> Result<(), Wrong> {
        match self.random.below(4) {
            0 => self.resize(area),
            1 => self.map_anew(area),
            2 => self.fork(area, span),
            _ => Ok(()),
        }
    }

    fn resize(&mut self, area: usize) -> Result<(), Wrong> {
        let before = self.areas[area].pages();
        let pages = 64 + self.random.below(AREA_PAGES_MAX as u64 - 64) as usize;
        match self.areas[area].resize(pages) {
            Ok(()) => (before..pages).for_each(|page| self.set_stamp(area, page, Stamp::ZEROS)),
            Err(_) => self.note_refusal(),
        }
        Ok(())
    }

    fn map_anew(&mut self, area: usize) -> Result<(), Wrong> {
        let pages = 64 + self.random.below(AREA_PAGES_MAX as u64 / 2) as usize;
        match Area::map(pages) {
            Ok(new) => {
                self.areas[area] = new;
                self.set_stamps(area, self.whole(area), Stamp::ZEROS);
            }
            Err(_) => self.note_refusal(),
        }
        Ok(())
    }

    /// A child finds what was there, and changes its own copy only.
    fn fork(&mut self, area: usize, span: Span) -> Result<(), Wrong> {
        self.shared.forks.fetch_add(1, Ordering::Relaxed);
        let is_right = in_child(|| {
            let outcome = self.verify_in_child(area, span);
            if let Err(Wrong(text)) = &outcome {
                say!("in a forked child: {text}");
            }
            outcome.is_ok()
        });
        match is_right {
            Ok(true) => self.verify(area, span),
            Ok(false) => {
                Err(Wrong(format!("worker {}: a forked child found wrong pages", self.id)))
            }
            Err(error) if error.raw_os_error().is_some() => {
                self.note_refusal();
                Ok(())
            }
            Err(error) => Err(Wrong(format!("worker {}: {error}", self.id))),
        }
    }

    fn verify_in_child(&self, area: usize, span: Span) -> Result<(), Wrong> {
        for other in 0..AREAS {
            pages_of(self.whole(other))
                .try_for_each(|page| self.verify_in_copy(other, page, None))?;
        }
        for page in pages_of(span) {
            let stamp = self.stamp(area, page).in_child();
            self.areas[area].fill(page, |index| stamp.word(index));
        }
        pages_of(span).try_for_each(|page| {
            self.verify_in_copy(area, page, Some(self.stamp(area, page).in_child()))
        })
    }

    /// As [`Self::verify_page`], but leaves the stamps alone: they are the parent's, too.
    fn verify_in_copy(&self, area: usize, page: usize, own: Option<Stamp>) -> Result<(), Wrong> {
        let (stamp, before) = (own.unwrap_or(self.stamp(area, page)), lost_here());
        let wrong = self.areas[area].wrong(page, |index| stamp.word(index));
        match wrong {
            Some(index) if lost_here() == before => Err(self.report(area, page, index)),
            _ => Ok(()),
        }
    }
}

fn pages_of(span: Span) -> std::ops::Range<usize> {
    span.first..span.first + span.count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_changes_by_itself_is_found_and_its_history_told() {
        let words: Vec<AtomicU64> = (0..SHARED_WORDS).map(|_| AtomicU64::new(0)).collect();
        let file = File::open("/proc/self/exe").unwrap();
        let done = [AtomicU64::new(0)];
        let shared = Shared {
            words: &words,
            file: &file,
            own_ring: OwnRing::Unsafe,
            done: &done,
            verified: AtomicU64::new(0),
            forks: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        };
        let mut worker = Worker::new(0, 5, &shared).unwrap();
        let span = Span { first: 3, count: 40 };
        let entry = Entry { operation: 0, area: 1, span, stamp: Stamp(0) };
        worker.history.note(entry);
        assert!(worker.write(1, span).is_ok() && worker.verify_all().is_ok());
        assert!(worker.drop_pages(1, Span { first: 10, count: 1 }).is_ok());
        assert!(worker.verify_all().is_ok());
        let stamp = worker.stamp(1, 20);
        worker.areas[1].fill(20, |index| stamp.word(index) ^ u64::from(index == 77));
        let Err(Wrong(text)) = worker.verify_all() else { panic!("one bit of a word has changed") };
        for part in
            ["area 1, page 20: word 77 is ", "write 18 of worker 0", "write of 40 pages from 3 on"]
        {
            assert!(text.contains(part), "{text}");
        }
    }
}
