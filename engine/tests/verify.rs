//! Every word that was written is read back, under every delivery, path and way of driving the device.
use std::sync::atomic::{AtomicU64, Ordering};
use userswap::{Builder, Engine};
use userswap::{FaultMode, IoBackend, Transfer};

const MIB: usize = 1 << 20;
const WORDS_PER_PAGE: usize = 512;

fn engine(fault: FaultMode, transfer: Transfer, io: IoBackend) -> Engine {
    Builder::new(16 << 20)
        .fault(fault)
        .transfer(transfer)
        .io(io)
        .arena_bytes(4 << 30)
        .build()
        .expect(
            "an engine can be built here: root or a permitted userfaultfd, and room in /var/tmp",
        )
}

/// A small generator of our own: failures print its seed, and no test depends on a clock.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

fn write_and_read_back(engine: &Engine, passes: u64) {
    let mut region = engine.map(64 * MIB).unwrap();
    let words = region.as_typed_mut::<u64>();
    for pass in 1..=passes {
        for (place, word) in words.iter_mut().enumerate() {
            assert_eq!(
                *word,
                if pass == 1 { 0 } else { place as u64 ^ (pass - 1) },
                "word {place}"
            );
            *word = place as u64 ^ pass;
        }
    }
    for (place, word) in words.iter().enumerate() {
        assert_eq!(*word, place as u64 ^ passes, "word {place}");
    }
    let counters = engine.counters();
    assert!(counters.pswpout > 8000, "64 MiB cannot fit 16 MiB: {counters:?}");
    assert!(counters.pswpin > 8000, "{counters:?}");
    assert_eq!(counters.pages_lost, 0);
    engine.usage();
}

/// Threads own every n-th page each, so neighbours are always somebody else's.
fn threads_at_random(engine: &Engine, threads: usize, steps: usize) {
    let mut region = engine.map(48 * MIB).unwrap();
    let pages = region.len() / 4096;
    let words: &[AtomicU64] = atomics(region.as_typed_mut::<u64>());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let mut random = Random(thread as u64 + 77);
                let mut model = vec![0u64; pages / threads];
                for step in 0..steps {
                    let mine = random.below(pages / threads);
                    let page = mine * threads + thread;
                    let word = &words[page * WORDS_PER_PAGE + mine % WORDS_PER_PAGE];
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
    engine.usage();
}

fn atomics(words: &mut [u64]) -> &[AtomicU64] {
    bytemuck_atomics::from_mut_slice(words)
}

mod bytemuck_atomics {
    use std::sync::atomic::AtomicU64;
    #[allow(unsafe_code)]
    pub fn from_mut_slice(words: &mut [u64]) -> &[AtomicU64] {
        // SAFETY: same size and alignment on this architecture, and the exclusive borrow is given up for it.
        unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len()) }
    }
}

#[test]
fn by_message_and_move() {
    let engine = engine(FaultMode::Thread, Transfer::Auto, IoBackend::Auto);
    write_and_read_back(&engine, 3);
    threads_at_random(&engine, 4, 6_000);
}

#[test]
fn by_signal_and_move() {
    let engine = engine(FaultMode::Signal, Transfer::Auto, IoBackend::Auto);
    write_and_read_back(&engine, 3);
    threads_at_random(&engine, 4, 6_000);
}

#[test]
fn by_message_and_copy() {
    let engine = engine(FaultMode::Thread, Transfer::Copy, IoBackend::Auto);
    write_and_read_back(&engine, 2);
    threads_at_random(&engine, 4, 6_000);
}

#[test]
fn by_signal_and_copy() {
    let engine = engine(FaultMode::Signal, Transfer::Copy, IoBackend::Auto);
    write_and_read_back(&engine, 2);
    threads_at_random(&engine, 4, 6_000);
}

#[test]
fn without_io_uring() {
    let engine = engine(FaultMode::Thread, Transfer::Auto, IoBackend::Threads);
    write_and_read_back(&engine, 2);
    threads_at_random(&engine, 4, 6_000);
}
