//! Everything at once: owners of pages that know what these must hold, against others that page out, pin,
//! prefetch and change the budget. Every byte is checked, and everything is audited afterwards.
use crate::support::*;
use std::sync::atomic::{AtomicBool, Ordering};
use userswap::{Engine, Region};

/// Pages that follow each other and have one owner: runs are moved, read and dropped together.
const BLOCK: usize = 8;
const OWNERS: usize = 3;

struct Owner {
    id: usize,
    pages: Pages,
    stamps: Vec<u64>,
    random: Random,
}

impl Owner {
    fn page(&self, block: usize, index: usize) -> usize {
        (block * OWNERS + self.id) * BLOCK + index
    }

    fn blocks(&self) -> usize {
        self.pages.count / (BLOCK * OWNERS)
    }

    fn step(&mut self, engine: &Engine, step: usize) {
        let block = self.random.below(self.blocks());
        let (first, length) = (self.random.below(BLOCK), 1 + self.random.below(BLOCK));
        let indices = first..(first + length).min(BLOCK);
        let what = self.random.below(20);
        if what < 2 {
            let range = self.page(block, indices.start);
            let address = self.pages.at(range) as usize;
            let core = engine.core();
            core.drop_range(core.range_at(address, indices.len() * PAGE));
        }
        for index in indices {
            let page = self.page(block, index);
            let stamp = &mut self.stamps[page];
            match what {
                0..2 => *stamp = 0,
                2 => {
                    self.pages.check(page, *stamp);
                    *stamp = 0;
                    self.pages.fill(page, 0);
                }
                3..9 => {
                    *stamp = ((step as u64) << 8) | (self.id as u64 + 1);
                    self.pages.fill(page, *stamp);
                }
                _ => self.pages.check(page, *stamp),
            }
        }
    }

    fn check_all(&self) {
        for block in 0..self.blocks() {
            for index in 0..BLOCK {
                let page = self.page(block, index);
                self.pages.check(page, self.stamps[page]);
            }
        }
    }
}

/// What others may do to pages that are not theirs: nothing that changes content.
fn disturb(kind: usize, engine: &Engine, region: &Region, random: &mut Random) {
    let pages = region.len() / PAGE;
    let first = random.below(pages);
    let bytes = first * PAGE..(first + 1 + random.below(200)).min(pages) * PAGE;
    match kind {
        0 => region.page_out(bytes).unwrap(),
        1 => {
            region.pin(bytes.clone()).unwrap();
            region.unpin(bytes).unwrap();
        }
        2 => engine.set_budget(((16 + random.below(9)) * MIB) as u64).unwrap(),
        _ if random.below(2) == 0 => region.prefetch(bytes).unwrap(),
        _ => {
            let address = Pages::of(region).address + bytes.start;
            assert!(engine.core().populate(address, bytes.len()) > 0);
        }
    }
}

#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn race(way: Way, disturbers: &[usize], steps: usize) {
    limit(50);
    let (seed, steps) = (seed(), rounds(steps));
    println!("{way:?} {disturbers:?}");
    let engine = engine(way);
    let region = engine.map(36 * MIB).unwrap();
    let pages = Pages::of(&region);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let owners: Vec<_> = (0..OWNERS)
            .map(|id| {
                let random = Random::new(seed.wrapping_add(id as u64 * 7919));
                let mut owner = Owner { id, pages, stamps: vec![0; pages.count], random };
                let engine = &engine;
                scope.spawn(move || {
                    (1..=steps).for_each(|step| owner.step(engine, step));
                    owner.check_all();
                    owner
                })
            })
            .collect();
        for kind in disturbers {
            let mut random = Random::new(seed ^ (*kind as u64 + 1) << 20);
            let (engine, region, done) = (&engine, &region, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    disturb(*kind, engine, region, &mut random);
                }
            });
        }
        let owners: Vec<_> = owners.into_iter().map(|owner| owner.join()).collect();
        done.store(true, Ordering::Relaxed);
        for owner in owners {
            owner.unwrap().check_all();
        }
    });
    audit(&engine);
    assert_eq!(engine.counters().pages_lost, 0);
    assert!(engine.counters().pswpin > 100, "nothing was swapped: {:?}", engine.counters());
    drop(region);
    audit(&engine);
    assert_eq!(engine.usage().slots_used, 0);
}

#[test]
fn owners_find_every_byte_alone_by_message() {
    race(WAYS[0], &[], 1500);
}

#[test]
fn owners_find_every_byte_alone_by_signal() {
    race(WAYS[1], &[], 1500);
}

#[test]
fn owners_find_every_byte_among_others_by_message_and_move() {
    race(WAYS[0], &[0, 1, 2, 3], 1000);
}

#[test]
fn owners_find_every_byte_among_others_by_signal_and_move() {
    race(WAYS[1], &[0, 1, 2, 3], 1000);
}

#[test]
fn owners_find_every_byte_among_others_by_message_and_copy() {
    race(WAYS[2], &[0, 1, 2, 3], 1000);
}

#[test]
fn owners_find_every_byte_among_others_by_signal_and_copy() {
    race(WAYS[3], &[0, 1, 2, 3], 1000);
}

#[test]
fn owners_find_every_byte_beside_page_outs() {
    race(WAYS[1], &[0], 1200);
}

#[test]
fn owners_find_every_byte_while_the_budget_changes() {
    race(WAYS[1], &[2], 1200);
}

#[test]
fn pages_moved_to_another_region_keep_every_byte() {
    for way in WAYS {
        limit(50);
        let engine = engine(way);
        let first = engine.map(24 * MIB).unwrap();
        let second = engine.map(24 * MIB).unwrap();
        let (from, to) = (Pages::of(&first), Pages::of(&second));
        (0..from.count).for_each(|page| from.fill(page, if page % 5 == 0 { 0 } else { 77 }));
        let core = engine.core();
        core.move_range(core.range_at(from.address, first.len()), core.arena.page_of(to.address));
        (0..to.count).for_each(|page| to.check(page, if page % 5 == 0 { 0 } else { 77 }));
        from.check_all(0);
        audit(&engine);
    }
}

#[test]
fn a_page_that_is_moved_while_it_is_written_keeps_every_byte() {
    limit(50);
    let engine = engine(WAYS[0]);
    for round in 1..=rounds(4) {
        let first = engine.map(20 * MIB).unwrap();
        let second = engine.map(20 * MIB).unwrap();
        let (from, to) = (Pages::of(&first), Pages::of(&second));
        // Filling leaves the reclaimer in the middle of its writes.
        from.fill_all(round);
        let core = engine.core();
        core.move_range(core.range_at(from.address, first.len()), core.arena.page_of(to.address));
        let wrong: Vec<_> = (0..to.count).filter_map(|page| to.wrong(page, round)).collect();
        assert!(wrong.is_empty(), "round {round}: {} pages lost, first: {}", wrong.len(), wrong[0]);
    }
    audit(&engine);
}

#[test]
fn a_page_that_is_moved_while_a_device_holds_it_keeps_every_byte() {
    alone(15, || {
        let engine = engine(WAYS[0]);
        let first = engine.map(16 * PAGE).unwrap();
        let second = engine.map(16 * PAGE).unwrap();
        let (from, to) = (Pages::of(&first), Pages::of(&second));
        (0..16).for_each(|page| from.fill(page, 9));
        let ring = io_uring::IoUring::new(4).unwrap();
        register(&ring, from);
        let core = engine.core();
        core.move_range(core.range_at(from.address, first.len()), core.arena.page_of(to.address));
        let wrong: Vec<_> = (0..16).filter_map(|page| to.wrong(page, 9)).collect();
        assert!(wrong.is_empty(), "{} of 16 pages lost, first: {}", wrong.len(), wrong[0]);
        audit(&engine);
    });
}

/// A program's signal handler may interrupt the engine's own calls, and may touch managed memory.
fn handler_touches_memory(way: Way) {
    static ADDRESS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    static TURN: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    extern "C" fn touch_one(_: i32) {
        let page = TURN.fetch_add(997, Ordering::Relaxed) % 6144;
        touch(ADDRESS.load(Ordering::Relaxed) + page * PAGE);
    }
    let engine = engine(way);
    let watched = engine.map(24 * MIB).unwrap();
    let mut region = engine.map(4 * MIB).unwrap();
    let pages = Pages::of(&watched);
    pages.fill_all(5);
    ADDRESS.store(pages.address, Ordering::Relaxed);
    interrupted_by(touch_one, || {
        for turn in 0..rounds(40) {
            let all = 0..region.len();
            region.as_mut_slice().iter_mut().step_by(PAGE).for_each(|byte| *byte = turn as u8 | 1);
            region.page_out(all.clone()).unwrap();
            region.prefetch(all.clone()).unwrap();
            region.pin(0..64 * PAGE).unwrap();
            region.unpin(0..64 * PAGE).unwrap();
            region.discard(all).unwrap();
            engine.set_budget((16 + turn % 2) << 20).unwrap();
        }
    });
    pages.check_all(5);
    audit(&engine);
}

#[test]
fn a_signal_handler_may_touch_memory_during_the_engines_calls_by_message() {
    alone(100, || {
        handler_touches_memory(WAYS[0]);
    });
}

#[test]
fn a_signal_handler_may_touch_memory_during_the_engines_calls_by_signal() {
    alone(100, || {
        handler_touches_memory(WAYS[1]);
    });
}

#[test]
fn neighbours_of_a_page_that_is_dropped_are_filled_again_and_again() {
    limit(50);
    let turns = rounds(1000usize);
    let engine = engine(WAYS[1]);
    let region = engine.map(MIB).unwrap();
    let pages = Pages::of(&region);
    let first = engine.core().arena.page_of(pages.address);
    std::thread::scope(|scope| {
        for half in 0..2 {
            let engine = &engine;
            scope.spawn(move || {
                for turn in 0..turns {
                    for page in (0..16).map(|page| page * 2 + half) {
                        pages.fill(page, turn as u64 + 1);
                        pages.check(page, turn as u64 + 1);
                        engine
                            .core()
                            .drop_range(PageRange { first: first + page as u32, count: 1 });
                    }
                }
            });
        }
    });
    audit(&engine);
}
