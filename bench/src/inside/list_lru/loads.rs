//! What the containers are loaded with: adding, deleting and walking as fast as they can, and something like
//! find and stat over many files, as in the thread of 2013 that list_lru came from.
use super::containers::{Container, Fate};
use crate::random::Random;
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use userswap::NodeId;
use userswap::internals::clock::thread_cpu_ns;

/// Items that one walk looks at.
const WALK: u64 = 16;
/// Operations after which a thread walks once.
const PER_WALK: u64 = 32;
/// Items that a reclaimer looks at in one go (the kernel's SHRINK_BATCH).
const BATCH: u64 = 128;
/// How often a reclaimer looks whether there is something to do.
const REST: Duration = Duration::from_millis(1);
/// Bytes of an object that a walker fills in: about an inode's part that stat reads.
const OBJECT_WORDS: usize = 24;

/// What one run came to.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    /// Operations by all threads.
    pub operations: u64,
    /// How long they took.
    pub seconds: f64,
    /// Processor time of all threads together.
    pub cpu_s: f64,
    /// Time spent waiting for locks, of all threads together; None where it is unknown.
    pub waited_s: Option<f64>,
}

/// Threads that add and delete items of their own at random, and walk what others have added on their node.
#[derive(Debug, Clone, Copy)]
pub struct Mixed {
    pub threads: u32,
    /// Items of each thread, half of which are there at the start.
    pub items: u32,
    /// Operations of each thread.
    pub operations: u64,
}

impl Mixed {
    pub fn run<C: Container>(&self, container: &C) -> Outcome {
        self.fill(container);
        let looked_at = AtomicU64::new(0);
        let outcome = timed(container, self.threads, |thread| {
            let mut random = Random::new(u64::from(thread) + 1);
            let walked = self.work(container, thread, &mut random);
            looked_at.fetch_add(walked, Ordering::Relaxed);
        });
        let operations = self.operations * u64::from(self.threads) + looked_at.into_inner();
        Outcome { operations, ..outcome }
    }

    /// Two containers in short turns, by this thread alone: what happens to a busy machine happens to both.
    /// Returns the outcomes of each pair of turns, in the order of the containers.
    pub fn run_in_turns<A: Container, B: Container>(
        &self,
        a: &A,
        b: &B,
        turns: u32,
    ) -> Vec<Vec<Outcome>> {
        self.fill(a);
        self.fill(b);
        let (mut of_a, mut of_b) = (Random::new(1), Random::new(1));
        (0..turns).map(|_| vec![self.turn(a, &mut of_a), self.turn(b, &mut of_b)]).collect()
    }

    fn turn<C: Container>(&self, container: &C, random: &mut Random) -> Outcome {
        let (begin, cpu) = (Instant::now(), thread_cpu_ns());
        let operations = self.operations + self.work(container, 0, random);
        let cpu_s = (thread_cpu_ns() - cpu) as f64 / 1e9;
        Outcome { operations, seconds: begin.elapsed().as_secs_f64(), cpu_s, waited_s: None }
    }

    fn fill<C: Container>(&self, container: &C) {
        for thread in 0..self.threads {
            let (node, first) = (container.node_of(thread), thread * self.items);
            (first..first + self.items).step_by(2).for_each(|item| container.add(node, item));
        }
    }

    /// One thread's part; returns the items that its walks looked at.
    #[inline(never)]
    fn work<C: Container>(&self, container: &C, thread: u32, random: &mut Random) -> u64 {
        let (node, first) = (container.node_of(thread), thread * self.items);
        let mut walks = 0;
        for operation in 1..=self.operations {
            let item = first + random.below(self.items.into()) as u32;
            // What a walk has taken is added, too: half of the items stay there.
            if !container.del(node, item) {
                container.add(node, item);
            }
            if operation % PER_WALK == 0 {
                walks += 1;
                container.walk(node, WALK, fate);
            }
        }
        walks * WALK
    }
}

/// Walkers that look at one file after the other, each of which becomes an object that is no longer
/// needed, with a reclaimer per node in the background that keeps their number within a limit.
#[derive(Debug, Clone, Copy)]
pub struct Find {
    pub walkers: u32,
    pub reclaimers: u32,
    /// Objects of each walker, after which it begins with the first again.
    pub items: u32,
    /// Objects that each walker looks at.
    pub objects: u64,
    /// Objects that are kept.
    pub limit: u64,
}

impl Find {
    pub fn run<C: Container>(&self, container: &C) -> Outcome {
        let over = AtomicBool::new(false);
        let outcome = std::thread::scope(|scope| {
            for reclaimer in 0..self.reclaimers {
                let over = &over;
                let node = container.node_of(reclaimer);
                scope.spawn(move || self.reclaim(container, node, over));
            }
            let outcome =
                timed(container, self.walkers, |walker| self.look_at_files(container, walker));
            over.store(true, Ordering::Relaxed);
            outcome
        });
        Outcome { operations: self.objects * u64::from(self.walkers), ..outcome }
    }

    fn look_at_files<C: Container>(&self, container: &C, walker: u32) {
        let (node, first) = (container.node_of(walker), walker * self.items);
        let mut object = [0u64; OBJECT_WORDS];
        for file in 0..self.objects {
            let item = first + (file % u64::from(self.items)) as u32;
            // Still there from the last time round: in use again.
            container.del(node, item);
            object.iter_mut().for_each(|word| *word = file);
            black_box(&mut object);
            container.add(node, item);
        }
    }

    fn reclaim<C: Container>(&self, container: &C, node: NodeId, over: &AtomicBool) {
        let limit = self.limit / u64::from(self.reclaimers);
        while !over.load(Ordering::Relaxed) {
            let mut left = container.len(node).saturating_sub(limit);
            if left == 0 {
                std::thread::sleep(REST);
            }
            while left > 0 && !over.load(Ordering::Relaxed) {
                container.walk(node, left.min(BATCH), fate);
                left = left.saturating_sub(BATCH);
            }
        }
    }
}

/// One item in sixteen was used again.
fn fate(item: u32) -> Fate {
    if item.is_multiple_of(16) { Fate::Rotated } else { Fate::Removed }
}

/// Runs threads that begin at the same time, until the last has finished.
fn timed<C: Container>(container: &C, threads: u32, work: impl Fn(u32) + Sync) -> Outcome {
    let start = Barrier::new(threads as usize + 1);
    let cpu_ns = AtomicU64::new(0);
    let (seconds, waited) = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (start, work, cpu_ns) = (&start, &work, &cpu_ns);
                scope.spawn(move || {
                    start.wait();
                    let begin = thread_cpu_ns();
                    work(thread);
                    cpu_ns.fetch_add(thread_cpu_ns() - begin, Ordering::Relaxed);
                })
            })
            .collect();
        let before = container.waited_ns();
        // Before the barrier: this thread may be the last to wake up after it.
        let begin = Instant::now();
        start.wait();
        workers.into_iter().for_each(|worker| worker.join().expect("no load panics"));
        let seconds = begin.elapsed().as_secs_f64();
        let waited = container.waited_ns().zip(before).map(|(after, before)| after - before);
        (seconds, waited)
    });
    let cpu_s = cpu_ns.into_inner() as f64 / 1e9;
    Outcome { operations: 0, seconds, cpu_s, waited_s: waited.map(|ns| ns as f64 / 1e9) }
}
