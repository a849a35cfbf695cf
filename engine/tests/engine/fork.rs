//! fork and late engagement: a child sees its memory exactly as it was, and a program that is taken over
//! while it runs keeps every byte.
use crate::support::*;
use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use userswap::internals::Proceed;
use userswap::{Advice, Engine, Error, Heap, Region, Stayed, Usage};

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

/// How many devices are this process's own, or those of one from which it was forked.
fn devices(engine: &Engine, holding: Holding) -> usize {
    let devices = engine.core().devices.list();
    devices.filter(|device| device.store().lock().holding == holding).count()
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

#[test]
fn three_generations_keep_every_byte_by_message_and_move() {
    alone(50, || three_generations(&engine(WAYS[0])));
}

#[test]
fn three_generations_keep_every_byte_by_signal_and_move() {
    alone(50, || three_generations(&engine(WAYS[1])));
}

#[test]
fn three_generations_keep_every_byte_by_message_and_copy() {
    alone(50, || three_generations(&engine(WAYS[2])));
}

#[test]
fn three_generations_keep_every_byte_by_signal_and_copy() {
    alone(50, || three_generations(&engine(WAYS[3])));
}

#[test]
fn three_generations_keep_every_byte_without_io_uring_on_memory() {
    alone(50, || {
        let swap = "mem:64M".parse().unwrap();
        three_generations(&build(builder(WAYS[0]).io(IoBackend::Threads).swap(swap)));
    });
}

#[test]
fn three_generations_keep_every_byte_with_three_nodes_and_devices() {
    alone(50, || {
        let swap = ["mem:64M,node=0", "mem:64M,node=1", "mem:64M,node=2"];
        three_generations(&build(with_swap(builder(WAYS[0]).fake_numa(3), &swap)));
    });
}

#[test]
fn a_child_made_during_a_swapoff_keeps_the_device_and_every_byte() {
    alone(50, || {
        let engine = engine_on(WAYS[0], &["mem:64M", "mem:64M"]);
        let region = engine.map(40 * MIB).unwrap();
        let pages = Pages::of(&region);
        pages.fill_all(2);
        let started = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let leaving = scope.spawn(|| {
                swapoff_with(&engine, "mem", &mut |_| {
                    started.store(true, Ordering::Relaxed);
                    std::thread::sleep(std::time::Duration::from_millis(100));
                    Proceed::GoOn
                })
            });
            while !started.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            let borrowed = format!("mem of {}", std::process::id());
            join(fork(&engine, || {
                assert!(devices(&engine, Holding::Borrowed) > 0, "here nothing takes it away");
                audit(&engine);
                pages.check_all(2);
                pages.fill_all(3);
                swapoff(&engine, &borrowed).unwrap();
                pages.check_all(3);
                audit(&engine);
            }));
            leaving.join().unwrap().unwrap();
        });
        assert_eq!(engine.core().devices.list().count(), 1);
        pages.check_all(2);
        audit(&engine);
    });
}

/// Forks again and again while other threads fault; their words carry their page's number.
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn forks_under_load(way: Way) {
    let engine = engine(way);
    let region = engine.map(32 * MIB).unwrap();
    let pages = Pages::of(&region);
    let shared = pages.count / 2;
    (0..shared).for_each(|page| pages.fill(page, 1));
    let done = AtomicBool::new(false);
    let label = |page: usize| (page as u64) << 32;
    let fill = |page: usize, turn: u64| {
        for index in 0..WORDS {
            pages.write(page, index, label(page) | turn);
        }
    };
    let check = |page: usize| {
        let words: Vec<u64> = (0..WORDS).map(|index| pages.read(page, index)).collect();
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
fn forks_under_load_keep_every_byte_by_message() {
    alone(50, || {
        forks_under_load(WAYS[0]);
    });
}

#[test]
fn forks_under_load_keep_every_byte_by_signal() {
    alone(50, || {
        forks_under_load(WAYS[1]);
    });
}

fn rings() -> usize {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    let links = entries.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    links.filter(|link| link.to_string_lossy().contains("io_uring")).count()
}

#[test]
fn a_child_keeps_nothing_of_its_parents_queues_open() {
    alone(20, || {
        let engine = build(builder(WAYS[0]).io(IoBackend::Uring));
        let before = rings();
        assert!(before > 0);
        join(fork(&engine, || assert_eq!(rings(), before)));
    });
}

#[test]
fn a_child_may_drop_its_engine_and_build_another() {
    alone(50, || {
        for way in WAYS {
            println!("{way:?}");
            let mut engine = Some(engine(way));
            let mut region = Some(engine.as_ref().unwrap().map(24 * MIB).unwrap());
            let pages = Pages::of(region.as_ref().unwrap());
            pages.fill_all(1);
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
                for _ in 0..rounds(2) {
                    let child = fork_away(&mut engine, |theirs| {
                        pages.check(7, 1);
                        drop(region.take());
                        drop(theirs);
                        let engine = crate::support::engine(way);
                        let region = engine.map(20 * MIB).unwrap();
                        let pages = Pages::of(&region);
                        pages.fill_all(3);
                        pages.check_all(3);
                    });
                    join(child);
                }
                done.store(true, Ordering::Relaxed);
            });
            audit(engine.as_ref().unwrap());
        }
    });
}

#[test]
fn lost_pages_stay_lost_in_the_child_and_others_are_seen() {
    alone(30, || {
        for way in WAYS {
            let directory = tempfile::tempdir_in("/var/tmp").unwrap();
            let path = directory.path().join("swap");
            let engine = engine_on(way, &[&format!("{}:64M", path.display())]);
            let region = engine.map(MIB).unwrap();
            let pages = Pages::of(&region);
            pages.fill_all(1);
            region.page_out(0..MIB).unwrap();
            // Of a device that is cut off the rest is gone: the child must hear of it, not read zeros.
            std::fs::File::options().write(true).open(&path).unwrap().set_len(64 << 10).unwrap();
            let status = ended(fork(&engine, || {
                (0..15).for_each(|page| pages.check(page, 1));
                pages.check(100, 1);
            }));
            assert_eq!(libc::WTERMSIG(status), libc::SIGBUS, "the child ended with {status:#x}");
            (0..15).for_each(|page| pages.check(page, 1));
        }
    });
}

/// What a child without the engine may ask of it all the same.
fn ask_in_vain(engine: &Engine, region: &Region, heap: &Heap) {
    let bytes = || 0..region.len();
    let refused =
        |outcome: Result<(), Error>| assert!(matches!(outcome, Err(Error::ForkedWithout)));
    for advice in [Advice::Prefetch, Advice::WillNeed, Advice::PageOut, Advice::Cold, Advice::Pin] {
        refused(region.advise(bytes(), advice));
    }
    refused(region.forget(bytes()));
    refused(engine.map(MIB).map(drop));
    refused(engine.set_budget(32 << 20));
    refused(engine.prefetch_all());
    refused(engine.swapon(&"mem:64M".parse().unwrap()));
    refused(swapoff(engine, "mem"));
    refused(engine.set("compress", "0").map(drop));
    refused(heap.allocate(Layout::new::<u64>()).map(drop));
    assert_eq!(engine.page_out_all(), Stayed::default());
    assert_eq!(engine.usage(), Usage::default());
    assert!(!engine.account().try_charge(NodeId(0), 1));
}

/// What a program has of an engine.
struct Everything {
    gone: Region,
    kept: Region,
    block: NonNull<u8>,
    heap: Heap,
    engine: Engine,
}

impl Everything {
    fn of(engine: Engine) -> Self {
        let [gone, kept] = [8 * MIB, 8 * MIB].map(|bytes| engine.map(bytes).unwrap());
        let heap = engine.heap();
        let block = heap.allocate(Layout::new::<[u64; 1 << 18]>()).unwrap();
        Pages::of(&gone).fill_all(1);
        Pages::of(&kept).fill_all(2);
        gone.page_out(0..8 * MIB).unwrap();
        Self { gone, kept, block, heap, engine }
    }

    /// In a child that does not have the engine.
    fn ask_in_vain_and_drop(self) {
        ask_in_vain(&self.engine, &self.gone, &self.heap);
        ask_in_vain(&self.engine, &self.kept, &self.heap);
        self.heap.free(self.block).unwrap();
        // A fork of its own has nothing to prepare, and passes nothing on.
        join(fork(&self.engine, || ask_in_vain(&self.engine, &self.gone, &self.heap)));
    }
}

#[test]
fn a_child_of_a_fork_past_the_engine_changes_nothing_of_its_parents() {
    alone(60, || {
        for way in WAYS {
            println!("{way:?}");
            let mut all = Some(Everything::of(engine_on(way, &["mem:256M"])));
            let discarded = &shared_words(1)[0];
            let child = apart(|| {
                limit(25);
                while discarded.load(Ordering::SeqCst) == 0 {
                    std::thread::yield_now();
                }
                all.take().unwrap().ask_in_vain_and_drop();
            });
            let Everything { gone, kept, heap, engine, block } = all.as_mut().unwrap();
            // In the child's tables their slots are in use.
            gone.discard(0..8 * MIB).unwrap();
            discarded.store(1, Ordering::SeqCst);
            join(child);
            let (gone, kept) = (Pages::of(gone), Pages::of(kept));
            gone.check_all(0);
            kept.check_all(2);
            for (pages, stamp) in [(gone, 3), (kept, 4)] {
                pages.fill_all(stamp);
                pages.check_all(stamp);
            }
            heap.free(*block).unwrap();
            audit(engine);
        }
    });
}

/// A program that ran natively, with pages present, touched for reading only, and absent.
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
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
        eventually("the budget is kept", || engine.usage().debt == 0);
        done.store(true, Ordering::Relaxed);
        for _ in 0..2 {
            (0..pages.count).for_each(|page| pages.check(page, stamp(page)));
        }
        (0..others.count).for_each(|page| others.check(page, if page % 2 == 0 { 8 } else { 0 }));
        pages.fill_all(9);
        pages.check_all(9);
        audit(&engine);
    });
}

#[test]
fn engaging_late_keeps_every_byte() {
    alone(50, || {
        WAYS.into_iter().for_each(|way| engage(way, false));
    });
}

#[test]
fn engaging_late_keeps_every_byte_of_huge_pages() {
    alone(50, || {
        WAYS.into_iter().for_each(|way| engage(way, true));
    });
}
