//! Misses of other policies with the same memory, none of it kept free: FIFO, LRU, Belady's optimum (1966), and those
//! that remember more.
mod arc;
mod lirs;
mod mglru;
mod queue;
mod s3_fifo;
mod sieve;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

/// A policy that sees every access, as none does that has no accessed bits.
trait Rival {
    /// Whether the page was in memory; it is afterwards.
    fn access(&mut self, page: u32) -> bool;
    /// Pages in memory.
    fn resident(&self) -> usize;
}

/// Makes a rival for pages below the first number, with memory for as many as the second.
type Maker = fn(usize, usize) -> Box<dyn Rival>;

/// The rivals with their names, in the order of the table.
const RIVALS: [(&str, Maker); 5] = [
    ("ARC", |pages, capacity| Box::new(arc::Arc::new(pages, capacity))),
    ("LIRS", |pages, capacity| Box::new(lirs::Lirs::new(pages, capacity))),
    ("S3-FIFO", |pages, capacity| Box::new(s3_fifo::S3Fifo::new(pages, capacity))),
    ("SIEVE", |pages, capacity| Box::new(sieve::Sieve::new(pages, capacity))),
    ("MGLRU", |pages, capacity| Box::new(mglru::Mglru::new(pages, capacity))),
];

pub fn names() -> Vec<&'static str> {
    RIVALS.iter().map(|(name, _)| *name).collect()
}

/// The misses of each, in the order of [`names`].
pub fn misses(trace: &[u32], budget: u32) -> Vec<u64> {
    let pages = trace.iter().max().map_or(0, |last| *last as usize + 1);
    let of = |maker: &Maker| {
        let mut rival = maker(pages, budget as usize);
        trace.iter().filter(|page| !rival.access(**page)).count() as u64
    };
    RIVALS.iter().map(|(_, maker)| of(maker)).collect()
}

pub fn fifo(trace: &[u32], budget: u32) -> u64 {
    let (mut queue, mut present) = (VecDeque::new(), HashSet::new());
    let mut misses = 0;
    for page in trace {
        if !present.insert(*page) {
            continue;
        }
        misses += 1;
        queue.push_back(*page);
        if queue.len() > budget as usize {
            present.remove(&queue.pop_front().expect("it is not empty"));
        }
    }
    misses
}

pub fn lru(trace: &[u32], budget: u32) -> u64 {
    misses_keeping_largest(trace, budget, |time| time)
}

/// The page that is used latest has to go.
pub fn optimum(trace: &[u32], budget: u32) -> u64 {
    let mut next = vec![0; trace.len()];
    let mut seen = HashMap::new();
    for (time, page) in trace.iter().enumerate().rev() {
        next[time] = seen.insert(*page, time).unwrap_or(usize::MAX);
    }
    misses_keeping_largest(trace, budget, |time| usize::MAX - next[time])
}

/// Misses when the page with the smallest value goes; the value is that of its last access.
fn misses_keeping_largest(trace: &[u32], budget: u32, value: impl Fn(usize) -> usize) -> u64 {
    let mut order: BTreeSet<(usize, u32)> = BTreeSet::new();
    let mut values = HashMap::new();
    let mut misses = 0;
    for (time, page) in trace.iter().enumerate() {
        if let Some(old) = values.insert(*page, value(time)) {
            order.remove(&(old, *page));
        } else {
            misses += 1;
            if order.len() == budget as usize {
                let (_, gone) = order.pop_first().expect("it is full");
                values.remove(&gone);
            }
        }
        order.insert((value(time), *page));
    }
    misses
}

#[test]
fn the_optimum_of_a_loop_keeps_all_but_what_does_not_fit() {
    let budget = 8192;
    let pages = budget + 1;
    let trace: Vec<u32> = (0..10 * pages).map(|time| time % pages).collect();
    assert_eq!(lru(&trace, budget), u64::from(10 * pages));
    assert!(optimum(&trace, budget) < u64::from(pages + 20));
}

/// Random accesses, some of them to few pages: each rival keeps to its memory, says what it did, and knows no future.
#[test]
fn every_rival_keeps_to_its_memory_and_misses_what_it_does_not_have() {
    let pages = 60;
    for (name, maker) in RIVALS {
        for capacity in [3, 7, 30, 60] {
            let mut rival = maker(pages, capacity);
            let (mut seed, mut seen) = (capacity as u64, HashSet::new());
            for time in 0..20_000 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let range = if time % 3 == 0 { pages as u64 } else { 10 };
                let page = ((seed >> 33) % range) as u32;
                let before = rival.resident();
                let hit = rival.access(page);
                assert!(rival.resident() <= capacity, "{name} with {capacity}: {time}");
                assert!(!(hit && seen.insert(page)), "{name} hits a page that it has not seen");
                seen.insert(page);
                // Nothing goes while there is room.
                assert!(hit || before == capacity || rival.resident() == before + 1, "{name}");
                assert!(rival.access(page), "{name}: a page that was just used is there");
            }
            assert_eq!(rival.resident(), capacity.min(seen.len()), "{name}");
        }
    }
}
