//! Slots that forked children read: lent, never given out anew before the last has done with them, and given back then,
//! in whatever order processes fork, write, let go and end.
use crate::support::*;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use userswap::{Engine, Region};

/// Pages of a region that is all on the device, and about three times the budget.
const PAGES: usize = 12 << 10;

/// A device with room for two and a half times those pages: slots that are free are soon used again.
const TIGHT: &str = "mem:120M";

fn lent(engine: &Engine) -> u64 {
    let devices = &engine.core().devices;
    // What is freed may wait in a buffer.
    devices.set_mode(devices.mode());
    devices.list().map(|device| u64::from(device.store().lock().lent.count())).sum()
}

fn borrowed(engine: &Engine) -> usize {
    let is_borrowed = |holding| holding == Holding::Borrowed;
    engine.core().devices.list().filter(|device| is_borrowed(device.store().lock().holding)).count()
}

/// A child that does each step when it is told to.
struct Child {
    pid: i32,
    orders: UnixStream,
}

impl Child {
    /// `work` is done once; what it waits for is [`Child::tell`].
    fn new(engine: &Engine, work: impl FnOnce(&mut UnixStream)) -> Self {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let pid = fork(engine, || work(&mut theirs));
        drop(theirs);
        Self { pid, orders: ours }
    }

    fn tell(&mut self) {
        self.orders.write_all(&[1]).unwrap();
    }

    fn hear(&mut self) {
        self.orders.read_exact(&mut [0]).unwrap();
    }

    fn join(mut self) {
        self.tell();
        join(self.pid);
    }

    fn kill(self) {
        kill(self.pid);
    }
}

fn wait(orders: &mut UnixStream) {
    orders.read_exact(&mut [0]).unwrap();
}

fn answer(orders: &mut UnixStream) {
    orders.write_all(&[1]).unwrap();
}

/// Everything on the device again, in new slots.
fn rewrite(region: &Region, pages: Pages, stamp: u64) {
    pages.fill_all(stamp);
    region.page_out(0..region.len()).unwrap();
}

#[test]
fn a_fork_copies_no_slot_and_reads_nothing() {
    alone(50, || {
        for way in ways() {
            let engine = engine(way);
            let (_region, pages) = paged_out(&engine, PAGES, 1);
            let before = engine.counters();
            let child = fork(&engine, || {
                assert_eq!(borrowed(&engine), 1);
                pages.check_all(1);
                assert_eq!(engine.counters().pages_lost, 0);
                audit(&engine);
            });
            let after = engine.counters();
            assert_eq!((after.fork_slots_copied, after.pswpin), (0, before.pswpin));
            join(child);
        }
    });
}

#[test]
fn the_owner_gives_no_slot_out_anew_that_a_child_still_reads() {
    alone(50, || {
        for way in ways() {
            let engine = engine_on(way, &[TIGHT]);
            let (region, pages) = paged_out(&engine, PAGES, 1);
            let child = Child::new(&engine, |orders| {
                wait(orders);
                pages.check_all(1);
                audit(&engine);
            });
            (2..5).for_each(|stamp| rewrite(&region, pages, stamp));
            assert_eq!(lent(&engine), PAGES as u64);
            audit(&engine);
            child.join();
            pages.check_all(4);
            assert_eq!(engine.counters().pages_lost, 0);
        }
    });
}

#[test]
fn what_a_child_held_comes_back_when_it_ends_or_is_killed() {
    alone(50, || {
        let engine = engine_on(WAYS[0], &[TIGHT]);
        let (region, pages) = paged_out(&engine, PAGES, 1);
        for round in 1..4 {
            let child = Child::new(&engine, wait);
            rewrite(&region, pages, round + 1);
            assert_eq!(lent(&engine), PAGES as u64);
            match round {
                1 => child.kill(),
                _ => child.join(),
            }
            audit(&engine);
        }
        pages.check_all(4);
        let counters = engine.counters();
        assert_eq!((counters.budget_exceeded, counters.pages_lost), (0, 0));
        // A request of all slots there are.
        rewrite(&region, pages, 5);
        rewrite(&region, pages, 6);
        assert_eq!((lent(&engine), engine.usage().slots_used), (0, PAGES as u64));
        audit(&engine);
    });
}

#[test]
fn what_a_child_drops_comes_back_while_it_lives() {
    alone(50, || {
        let engine = engine_on(WAYS[0], &[TIGHT]);
        let (region, pages) = paged_out(&engine, PAGES, 1);
        let mut child = Child::new(&engine, |orders| {
            pages.fill_all(7);
            region.page_out(0..region.len()).unwrap();
            assert_eq!(lent(&engine), 0, "it has nobody to lend to");
            audit(&engine);
            answer(orders);
            wait(orders);
            pages.check_all(7);
        });
        child.hear();
        (2..6).for_each(|stamp| rewrite(&region, pages, stamp));
        assert_eq!(lent(&engine), 0);
        child.join();
        pages.check_all(5);
        audit(&engine);
    });
}

#[test]
fn a_grandchild_reads_on_after_its_parent_has_dropped_the_slots_and_gone() {
    alone(50, || {
        for way in ways() {
            let engine = engine_on(way, &[TIGHT]);
            let (region, pages) = paged_out(&engine, PAGES, 1);
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            let mut theirs = Some(theirs);
            let child = fork(&engine, || {
                pages.fill(0, 4);
                let mut orders = theirs.take().unwrap();
                let grandchild = fork(&engine, || {
                    wait(&mut orders);
                    pages.check(0, 4);
                    (1..pages.count).for_each(|page| pages.check(page, 1));
                    audit(&engine);
                    answer(&mut orders);
                });
                assert!(grandchild > 0);
                // Every slot of the grandparent's is dropped here.
                pages.fill_all(5);
                region.page_out(0..region.len()).unwrap();
                audit(&engine);
            });
            join(child);
            drop(theirs);
            (2..5).for_each(|stamp| rewrite(&region, pages, stamp));
            assert_eq!(lent(&engine), PAGES as u64);
            answer(&mut ours);
            wait(&mut ours);
            pages.check_all(4);
            audit(&engine);
        }
    });
}

#[test]
fn a_child_lets_go_of_a_device_that_holds_none_of_its_pages() {
    alone(50, || {
        let engine = engine(WAYS[0]);
        let (region, pages) = paged_out(&engine, PAGES, 1);
        join(fork(&engine, || {
            rewrite(&region, pages, 2);
            assert_eq!(borrowed(&engine), 1);
            join(fork(&engine, || {
                assert_eq!(borrowed(&engine), 1, "its parent's, not its grandparent's");
                pages.check_all(2);
                audit(&engine);
            }));
            assert_eq!(borrowed(&engine), 0);
            pages.check_all(2);
            audit(&engine);
        }));
    });
}

#[test]
fn a_child_without_a_row_gets_a_copy() {
    alone(50, || {
        let engine = engine_on(WAYS[0], &["mem:64M"]);
        let (region, pages) = paged_out(&engine, 40, 1);
        // As many rows as processes could have, held by this one.
        let device = engine.core().devices.list().next().unwrap();
        let loans = device.loans().unwrap();
        let rows: Vec<_> =
            (0..BORROWERS_MAX).map_while(|_| loans.lend([].into_iter()).ok()).collect();
        assert_eq!(rows.len(), BORROWERS_MAX as usize);
        let work = |_: &mut UnixStream| {
            assert_eq!(borrowed(&engine), 0);
            pages.check_all(1);
            pages.fill_all(8);
            region.page_out(0..region.len()).unwrap();
            pages.check_all(8);
            audit(&engine);
        };
        Child::new(&engine, work).join();
        assert_eq!(engine.counters().fork_slots_copied, 40);
        drop(rows);
        Child::new(&engine, |_| assert_eq!(borrowed(&engine), 1)).join();
        assert_eq!(engine.counters().fork_slots_copied, 40);
        audit(&engine);
    });
}

/// Generations of a chain of forks: with four devices of its own each has 32 before the last.
const GENERATIONS: usize = 10;

fn generation(engine: &Engine, region: &Region, left: usize) {
    let pages = Pages::of(region);
    let stamp = |page: usize, left: usize| match page % GENERATIONS {
        own if own >= left => (GENERATIONS - own) as u64,
        _ => 99,
    };
    (0..pages.count).for_each(|page| pages.check(page, stamp(page, left + 1)));
    let own = (0..pages.count).filter(|page| page % GENERATIONS == left);
    own.for_each(|page| pages.fill(page, (GENERATIONS - left) as u64));
    // In parts, of which each goes to the next device.
    let part = region.len() / 4;
    (0..4).for_each(|index| region.page_out(index * part..(index + 1) * part).unwrap());
    audit(engine);
    if left > 0 {
        join(fork(engine, || generation(engine, region, left - 1)));
    } else {
        assert!(engine.core().devices.list().count() > 28, "the numbers have run out");
    }
    (0..pages.count).for_each(|page| pages.check(page, stamp(page, left)));
}

/// Each generation has the devices of all those before it that it still has pages on.
#[test]
fn a_chain_of_forks_longer_than_there_are_devices_keeps_every_byte() {
    alone(100, || {
        let engine = engine_on(WAYS[0], &["mem:64M,pri=1"; 4]);
        engine.core().devices.set_mode(SlotMode::Clusters);
        let (region, _) = paged_out(&engine, 100 * GENERATIONS, 99);
        generation(&engine, &region, GENERATIONS - 1);
    });
}

#[test]
fn an_owner_that_lets_go_of_a_file_does_not_unlock_it_while_a_child_reads_it() {
    alone(50, || {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = directory.path().join("swap");
        let spec = format!("{}:120M", path.display());
        let engine = engine_on(WAYS[0], &[&spec, "mem:120M,pri=1"]);
        engine.core().swapoff(Path::new("mem"), &mut go_on).unwrap();
        let (_region, pages) = paged_out(&engine, PAGES, 1);
        let child = Child::new(&engine, |orders| {
            wait(orders);
            pages.check_all(1);
            audit(&engine);
        });
        swapon(&engine, "mem:120M").unwrap();
        swapoff(&engine, &path).unwrap();
        let refusal = swapon(&engine, &spec).unwrap_err().to_string();
        assert!(refusal.contains("another userswap uses it"), "{refusal}");
        child.join();
        pages.check_all(1);
        eventually("the child's queues are closed", || swapon(&engine, &spec).is_ok());
        audit(&engine);
    });
}

/// Processes that a family has at a time.
const FAMILY: usize = 12;

/// What the processes of a family share: a byte for each that may still be made. Those that are killed keep theirs.
struct Places(UnixStream, UnixStream);

impl Places {
    fn new() -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let places = Self(ours, theirs);
        (0..FAMILY).for_each(|_| places.leave());
        places
    }

    fn take(&self) -> bool {
        (&self.1).read_exact(&mut [0]).is_ok()
    }

    fn leave(&self) {
        (&self.0).write_all(&[1]).unwrap();
    }
}

/// A process of a family, which does as it likes.
struct Member<'a> {
    engine: &'a Engine,
    region: &'a Region,
    places: &'a Places,
    stamps: Vec<u64>,
    random: Random,
    children: Vec<i32>,
    /// Generations that may follow.
    depth: usize,
}

/// Generations after the first.
const DEPTH: usize = 3;

impl Member<'_> {
    fn live(&mut self) {
        for step in 0..12 {
            match self.random.below(7) {
                0 | 1 if self.depth > 0 => self.bear(),
                2 => self.region.page_out(0..self.region.len()).unwrap(),
                3 => self.let_go(),
                4 => _ = self.engine.page_out_all(),
                5 if !self.children.is_empty() && self.depth == DEPTH => self.kill(),
                _ => self.write((self.depth * 100 + step + 1) as u64),
            }
        }
        // Half of them leave before their children.
        if self.depth == DEPTH || self.random.below(2) == 0 {
            self.children.drain(..).for_each(join);
        }
        self.check();
        audit(self.engine);
        assert_eq!(self.engine.counters().pages_lost, 0);
    }

    fn bear(&mut self) {
        if !self.places.take() {
            return;
        }
        let mut random = self.random.clone();
        random.below(7);
        let mut child = Member {
            stamps: self.stamps.clone(),
            random,
            children: Vec::new(),
            depth: self.depth - 1,
            ..*self
        };
        self.children.push(fork(self.engine, || {
            child.live();
            child.places.leave();
        }));
    }

    fn let_go(&mut self) {
        let list = self.engine.core().devices.list();
        let names: Vec<_> = list.filter_map(|device| Some(device.label()?.name.clone())).collect();
        // One that is needed stays, and the last is needed for what follows.
        if names.len() > 1 {
            let _ = swapoff(self.engine, &names[self.random.below(names.len())]);
        }
    }

    fn kill(&mut self) {
        let child = self.children.remove(self.random.below(self.children.len()));
        kill(child);
    }

    fn write(&mut self, stamp: u64) {
        let pages = Pages::of(self.region);
        let (first, every) = (self.random.below(pages.count), self.random.below(5) + 1);
        for page in (first..pages.count).step_by(every).take(1500) {
            pages.check(page, self.stamps[page]);
            self.stamps[page] = stamp;
            pages.fill(page, stamp);
        }
    }

    fn check(&self) {
        let pages = Pages::of(self.region);
        (0..pages.count).for_each(|page| pages.check(page, self.stamps[page]));
    }
}

fn family(way: Way) {
    let seed = seed();
    for round in 0..rounds(2) {
        let engine = engine_on(way, &["mem:48M", "/var/tmp:48M"]);
        let region = engine.map(24 * MIB).unwrap();
        let (engine, region, places) = (&engine, &region, &Places::new());
        let stamps = vec![0; Pages::of(region).count];
        let random = Random::new(seed.wrapping_add(round));
        Member { engine, region, places, stamps, random, children: Vec::new(), depth: DEPTH }
            .live();
    }
}

#[test]
fn a_family_keeps_every_byte_in_any_order_by_message() {
    alone(100, || family(WAYS[0]));
}

#[test]
fn a_family_keeps_every_byte_in_any_order_by_signal() {
    alone(100, || family(WAYS[1]));
}
