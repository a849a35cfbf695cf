//! Clean pages: mapped write-protected by a fault that reads them, copied and dropped in hundreds. No byte that a
//! thread, a system call, a child or a device writes into such a page may be lost.
use crate::support::*;
use io_uring::IoUring;
use std::io::{Read as _, Write as _};
use userswap::internals::bench::memory::{Backing, Memory, Populate, Protection};
use userswap::{Engine, Region};

/// The ways in which there are clean pages: by signal a system call's write to one would be EFAULT. None where this
/// kernel cannot drop scattered pages of its own process, which is said.
fn clean_ways() -> &'static [Way] {
    const CLEAN_WAYS: [Way; 2] = [WAYS[0], WAYS[2]];
    match userswap::internals::scattered::is_supported() {
        true => &CLEAN_WAYS,
        false => {
            println!("before Linux 6.16 there are no clean pages: nothing to test");
            &[]
        }
    }
}

/// Pages of a region that have been swapped out, in an order of chance.
fn in_disorder(engine: &Engine, mib: usize, random: &mut Random) -> (Region, Pages, Vec<usize>) {
    let (region, pages) = paged_out(engine, mib * MIB / PAGE, 7);
    let mut order: Vec<usize> = (0..pages.count).collect();
    (1..pages.count).rev().for_each(|last| order.swap(last, random.below(last + 1)));
    (region, pages, order)
}

/// Reads pages by faults in disorder, each alone, until some are clean; returns those that are.
fn read_some(engine: &Engine, pages: Pages, order: &[usize]) -> Vec<usize> {
    // Of so few pages those beside one that is read are used soon.
    engine.set("page_cluster", "0").unwrap();
    order.iter().for_each(|page| pages.check(*page, 7));
    let clean: Vec<usize> =
        order.iter().copied().filter(|page| is_clean(engine, pages, *page)).collect();
    assert!(clean.len() > order.len() / 2, "{} of {} are clean", clean.len(), order.len());
    clean
}

/// Has pages read, and then all swapped out; how many left by being dropped.
fn dropped_of(engine: &Engine, region: &Region, order: &[usize]) -> u64 {
    read_some(engine, Pages::of(region), order);
    let before = engine.counters().swpout_dropped;
    region.page_out(0..region.len()).unwrap();
    engine.counters().swpout_dropped - before
}

fn is_clean(engine: &Engine, pages: Pages, page: usize) -> bool {
    matches!(state_of(engine, pages, page), PageState::Clean { .. })
}

fn state_of(engine: &Engine, pages: Pages, page: usize) -> PageState {
    let core = engine.core();
    core.pages.state(core.arena.page_of(pages.at(page) as usize))
}

#[test]
fn pages_that_are_only_read_leave_by_being_dropped() {
    alone(60, || {
        for &way in clean_ways() {
            let engine = engine_on(way, &["mem:128M"]);
            let (region, pages, order) = in_disorder(&engine, 48, &mut Random::new(seed()));
            eventually("what the reclaimer writes is written", || {
                engine.core().nodes.iter().all(|node| node.lock().writing == 0)
            });
            let before = engine.counters();
            eventually("clean pages leave by being dropped", || {
                order.iter().for_each(|page| pages.check(*page, 7));
                engine.counters().swpout_dropped - before.swpout_dropped > pages.count as u64
            });
            let after = engine.counters();
            assert_eq!(after.pswpout, before.pswpout, "{way:?}: nothing was written again");
            audit(&engine);
            drop(region);
            audit(&engine);
        }
    });
}

#[test]
fn a_clean_page_that_was_dropped_has_a_second_chance() {
    alone(60, || {
        for &way in clean_ways() {
            let engine = engine_on(way, &["mem:128M"]);
            let (_region, pages, order) = in_disorder(&engine, 48, &mut Random::new(seed()));
            let mut was_clean = vec![false; pages.count];
            let is_cached =
                |page: usize| matches!(state_of(&engine, pages, page), PageState::Cached { .. });
            // Reclaim goes on, and may take any of them first.
            eventually("pages that were clean come back from their second chance", || {
                for page in &order {
                    pages.check(*page, 7);
                    was_clean[*page] = is_clean(&engine, pages, *page);
                }
                let before = engine.counters().pgfault_cached;
                let cached = (0..pages.count).filter(|page| was_clean[*page] && is_cached(*page));
                cached.for_each(|page| pages.check(page, 7));
                engine.counters().pgfault_cached > before
            });
            let counters = engine.counters();
            assert!(counters.swpout_dropped > 1000, "{way:?}: {counters:?}");
            audit(&engine);
        }
    });
}

#[test]
fn by_signal_and_after_a_write_no_page_is_clean() {
    limit(60);
    for way in WAYS {
        let engine = engine_on(way, &["mem:128M"]);
        let (_region, pages, order) = in_disorder(&engine, 12, &mut Random::new(seed()));
        order.iter().for_each(|page| {
            pages.write(*page, 0, word(7, *page, 0));
        });
        assert!(!order.iter().any(|page| is_clean(&engine, pages, *page)), "{way:?}");
        if way.0 == FaultMode::Signal {
            engine.set_budget(32 << 20).unwrap();
            pages.check_all(7);
            assert!(!order.iter().any(|page| is_clean(&engine, pages, *page)), "{way:?}");
        }
        audit(&engine);
    }
}

/// Reads and writes pages of its own at random, each read first, until told to end.
fn use_pages(pages: Pages, (owner, owners): (usize, usize), steps: usize, random: &mut Random) {
    let mine = pages.count / owners;
    let mut stamps = vec![7; mine];
    for step in 0..steps {
        let index = random.below(mine);
        let page = index * owners + owner;
        pages.check(page, stamps[index]);
        if random.below(4) == 0 {
            stamps[index] = 8 + step as u64;
            pages.fill(page, stamps[index]);
        }
    }
    (0..mine).for_each(|index| pages.check(index * owners + owner, stamps[index]));
}

#[test]
fn what_threads_write_to_clean_pages_stays_while_others_are_dropped() {
    alone(120, || {
        for &way in clean_ways() {
            let engine = engine_on(way, &["mem:128M"]);
            // With a block clean pages leave beside the others.
            engine.set("reclaim_way", "runs").unwrap();
            let seed = seed();
            let (_region, pages, _) = in_disorder(&engine, 32, &mut Random::new(seed));
            std::thread::scope(|scope| {
                for owner in 0..4 {
                    let mut random = Random::new(seed ^ (owner as u64 + 1) << 20);
                    scope.spawn(move || use_pages(pages, (owner, 4), rounds(6000), &mut random));
                }
            });
            let counters = engine.counters();
            assert!(counters.swpout_dropped > 500 && counters.pgfault_wp > 500, "{counters:?}");
            assert_eq!(counters.pages_lost, 0);
            audit(&engine);
        }
    });
}

#[test]
fn where_pages_are_written_to_after_each_read_few_are_protected() {
    limit(60);
    let Some(&way) = clean_ways().first() else { return };
    let engine = engine_on(way, &["mem:128M"]);
    let (_region, pages, order) = in_disorder(&engine, 48, &mut Random::new(seed()));
    for page in &order {
        pages.check(*page, 7);
        pages.fill(*page, 9);
    }
    let counters = engine.counters();
    let written = counters.pgfault_wp;
    assert!(written > 0 && written < pages.count as u64 / 4, "{written} protections were lifted");
    pages.check_all(9);
}

#[test]
fn requests_know_clean_pages() {
    alone(60, || {
        for &way in clean_ways() {
            let engine = engine_on(way, &["mem:128M", "mem:128M"]);
            let core = engine.core();
            let (mut region, pages, order) = in_disorder(&engine, 8, &mut Random::new(seed()));
            let clean = read_some(&engine, pages, &order);
            let bytes = |page: usize| page * PAGE..(page + 1) * PAGE;
            // Pinned: not dropped, and still to be written to.
            let (pinned, rest) = clean.split_at(5);
            pinned.iter().for_each(|page| region.pin(bytes(*page)).unwrap());
            let before = engine.counters().swpout_dropped;
            region.page_out(0..region.len()).unwrap();
            assert!(
                engine.counters().swpout_dropped - before >= rest.len() as u64 - 100,
                "{way:?}"
            );
            let present = pages.present();
            assert!(pinned.iter().all(|page| present[*page]), "{way:?}: pins keep pages");
            pinned.iter().for_each(|page| pages.fill(*page, 8));
            pinned.iter().for_each(|page| region.unpin(bytes(*page)).unwrap());
            audit(&engine);
            // Discarded: zeros. Swapped off: their slots are given up, their content is not.
            let clean = read_some(&engine, pages, rest);
            let (dropped, kept) = clean.split_at(50);
            dropped.iter().for_each(|page| region.discard(bytes(*page)).unwrap());
            dropped.iter().for_each(|page| pages.check(*page, 0));
            let first = core.devices.list().next().unwrap().label().unwrap().name.clone();
            swapoff(&engine, first).unwrap();
            audit(&engine);
            kept.iter().for_each(|page| pages.check(*page, 7));
            kept.iter().for_each(|page| pages.fill(*page, 9));
            engine.page_out_all();
            audit(&engine);
            kept.iter().for_each(|page| pages.check(*page, 9));
            pinned.iter().for_each(|page| pages.check(*page, 8));
        }
    });
}

#[test]
fn a_write_after_mprotect_still_ends_a_page_being_clean() {
    limit(60);
    for &way in clean_ways() {
        let engine = engine_on(way, &["mem:128M"]);
        let (region, pages, order) = in_disorder(&engine, 8, &mut Random::new(seed()));
        let clean = read_some(&engine, pages, &order);
        for access in [libc::PROT_READ, libc::PROT_NONE, libc::PROT_READ | libc::PROT_WRITE] {
            protect(pages, access);
        }
        clean.iter().for_each(|page| pages.fill(*page, 8));
        assert!(!clean.iter().any(|page| is_clean(&engine, pages, *page)), "{way:?}");
        region.page_out(0..region.len()).unwrap();
        clean.iter().for_each(|page| pages.check(*page, 8));
        audit(&engine);
    }
}

#[test]
fn a_childs_pages_are_not_clean_and_its_writes_stay() {
    alone(50, || {
        for &way in clean_ways() {
            let engine = engine_on(way, &["mem:128M"]);
            let (region, pages, order) = in_disorder(&engine, 12, &mut Random::new(seed()));
            let clean = read_some(&engine, pages, &order);
            let child = fork(&engine, || {
                audit(&engine);
                clean.iter().for_each(|page| pages.fill(*page, 8));
                region.page_out(0..region.len()).unwrap();
                clean.iter().for_each(|page| pages.check(*page, 8));
                audit(&engine);
            });
            // The parent's stay protected, and are dropped while the child has them.
            let still = clean.iter().filter(|page| is_clean(&engine, pages, **page)).count();
            assert!(still > 100, "{still} pages of the parent are clean");
            region.page_out(0..region.len()).unwrap();
            clean.iter().step_by(2).for_each(|page| pages.fill(*page, 9));
            join(child);
            for (index, page) in clean.iter().enumerate() {
                pages.check(*page, if index % 2 == 0 { 9 } else { 7 });
            }
            audit(&engine);
        }
    });
}

#[test]
fn a_page_that_was_clean_and_is_pinned_is_written_to_while_no_fault_is_served() {
    alone(60, || {
        for &way in clean_ways() {
            let engine = engine_on(way, &["mem:128M"]);
            let core = engine.core();
            let (region, pages, order) = in_disorder(&engine, 8, &mut Random::new(seed()));
            let clean = read_some(&engine, pages, &order);
            let (without_slot, with_slot) = (&clean[..5], &clean[5..10]);
            for page in without_slot {
                let page = core.arena.page_of(pages.at(*page) as usize);
                assert!(core.pages.drop_slot(page, core.pages.load(page)), "{way:?}");
            }
            let bytes = |page: usize| page * PAGE..(page + 1) * PAGE;
            let pinned = without_slot.iter().chain(with_slot);
            pinned.clone().for_each(|page| region.pin(bytes(*page)).unwrap());
            // As a thread does whose stack is managed memory.
            let ticket = engine.fork_prepare();
            pinned.clone().for_each(|page| pages.fill(*page, 8));
            engine.fork_parent(ticket);
            pinned.clone().for_each(|page| region.unpin(bytes(*page)).unwrap());
            region.page_out(0..region.len()).unwrap();
            pinned.for_each(|page| pages.check(*page, 8));
        }
    });
}

#[test]
fn while_a_device_may_hold_pages_none_is_dropped() {
    alone(60, || {
        for &way in clean_ways() {
            let engine = engine_on(way, &["mem:128M"]);
            let (region, pages, order) = in_disorder(&engine, 8, &mut Random::new(seed()));
            let dropped = || dropped_of(&engine, &region, &order);
            let mut lent = vec![0u8; 1 << 20];
            let ring = IoUring::new(4).unwrap();
            register(&ring, Pages { address: lent.as_mut_ptr().addr(), count: lent.len() / PAGE });
            assert_eq!(dropped(), 0, "{way:?}: a device holds pages");
            ring.submitter().unregister_buffers().unwrap();
            eventually("the device lets go", || dropped() > 100);
            pages.check_all(7);
            audit(&engine);
        }
    });
}

#[test]
fn a_key_that_is_locked_in_memory_holds_no_page_of_the_program() {
    alone(60, || {
        for &way in clean_ways() {
            let engine = engine_on(way, &["mem:128M,encrypt"]);
            let (region, _, order) = in_disorder(&engine, 8, &mut Random::new(seed()));
            let dropped = || dropped_of(&engine, &region, &order);
            assert!(dropped() > 100, "{way:?}: no device holds pages");
            // A child locks its key for itself, and has no lock before.
            join(fork(&engine, || {
                region.page_out(0..region.len()).unwrap();
                assert!(dropped() > 100, "{way:?}: nor in a child");
            }));
            let locked =
                Memory::new(&Backing::Anonymous, PAGE, Protection::ReadWrite, Populate::OnTouch);
            let locked = locked.unwrap();
            locked.lock().unwrap();
            assert_eq!(dropped(), 0, "{way:?}: what the program locks may be a device's");
        }
    });
}

#[test]
fn a_clean_page_that_a_child_shares_leaves_by_being_moved_too() {
    alone(60, || {
        let Some(&way) = clean_ways().first() else { return };
        let engine = engine_on(way, &["mem:128M"]);
        let core = engine.core();
        let (region, pages, order) = in_disorder(&engine, 8, &mut Random::new(seed()));
        let clean = read_some(&engine, pages, &order);
        let number = |page: usize| core.arena.page_of(pages.at(page) as usize);
        let (end_of_child, mut end) = std::io::pipe().unwrap();
        let child = fork(&engine, || {
            let mut told = [0u8];
            (&end_of_child).read_exact(&mut told).unwrap();
            clean.iter().for_each(|page| pages.check(*page, 7));
        });
        // Without its slot, and to another place.
        let (without_slot, moved) = (clean[0], clean[1]);
        assert!(core.pages.drop_slot(number(without_slot), core.pages.load(number(without_slot))));
        region.page_out(without_slot * PAGE..(without_slot + 1) * PAGE).unwrap();
        assert!(!pages.present()[without_slot], "it can leave");
        pages.check(without_slot, 7);
        let other = engine.map(PAGE).unwrap();
        let to = core.arena.page_of(other.as_slice().as_ptr() as usize);
        core.move_range(PageRange { first: number(moved), count: 1 }, to);
        let is_there = Pages::of(&other).read(0, 0) == word(7, moved, 0);
        assert!(is_there, "its content has moved");
        pages.check(moved, 0);
        end.write_all(&[1]).unwrap();
        join(child);
    });
}

#[test]
fn what_a_device_delivers_into_clean_pages_stays() {
    alone(120, || {
        let Some(&way) = clean_ways().first() else { return };
        // Of pages that are copied, dirty ones at that, nothing tells which a device holds.
        let engine = engine_on(way, &["mem:128M"]);
        engine.set("reclaim_way", "runs").unwrap();
        let seed = seed();
        let (_region, pages, _) = in_disorder(&engine, 32, &mut Random::new(seed));
        let file = &file_of(pages, 8);
        std::thread::scope(|scope| {
            for owner in 0..2 {
                let mut random = Random::new(seed ^ (owner as u64 + 1) << 20);
                scope.spawn(move || {
                    let mut ring = IoUring::new(4).unwrap();
                    let mut stamps = vec![7; pages.count / 2];
                    for _ in 0..rounds(8000) {
                        let index = random.below(stamps.len());
                        let page = index * 2 + owner;
                        pages.check(page, stamps[index]);
                        match random.below(8) {
                            0 => read_from(file, pages, page, None),
                            1 => read_from(file, pages, page, Some(&mut ring)),
                            _ => continue,
                        }
                        stamps[index] = 8;
                    }
                    for (index, stamp) in stamps.iter().enumerate() {
                        pages.check(index * 2 + owner, *stamp);
                    }
                });
            }
        });
        let counters = engine.counters();
        assert!(counters.swpout_dropped > 500 && counters.pgfault_wp > 300, "{counters:?}");
        audit(&engine);
    });
}
