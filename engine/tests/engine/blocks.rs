//! Scattered pages that leave by the block: copied at another address of ours, and dropped by the kernel where nobody holds
//! them. No byte may be lost that a thread, a system call or a device writes, and no page that was never touched may come
//! to have content.
use crate::support::*;
use io_uring::{IoUring, opcode, types};
use std::collections::HashSet;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use userswap::internals::bench::filters::{Outcome, forbid};
use userswap::internals::{Options, filters};
use userswap::{Builder, Engine};

/// An engine whose background reclaimer takes blocks wherever it can.
pub fn engine_of_blocks(way: Way) -> Engine {
    let engine = engine_on(way, &["mem:256M"]);
    engine.set("reclaim_way", "blocks").unwrap();
    engine
}

/// Reads and writes pages of its own at random, until told to end or through with its steps. Every fourth page is never
/// touched, and stays zero.
pub struct Owner {
    pub pages: Pages,
    owner: usize,
    owners: usize,
    stamps: Vec<u64>,
    pub random: Random,
}

impl Owner {
    pub fn new(pages: Pages, owner: usize, owners: usize, seed: u64) -> Self {
        let random = Random::new(seed ^ (owner as u64 + 1) << 20);
        Self { pages, owner, owners, stamps: vec![0; pages.count / owners], random }
    }

    pub fn step(&mut self, stamp: u64) {
        let index = self.random.below(self.stamps.len());
        if index % 4 == 3 {
            return;
        }
        self.check(index);
        if self.random.below(3) != 0 {
            self.stamps[index] = stamp;
            self.pages.fill(index * self.owners + self.owner, stamp);
        }
    }

    fn check(&self, index: usize) {
        let page = index * self.owners + self.owner;
        match self.stamps[index] {
            0 => assert!(bytes(self.pages, page, 1).iter().all(|byte| *byte == 0), "page {page}"),
            stamp => self.pages.check(page, stamp),
        }
    }

    pub fn check_all(&self) {
        (0..self.stamps.len()).for_each(|index| self.check(index));
    }
}

/// So many owners, each a thread that calls `begin` with its number first, take so many steps and check all that they have.
pub fn owners_step(pages: Pages, owners: usize, steps: u64, begin: impl Fn(usize) + Copy + Send) {
    let seed = seed();
    std::thread::scope(|scope| {
        for number in 0..owners {
            let mut owner = Owner::new(pages, number, owners, seed);
            scope.spawn(move || {
                begin(number);
                (1..=steps).for_each(|stamp| owner.step(stamp));
                owner.check_all();
            });
        }
    });
}

/// Of memory that is this large few pages of a block are mapped with the budget of 16 MiB, or more than can be copied at once,
/// so that blocks leave by halves: every fourth page is never touched.
const SIZES: [usize; 2] = [64 * MIB, 22 * MIB];

#[test]
fn what_threads_write_stays_while_blocks_leave() {
    alone(120, || {
        for (way, bytes) in WAYS.into_iter().flat_map(|way| SIZES.map(|bytes| (way, bytes))) {
            let engine = engine_of_blocks(way);
            let region = engine.map(bytes).unwrap();
            owners_step(Pages::of(&region), 4, rounds(12_000), |_| {});
            let counters = engine.counters();
            assert!(counters.swpout_block > 2_000, "{way:?}, {bytes} bytes: {counters:?}");
            assert_eq!(counters.pages_lost, 0);
            audit(&engine);
            drop(region);
            audit(&engine);
        }
    });
}

#[test]
fn what_is_used_of_a_block_has_a_second_chance() {
    alone(60, || {
        let engine = engine_of_blocks(WAYS[0]);
        engine.set("second_chance", "40").unwrap();
        let region = engine.map(64 * MIB).unwrap();
        let mut owner = Owner::new(Pages::of(&region), 0, 1, seed());
        (1..=20_000).for_each(|stamp| owner.step(stamp));
        let counters = engine.counters();
        assert!(counters.swpout_block > 2_000 && counters.pgfault_cached > 500, "{counters:?}");
        owner.check_all();
        audit(&engine);
    });
}

#[test]
fn blocks_leave_whose_pages_are_of_several_nodes() {
    alone(120, || {
        for way in WAYS {
            let engine = build(with_swap(builder(way).fake_numa(2), &["mem:256M"]));
            engine.set("reclaim_way", "blocks").unwrap();
            let used = |node: usize| engine.core().nodes[node].lock().resident;
            // On a busy machine the owners of one CPU may end long before the others, which then have most pages.
            let region = (0..5).find_map(|_| {
                let region = engine.map(64 * MIB).unwrap();
                owners_step(Pages::of(&region), 4, rounds(8_000), |owner| {
                    numa::run_on(&[owner as u32 % clock::cpus()]);
                });
                let counters = engine.counters();
                assert!(counters.swpout_block > 2_000, "{way:?}: {counters:?}");
                let is_mixed = clock::cpus() == 1 || used(0).min(used(1)) > 512;
                is_mixed.then_some(region)
            });
            let region = region.expect("one run of five leaves pages on both nodes");
            audit(&engine);
            drop(region);
            audit(&engine);
        }
    });
}

#[test]
fn blocks_are_not_taken_when_told_so_nor_while_memory_is_locked() {
    alone(60, || {
        let engine = engine_of_blocks(WAYS[0]);
        let region = engine.map(48 * MIB).unwrap();
        let mut owner = Owner::new(Pages::of(&region), 0, 1, seed());
        let mut taken = |engine: &Engine| {
            let before = engine.counters().swpout_block;
            (1..=6_000).for_each(|stamp| owner.step(stamp));
            engine.counters().swpout_block - before
        };
        taken(&engine);
        assert!(taken(&engine) > 500);
        engine.set("reclaim_way", "runs").unwrap();
        // One may have been under way.
        taken(&engine);
        assert_eq!(taken(&engine), 0);
        engine.set("reclaim_way", "blocks").unwrap();
        assert!(taken(&engine) > 500);
        let memory = mapping::Mapping::new(PAGE, mapping::Access::ReadWrite).unwrap();
        lock_raw(&Pages { address: memory.address(), count: 1 }, 0, 1);
        taken(&engine);
        assert_eq!(taken(&engine), 0);
        audit(&engine);
    });
}

#[test]
fn blocks_are_tried_where_no_way_is_chosen() {
    alone(100, || {
        let engine = engine_on(WAYS[0], &["mem:256M"]);
        let region = engine.map(64 * MIB).unwrap();
        let mut owner = Owner::new(Pages::of(&region), 0, 1, seed());
        let mut stamps = 1..;
        eventually("a block has left", || {
            stamps.by_ref().take(1_000).for_each(|stamp| owner.step(stamp));
            engine.counters().swpout_block > 0
        });
        owner.check_all();
        audit(&engine);
    });
}

#[test]
fn a_block_with_few_pages_is_not_worth_its_flushes() {
    alone(60, || {
        let engine = engine_of_blocks(WAYS[0]);
        let region = engine.map(512 * MIB).unwrap();
        let pages = Pages::of(&region);
        // 20 or 21 pages of each block, and more than the budget has room for. None follows another: that would map more.
        let few = || (0..pages.count).step_by(25);
        few().for_each(|page| pages.fill(page, 7));
        few().for_each(|page| pages.check(page, 7));
        let counters = engine.counters();
        assert_eq!(counters.swpout_block, 0);
        assert!(counters.pgsteal_kswapd > 0, "{counters:?}");
        audit(&engine);
    });
}

/// Keeps reads of a program's own ring under way into pages of its own, as a database does; pages are checked when they have
/// come, and again at the end.
struct Reader<'a> {
    file: &'a File,
    ring: IoUring,
    owner: Owner,
    /// Of the reads under way, the pages.
    under_way: HashSet<usize>,
}

/// Reads under way at a time.
const DEPTH: usize = 32;

impl Reader<'_> {
    fn step(&mut self, stamp: u64) {
        let index = self.owner.random.below(self.owner.stamps.len());
        if !self.under_way.contains(&index) {
            self.owner.check(index);
            match self.owner.random.below(4) {
                0 => {
                    self.owner.stamps[index] = stamp;
                    self.owner.pages.fill(self.page(index), stamp);
                }
                _ => self.start(index),
            }
        }
        if self.under_way.len() >= DEPTH {
            self.ring.submit_and_wait(1).unwrap();
            self.take_finished();
        }
    }

    fn page(&self, index: usize) -> usize {
        index * self.owner.owners + self.owner.owner
    }

    fn start(&mut self, index: usize) {
        let page = self.page(index);
        let to = self.owner.pages.at(page).cast();
        let read = opcode::Read::new(types::Fd(self.file.as_raw_fd()), to, PAGE as u32);
        let entry = read.offset((page * PAGE) as u64).build().user_data(index as u64);
        enqueue(&mut self.ring, &entry);
        self.under_way.insert(index);
    }

    fn take_finished(&mut self) {
        let finished: Vec<_> = self.ring.completion().collect();
        for entry in finished {
            let index = entry.user_data() as usize;
            assert_eq!(entry.result(), PAGE as i32);
            assert!(self.under_way.remove(&index));
            self.owner.stamps[index] = FROM_FILE;
            self.owner.check(index);
        }
    }

    fn finish(&mut self) {
        while !self.under_way.is_empty() {
            self.ring.submit_and_wait(1).unwrap();
            self.take_finished();
        }
        self.owner.check_all();
    }
}

/// The stamp of the file's content.
const FROM_FILE: u64 = 1 << 20;

#[test]
fn what_a_device_delivers_into_pages_of_blocks_stays() {
    alone(120, || SIZES.into_iter().for_each(devices_deliver_into_blocks));
}

fn devices_deliver_into_blocks(bytes: usize) {
    let engine = engine_of_blocks(WAYS[0]);
    let region = engine.map(bytes).unwrap();
    let (pages, seed) = (Pages::of(&region), seed());
    let file = &file_of(pages, FROM_FILE);
    // A device may deliver so fast that it never holds a page of a block that leaves.
    let is_kept = || engine.counters().swpout_block_kept > 0;
    std::thread::scope(|scope| {
        for number in 0..3 {
            let owner = Owner::new(pages, number, 3, seed);
            scope.spawn(move || {
                let (ring, under_way) = (IoUring::new(64).unwrap(), HashSet::new());
                let mut reader = Reader { file, ring, owner, under_way };
                let (least, most) = (rounds(12_000), rounds(120_000));
                (1..=most)
                    .take_while(|stamp| *stamp <= least || !is_kept())
                    .for_each(|stamp| reader.step(stamp));
                reader.finish();
            });
        }
    });
    let counters = engine.counters();
    println!("{counters:?}");
    let (left, kept) = (counters.swpout_block, counters.swpout_block_kept);
    assert!(left > 2_000 && kept > 0, "{bytes} bytes: {counters:?}");
    assert_eq!(counters.pages_lost, 0);
    audit(&engine);
}

#[test]
fn memory_without_access_or_only_to_be_read_leaves_and_comes_back() {
    alone(60, || {
        for access in [libc::PROT_NONE, libc::PROT_READ] {
            let engine = engine_of_blocks(WAYS[0]);
            let region = engine.map(24 * MIB).unwrap();
            let pages = Pages::of(&region);
            let mut random = Random::new(seed());
            let written: HashSet<usize> = (0..3_000).map(|_| random.below(pages.count)).collect();
            written.iter().for_each(|page| pages.fill(*page, 5));
            protect(pages, access);
            let other = engine.map(48 * MIB).unwrap();
            let mut owner = Owner::new(Pages::of(&other), 0, 1, seed());
            (1..=16_000).for_each(|stamp| owner.step(stamp));
            protect(pages, libc::PROT_READ | libc::PROT_WRITE);
            written.iter().for_each(|page| pages.check(*page, 5));
            owner.check_all();
            assert!(engine.counters().swpout_block > 1_000, "{:?}", engine.counters());
            audit(&engine);
        }
    });
}

#[test]
fn what_is_mapped_elsewhere_meanwhile_is_not_touched() {
    alone(60, || {
        let engine = engine_of_blocks(WAYS[0]);
        let region = engine.map(64 * MIB).unwrap();
        let (pages, seed) = (Pages::of(&region), seed());
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let mapping = scope.spawn(|| {
                let mut found = 0;
                while !over.load(Ordering::Relaxed) {
                    // As small mappings and large ones come and go, they lie where a block was a moment ago.
                    let maps: Vec<_> = [1, 3, 512, 1024]
                        .into_iter()
                        .map(|pages| {
                            mapping::Mapping::new(pages * PAGE, mapping::Access::ReadWrite)
                        })
                        .collect::<Result<_, _>>()
                        .unwrap();
                    for map in &maps {
                        let one = Pages { address: map.address(), count: 1 };
                        one.fill(0, 9);
                        one.check(0, 9);
                        found += 1;
                    }
                    std::thread::yield_now();
                    maps.iter()
                        .for_each(|map| Pages { address: map.address(), count: 1 }.check(0, 9));
                }
                found
            });
            // The pages that a pipe holds go back with their mappings.
            let mut owner = Owner::new(pages, 0, 1, seed);
            for stamp in 1..=rounds(12_000) {
                owner.step(stamp);
            }
            owner.check_all();
            over.store(true, Ordering::Relaxed);
            assert!(mapping.join().unwrap() > 100);
        });
        assert!(engine.counters().swpout_block > 3_000, "{:?}", engine.counters());
        audit(&engine);
    });
}

#[test]
fn a_page_that_goes_back_while_its_protection_changes_has_the_new_one() {
    // Moved back if it can be, or always with its mapping.
    alone(120, || [WAYS[0], WAYS[2]].into_iter().for_each(protections_change));
}

fn protections_change(way: Way) {
    let engine = engine_of_blocks(way);
    let region = engine.map(32 * MIB).unwrap();
    let (pages, put_backs) = (Pages::of(&region), &engine.core().put_backs);
    pages.fill_all(5);
    let (over, mut random, mut undone) = (AtomicBool::new(false), Random::new(seed()), 0);
    let mut change = |protection, letters: &str| {
        put_backs.protect(|| protect(pages, protection));
        undone += u32::from(!is_all(pages, letters));
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random::new(seed());
            while !over.load(Ordering::Relaxed) {
                pages.check(random.below(pages.count), 5);
            }
        });
        while put_backs.made() < rounds(10) {
            let held: Vec<usize> = (0..256).map(|_| random.below(pages.count)).collect();
            held.iter().for_each(|page| pages.fill(*page, 5));
            let pipe = hold(pages, &held);
            for _ in 0..100 {
                change(libc::PROT_READ, "r--p");
                change(libc::PROT_READ | libc::PROT_WRITE, "rw-p");
            }
            drop(pipe);
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(undone, 0, "a change of protection was undone");
    pages.check_all(5);
    audit(&engine);
}

/// Whether all mappings among pages are protected so, as the kernel's map has it.
fn is_all(pages: Pages, letters: &str) -> bool {
    let (start, end) = (pages.address, pages.address + pages.count * PAGE);
    let maps = std::fs::read_to_string("/proc/thread-self/maps").unwrap();
    let number = |text: &str| usize::from_str_radix(text, 16).unwrap();
    let mut bounds = maps.lines().map(|line| line.split_once('-').unwrap());
    bounds.all(|(from, rest)| {
        let (to, rest) = rest.split_once(' ').unwrap();
        number(to) <= start || number(from) >= end || rest.starts_with(letters)
    })
}

/// Pages that leave by the block while an engine is used that knows of so many filters.
fn taken_with(filters: u32, then: impl FnOnce(&Engine, &mut dyn FnMut() -> u64)) {
    let options = Options { filters, ..Options::new(16 * MIB as u64) };
    let builder = Builder::from_options(options).arena_bytes(1 << 30);
    let engine = build(with_swap(builder, &["mem:256M"]));
    engine.set("reclaim_way", "blocks").unwrap();
    let region = engine.map(48 * MIB).unwrap();
    let mut owner = Owner::new(Pages::of(&region), 0, 1, seed());
    let mut taken = || {
        let before = engine.counters().swpout_block;
        (1..=6_000).for_each(|stamp| owner.step(stamp));
        engine.counters().swpout_block - before
    };
    taken();
    then(&engine, &mut taken);
    owner.check_all();
    audit(&engine);
}

#[test]
fn blocks_leave_under_filters_that_were_tried_and_under_no_others() {
    alone(60, || {
        // Of no interest to anybody.
        forbid(libc::SYS_acct, Outcome::Killed).unwrap();
        taken_with(0, |_, taken| assert_eq!(taken(), 0, "it was not tried"));
        let filters = filters::tried();
        assert_eq!(filters, 1);
        taken_with(filters, |engine, taken| {
            assert!(taken() > 500);
            engine.set("reclaim_way", "runs").unwrap();
            // One may have been under way.
            taken();
            // Had one more block been tried, this process would have ended.
            forbid(libc::SYS_vmsplice, Outcome::Killed).unwrap();
            engine.set("reclaim_way", "blocks").unwrap();
            assert_eq!(taken(), 0, "there is one more");
        });
        assert_eq!(filters::tried(), 0, "a child has been killed");
    });
}

#[test]
fn filters_that_refuse_or_kill_for_what_blocks_need_are_found_out() {
    alone(60, || {
        for outcome in [Outcome::Refused, Outcome::Killed] {
            for call in [libc::SYS_mremap, libc::SYS_vmsplice, libc::SYS_madvise, libc::SYS_readv] {
                join(apart(|| {
                    forbid(call, outcome).unwrap();
                    assert_eq!(filters::tried(), 0, "call {call}, {outcome:?}");
                }));
            }
        }
    });
}
