//! Protecting parts of a region: pages travel under any protection, which is in force all the time, and keep their content.
use crate::support::*;
use std::fs::File;
use std::os::unix::fs::FileExt;
use userswap::{Advice, Engine, Protection, Region};

const PROTECTIONS: [Protection; 3] = [Protection::None, Protection::Read, Protection::ReadWrite];

/// What the kernel says to a write to a page by a system call. One that is missing is none where faults come by signal.
fn is_write_refused(pages: Pages, page: usize) -> bool {
    let zeros = File::open("/dev/zero").unwrap();
    let result = zeros.read_at(&mut bytes(pages, page, 1)[..8], 0);
    result.is_err_and(|error| error.raw_os_error() == Some(libc::EFAULT))
}

/// The same for a read.
fn is_read_refused(pages: Pages, page: usize) -> bool {
    let file = tempfile::tempfile().unwrap();
    let result = file.write_at(&bytes(pages, page, 1)[..8], 0);
    result.is_err_and(|error| error.raw_os_error() == Some(libc::EFAULT))
}

/// A region whose pages are filled, protected, sent out and looked at, at random.
struct Owner {
    region: Region,
    pages: Pages,
    stamps: Vec<u64>,
    protections: Vec<Protection>,
    random: Random,
}

impl Owner {
    fn new(engine: &Engine, mib: usize, seed: u64) -> Self {
        let region = engine.map(mib * MIB).unwrap();
        let pages = Pages::of(&region);
        let protections = vec![Protection::ReadWrite; pages.count];
        Self { region, pages, stamps: vec![0; pages.count], protections, random: Random::new(seed) }
    }

    fn check(&self, page: usize) {
        match self.protections[page] {
            Protection::None => assert!(is_read_refused(self.pages, page), "page {page} is read"),
            Protection::Read => {
                self.pages.check(page, self.stamps[page]);
                assert!(is_write_refused(self.pages, page), "page {page} is written to");
            }
            Protection::ReadWrite => self.pages.check(page, self.stamps[page]),
        }
    }

    fn protect(&mut self, range: std::ops::Range<usize>, protection: Protection) {
        self.region.protect(range.start * PAGE..range.end * PAGE, protection).unwrap();
        self.protections[range].fill(protection);
    }

    fn step(&mut self, stamp: u64) {
        let first = self.random.below(self.pages.count - 64);
        let range = first..first + 1 + self.random.below(63);
        let bytes = range.start * PAGE..range.end * PAGE;
        match self.random.below(8) {
            0..3 => {
                let protection = PROTECTIONS[self.random.below(3)];
                self.protect(range.clone(), protection);
            }
            3 => self.region.page_out(bytes).unwrap(),
            4 => self.region.prefetch(bytes).unwrap(),
            5 => {
                self.region.discard(bytes).unwrap();
                self.stamps[range.clone()].fill(0);
            }
            _ => {
                for page in range.clone() {
                    if self.protections[page] == Protection::ReadWrite {
                        self.pages.fill(page, stamp);
                        self.stamps[page] = stamp;
                    }
                }
            }
        }
        range.for_each(|page| self.check(page));
    }

    fn finish(&mut self) {
        self.protect(0..self.pages.count, Protection::ReadWrite);
        for page in 0..self.pages.count {
            self.check(page);
            self.pages.fill(page, 7);
            self.stamps[page] = 7;
        }
        (0..self.pages.count).for_each(|page| self.check(page));
    }
}

#[test]
fn pages_of_any_protection_travel_and_keep_it_while_threads_protect_and_reclaim() {
    limit(240);
    for way in ways() {
        for reclaim_way in ["runs", "blocks"] {
            let engine = engine_on(way, &["mem:256M"]);
            engine.set("reclaim_way", reclaim_way).unwrap();
            let seed = seed();
            std::thread::scope(|scope| {
                for owner in 0..4 {
                    let mut owner = Owner::new(&engine, 12, seed ^ (owner + 1) << 20);
                    scope.spawn(move || {
                        (1..=rounds(200)).for_each(|stamp| owner.step(stamp));
                        owner.finish();
                    });
                }
            });
            let counters = engine.counters();
            assert!(counters.pswpout > 1_500 && counters.pswpin > 300, "{way:?}: {counters:?}");
            assert_eq!(counters.pages_lost, 0, "{way:?}");
            audit(&engine);
        }
    }
}

#[test]
fn a_region_that_was_protected_leaves_no_protection_behind() {
    limit(60);
    for way in ways() {
        let engine = engine_on(way, &["mem:256M"]);
        for protection in PROTECTIONS {
            let mut region = engine.map(32 * MIB).unwrap();
            let (pages, address) = (Pages::of(&region), region.as_ptr());
            (0..pages.count).for_each(|page| pages.fill(page, 1));
            region.protect(MIB..31 * MIB, protection).unwrap();
            drop(region);
            let next = engine.map(32 * MIB).unwrap();
            assert_eq!(next.as_ptr(), address, "the test is about the same addresses");
            (0..pages.count).for_each(|page| pages.check(page, 0));
            (0..pages.count).for_each(|page| pages.fill(page, 2));
            (0..pages.count).for_each(|page| pages.check(page, 2));
            next.pin(MIB..2 * MIB).unwrap();
        }
        audit(&engine);
    }
}

#[test]
fn what_may_not_be_read_is_not_pinned_and_bytes_outside_are_refused() {
    let engine = engine(WAYS[0]);
    let mut region = engine.map(MIB).unwrap();
    region.protect(3 * PAGE + 1..3 * PAGE + 2, Protection::None).unwrap();
    let message = region.pin(0..region.len()).unwrap_err().to_string();
    let at = region.as_ptr() as usize + 3 * PAGE;
    assert!(message.contains(&format!("{at:#x}")) && message.contains("protect it"), "{message}");
    assert!(engine.advise(at, 1, Advice::Pin).is_err());
    region.pin(0..3 * PAGE).unwrap();
    region.protect(0..region.len(), Protection::Read).unwrap();
    region.pin(0..region.len()).unwrap();
    assert!(is_write_refused(Pages::of(&region), 3));
    let message = region.protect(0..region.len() + 1, Protection::None).unwrap_err().to_string();
    assert!(message.contains("outside the region"), "{message}");
    region.protect(PAGE..PAGE, Protection::None).unwrap();
    region.pin(0..region.len()).unwrap();
}
