//! swapoff while the program goes on: it finds every byte, and gets its room if it needs it.
use super::with_memory;
use crate::support::*;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use userswap::internals::{Proceed, Progress, SwapoffMethod};
use userswap::{Engine, Error};

/// Four threads check and change their pages while devices are emptied into each other, or only half.
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn under_load(way: Way) {
    limit(120);
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let file = directory.path().join("swap");
    let on_file = format!("{}:64M", file.display());
    let devices = [
        (file.as_path(), on_file.as_str()),
        (Path::new("mem"), "mem:64M"),
        (Path::new("mem#2"), "mem:64M"),
    ];
    let engine = with_memory(way, 16, &devices.map(|(_, spec)| spec));
    let region = engine.map(36 * MIB).unwrap();
    let pages = Pages::of(&region);
    let (wanted, done) = (rounds(12), AtomicUsize::new(0));
    let seed = seed();
    let worker = |task: usize| {
        let mut random = Random::new(seed + task as u64);
        let own = pages.count / 4;
        let mut stamps = vec![0; own];
        let mut step = 0;
        while done.load(Ordering::Relaxed) < wanted || step < 200 {
            step += 1;
            let first = random.below(own - 8);
            for (index, stamp) in stamps.iter_mut().enumerate().skip(first).take(8) {
                let page = task * own + index;
                pages.check(page, *stamp);
                if step % 2 == 0 {
                    *stamp = step;
                    pages.fill(page, step);
                }
            }
        }
        (0..own).for_each(|index| pages.check(task * own + index, stamps[index]));
    };
    let (mut emptied, mut cancelled, mut failed) = (0, 0, Vec::new());
    std::thread::scope(|scope| {
        (0..4).for_each(|task| {
            let worker = &worker;
            scope.spawn(move || worker(task));
        });
        let mut random = Random::new(seed ^ 77);
        for round in 0..wanted {
            let (name, spec) = devices[round % 3];
            let mut patience = if round % 4 == 3 { random.below(30) } else { usize::MAX };
            let method = SwapoffMethod::ALL[round / 3 % 3];
            let outcome = swapoff_by(&engine, name, method, &mut |_| {
                patience = patience.saturating_sub(1);
                if patience == 0 { Proceed::Cancel } else { Proceed::GoOn }
            });
            match outcome {
                Ok(()) => {
                    emptied += 1;
                    swapon(&engine, spec).unwrap();
                }
                Err(Error::SwapoffCancelled) => cancelled += 1,
                Err(error) => failed.push((round, error.to_string())),
            }
            done.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert!(failed.is_empty(), "{way:?} {failed:?} {:?}", engine.counters());
    assert!(emptied >= wanted * 2 / 3, "{emptied} emptied, {cancelled} cancelled");
    let counters = engine.counters();
    assert_eq!((counters.pages_lost, counters.budget_exceeded), (0, 0), "{way:?} {counters:?}");
    audit(&engine);
    drop(region);
    assert_eq!(engine.usage().slots_used, 0);
}

#[test]
fn four_threads_find_every_byte_by_message_and_move() {
    under_load(WAYS[0]);
}

#[test]
fn four_threads_find_every_byte_by_signal_and_move() {
    under_load(WAYS[1]);
}

#[test]
fn four_threads_find_every_byte_by_message_and_copy() {
    under_load(WAYS[2]);
}

#[test]
fn four_threads_find_every_byte_by_signal_and_copy() {
    under_load(WAYS[3]);
}

/// A program fills RAM from when `watch` sets the flag on; the swapoff has to give way to it.
fn gives_way(paged: usize, mut watch: impl FnMut(&Engine, Progress, &AtomicBool)) {
    for way in WAYS {
        limit(60);
        let engine = with_memory(way, 16, &["mem:64M"]);
        let (_region, pages) = paged_out(&engine, paged, 7);
        let more = engine.map(20 * MIB).unwrap();
        let more = Pages::of(&more);
        let begun = AtomicBool::new(false);
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !begun.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                more.fill_all(8);
            });
            swapoff_with(&engine, "mem", &mut |progress| {
                watch(&engine, progress, &begun);
                Proceed::GoOn
            })
        });
        assert!(matches!(outcome, Err(Error::NoRoomInRam)), "{way:?} {outcome:?}");
        assert_eq!(engine.counters().budget_exceeded, 0, "{way:?}");
        pages.check_all(7);
        more.check_all(8);
        audit(&engine);
    }
}

#[test]
fn a_program_that_needs_the_room_gets_the_device_back() {
    gives_way(3000, |engine, _, begun| {
        begun.store(true, Ordering::Release);
        // Nothing is read before the program has filled RAM.
        while engine.counters().allocstall == 0 {
            std::thread::yield_now();
        }
    });
}

/// As above, but the last slot is free when the program asks.
#[test]
fn a_program_that_needs_the_room_gets_the_device_back_even_when_it_is_empty() {
    gives_way(1500, |engine, progress, begun| {
        begun.fetch_or(progress.pages_left == 0, Ordering::Release);
        // Looked for in vain so often, the device is asked for.
        while begun.load(Ordering::Relaxed) && engine.counters().allocstall < 10 {
            std::thread::yield_now();
        }
    });
}

#[test]
fn a_watcher_that_panics_leaves_the_device_in_use() {
    limit(30);
    let engine = with_memory(WAYS[0], 16, &["mem:64M"]);
    let (_region, pages) = paged_out(&engine, 2000, 7);
    let ends = std::panic::AssertUnwindSafe(|| {
        swapoff_with(&engine, "mem", &mut |_| panic!("as it was meant to"))
    });
    assert!(std::panic::catch_unwind(ends).is_err());
    pages.check_all(7);
    audit(&engine);
    swapoff(&engine, "mem").unwrap();
    pages.check_all(7);
}
