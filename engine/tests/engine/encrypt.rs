//! Encrypted devices: nothing of the content is on them, what was changed there is lost and said, and everything that
//! devices do goes on: both sides of a fork, swapoff, failures, a second chance in the middle of a write.
use crate::failing::damage;
use crate::faulty::{set_patience, use_at_random};
use crate::support::*;
use rustix::fs::{SeekFrom, seek};
use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use userswap::{Engine, Error, Region};

/// A file of one's own, as a device.
struct Swap {
    directory: tempfile::TempDir,
}

impl Swap {
    fn new() -> Self {
        Self { directory: tempfile::tempdir_in("/var/tmp").unwrap() }
    }

    fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("swap")
    }

    fn spec(&self, rest: &str) -> String {
        format!("{}{rest}", self.path().display())
    }
}

fn device(engine: &Engine, index: usize) -> &Device {
    engine.core().devices.list().nth(index).unwrap()
}

/// What is on a device, whether its file has a name or not: the parts that have ever been written.
fn raw(engine: &Engine, index: usize) -> Vec<(u64, Vec<u8>)> {
    let path = format!("/proc/self/fd/{}", device(engine, index).descriptor());
    let file = File::open(path).unwrap();
    let (mut parts, mut end) = (Vec::new(), 0);
    while let Ok(start) = seek(&file, SeekFrom::Data(end)) {
        end = seek(&file, SeekFrom::Hole(start)).unwrap();
        let mut bytes = vec![0; (end - start) as usize];
        file.read_exact_at(&mut bytes, start).unwrap();
        parts.push((start, bytes));
    }
    parts
}

/// The first words of each page are looked for.
const LOOKED_FOR: usize = 4;

/// How many words of a device are words of these pages, of those that are looked for.
fn readable(engine: &Engine, index: usize, pages: Pages, stamps: &[u64]) -> usize {
    let mut words = HashSet::new();
    // Of almost all others one look tells that they are not among them.
    let mut may_be = vec![false; 1 << 16];
    for (stamp, page) in
        stamps.iter().flat_map(|stamp| (0..pages.count).map(move |page| (stamp, page)))
    {
        for at in 0..LOOKED_FOR {
            let word = word(*stamp, page, at);
            may_be[word as usize >> 4 & 0xffff] = true;
            words.insert(word);
        }
    }
    let parts = raw(engine, index);
    let found = parts.iter().flat_map(|(_, bytes)| bytes.chunks_exact(8));
    let found = found.map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
    found.filter(|word| may_be[*word as usize >> 4 & 0xffff] && words.contains(word)).count()
}

/// As [`paged_out`], also those that the background reclaimer was about to write.
fn all_out(engine: &Engine, count: usize, stamp: u64) -> (Region, Pages) {
    let (region, pages) = paged_out(engine, count, stamp);
    let core = engine.core();
    let first = core.arena.page_of(pages.address);
    let is_out = |page: u32| matches!(core.pages.state(first + page), PageState::Swapped { .. });
    eventually("every page is on the device, and nowhere else", || {
        region.page_out(0..region.len()).unwrap();
        (0..pages.count as u32).all(is_out)
    });
    (region, pages)
}

/// The number of the slot that each page is on.
fn slots_of(engine: &Engine, pages: Pages) -> Vec<u32> {
    let core = engine.core();
    let first = core.arena.page_of(pages.address);
    let slot = |page: usize| match core.pages.state(first + page as u32) {
        PageState::Swapped { slot } => core.devices.number_of(slot),
        state => panic!("page {page} was paged out: {state:?}"),
    };
    (0..pages.count).map(slot).collect()
}

#[test]
fn content_is_on_a_plain_device_and_not_on_an_encrypted_one() {
    limit(60);
    for way in ways() {
        for io in [IoBackend::Uring, IoBackend::Threads] {
            let (plain, hidden) = (Swap::new(), Swap::new());
            for (swap, rest) in [(&plain, ":48M"), (&hidden, ":48M,encrypt")] {
                let engine = build(with_swap(builder(way).io(io), &[&swap.spec(rest)]));
                let (region, pages) = paged_out(&engine, 4 * MIB / PAGE, 5);
                let found = readable(&engine, 0, pages, &[5]);
                pages.check_all(5);
                // What has not changed goes without a write.
                let before = engine.counters();
                region.page_out(0..region.len()).unwrap();
                let after = engine.counters();
                assert_eq!((after.pswpout, after.pages_lost), (before.pswpout, 0));
                assert!(after.swpout_clean > before.swpout_clean);
                pages.check_all(5);
                audit(&engine);
                match device(&engine, 0).is_encrypted() {
                    true => assert_eq!(found, 0, "{way:?} {io:?}"),
                    false => assert_eq!(found, pages.count * LOOKED_FOR, "{way:?} {io:?}"),
                }
                assert_eq!(device(&engine, 0).is_encrypted(), rest.ends_with("encrypt"));
            }
        }
    }
}

/// What is looked for on servers.
pub const MARK: &str = "a secret";

/// The word of a page that is the mark.
const MARKED: usize = WORDS / 2;

/// Fills pages, with the mark in each.
pub fn mark(pages: Pages) {
    for page in 0..pages.count {
        pages.fill(page, 5);
        pages.write(page, MARKED, u64::from_ne_bytes(MARK.as_bytes().try_into().unwrap()));
    }
}

/// Checks that they are as they were filled, and takes the marks away.
pub fn check_marked(pages: Pages) {
    let mark = u64::from_ne_bytes(MARK.as_bytes().try_into().unwrap());
    for page in 0..pages.count {
        assert_eq!(pages.read(page, MARKED), mark, "page {page}");
        pages.write(page, MARKED, word(5, page, MARKED));
        pages.check(page, 5);
    }
}

#[test]
fn a_server_can_read_the_pages_of_a_plain_device_and_not_of_an_encrypted_one() {
    limit(60);
    let marks = format!(
        "local found = 0
        for _, key in ipairs(redis.call('KEYS', KEYS[1])) do
            for _, text in ipairs(redis.call('HGETALL', key)) do
                if string.find(text, '{MARK}', 1, true) then found = found + 1 end
            end
        end
        return found"
    );
    with_each_kind(|server| {
        for way in ways() {
            for (encrypt, readable) in [("", "500"), (",encrypt", "0")] {
                let engine = engine_on(way, &[&server.spec(&format!("a:64M{encrypt}"))]);
                let region = engine.map(500 * PAGE).unwrap();
                let pages = Pages::of(&region);
                mark(pages);
                region.page_out(0..region.len()).unwrap();
                assert_eq!(server.slots(), 500, "{way:?}: every page is there");
                assert_eq!(server.eval(&marks, "*"), readable, "{way:?}{encrypt}");
                check_marked(pages);
                audit(&engine);
            }
        }
    });
}

#[test]
fn threads_that_read_and_write_see_their_own_pages_only() {
    const THREADS: usize = 4;
    limit(60);
    for (index, way) in ways().enumerate() {
        let swap = ["mem:96M,encrypt", "/var/tmp:96M,encrypt"][index % 2];
        let engine = engine_on(way, &[swap]);
        let region = engine.map(28 * MIB).unwrap();
        let pages = Pages::of(&region);
        let seed = seed();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    let mut random = Random::new(seed + thread as u64);
                    let mut stamps = vec![0; pages.count / THREADS];
                    for step in 1..rounds(8000) {
                        let mine = random.below(stamps.len());
                        pages.check(mine * THREADS + thread, stamps[mine]);
                        if random.below(2) == 0 {
                            stamps[mine] = step;
                            pages.fill(mine * THREADS + thread, step);
                        }
                    }
                    let own = |mine: usize| mine * THREADS + thread;
                    (0..stamps.len()).for_each(|mine| pages.check(own(mine), stamps[mine]));
                });
            }
        });
        let counters = engine.counters();
        assert!(counters.pswpin > 1000 && counters.pswpout > 1000, "{counters:?}");
        assert_eq!((counters.pages_lost, counters.swap_read_errors), (0, 0));
        audit(&engine);
    }
}

#[test]
fn a_page_that_was_tampered_with_is_lost_and_the_others_are_right() {
    alone(60, || {
        for way in ways() {
            let swap = Swap::new();
            let engine = engine_on(way, &[&swap.spec(":64M,encrypt")]);
            let (_region, pages) = paged_out(&engine, 4 * MIB / PAGE, 6);
            let victims = damage(&engine, pages, &swap.path(), 37);
            for page in 0..pages.count {
                match victims.contains(&page) {
                    true => assert!(is_lost(pages, page), "page {page} must not be read"),
                    false => pages.check(page, 6),
                }
            }
            assert_eq!(engine.counters().pages_lost, victims.len() as u64);
            audit(&engine);
        }
    });
}

#[test]
fn what_was_on_a_slot_before_is_not_taken_for_what_is() {
    alone(60, || {
        for way in ways() {
            // Room for one and a half times the pages: slots are used again.
            let swap = Swap::new();
            let engine = engine_on(way, &[&swap.spec(":6M,encrypt")]);
            let (region, pages) = paged_out(&engine, 4 * MIB / PAGE, 1);
            let (old, before) = (raw(&engine, 0), slots_of(&engine, pages));
            pages.fill_all(2);
            region.page_out(0..region.len()).unwrap();
            let after = slots_of(&engine, pages);
            let again = after.iter().filter(|slot| before.contains(slot)).count();
            assert!(again > pages.count / 3, "{again} slots are used again");
            let file = File::options().write(true).open(swap.path()).unwrap();
            old.iter().for_each(|(start, bytes)| file.write_all_at(bytes, *start).unwrap());
            assert!((0..pages.count).all(|page| is_lost(pages, page)));
            assert_eq!(engine.counters().pages_lost, pages.count as u64);
            audit(&engine);
        }
    });
}

#[test]
fn a_swapoff_loses_what_was_tampered_with_and_moves_the_rest() {
    alone(60, || {
        for way in ways() {
            for to in ["mem:64M", "mem:64M,encrypt"] {
                let swap = Swap::new();
                let engine = engine_on(way, &[&swap.spec(":64M,encrypt")]);
                // More than the budget: the rest is written to the other device.
                let (_region, pages) = all_out(&engine, 24 * MIB / PAGE, 6);
                let victims = damage(&engine, pages, &swap.path(), 1000);
                swapon(&engine, to).unwrap();
                swapoff(&engine, swap.path()).unwrap();
                assert!(device(&engine, 0).used() > 1000, "some of it is on the other device");
                let found = readable(&engine, 0, pages, &[6]);
                assert_eq!(found == 0, to.ends_with("encrypt"), "{found} words are readable");
                for page in 0..pages.count {
                    match victims.contains(&page) {
                        true => assert!(is_lost(pages, page), "page {page} must not be read"),
                        false => pages.check(page, 6),
                    }
                }
                assert_eq!(engine.counters().pages_lost, victims.len() as u64);
                audit(&engine);
            }
        }
    });
}

/// What a process of a family does: every third page stays as it was before the fork.
fn work(engine: &Engine, pages: Pages, first: u64) {
    for stamp in [first, first + 1] {
        for page in 0..pages.count {
            let before = if stamp == first || page % 3 == 0 { 1 } else { first };
            pages.check(page, before);
            if page % 3 != 0 {
                pages.fill(page, stamp);
            }
        }
    }
    for page in 0..pages.count {
        pages.check(page, if page % 3 == 0 { 1 } else { first + 1 });
    }
    assert_eq!(engine.counters().pages_lost, 0);
    audit(engine);
}

#[test]
fn parent_and_children_read_what_was_swapped_before_and_write_what_nobody_can_read() {
    alone(60, || {
        for (index, way) in ways().enumerate() {
            let swap = ["mem:160M,encrypt", "/var/tmp:160M,encrypt"][index % 2];
            let engine = engine_on(way, &[swap]);
            let (_region, pages) = all_out(&engine, 20 * MIB / PAGE, 1);
            let child = fork(&engine, || {
                let grandchild = fork(&engine, || work(&engine, pages, 30));
                work(&engine, pages, 20);
                join(grandchild);
                let devices = engine.core().devices.list().count();
                assert!(devices > 1, "one is its own");
                for index in 0..devices {
                    assert!(device(&engine, index).is_encrypted());
                    assert_eq!(readable(&engine, index, pages, &[1, 20, 21]), 0);
                }
            });
            work(&engine, pages, 10);
            join(child);
            assert_eq!(engine.counters().fork_slots_copied, 0);
            assert_eq!(readable(&engine, 0, pages, &[1, 10, 11]), 0);
        }
    });
}

#[test]
fn a_child_that_gets_a_copy_goes_on_with_it() {
    alone(60, || {
        for way in ways() {
            let engine = engine_on(way, &["mem:160M,encrypt"]);
            let (_region, pages) = all_out(&engine, 24 * MIB / PAGE, 1);
            // As many rows as processes could have, held by this one.
            let loans = device(&engine, 0).loans().unwrap();
            let rows: Vec<_> =
                (0..BORROWERS_MAX).map_while(|_| loans.lend([].into_iter()).ok()).collect();
            let child = fork(&engine, || {
                work(&engine, pages, 20);
                assert_eq!(readable(&engine, 0, pages, &[1, 20, 21]), 0);
            });
            work(&engine, pages, 10);
            join(child);
            assert_eq!(engine.counters().fork_slots_copied, pages.count as u64);
            drop(rows);
        }
    });
}

#[test]
fn no_number_is_taken_by_parent_and_child() {
    alone(60, || {
        let engine = engine(WAYS[0]);
        let cipher = Cipher::new().unwrap();
        let taken = shared_words(3);
        let take = |word: usize| {
            let first = cipher.take_numbers(5);
            taken[word].store(1 + first, std::sync::atomic::Ordering::SeqCst);
        };
        let child = fork(&engine, || {
            let grandchild = fork(&engine, || take(0));
            take(1);
            join(grandchild);
        });
        take(2);
        join(child);
        let mut firsts: Vec<u64> =
            taken.iter().map(|word| word.load(std::sync::atomic::Ordering::SeqCst)).collect();
        firsts.sort_unstable();
        assert_eq!(firsts, [1, 6, 11]);
    });
}

#[test]
fn every_page_is_right_or_lost_and_counted_whatever_fails() {
    alone(60, || {
        let seed = seed();
        let plan = "read=0.001,write=0.01,bad=0.0005,torn=0.001,flip=0.001,short=0.01";
        for way in ways() {
            for io in [IoBackend::Uring, IoBackend::Threads] {
                let swap = format!("faulty:mem:96M,encrypt,{plan},seed={seed}");
                let engine = build(with_swap(builder(way).io(io), &[&swap]));
                set_patience(&engine, 12_000_000);
                let region = engine.map(48 * MIB).unwrap();
                let lost = use_at_random(Pages::of(&region), rounds(1500), seed);
                let counters = engine.counters();
                assert!(counters.swap_retries > 0, "{counters:?}");
                assert_eq!(lost, counters.pages_lost);
                audit(&engine);
            }
        }
    });
}

#[test]
fn a_program_that_is_parked_comes_back_from_an_encrypted_device() {
    limit(60);
    for way in ways() {
        let engine = engine_on(way, &["mem:64M,encrypt"]);
        let region = engine.map(12 * MIB).unwrap();
        let pages = Pages::of(&region);
        pages.fill_all(4);
        engine.page_out_all();
        assert_eq!(readable(&engine, 0, pages, &[4]), 0);
        engine.prefetch_all().unwrap();
        pages.check_all(4);
        assert!(engine.counters().pswpin >= pages.count as u64);
        audit(&engine);
    }
}

#[test]
fn all_devices_are_encrypted_where_the_engine_is_and_compressed_memory_is_not() {
    limit(60);
    let encrypts = builder(WAYS[0]).encrypt();
    let engine = build(with_swap(encrypts, &["mem:64M", "zram:64M"]));
    swapon(&engine, "mem:64M").unwrap();
    let encrypted: Vec<bool> =
        engine.core().devices.list().map(|device| device.is_encrypted()).collect();
    assert_eq!(encrypted, [true, false, true]);
    let engine = build(builder(WAYS[0]).encrypt());
    let (_region, pages) = paged_out(&engine, 4 * MIB / PAGE, 5);
    assert_eq!(readable(&engine, 0, pages, &[5]), 0, "also the default");
    pages.check_all(5);
}

#[test]
fn without_a_page_of_locked_memory_there_is_no_key() {
    alone(20, || {
        Cipher::check().unwrap();
        let encrypted = engine_on(WAYS[0], &["mem:64M,encrypt"]);
        let plain = engine_on(WAYS[0], &["mem:64M"]);
        lock_nothing();
        become_user(65534);
        assert!(Cipher::check().unwrap_err().to_string().contains("ulimit -l"));
        // An engine that has one does not need another; one that has none is as it was.
        swapon(&encrypted, "mem:64M,encrypt").unwrap();
        let refused = swapon(&plain, "mem:64M,encrypt");
        assert!(matches!(refused, Err(Error::Key(_))), "{refused:?}");
        assert_eq!(plain.core().devices.list().count(), 1);
        swapon(&plain, "mem:64M").unwrap();
    });
}
