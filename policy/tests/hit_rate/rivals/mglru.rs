//! The kernel's multi-generational LRU (mm/vmscan.c, Linux 6.1 and later) for anonymous pages: the generations, what a walk
//! over the page tables finds used, and the look at a victim's own accessed bit.
//!
//! Left out is what no single program's anonymous memory has: tiers (for files), cgroups, and the filter that spares
//! the walk parts of the tables. Memory is used to the last page, and the walk is for nothing.
use super::{Rival, queue::Queue};
use std::collections::VecDeque;

/// Generations that are never evicted from: MIN_NR_GENS.
const YOUNG_GENERATIONS: usize = 2;

pub struct Mglru {
    capacity: usize,
    /// Pages of each generation, the oldest first.
    generations: VecDeque<Queue>,
    /// The accessed bit of each page's table entry.
    accessed: Vec<bool>,
    resident: usize,
    is_resident: Vec<bool>,
}

impl Mglru {
    pub fn new(pages: usize, capacity: usize) -> Self {
        let generations = (0..YOUNG_GENERATIONS).map(|_| Queue::new(pages)).collect();
        let (accessed, is_resident) = (vec![false; pages], vec![false; pages]);
        Self { capacity, generations, accessed, resident: 0, is_resident }
    }

    fn youngest(&mut self) -> &mut Queue {
        self.generations.back_mut().expect("there are some")
    }

    /// A walk: what was accessed joins the youngest generation, and a new one begins.
    fn age(&mut self) {
        for page in 0..self.accessed.len() as u32 {
            if self.is_resident[page as usize] && std::mem::take(&mut self.accessed[page as usize])
            {
                assert!(self.generations.iter_mut().any(|generation| generation.remove(page)));
                self.youngest().push_newest(page);
            }
        }
        self.generations.push_back(Queue::new(self.accessed.len()));
    }

    fn evict(&mut self) {
        loop {
            if self.generations.len() <= YOUNG_GENERATIONS {
                self.age();
            }
            let Some(page) = self.generations[0].pop_oldest() else {
                self.generations.pop_front();
                continue;
            };
            if std::mem::take(&mut self.accessed[page as usize]) {
                self.youngest().push_newest(page);
                continue;
            }
            self.is_resident[page as usize] = false;
            self.resident -= 1;
            return;
        }
    }
}

impl Rival for Mglru {
    fn access(&mut self, page: u32) -> bool {
        self.accessed[page as usize] = true;
        if self.is_resident[page as usize] {
            return true;
        }
        self.accessed[page as usize] = false;
        if self.resident == self.capacity {
            self.evict();
        }
        // A fault leaves the page active, in the youngest generation, and its entry accessed.
        self.accessed[page as usize] = true;
        self.youngest().push_newest(page);
        self.is_resident[page as usize] = true;
        self.resident += 1;
        false
    }

    fn resident(&self) -> usize {
        self.resident
    }
}

#[test]
fn what_was_not_used_since_the_last_walk_goes_first() {
    let mut mglru = Mglru::new(20, 4);
    let _ = [0, 1, 2, 3].map(|page| mglru.access(page));
    // The first walk finds all used; after two more without a use the oldest goes.
    assert!(!mglru.access(4) && !mglru.is_resident[0]);
    // Among those as old, the ones used since are spared.
    mglru.access(1);
    mglru.access(3);
    assert!(!mglru.access(5) && !mglru.is_resident[2]);
    assert!(mglru.is_resident[1] && mglru.is_resident[3] && mglru.is_resident[4]);
}
