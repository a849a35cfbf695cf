//! fork and late engagement: a child sees its memory exactly as it was, and a program that is taken over
//! while it runs keeps every byte.
#![allow(clippy::multiple_unsafe_ops_per_block)]
#![allow(unsafe_code)]
mod support;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use support::*;
use userswap::internals::Arena;
use userswap::internals::Options;
use userswap::internals::mapping;
use userswap::internals::mapping::Access;
use userswap::internals::signal::Blocked;
use userswap::{Engine, Error};
use userswap::{FaultMode, IoBackend, Transfer};

type Way = (FaultMode, Transfer);

/// Forks; the child runs `work` and ends with 0, or with 1 if that panics, or by SIGALRM.
fn fork(engine: &Engine, work: impl FnOnce()) -> i32 {
    let blocked = Blocked::new();
    let ticket = engine.fork_prepare();
    // SAFETY: the child goes on with the books as they are, which is what this tests.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork works");
    if child > 0 {
        engine.fork_parent(ticket);
        drop(blocked);
        return child;
    }
    limit(25);
    let outcome = engine.fork_child(ticket);
    drop(blocked);
    let work = std::panic::AssertUnwindSafe(|| {
        let outcome: Result<(), Error> = outcome;
        outcome.unwrap();
        work();
    });
    let code = i32::from(std::panic::catch_unwind(work).is_err());
    // SAFETY: ends the child without running what belongs to the parent.
    unsafe { libc::_exit(code) }
}

fn join(child: i32) {
    let mut status = 0;
    // SAFETY: waits for a child of this process.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(waited, child);
    assert!(
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
        "a child ended with {status:#x}"
    );
}

/// Every third page is of zeros, every other one has a stamp.
fn stamps(pages: Pages, stamp: u64) -> Vec<u64> {
    (0..pages.count).map(|page| if page % 3 == 2 { 0 } else { stamp }).collect()
}

fn check_all(pages: Pages, stamps: &[u64]) {
    (0..pages.count).for_each(|page| pages.check(page, stamps[page]));
}

/// Changes every `step`-th page, checking it first.
fn change(pages: Pages, stamps: &mut [u64], step: usize, stamp: u64) {
    for page in (0..pages.count).step_by(step) {
        pages.check(page, stamps[page]);
        stamps[page] = stamp;
        pages.fill(page, stamp);
    }
}

fn three_generations(engine: &Engine) {
    let region = engine.map(28 * MIB).unwrap();
    let pages = Pages::of(&region);
    let mut stamps = stamps(pages, 1);
    (0..pages.count).for_each(|page| pages.fill(page, stamps[page]));
    region.pin(0..MIB).unwrap();
    let inherited = stamps.clone();
    let child = fork(engine, || {
        let mut stamps = inherited.clone();
        change(pages, &mut stamps, 2, 2);
        let inherited = stamps.clone();
        let grandchild = fork(engine, || {
            let mut stamps = inherited;
            change(pages, &mut stamps, 3, 4);
            check_all(pages, &stamps);
            audit(engine);
        });
        change(pages, &mut stamps, 5, 5);
        check_all(pages, &stamps);
        join(grandchild);
        check_all(pages, &stamps);
        audit(engine);
        assert!(engine.counters().pgmajfault > 0);
    });
    change(pages, &mut stamps, 2, 3);
    check_all(pages, &stamps);
    join(child);
    check_all(pages, &stamps);
    audit(engine);
    // Once more, after everything is the parent's alone again.
    change(pages, &mut stamps, 1, 6);
    check_all(pages, &stamps);
    assert_eq!(engine.counters().pages_lost, 0);
}

fn way_of(name: &str, way: Way) {
    if must_pass_in_child(name, 50) {
        three_generations(&engine(way));
    }
}

#[test]
fn three_generations_by_message_and_move() {
    way_of("three_generations_by_message_and_move", WAYS[0]);
}

#[test]
fn three_generations_by_signal_and_move() {
    way_of("three_generations_by_signal_and_move", WAYS[1]);
}

#[test]
fn three_generations_by_message_and_copy() {
    way_of("three_generations_by_message_and_copy", WAYS[2]);
}

#[test]
fn three_generations_by_signal_and_copy() {
    way_of("three_generations_by_signal_and_copy", WAYS[3]);
}

#[test]
fn three_generations_without_io_uring_on_memory() {
    if must_pass_in_child("three_generations_without_io_uring_on_memory", 50) {
        let swap = "mem:64M".parse().unwrap();
        three_generations(&builder(WAYS[0]).io(IoBackend::Threads).swap(swap).build().unwrap());
    }
}

#[test]
fn three_generations_with_three_nodes_and_devices() {
    if must_pass_in_child("three_generations_with_three_nodes_and_devices", 50) {
        let swap = |node: u32| format!("mem:64M,node={node}").parse().unwrap();
        let builder = (0..3).fold(builder(WAYS[0]), |builder, node| builder.swap(swap(node)));
        three_generations(&builder.fake_numa(3).build().unwrap());
    }
}

#[test]
fn a_child_made_during_a_swapoff_keeps_the_device_and_every_byte() {
    let name = "a_child_made_during_a_swapoff_keeps_the_device_and_every_byte";
    if !must_pass_in_child(name, 50) {
        return;
    }
    let swap = || "mem:64M".parse().unwrap();
    let engine = builder(WAYS[0]).swap(swap()).swap(swap()).build().unwrap();
    let region = engine.map(40 * MIB).unwrap();
    let pages = Pages::of(&region);
    (0..pages.count).for_each(|page| pages.fill(page, 2));
    let started = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let leaving = scope.spawn(|| {
            engine.core().swapoff(std::path::Path::new("mem"), &mut |_| {
                started.store(true, Ordering::Relaxed);
                std::thread::sleep(std::time::Duration::from_millis(100));
                userswap::internals::Proceed::GoOn
            })
        });
        while !started.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        join(fork(&engine, || {
            assert_eq!(engine.core().devices.list().count(), 2, "here nobody takes it away");
            audit(&engine);
            (0..pages.count).for_each(|page| pages.check(page, 2));
            (0..pages.count).for_each(|page| pages.fill(page, 3));
            let gone = engine
                .core()
                .swapoff(std::path::Path::new("mem"), &mut |_| userswap::internals::Proceed::GoOn);
            gone.unwrap();
            (0..pages.count).for_each(|page| pages.check(page, 3));
            audit(&engine);
        }));
        leaving.join().unwrap().unwrap();
    });
    assert_eq!(engine.core().devices.list().count(), 1);
    (0..pages.count).for_each(|page| pages.check(page, 2));
    audit(&engine);
}

/// Forks again and again while other threads fault; their words carry their page's number.
fn forks_under_load(way: Way) {
    let engine = engine(way);
    let region = engine.map(32 * MIB).unwrap();
    let pages = Pages::of(&region);
    let shared = pages.count / 2;
    (0..shared).for_each(|page| pages.fill(page, 1));
    let done = AtomicBool::new(false);
    let label = |page: usize| (page as u64) << 32;
    let fill = |page: usize, turn: u64| {
        for place in 0..WORDS {
            // SAFETY: the page lies in the live region and has one writer.
            unsafe { pages.at(page).add(place).write_volatile(label(page) | turn) };
        }
    };
    let check = |page: usize| {
        // SAFETY: as above.
        let words: Vec<u64> =
            (0..WORDS).map(|place| unsafe { pages.at(page).add(place).read_volatile() }).collect();
        let (first, last) = (words[0], words[WORDS - 1]);
        assert!(words.iter().all(|word| word & !0xFFFF_FFFF == label(page)), "page {page}");
        // The child may see a page half written, never two turns that are not neighbours.
        assert!(first == last || first == last + 1, "page {page}: {first:#x} {last:#x}");
    };
    (shared..pages.count).for_each(|page| fill(page, 0));
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (fill, check, done) = (&fill, &check, &done);
            scope.spawn(move || {
                let mut random = Random::new(thread as u64 + 9);
                let mut turns = vec![0; pages.count];
                while !done.load(Ordering::Relaxed) {
                    let page = shared + random.below(shared / 2) * 2 + thread;
                    check(page);
                    turns[page] += 1;
                    fill(page, turns[page]);
                }
            });
        }
        for round in 0..3 {
            let child = fork(&engine, || {
                let mut random = Random::new(round + 1);
                (0..400).for_each(|_| pages.check(random.below(shared), round + 1));
                (0..400).for_each(|_| check(shared + random.below(shared)));
                (0..shared).for_each(|page| pages.check(page, round + 1));
                (shared..pages.count).for_each(check);
                audit(&engine);
            });
            (0..shared).for_each(|page| pages.fill(page, round + 2));
            join(child);
        }
        done.store(true, Ordering::Relaxed);
    });
    (0..shared).for_each(|page| pages.check(page, 4));
    (shared..pages.count).for_each(check);
    audit(&engine);
}

#[test]
fn forks_under_load_by_message() {
    if must_pass_in_child("forks_under_load_by_message", 50) {
        forks_under_load(WAYS[0]);
    }
}

#[test]
fn forks_under_load_by_signal() {
    if must_pass_in_child("forks_under_load_by_signal", 50) {
        forks_under_load(WAYS[1]);
    }
}

fn rings() -> usize {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    let links = entries.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    links.filter(|link| link.to_string_lossy().contains("io_uring")).count()
}

#[test]
fn a_child_keeps_nothing_of_its_parents_queues_open() {
    let name = "a_child_keeps_nothing_of_its_parents_queues_open";
    if !must_pass_in_child(name, 20) {
        return;
    }
    let engine = builder(WAYS[0]).io(IoBackend::Uring).build().unwrap();
    let before = rings();
    assert!(before > 0);
    join(fork(&engine, || assert_eq!(rings(), before)));
}

#[test]
fn a_child_may_drop_its_engine_and_build_another() {
    let name = "a_child_may_drop_its_engine_and_build_another";
    if !must_pass_in_child(name, 50) {
        return;
    }
    for way in WAYS {
        println!("{way:?}");
        let mut engine = Some(engine(way));
        let mut region = Some(engine.as_ref().unwrap().map(24 * MIB).unwrap());
        let pages = Pages::of(region.as_ref().unwrap());
        (0..pages.count).for_each(|page| pages.fill(page, 1));
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Threads in the middle of faults do not exist in the child.
            for thread in 0..2 {
                let done = &done;
                scope.spawn(move || {
                    let mut random = Random::new(thread + 1);
                    while !done.load(Ordering::Relaxed) {
                        pages.check(random.below(pages.count), 1);
                    }
                });
            }
            for _ in 0..6 {
                let shared: *const Engine = engine.as_ref().unwrap();
                let (engine, region) = (&mut engine, &mut region);
                // SAFETY: `fork` uses the engine in the parent only while nobody drops it there.
                let child = fork(unsafe { &*shared }, || {
                    pages.check(7, 1);
                    drop(region.take());
                    drop(engine.take());
                    let engine = support::engine(way);
                    let region = engine.map(20 * MIB).unwrap();
                    let pages = Pages::of(&region);
                    (0..pages.count).for_each(|page| pages.fill(page, 3));
                    (0..pages.count).for_each(|page| pages.check(page, 3));
                });
                join(child);
            }
            done.store(true, Ordering::Relaxed);
        });
        audit(engine.as_ref().unwrap());
    }
}

#[test]
fn lost_pages_stay_lost_in_the_child_and_others_are_seen() {
    let name = "lost_pages_stay_lost_in_the_child_and_others_are_seen";
    if !must_pass_in_child(name, 30) {
        return;
    }
    for way in WAYS {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = directory.path().join("swap");
        let swap = format!("{}:64M", path.display()).parse().unwrap();
        let engine = builder(way).swap(swap).build().unwrap();
        let region = engine.map(MIB).unwrap();
        let pages = Pages::of(&region);
        (0..pages.count).for_each(|page| pages.fill(page, 1));
        region.page_out(0..MIB).unwrap();
        // A device that is cut off cannot be copied: the child must hear of it, not read zeros.
        std::fs::File::options().write(true).open(&path).unwrap().set_len(64 << 10).unwrap();
        let blocked = Blocked::new();
        let ticket = engine.fork_prepare();
        // SAFETY: as in `fork`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            limit(10);
            let refused = engine.fork_child(ticket).is_err();
            // SAFETY: as in `fork`.
            unsafe { libc::_exit(i32::from(!refused)) };
        }
        engine.fork_parent(ticket);
        drop(blocked);
        join(child);
        (0..15).for_each(|page| pages.check(page, 1));
    }
}

/// A program that ran natively, with pages present, touched for reading only, and absent.
fn engage(way: Way, huge: bool) {
    limit(50);
    println!("{way:?}");
    let arena =
        Arc::new(Arena::reserve(64 * MIB as u32 / PAGE as u32 * 4, Access::ReadWrite).unwrap());
    let first = arena.allocate(36 * 256, 512).unwrap();
    let second = arena.allocate(300, 1).unwrap();
    let pages = Pages { address: arena.address_of(first.first), count: first.count as usize };
    let others = Pages { address: arena.address_of(second.first), count: second.count as usize };
    if huge {
        mapping::advise(pages.address, pages.count * PAGE, libc::MADV_HUGEPAGE).unwrap();
    }
    let stamp = |page: usize| match page {
        0..6000 => 1 + page as u64 % 7,
        _ => 0,
    };
    (0..6000).for_each(|page| pages.fill(page, stamp(page)));
    (6000..7000).for_each(|page| pages.check(page, 0));
    (0..others.count).step_by(2).for_each(|page| others.fill(page, 8));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let (done, stamp) = (&done, &stamp);
            scope.spawn(move || {
                let mut random = Random::new(thread + 1);
                while !done.load(Ordering::Relaxed) {
                    let page = random.below(pages.count / 2) * 2 + thread as usize;
                    pages.check(page, stamp(page));
                    pages.fill(page, stamp(page));
                }
            });
        }
        let mut options = Options::new(16 << 20);
        (options.fault, options.transfer) = way;
        let engine = Engine::engage(arena.clone(), &options);
        if engine.is_err() {
            done.store(true, Ordering::Relaxed);
        }
        let engine = engine.unwrap();
        assert!(engine.counters().pages_adopted >= 6000, "{:?}", engine.counters());
        let patience = std::time::Duration::from_millis(10);
        (0..300).take_while(|_| engine.usage().debt > 0).for_each(|_| std::thread::sleep(patience));
        done.store(true, Ordering::Relaxed);
        assert_eq!(engine.usage().debt, 0, "the budget is kept in the end: {:?}", engine.usage());
        for _ in 0..2 {
            (0..pages.count).for_each(|page| pages.check(page, stamp(page)));
        }
        (0..others.count).for_each(|page| others.check(page, if page % 2 == 0 { 8 } else { 0 }));
        (0..pages.count).for_each(|page| pages.fill(page, 9));
        (0..pages.count).for_each(|page| pages.check(page, 9));
        audit(&engine);
    });
}

#[test]
fn engaging_late_keeps_every_byte() {
    if must_pass_in_child("engaging_late_keeps_every_byte", 50) {
        WAYS.into_iter().for_each(|way| engage(way, false));
    }
}

#[test]
fn engaging_late_keeps_every_byte_of_huge_pages() {
    if must_pass_in_child("engaging_late_keeps_every_byte_of_huge_pages", 50) {
        WAYS.into_iter().for_each(|way| engage(way, true));
    }
}
