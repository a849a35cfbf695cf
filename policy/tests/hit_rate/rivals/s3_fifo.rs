//! S3-FIFO (Yang and others, SOSP 2023): a small queue that lets through what is used more than once, a main queue with
//! reinsertion, and a queue of what was thrown out of the small one.
use super::{Rival, queue::Queue};

/// A page is not believed to be used more often than this.
const USES_MAX: u8 = 3;

pub struct S3Fifo {
    capacity: usize,
    small_max: usize,
    uses: Vec<u8>,
    small: Queue,
    main: Queue,
    ghost: Queue,
}

impl S3Fifo {
    pub fn new(pages: usize, capacity: usize) -> Self {
        Self {
            capacity,
            small_max: (capacity / 10).max(1),
            uses: vec![0; pages],
            small: Queue::new(pages),
            main: Queue::new(pages),
            ghost: Queue::new(pages),
        }
    }

    fn evict(&mut self) {
        while self.resident() >= self.capacity {
            match self.small.len >= self.small_max || self.main.len == 0 {
                true => self.evict_small(),
                false => self.evict_main(),
            }
        }
    }

    /// The paper's EVICTS: until one has gone.
    fn evict_small(&mut self) {
        while let Some(page) = self.small.pop_oldest() {
            if self.uses[page as usize] > 1 {
                self.uses[page as usize] = 0;
                self.main.push_newest(page);
                continue;
            }
            self.ghost.push_newest(page);
            if self.ghost.len > self.capacity - self.small_max {
                self.ghost.pop_oldest();
            }
            return;
        }
    }

    /// The paper's EVICTM: until one has gone.
    fn evict_main(&mut self) {
        while let Some(page) = self.main.pop_oldest() {
            if self.uses[page as usize] == 0 {
                return;
            }
            self.uses[page as usize] -= 1;
            self.main.push_newest(page);
        }
    }
}

impl Rival for S3Fifo {
    fn access(&mut self, page: u32) -> bool {
        let uses = &mut self.uses[page as usize];
        if self.small.contains(page) || self.main.contains(page) {
            *uses = (*uses + 1).min(USES_MAX);
            return true;
        }
        *uses = 0;
        self.evict();
        match self.ghost.remove(page) {
            true => self.main.push_newest(page),
            false => self.small.push_newest(page),
        }
        false
    }

    fn resident(&self) -> usize {
        self.small.len + self.main.len
    }
}

#[test]
fn pages_used_once_pass_through_the_small_queue() {
    let mut cache = S3Fifo::new(1000, 10);
    for page in 0..100 {
        cache.access(page);
    }
    assert_eq!((cache.small.len, cache.main.len, cache.ghost.len), (10, 0, 9));
    // What the ghost queue knows goes to the main queue at once; what is used twice, when it leaves the small one.
    cache.access(89);
    assert!(cache.main.contains(89));
    cache.access(95);
    cache.access(95);
    (200..220).for_each(|page| _ = cache.access(page));
    assert!(cache.main.contains(95) && cache.access(95) && !cache.access(96));
}
