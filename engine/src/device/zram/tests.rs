//! The device alone: what comes back, what is promised, what damage does.
use super::*;
use crate::device::zram::options::{Algorithm, Level};
use crate::device::zram::recompress::Step;
use proptest::prelude::*;

const ALGORITHMS: [Algorithm; 2] = [Algorithm::Lz4, Algorithm::Zstd];

/// Whose memory is limited to as much, or a third more where that is a lot.
fn zram(algorithm: Algorithm, slots: u32, limit: u32) -> Zram {
    zram_by(Compression { algorithm, ..Compression::default() }, slots, limit)
}

fn zram_by(compression: Compression, slots: u32, limit: u32) -> Zram {
    let allowance = Allowance::new();
    allowance.set_budget(2 * limit);
    Zram::new(slots, compression, Arc::new(allowance)).unwrap()
}

/// The same, which compresses once more what has been there for a second.
fn zram_again(algorithm: Algorithm, slots: u32) -> Zram {
    zram_by(Compression { algorithm, level: None, again: "9:1".parse().ok() }, slots, slots)
}

/// Looks at all pages once, `now_ns` being later than any look before; how many are smaller now.
fn look_again(zram: &Zram, now_ns: u64) -> u32 {
    let mut all = 0;
    loop {
        match zram.recompress(now_ns).expect("nobody else looks") {
            Step::Smaller(smaller) => all += smaller,
            Step::Over(_) => return all,
        }
    }
}

/// A page with so many bytes of noise, and text after them.
fn page(noise: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut byte = |index: usize| {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        if index < noise { (state >> 56) as u8 } else { b"what is said twice "[index % 19] }
    };
    (0..PAGE_BYTES).map(&mut byte).collect()
}

/// Numbers that follow each other.
fn numbers(seed: u64) -> Vec<u8> {
    let number = |at: u64| {
        (seed << 20).wrapping_add(at * (seed % 900 + 2)) + ((at * at * (seed % 97)) >> 3) % 256
    };
    (0..PAGE_BYTES as u64 / 8).flat_map(|at| number(at).to_le_bytes()).collect()
}

/// Words of a few, in a random order.
fn text(seed: u64) -> Vec<u8> {
    let words = ["page ", "swap ", "slot ", "reclaim ", "frame ", "node ", "device ", "tier "];
    let mut state = seed | 1;
    let mut bytes = Vec::new();
    while bytes.len() < PAGE_BYTES {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        bytes.extend_from_slice(words[(state >> 61) as usize].as_bytes());
    }
    bytes.truncate(PAGE_BYTES);
    bytes
}

/// Of one kind or the other.
fn either(seed: u64) -> Vec<u8> {
    if seed.is_multiple_of(2) { numbers(seed >> 40) } else { page(1000, seed) }
}

fn run(first: u32, count: u32) -> SlotRun {
    SlotRun { first, count }
}

#[test]
fn what_is_promised_fits_and_more_is_refused() {
    let zram = zram(Algorithm::Lz4, 4096, 1024);
    assert!(zram.reserve(run(1, 1000)) && !zram.reserve(run(1001, 25)));
    assert!(zram.reserve(run(1001, 24)) && !zram.has_room(1));
    for number in 1..=1024 {
        zram.write(number, &page(PAGE_BYTES, number.into())).unwrap();
    }
    let full = zram.stored();
    assert_eq!((full.huge_pages, full.slab_bytes), (1024, 1024 << 12));
    assert!(!zram.reserve(run(1025, 1)));
    zram.free(run(1, 512));
    assert!(zram.reserve(run(1, 512)) && !zram.reserve(run(1025, 1)));
    // What is given up without having been filled is to be had again.
    zram.free(run(1, 512));
    assert!(zram.reserve(run(2000, 512)));
}

#[test]
fn memory_of_pages_that_are_gone_goes_back_but_for_a_mebibyte() {
    let zram = zram(Algorithm::Lz4, 4096, 4096);
    assert!(zram.reserve(run(1, 2048)));
    (1..=2048).for_each(|number| zram.write(number, &page(2000, number.into())).unwrap());
    zram.free(run(1, 2048));
    zram.trim();
    let stored = zram.stored();
    assert_eq!((stored.pages, stored.compressed_bytes), (0, 0));
    assert_eq!(stored.slab_bytes, u64::from(EMPTY_MAX) * SLAB_BYTES as u64);
    assert_eq!(zram.allowance.take_unsettled() * PAGE_BYTES as i64, stored.slab_bytes as i64);
    let memory = zram.allowance.clone();
    drop(zram);
    assert_eq!(memory.take_unsettled() * PAGE_BYTES as i64, -(stored.slab_bytes as i64));
}

/// Of 300 MiB, with a slab begun for each of a hundred classes.
#[test]
fn slabs_take_little_more_than_what_is_in_them() {
    let zram = zram(Algorithm::Lz4, 1 << 18, 1 << 18);
    assert!(zram.reserve(run(1, 160_000)));
    for number in 1..=160_000u32 {
        // As of programs: between a quarter and three quarters.
        let noise = 700 + number as usize * 7919 % 2200;
        zram.write(number, &page(noise, number.into())).unwrap();
    }
    let stored = zram.stored();
    let over = stored.slab_bytes - stored.compressed_bytes;
    assert!(over * 100 <= stored.compressed_bytes * 3, "{stored:?}");
}

#[test]
fn slabs_begun_beside_promises_stay_within_seven_eighths_of_the_budget() {
    const BUDGET: u32 = 16384;
    let zram = zram(Algorithm::Lz4, 1 << 16, BUDGET / 2);
    // Most of them take a cell of another class.
    let begun = (0..3000).step_by(12);
    // Whole slabs of pages as they are, up to the limit but for a page of each other class.
    let others = begun.len() as u32;
    let mut number = 1;
    while zram.has_room(SLAB_PAGES + others) {
        assert!(zram.reserve(run(number, SLAB_PAGES)));
        for number in number..number + SLAB_PAGES {
            zram.write(number, &page(PAGE_BYTES, number.into())).unwrap();
        }
        number += SLAB_PAGES;
    }
    let full = zram.cells.lock().counts().busy;
    assert!(zram.reserve(run(number, others)));
    for (index, noise) in begun.enumerate() {
        zram.write(number + index as u32, &page(noise, 7)).unwrap();
    }
    let busy = zram.cells.lock().counts().busy;
    assert!(busy > full + 60, "many classes begin a slab: {busy} {full}");
    assert!(busy * SLAB_PAGES <= BUDGET / 8 * 7, "{} pages", busy * SLAB_PAGES);
}

#[test]
fn a_table_without_slabs_left_is_full_before_a_write_finds_none() {
    let zram = zram(Algorithm::Lz4, 4096, 1 << 20);
    // One page stays in each slab, of whatever class.
    let (mut kept, mut number) = (0, 1);
    for noise in [4096, 2500, 2000, 1500, 1200, 900, 700] {
        while zram.reserve(run(number, 1)) && number < 4000 {
            zram.write(number, &page(noise, number.into())).unwrap();
            if number % 16 == 0 {
                kept += 1
            } else {
                zram.free(run(number, 1))
            }
            number += 1;
        }
        number = if number < 4000 { number } else { break };
    }
    assert!(kept > 100 && zram.stored().pages == kept, "{kept} {:?}", zram.stored());
}

#[test]
fn where_pages_have_gone_here_and_there_others_find_room_and_slabs_become_empty() {
    const NOISE: usize = 1950;
    let zram = zram(Algorithm::Lz4, 1 << 16, 1 << 14);
    let mut count = 0;
    while zram.reserve(run(count + 1, SLAB_PAGES)) {
        let numbers = count + 1..=count + SLAB_PAGES;
        numbers.for_each(|number| zram.write(number, &page(NOISE, number.into())).unwrap());
        count += SLAB_PAGES;
    }
    let full = zram.stored();
    assert!(!zram.has_room(SLAB_PAGES) && full.pages > 30_000, "{full:?}");
    assert!(!zram.compact(), "nothing is to be had");
    let is_kept = |number: &u32| number.is_multiple_of(4);
    let gone = (1..=count).filter(|number| !is_kept(number));
    gone.for_each(|number| zram.free(run(number, 1)));
    assert_eq!(zram.stored().slab_bytes, full.slab_bytes);
    assert!(zram.reserve(run(count + 1, 2000)), "free cells of slabs in use are room");
    while zram.compact() {}
    zram.trim();
    let left = zram.stored();
    assert!(left.slab_bytes < left.compressed_bytes / 20 * 22, "{left:?}");
    let mut found = vec![0; PAGE_BYTES];
    for number in (1..=count).filter(is_kept) {
        zram.read(number, &mut found).unwrap();
        assert!(found == page(NOISE, number.into()), "page {number}");
    }
}

/// Reads, frees and writes these slots in random order, most of them absent at a time.
fn work_on(zram: &Zram, own: &[u32], seed: u64) {
    let mut state = seed;
    let mut found = vec![0; PAGE_BYTES];
    let mut seeds: Vec<Option<u64>> = own.iter().map(|number| Some((*number).into())).collect();
    let mut check = |number, seed| {
        zram.read(number, &mut found).unwrap();
        assert!(found == either(seed), "page {number}");
    };
    for round in 0..6000 {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        let index = (state >> 33) as usize % own.len();
        let number = own[index];
        match seeds[index].take() {
            Some(seed) => {
                check(number, seed);
                zram.free(run(number, 1));
            }
            // Most stay away, so that slabs are never full.
            None if round % 3 > 0 => {}
            None => {
                assert!(zram.reserve(run(number, 1)));
                zram.write(number, &either(state)).unwrap();
                seeds[index] = Some(state);
            }
        }
    }
    let kept = own.iter().zip(seeds).filter_map(|(number, seed)| Some((*number, seed?)));
    kept.for_each(|(number, seed)| check(number, seed));
}

#[test]
fn pages_that_are_read_written_and_freed_while_they_move_stay_what_they_are() {
    ALGORITHMS.into_iter().for_each(move_while_threads_work);
}

fn move_while_threads_work(algorithm: Algorithm) {
    const THREADS: u32 = 3;
    let zram = &zram(algorithm, 1 << 14, 1 << 14);
    assert!(zram.reserve(run(1, 4000)));
    (1..=4000).for_each(|number| zram.write(number, &either(number.into())).unwrap());
    std::thread::scope(|scope| {
        let spawn = |thread| {
            let own: Vec<u32> = (1..=4000).filter(|number| number % THREADS == thread).collect();
            scope.spawn(move || work_on(zram, &own, u64::from(thread) + 1))
        };
        let workers: Vec<_> = (0..THREADS).map(spawn).collect();
        let mut sweeps = 0;
        while !workers.iter().all(|worker| worker.is_finished()) {
            sweeps += u32::from(zram.compact());
        }
        assert!(sweeps > 0, "nothing was moved");
    });
}

/// A second later than any look before.
const SECOND_NS: u64 = 1_000_000_000;

#[test]
fn what_stays_is_compressed_once_more_and_what_comes_then_is_not() {
    for algorithm in ALGORITHMS {
        let zram = zram_again(algorithm, 4096);
        assert!(zram.reserve(run(1, 2000)));
        // Text of which lz4 makes half, pages that do not compress, and one of a value.
        let page = |number: u32| match number {
            1..1900 => text(number.into()),
            1900..2000 => page(PAGE_BYTES, number.into()),
            _ => vec![7; PAGE_BYTES],
        };
        (1..=2000).for_each(|number| zram.write(number, &page(number)).unwrap());
        let before = zram.stored();
        let looks = (0..4).map(|look| look_again(&zram, (look + 1) * SECOND_NS)).sum::<u32>();
        assert_eq!((looks, zram.stored()), (0, before), "nothing has been there for long");
        // One that is written anew is young again.
        zram.write(5, &page(5)).unwrap();
        let smaller = look_again(&zram, 5 * SECOND_NS);
        assert!((1800..1899).contains(&smaller), "{algorithm}: {smaller}");
        let after = zram.stored();
        assert!(after.compressed_bytes * 10 < before.compressed_bytes * 9, "{after:?}, {before:?}");
        assert_eq!((after.pages, after.same_pages), (before.pages, before.same_pages));
        assert_eq!(look_again(&zram, 6 * SECOND_NS), 0, "each has its turn once");
        let mut found = vec![0; PAGE_BYTES];
        for number in 1..=2000 {
            zram.read(number, &mut found).unwrap();
            assert!(found == page(number), "page {number}");
        }
        zram.free(run(1, 2000));
        assert_eq!(zram.stored().compressed_bytes, 0);
    }
}

#[test]
fn pages_that_are_read_written_and_freed_while_they_are_compressed_again_stay_what_they_are() {
    const THREADS: u32 = 3;
    for algorithm in ALGORITHMS {
        let zram = &zram_again(algorithm, 1 << 14);
        assert!(zram.reserve(run(1, 1500)));
        (1..=1500).for_each(|number| zram.write(number, &either(number.into())).unwrap());
        std::thread::scope(|scope| {
            let spawn = |thread| {
                let own: Vec<u32> =
                    (1..=1500).filter(|number| number % THREADS == thread).collect();
                scope.spawn(move || work_on(zram, &own, u64::from(thread) + 1))
            };
            let workers: Vec<_> = (0..THREADS).map(spawn).collect();
            let (mut now_ns, mut smaller) = (0, 0);
            while !workers.iter().all(|worker| worker.is_finished()) {
                now_ns += SECOND_NS;
                smaller += look_again(zram, now_ns);
                zram.compact();
            }
            assert!(smaller > 100, "{algorithm}: only {smaller} were compressed again");
        });
    }
}

#[test]
fn another_page_in_the_same_cell_is_not_taken_for_the_one_that_was_copied() {
    let zram = zram_again(Algorithm::Lz4, 2048);
    let page = |seed| page(900, seed);
    let (slot, mut kept, mut found) = (run(1, 1), [0; PAGE_BYTES], [0; PAGE_BYTES]);
    assert!(zram.reserve(slot));
    zram.write(1, &page(1)).unwrap();
    let from = zram.copy_cell(1, &mut kept).expect("it is in a cell");
    let kept = &kept[..from.bytes as usize];
    // As long as the other, and where that was.
    let is_there = |seed: &u64| {
        zram.free(slot);
        assert!(zram.reserve(slot));
        zram.write(1, &page(*seed)).unwrap();
        zram.entries.hold(1).entry() == Entry::Cell(from)
    };
    let other = (2..500).find(is_there).expect("some page is as long");
    let to = zram.store(&kept[..100]).unwrap();
    assert!(!zram.exchange(1, (from, kept), to));
    zram.read(1, &mut found).unwrap();
    assert!(found == *page(other));
    assert!(is_there(&1), "the first comes back there");
    let to = zram.store(kept).unwrap();
    assert!(zram.exchange(1, (from, kept), to) && zram.entries.hold(1).entry() == Entry::Cell(to));
    zram.read(1, &mut found).unwrap();
    assert!(found == *page(1));
    let sizes = (zram.stored().pages, zram.stored().compressed_bytes);
    assert_eq!(sizes, (1, u64::from(from.bytes)), "of both cells one is in use");
    assert_eq!(zram.copy_packed(1, &mut found), Some(Form::Packed(kept.len())));
}

proptest! {
    #[test]
    fn slots_hold_what_a_naive_model_says(
        steps in prop::collection::vec((0u32..40, 0..=PAGE_BYTES, any::<u64>(), 0u8..4), 1..200),
        algorithm in prop::sample::select(&ALGORITHMS[..]),
    ) {
        let zram = zram(algorithm, 64, 4096);
        let mut model = vec![None; 64];
        for (number, noise, seed, step) in steps {
            let number = number + 1;
            match step {
                0 => {
                    zram.free(run(number, 1));
                    model[number as usize] = None;
                }
                _ => {
                    if model[number as usize].is_none() {
                        prop_assert!(zram.reserve(run(number, 1)));
                    }
                    let page = match noise {
                        0..100 => vec![seed as u8; PAGE_BYTES],
                        100..1000 => numbers(seed),
                        _ => page(noise, seed),
                    };
                    zram.write(number, &page).unwrap();
                    model[number as usize] = Some(page);
                }
            }
            for (number, expected) in model.iter().enumerate() {
                let mut found = vec![0xa5; PAGE_BYTES];
                zram.read(number as u32, &mut found).unwrap();
                let untouched = vec![0xa5; PAGE_BYTES];
                prop_assert_eq!(&found, expected.as_ref().unwrap_or(&untouched));
            }
            prop_assert_eq!(zram.stored().pages, model.iter().flatten().count() as u64);
        }
    }

    #[test]
    fn damaged_bytes_fill_the_page_or_are_refused_and_touch_nothing_else(
        noise in 0usize..2500,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
        algorithm in prop::sample::select(&ALGORITHMS[..]),
        level in prop::sample::select(&[None, Some(Level::Auto)][..]),
        is_again in any::<bool>(),
    ) {
        let compression = Compression { algorithm, level, again: "3".parse().ok() };
        let codecs = Codecs::new(compression).unwrap();
        let original = page(noise, 7);
        let mut codec = codecs.here();
        let packed = if is_again { codec.pack_again(&original) } else { codec.pack(&original) };
        let packed = match packed {
            Packed::Smaller(bytes) => Some(bytes.to_vec()),
            Packed::Not => None,
        };
        drop(codec);
        let Some(mut bytes) = packed else { return Ok(()) };
        let mut around = vec![0x5a; PAGE_BYTES + 128];
        prop_assert!(codecs.unpack(&bytes, &mut around[64..64 + PAGE_BYTES]));
        prop_assert_eq!(&around[64..64 + PAGE_BYTES], &original[..]);
        for (index, byte) in &damage {
            let index = index.index(bytes.len());
            bytes[index] = *byte;
        }
        let length = cut.index(bytes.len()) + 1;
        codecs.unpack(&bytes[..length], &mut around[64..64 + PAGE_BYTES]);
        prop_assert!(around[..64].iter().chain(&around[64 + PAGE_BYTES..]).all(|byte| *byte == 0x5a));
    }
}
