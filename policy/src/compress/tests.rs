//! The rule alone, and beside a model of memory in which programs run that it is right for, and others.
use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap};

const BUDGET: u32 = 16 << 10;
const MOST: u32 = BUDGET / 4 * 3;
const STEP: u32 = MOST / STEP_SHARE;
const DISK_NS: u64 = 90_000;

/// Of pages of which none is read ahead.
fn price(behind_ns: u64) -> Prices {
    Prices::new(behind_ns, 1, 1)
}

/// Pages by when they were last there, oldest first.
#[derive(Default)]
struct Queue {
    by_moment: BTreeMap<u64, u32>,
    moments: HashMap<u32, u64>,
}

impl Queue {
    fn push(&mut self, page: u32, moment: u64) {
        self.remove(page);
        self.by_moment.insert(moment, page);
        self.moments.insert(page, moment);
    }

    fn remove(&mut self, page: u32) -> Option<u64> {
        let moment = self.moments.remove(&page)?;
        self.by_moment.remove(&moment);
        Some(moment)
    }

    fn pop_oldest(&mut self) -> Option<(u64, u32)> {
        let (moment, page) = self.by_moment.pop_first()?;
        self.moments.remove(&page);
        Some((moment, page))
    }

    fn len(&self) -> u64 {
        self.moments.len() as u64
    }
}

/// RAM, compressed memory of the size that the rule says, and a disk; in each the pages that were used last.
struct Model {
    size: Size,
    /// Sixteenths of pages in one.
    ratio: u64,
    behind_ns: u64,
    clock: u64,
    left: u64,
    ram: Queue,
    /// By the count of pages that had left before them.
    compressed: Queue,
    behind: HashMap<u32, u64>,
    seen: Refaults,
    counts: Counted,
    /// When the rule decided last.
    decided: Counted,
}

#[derive(Clone, Copy, Default, Debug)]
struct Counted {
    compressed: u64,
    behind: u64,
    stored: u64,
    demoted: u64,
}

impl Counted {
    /// What the faults cost that were not in RAM, and what was compressed and moved on.
    fn ns(self, behind_ns: u64) -> u64 {
        let back_ns =
            self.compressed * (FAULT_NS + LOADED_NS) + self.behind * (FAULT_NS + behind_ns);
        back_ns + self.stored * STORED_NS + self.demoted * DEMOTED_NS
    }
}

impl Model {
    fn new(size: Size, ratio: u64, behind_ns: u64) -> Self {
        let (ram, compressed) = Default::default();
        let (behind, seen, counts) = Default::default();
        let (clock, left, decided) = Default::default();
        Self { size, ratio, behind_ns, clock, left, ram, compressed, behind, seen, counts, decided }
    }

    fn touch(&mut self, page: u32) {
        self.clock += 1;
        if self.ram.remove(page).is_none() {
            if let Some(moment) = self.compressed.remove(page) {
                self.counts.compressed += 1;
                self.came_back(moment, Place::Compressed);
            } else if let Some(moment) = self.behind.remove(&page) {
                self.counts.behind += 1;
                self.came_back(moment, Place::Behind);
            }
        }
        self.ram.push(page, self.clock);
        self.make_room();
    }

    fn came_back(&mut self, moment: u64, from: Place) {
        self.seen.add(self.left - moment, from);
    }

    /// What compressed memory holds, with room kept ahead and slabs begun.
    fn holds(&self) -> u64 {
        u64::from(self.size.memory()) * self.ratio / 16 * 7 / 8
    }

    fn make_room(&mut self) {
        while self.ram.len() + u64::from(self.size.memory()) > u64::from(BUDGET) {
            let (_, page) = self.ram.pop_oldest().expect("there are some");
            self.left += 1;
            if self.size.memory() == 0 {
                self.behind.insert(page, self.left);
            } else {
                self.compressed.push(page, self.left);
                self.counts.stored += 1;
            }
        }
        while self.compressed.len() > self.holds() {
            let (moment, page) = self.compressed.pop_oldest().expect("there are some");
            self.behind.insert(page, moment);
            self.counts.demoted += 1;
        }
    }

    /// Uses pages and has the rule decide whenever it is due.
    fn run(&mut self, pages: impl Iterator<Item = u32>) {
        for page in pages {
            self.touch(page);
            let held = self.held();
            if Size::is_due(MOST, u64::from(self.seen.count()) + held.stored + held.demoted) {
                self.size.decide(&self.seen, held, MOST, price(self.behind_ns));
                self.seen.clear();
                self.decided = self.counts;
                self.make_room();
            }
        }
    }

    fn held(&self) -> Held {
        let pages = self.compressed.len();
        let swapped = pages + self.behind.len() as u64;
        let cells = (pages * 16 / self.ratio) as u32;
        let memory = (cells + cells / 7).min(self.size.memory());
        let stored = self.counts.stored - self.decided.stored;
        let demoted = self.counts.demoted - self.decided.demoted;
        Held { pages: pages as u32, cells, memory, swapped, stored, demoted }
    }
}

/// Numbers that look random, the same each time.
fn random(mut seed: u64) -> impl Iterator<Item = u64> {
    std::iter::repeat_with(move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 33
    })
}

fn at_random(pages: u32, seed: u64) -> impl Iterator<Item = u32> {
    random(seed).map(move |number| (number % u64::from(pages)) as u32)
}

/// Of ten uses nine are of the first pages.
fn skewed(hot: u32, all: u32) -> impl Iterator<Item = u32> {
    let uses = random(3).zip(random(5));
    uses.map(move |(which, page)| {
        let pages = if which % 10 < 9 { hot } else { all };
        (page % u64::from(pages)) as u32
    })
}

fn looped(pages: u32) -> impl Iterator<Item = u32> {
    (0..pages).cycle()
}

/// A program.
struct Load {
    name: &'static str,
    /// Sixteenths.
    ratio: u64,
    behind_ns: u64,
    uses: fn() -> Box<dyn Iterator<Item = u32>>,
    /// What the rule has to come to after it has run for a while, in hundredths of the cost without compressed memory.
    percent_max: u64,
}

const ALL: u32 = BUDGET * 13 / 4;

/// The second half of a run, in which the rule has found its size; without one if it is given up on for good.
fn run(load: &Load, size: Size) -> (Counted, Size) {
    let mut model = Model::new(size, load.ratio, load.behind_ns);
    model.run(0..ALL);
    model.run((load.uses)().take(200_000));
    (model.counts, model.decided) = Default::default();
    model.run((load.uses)().take(200_000));
    (model.counts, model.size)
}

fn never() -> Size {
    Size { phase: Phase::GivenUp(u32::MAX), ..Size::new(0) }
}

const LOADS: [Load; 9] = [
    Load {
        name: "at random, fits whole when compressed",
        ratio: 80,
        behind_ns: DISK_NS,
        uses: || Box::new(at_random(ALL, 1)),
        percent_max: 36,
    },
    Load {
        name: "at random, a half fits",
        ratio: 40,
        behind_ns: DISK_NS,
        uses: || Box::new(at_random(ALL, 1)),
        percent_max: 86,
    },
    Load {
        name: "at random, compresses little",
        ratio: 24,
        behind_ns: DISK_NS,
        uses: || Box::new(at_random(ALL, 1)),
        percent_max: 101,
    },
    Load {
        name: "noise",
        ratio: 16,
        behind_ns: DISK_NS,
        uses: || Box::new(at_random(ALL, 1)),
        percent_max: 101,
    },
    Load {
        name: "noise of which some compresses",
        ratio: 21,
        behind_ns: DISK_NS,
        uses: || Box::new(at_random(ALL, 1)),
        percent_max: 101,
    },
    Load {
        name: "a scan, read ahead",
        ratio: 40,
        behind_ns: 8_000,
        uses: || Box::new(looped(ALL)),
        percent_max: 101,
    },
    Load {
        name: "a scan that fits, of a slow disk",
        ratio: 80,
        behind_ns: DISK_NS,
        uses: || Box::new(looped(ALL)),
        percent_max: 36,
    },
    Load {
        name: "hot pages that do not fit, and cold ones",
        ratio: 40,
        behind_ns: DISK_NS,
        uses: || Box::new(skewed(BUDGET * 3 / 2, ALL)),
        percent_max: 64,
    },
    Load {
        name: "hot pages that fit, and cold ones",
        ratio: 40,
        behind_ns: DISK_NS,
        uses: || Box::new(skewed(BUDGET * 7 / 8, ALL)),
        percent_max: 97,
    },
];

#[test]
fn every_program_is_served_as_well_as_it_can_be() {
    for load in LOADS {
        let (without, _) = run(&load, never());
        let (with, size) = run(&load, Size::new(MOST));
        let percent = with.ns(load.behind_ns) * 100 / without.ns(load.behind_ns);
        let memory = size.memory() * 100 / BUDGET;
        println!("{}: {percent} % of the cost, {memory} % of RAM, {with:?} {without:?}", load.name);
        assert!(percent <= load.percent_max, "{}: {percent} %, {with:?}", load.name);
    }
}

#[test]
fn a_disk_as_fast_as_memory_gets_no_compressed_memory_in_front() {
    let load = Load { behind_ns: STORED_NS + LOADED_NS, ..LOADS[1] };
    let (with, size) = run(&load, Size::new(MOST));
    assert_eq!(size.memory(), 0);
    assert!(with.stored < 200_000 / 50, "tried now and then, and no more: {with:?}");
}

#[test]
fn a_device_counts_as_far_as_a_cpu_waits_for_it() {
    let price = price(DISK_NS);
    // In a second of two CPUs, work of so many quarters of one.
    let beside = |work: u64| price.beside(work * 250_000_000, 1_000_000_000, 2).behind_ns;
    assert_eq!([0, 4, 7, 8, 9].map(beside), [DISK_NS, DISK_NS, DISK_NS / 4, 0, 0]);
    assert_eq!(price.beside(0, 0, 2).behind_ns, 0);
    // More work than there is room for was done by more CPUs.
    assert_eq!(price.beside(11, 4, 2).behind_ns, 0);
    assert_eq!(price.beside(u64::MAX, 1 << 40, 1 << 10).behind_ns, 0);
    assert_eq!(price.beside(0, u64::MAX, 1 << 10).behind_ns, DISK_NS);
    assert_eq!(price.beside(1, 1 << 40, 1 << 10).behind_ns, DISK_NS);
    assert_eq!(price.beside(7, 8, 1).fault_ns, price.fault_ns);
}

#[test]
fn data_that_do_not_compress_are_given_up_on_within_the_first_pages() {
    let mut model = Model::new(Size::new(MOST), 16, DISK_NS);
    model.run((0..ALL).chain(at_random(ALL, 1).take(200_000)));
    assert_eq!(model.size.memory(), 0);
    // At first a decision's pages; then twelve tries at most of a step and what comes until it is due.
    assert!(model.counts.stored < 20_000, "{:?}", model.counts);
}

#[test]
fn a_program_that_begins_to_compress_is_noticed() {
    let mut model = Model::new(Size::new(MOST), 16, DISK_NS);
    model.run((0..ALL).chain(at_random(ALL, 1).take(100_000)));
    assert_eq!(model.size.memory(), 0);
    model.ratio = 80;
    model.run(at_random(ALL, 2).take(400_000));
    assert!(model.size.memory() > MOST / 2, "{}", model.size.memory());
}

#[test]
fn little_that_happens_decides_nothing() {
    assert!(!Size::is_due(MOST, u64::from(MOST / DUE_SHARE) - 1));
    assert!(Size::is_due(MOST, u64::from(MOST / DUE_SHARE)));
    assert!(!Size::is_due(0, 511) && Size::is_due(0, 512));
    let mut size = Size::new(MOST);
    let before = size.memory();
    size.decide(
        &Refaults::default(),
        Held { pages: 0, cells: 0, memory: 0, swapped: 0, stored: 0, demoted: 0 },
        MOST,
        price(DISK_NS),
    );
    assert_eq!(size.memory(), before);
}

#[test]
fn a_budget_that_grows_from_nothing_is_used() {
    let mut size = Size::new(0);
    for _ in 0..=STEP_SHARE {
        let pages = 4 * size.memory();
        let mut seen = Refaults::default();
        (0..1000).for_each(|page| seen.add(u64::from(STEP) * 2 + page * 100, Place::Behind));
        size.decide(
            &seen,
            Held {
                pages,
                cells: pages / 4,
                memory: size.memory(),
                swapped: 1 << 20,
                stored: 1000,
                demoted: 1000,
            },
            MOST,
            price(DISK_NS),
        );
    }
    assert!(size.memory() >= MOST / 2, "{}", size.memory());
}

/// RAM that compressed pages might take is no RAM that they have taken.
#[test]
fn what_fills_still_is_not_given_up_for_pages_that_come_back_soon() {
    let mut size = Size::new(MOST);
    for _ in 0..4 {
        let mut seen = Refaults::default();
        (0..1000).for_each(|page| seen.add(600 + page, Place::Compressed));
        let held =
            Held { pages: 1600, cells: 400, memory: 500, swapped: 1600, stored: 1000, demoted: 0 };
        size.decide(&seen, held, MOST, price(DISK_NS));
    }
    assert_eq!(size.memory(), MOST);
}

/// Refaults of pages that left lately, as of a pass over a few pages, between those of a program that needs them all.
#[test]
fn a_few_passes_over_pages_that_left_lately_take_no_memory_and_many_do() {
    let (pages, cells) = (4 * MOST, MOST * 3 / 4);
    let held = Held { pages, cells, memory: MOST, swapped: 5 << 16, stored: 1000, demoted: 0 };
    let seen_of = |distances: &dyn Fn(u64) -> u64| {
        let mut seen = Refaults::default();
        (0..1000).for_each(|page| seen.add(distances(page), Place::Compressed));
        seen
    };
    let (soon, late) = (seen_of(&|page| page), seen_of(&|page| u64::from(MOST) + page * 30));
    let mut size = Size::new(MOST);
    for _ in 0..5 {
        size.decide(&soon, held, MOST, price(DISK_NS));
        assert_eq!(size.memory(), MOST);
        size.decide(&late, held, MOST, price(DISK_NS));
        assert_eq!(size.memory(), MOST);
    }
    for _ in 0..8 {
        size.decide(&soon, held, MOST, price(DISK_NS));
    }
    assert!(size.memory() < MOST, "{}", size.memory());
}

proptest! {
    #[test]
    fn it_never_takes_more_than_it_may(
        rounds in prop::collection::vec(
            (prop::collection::vec((0u64..1 << 20, any::<bool>()), 0..300), 0u32..1 << 20,
                0u32..1 << 20, 0u32..1 << 17, 0u64..1 << 40), 0..40),
    ) {
        let mut size = Size::new(MOST);
        for (refaults, pages, cells, most, behind_ns) in rounds {
            let mut seen = Refaults::default();
            for (distance, is_behind) in refaults {
                let place = if is_behind { Place::Behind } else { Place::Compressed };
                seen.add(distance, place);
            }
            let swapped = u64::from(pages) * 2;
            let (stored, demoted) = (pages.into(), cells.into());
            let held = Held { pages, cells, memory: cells, swapped, stored, demoted };
            size.decide(&seen, held, most, price(behind_ns));
            prop_assert!(size.memory() <= most);
        }
    }
}
