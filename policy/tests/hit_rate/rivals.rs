//! Misses of FIFO, LRU and Belady's optimum (1966) with the same memory, none of it kept free.
use crate::BUDGET;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

pub fn fifo(trace: &[u32]) -> u64 {
    let (mut queue, mut present) = (VecDeque::new(), HashSet::new());
    let mut misses = 0;
    for page in trace {
        if !present.insert(*page) {
            continue;
        }
        misses += 1;
        queue.push_back(*page);
        if queue.len() > BUDGET as usize {
            present.remove(&queue.pop_front().expect("it is not empty"));
        }
    }
    misses
}

pub fn lru(trace: &[u32]) -> u64 {
    misses_keeping_largest(trace, |time| time)
}

/// The page that is used latest has to go.
pub fn optimum(trace: &[u32]) -> u64 {
    let mut next = vec![0; trace.len()];
    let mut seen = HashMap::new();
    for (time, page) in trace.iter().enumerate().rev() {
        next[time] = seen.insert(*page, time).unwrap_or(usize::MAX);
    }
    misses_keeping_largest(trace, |time| usize::MAX - next[time])
}

/// Misses when the page with the smallest value goes; the value is that of its last access.
fn misses_keeping_largest(trace: &[u32], value: impl Fn(usize) -> usize) -> u64 {
    let mut order: BTreeSet<(usize, u32)> = BTreeSet::new();
    let mut values = HashMap::new();
    let mut misses = 0;
    for (time, page) in trace.iter().enumerate() {
        if let Some(old) = values.insert(*page, value(time)) {
            order.remove(&(old, *page));
        } else {
            misses += 1;
            if order.len() == BUDGET as usize {
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
    let pages = BUDGET + 1;
    let trace: Vec<u32> = (0..10 * pages).map(|time| time % pages).collect();
    assert_eq!(lru(&trace), u64::from(10 * pages));
    assert!(optimum(&trace) < u64::from(pages + 20));
}
