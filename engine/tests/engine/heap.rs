//! A heap: blocks keep their content while they are swapped, and their memory comes back.
use crate::support::*;
use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use userswap::{Advice, Engine, Error, Heap};

fn layout(bytes: usize, align: usize) -> Layout {
    Layout::from_size_align(bytes, align).unwrap()
}

/// A block whose every word tells it from all others.
struct Block {
    /// Not a pointer: other threads may check and free the block.
    address: usize,
    words: usize,
    stamp: u64,
}

impl Block {
    fn new(heap: &Heap, words: usize, stamp: u64) -> Self {
        let at = heap.allocate(layout(words * 8, 8)).unwrap();
        assert!(heap.usable_bytes(at).unwrap() >= words * 8);
        let block = Self { address: at.addr().get(), words, stamp };
        (0..words).for_each(|index| block.write(index));
        block
    }

    fn at(&self) -> NonNull<u8> {
        NonNull::new(self.address as *mut u8).unwrap()
    }

    fn write(&self, index: usize) {
        write_at(self.at().cast().as_ptr(), index, word(self.stamp, 0, index));
    }

    fn check(&self) {
        for index in 0..self.words {
            let found = read_at(self.at().cast().as_ptr(), index);
            assert_eq!(found, word(self.stamp, 0, index), "word {index} of {:?}", self.at());
        }
    }

    fn resize(&mut self, heap: &Heap, words: usize) {
        self.address = heap.reallocate(self.at(), layout(words * 8, 8)).unwrap().addr().get();
        let kept = self.words.min(words);
        self.words = kept;
        self.check();
        self.words = words;
        (kept..words).for_each(|index| self.write(index));
    }

    fn free(self, heap: &Heap) {
        self.check();
        heap.free(self.at()).unwrap();
    }
}

/// Words of blocks of all kinds: most are small, some have pages, a few are regions of their own.
fn words(random: &mut Random) -> usize {
    let most = [4, 64, 1000, 8000, 60_000][random.below(5)];
    1 + random.below(most)
}

/// Allocates, resizes and frees until so much has been live, and leaves all of it to the caller.
fn churn(heap: &Heap, random: &mut Random, live_words: usize, steps: usize) -> Vec<Block> {
    let (mut blocks, mut live) = (Vec::<Block>::new(), 0);
    for step in 0..steps as u64 {
        let stamp = random.below(usize::MAX >> 32) as u64 + 1;
        if live < live_words && (step % 3 > 0 || blocks.is_empty()) {
            let block = Block::new(heap, words(random), stamp);
            live += block.words;
            blocks.push(block);
            continue;
        }
        let choice = random.below(blocks.len());
        live -= blocks[choice].words;
        if random.below(3) == 0 {
            blocks[choice].resize(heap, words(random));
            live += blocks[choice].words;
        } else {
            blocks.swap_remove(choice).free(heap);
        }
    }
    blocks
}

/// Nothing is in use, but for a run of zeros that the server was about to map when its memory went.
fn check_all_is_back(engine: &Engine) {
    let usage = engine.usage();
    assert!(usage.slots_used == 0 && usage.cached == 0 && usage.resident <= 256, "{usage:?}");
}

#[test]
fn blocks_of_all_sizes_keep_their_content_at_several_times_the_budget() {
    limit(60);
    for (number, way) in ways().enumerate() {
        let engine = engine(way);
        let heap = engine.heap();
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let heap = heap.clone();
                scope.spawn(move || {
                    let mut random = Random::new(0x5EED + 16 * number as u64 + thread);
                    let blocks = churn(&heap, &mut random, 2 << 20, rounds(1200));
                    blocks.into_iter().for_each(|block| block.free(&heap));
                });
            }
        });
        let counters = engine.counters();
        assert!(counters.pswpout > 1000 && counters.pswpin > 1000, "{counters:?}");
        audit(&engine);
        drop(heap);
        check_all_is_back(&engine);
        assert_eq!(engine.core().arena.used_pages(), 0);
    }
}

#[test]
fn freeing_what_is_swapped_out_reads_nothing_and_gives_its_slots_back() {
    let engine = engine(WAYS[0]);
    let heap = engine.heap();
    for words in [8, 500, 4096, 100_000] {
        let count = 2 * MIB / (8 * words);
        let blocks: Vec<_> =
            (0..count).map(|stamp| Block::new(&heap, words, stamp as u64 + 1)).collect();
        engine.page_out_all();
        let (slots, reads) = (engine.usage().slots_used, engine.counters().pswpin);
        assert!(slots >= 390, "{words} words: {slots} slots");
        blocks.into_iter().for_each(|block| heap.free(block.at()).unwrap());
        let left = engine.usage();
        assert_eq!(engine.counters().pswpin, reads, "{words} words");
        // One slab of a class stays.
        assert!(left.slots_used + u64::from(left.resident) <= 32, "{words} words: {left:?}");
    }
}

#[test]
fn a_large_block_that_grows_takes_its_swapped_pages_along() {
    let engine = engine(WAYS[1]);
    let heap = engine.heap();
    let mut block = Block::new(&heap, 3 * MIB / 8, 7);
    engine.page_out_all();
    let (before, reads) = (block.at(), engine.counters().pswpin);
    block.address = heap.reallocate(before, layout(5 * MIB, 16)).unwrap().addr().get();
    assert_ne!(block.at(), before);
    assert_eq!(engine.counters().pswpin, reads);
    block.check();
    assert!(engine.counters().pswpin >= reads + 700);
    audit(&engine);
    block.free(&heap);
    check_all_is_back(&engine);
}

#[test]
fn large_zeroed_blocks_are_zero_without_being_touched() {
    let engine = engine(WAYS[0]);
    let heap = engine.heap();
    for words in [3, 2048, 20_000, MIB] {
        let block = Block::new(&heap, words, 5);
        let place = block.at();
        block.free(&heap);
        let resident = engine.usage().resident;
        let again = heap.allocate_zeroed(layout(words * 8, 8)).unwrap();
        assert!(words > 20_000 || again == place, "a block is used again");
        assert!(words < 2048 || engine.usage().resident == resident, "{words} words");
        let word_of = |index| read_at(again.cast().as_ptr(), index);
        assert!((0..words).all(|index| word_of(index) == 0), "{words} words");
        heap.free(again).unwrap();
    }
}

#[test]
fn blocks_are_aligned_as_asked_for() {
    let engine = engine(WAYS[0]);
    let heap = engine.heap();
    for power in 0..=22 {
        for bytes in [0, 1, 100, 5000, 300_000] {
            let block = heap.allocate(layout(bytes, 1 << power)).unwrap();
            assert!(block.addr().get().is_multiple_of((1 << power).max(16)), "{bytes} at {power}");
            assert!(heap.usable_bytes(block).unwrap() >= bytes);
        }
    }
}

#[test]
fn what_is_no_block_in_use_is_refused() {
    let engine = engine(WAYS[0]);
    let (heap, other) = (engine.heap(), engine.heap());
    for bytes in [24, 5000, 32 << 10, 1 << 20] {
        let block = heap.allocate(layout(bytes, 1)).unwrap();
        let refused = |heap: &Heap, at: NonNull<u8>| {
            matches!(heap.free(at), Err(Error::NotABlock(address)) if address == at.addr().get())
                && heap.usable_bytes(at).is_err()
                && heap.reallocate(at, layout(1, 1)).is_err()
                && heap.discard(at, 0..1).is_err()
        };
        assert!(refused(&other, block), "of another heap");
        let middle = NonNull::new(block.as_ptr().wrapping_add(8)).unwrap();
        assert!(refused(&heap, middle), "in the middle of a block");
        heap.free(block).unwrap();
        assert!(refused(&heap, block), "freed already");
    }
    let local = 5u8;
    let error = heap.free(NonNull::from(&local)).unwrap_err();
    assert!(error.to_string().contains("is not the address of a block of this heap"), "{error}");
    let error = heap.allocate(layout(2 << 30, 1)).unwrap_err();
    assert!(matches!(error, Error::ArenaFull(bytes) if bytes == 2 << 30), "{error}");
}

#[test]
fn a_forked_child_has_the_heap_whatever_other_threads_did_in_it() {
    alone(60, || {
        let engine = engine(WAYS[0]);
        let heap = engine.heap();
        let mut random = Random::new(11);
        let mut blocks = churn(&heap, &mut random, 3 << 20, 1500);
        let done = AtomicBool::new(false);
        let is_done = || done.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = Random::new(100);
                while !is_done() {
                    let blocks = churn(&heap, &mut random, 10_000, 50);
                    blocks.into_iter().for_each(|block| block.free(&heap));
                }
            });
            // The lock of a class is held most of the time: a child would find it so.
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_done() {
                        let block = heap.allocate(layout(16, 1)).unwrap();
                        heap.free(block).unwrap();
                    }
                });
            }
            for _ in 0..rounds(8) {
                let child = fork(&engine, || {
                    heap.allocate(layout(16, 1)).unwrap();
                    blocks.iter().for_each(Block::check);
                    let more = churn(&heap, &mut Random::new(3), 100_000, 300);
                    more.into_iter().for_each(|block| block.free(&heap));
                });
                blocks.iter().for_each(Block::check);
                join(child);
            }
            done.store(true, Ordering::Relaxed);
        });
        assert!(engine.counters().pswpin > 0);
        blocks.drain(..).for_each(|block| block.free(&heap));
        audit(&engine);
    });
}

#[test]
fn advice_by_address_does_what_a_regions_methods_do_and_knows_what_is_not_ours() {
    let engine = engine(WAYS[0]);
    let heap = engine.heap();
    let block = Block::new(&heap, MIB / 8, 9);
    let address = block.address;
    engine.advise(address, MIB, Advice::PageOut).unwrap();
    engine.page_out_all();
    let reads = engine.counters().pswpin;
    engine.advise(address, MIB, Advice::Prefetch).unwrap();
    assert_eq!(engine.counters().pswpin - reads, (MIB / PAGE) as u64);
    engine.advise(address, MIB / 2, Advice::Pin).unwrap();
    engine.page_out_all();
    assert_eq!(engine.usage().resident as usize, MIB / 2 / PAGE);
    engine.advise(address, MIB / 2, Advice::Unpin).unwrap();
    for advice in
        [Advice::Random, Advice::Sequential, Advice::Normal, Advice::WillNeed, Advice::Cold]
    {
        engine.advise(address, MIB, advice).unwrap();
    }
    heap.discard(block.at(), 0..MIB).unwrap();
    check_all_is_back(&engine);
    let local = 5u8;
    let refused = [(address + MIB, 4096), (address, MIB + 1), (address, usize::MAX), (0, 1)];
    for (at, bytes) in refused.into_iter().chain([(&raw const local as usize, 1)]) {
        let error = engine.advise(at, bytes, Advice::PageOut).unwrap_err();
        assert!(matches!(error, Error::NotManaged(..)), "{error}");
    }
}

/// Puts blocks among those of all threads, and takes as many out that are anybody's, checks and frees them.
fn exchange(heap: &Heap, all: &Mutex<Vec<Block>>, thread: u64, random: &mut Random) {
    for step in 0..rounds(400) as u64 {
        let (stamp, words) = ((thread << 32) + step + 1, [2, 31, 500][random.below(3)]);
        let given: Vec<_> = (0..3).map(|_| Block::new(heap, words, stamp)).collect();
        let mut all = all.lock().unwrap();
        all.extend(given);
        let count = all.len().saturating_sub(1000).min(6);
        let taken: Vec<_> = (0..count)
            .map(|_| {
                let choice = random.below(all.len());
                all.swap_remove(choice)
            })
            .collect();
        drop(all);
        taken.into_iter().for_each(|block| block.free(heap));
    }
}

#[test]
fn blocks_that_other_threads_free_are_in_use_once_and_keep_their_content() {
    limit(60);
    for (number, way) in ways().enumerate() {
        let engine = engine(way);
        let heap = engine.heap();
        let all = Mutex::new(Vec::new());
        // More threads than there are shards.
        std::thread::scope(|scope| {
            for thread in 0..10 {
                let (heap, all) = (&heap, &all);
                let mut random = Random::new(0xB10C + 16 * number as u64 + thread);
                scope.spawn(move || exchange(heap, all, thread, &mut random));
            }
        });
        let left = all.into_inner().unwrap();
        let mut addresses: Vec<_> = left.iter().map(|block| block.address).collect();
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(addresses.len(), left.len());
        left.into_iter().for_each(|block| block.free(&heap));
        audit(&engine);
        drop(heap);
        check_all_is_back(&engine);
        assert_eq!(engine.core().arena.used_pages(), 0);
    }
}

#[test]
fn of_threads_that_free_one_block_one_succeeds() {
    limit(60);
    let engine = engine(WAYS[0]);
    let heap = engine.heap();
    for words in [2, 500, 4096, 100_000] {
        let blocks: Vec<_> = (0..64).map(|stamp| Block::new(&heap, words, stamp + 1)).collect();
        let (start, freed) = (Barrier::new(4), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    start.wait();
                    for block in &blocks {
                        match heap.free(block.at()) {
                            Ok(()) => freed.fetch_add(1, Ordering::Relaxed),
                            Err(Error::NotABlock(_)) => 0,
                            Err(error) => panic!("{error}"),
                        };
                    }
                });
            }
        });
        assert_eq!(freed.into_inner(), blocks.len(), "{words} words");
    }
    audit(&engine);
}

#[test]
fn blocks_of_full_slabs_are_given_out_again() {
    let engine = engine(WAYS[0]);
    let heap = engine.heap();
    for words in [2, 500, 4096] {
        let some = |count: usize| -> Vec<_> {
            (0..count).map(|stamp| Block::new(&heap, words, stamp as u64 + 1)).collect()
        };
        let blocks = some(MIB / (8 * words));
        let used = engine.core().arena.used_pages();
        let (kept, freed): (Vec<_>, Vec<_>) =
            blocks.into_iter().partition(|block| block.stamp % 2 == 0);
        let count = freed.len();
        freed.into_iter().for_each(|block| block.free(&heap));
        let again = some(count);
        assert_eq!(engine.core().arena.used_pages(), used, "{words} words");
        kept.into_iter().chain(again).for_each(|block| block.free(&heap));
    }
}
