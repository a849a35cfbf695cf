//! Every word that was written is read back, under every delivery, path and way of driving the device.
use crate::support::*;
use std::sync::atomic::{AtomicU64, Ordering};
use userswap::Engine;

/// Two and a half times the budget, written in turn and checked; then several threads at random.
fn verify(engine: &Engine, passes: u64) {
    limit(100);
    write_and_read_back(engine, passes);
    threads_at_random(engine, 4, rounds(3000));
}

fn write_and_read_back(engine: &Engine, passes: u64) {
    let mut region = engine.map(40 * MIB).unwrap();
    let words = region.as_typed_mut::<u64>();
    for pass in 1..=passes {
        for (index, word) in words.iter_mut().enumerate() {
            assert_eq!(
                *word,
                if pass == 1 { 0 } else { index as u64 ^ (pass - 1) },
                "word {index}"
            );
            *word = index as u64 ^ pass;
        }
    }
    for (index, word) in words.iter().enumerate() {
        assert_eq!(*word, index as u64 ^ passes, "word {index}");
    }
    let counters = engine.counters();
    assert!(counters.pswpout > 5000, "40 MiB cannot fit 16 MiB: {counters:?}");
    assert!(counters.pswpin > 5000, "{counters:?}");
    assert_eq!(counters.pages_lost, 0);
    audit(engine);
}

/// Threads own every n-th page each, so neighbours always belong to other threads.
fn threads_at_random(engine: &Engine, threads: usize, steps: usize) {
    let mut region = engine.map(48 * MIB).unwrap();
    let pages = region.len() / PAGE;
    let words: &[AtomicU64] = atomics(region.as_typed_mut::<u64>());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let mut random = Random::new(thread as u64 + 77);
                let mut model = vec![0u64; pages / threads];
                for step in 0..steps {
                    let mine = random.below(pages / threads);
                    let page = mine * threads + thread;
                    let word = &words[page * WORDS + mine % WORDS];
                    let seen = word.load(Ordering::Relaxed);
                    assert_eq!(seen, model[mine], "thread {thread} step {step} page {page}");
                    if random.below(2) == 0 {
                        model[mine] = ((step as u64) << 8) | (thread as u64 + 1);
                        word.store(model[mine], Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(engine.counters().pages_lost, 0);
    audit(engine);
}

#[test]
fn every_word_is_read_back_by_message_and_move() {
    verify(&engine(WAYS[0]), 3);
}

#[test]
fn every_word_is_read_back_by_signal_and_move() {
    verify(&engine(WAYS[1]), 3);
}

#[test]
fn every_word_is_read_back_by_message_and_copy() {
    verify(&engine(WAYS[2]), 2);
}

#[test]
fn every_word_is_read_back_by_signal_and_copy() {
    verify(&engine(WAYS[3]), 2);
}

#[test]
fn every_word_is_read_back_without_io_uring() {
    verify(&build(builder(WAYS[0]).io(IoBackend::Threads)), 2);
}
