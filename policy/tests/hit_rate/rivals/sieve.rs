//! SIEVE (Zhang and others, NSDI 2024): one queue in the order of arrival, a bit for each page, and a hand that takes
//! the first page without it. A page that is used is not moved.
use super::{Rival, queue::Queue};

pub struct Sieve {
    capacity: usize,
    queue: Queue,
    used: Vec<bool>,
    /// Where the hand looks next; none is the oldest.
    hand: Option<u32>,
}

impl Sieve {
    pub fn new(pages: usize, capacity: usize) -> Self {
        Self { capacity, queue: Queue::new(pages), used: vec![false; pages], hand: None }
    }

    fn evict(&mut self) {
        let mut page = self.hand.or(self.queue.oldest()).expect("memory is full");
        while self.used[page as usize] {
            self.used[page as usize] = false;
            page = self.queue.newer(page).or(self.queue.oldest()).expect("memory is full");
        }
        self.hand = self.queue.newer(page);
        self.queue.remove(page);
    }
}

impl Rival for Sieve {
    fn access(&mut self, page: u32) -> bool {
        if self.queue.contains(page) {
            self.used[page as usize] = true;
            return true;
        }
        if self.queue.len == self.capacity {
            self.evict();
        }
        self.used[page as usize] = false;
        self.queue.push_newest(page);
        false
    }

    fn resident(&self) -> usize {
        self.queue.len
    }
}

#[test]
fn the_hand_goes_on_where_it_was_and_spares_what_was_used() {
    let mut sieve = Sieve::new(20, 4);
    let _ = [0, 1, 2, 3, 0, 2].map(|page| sieve.access(page));
    // The hand clears 0 and takes 1, then, from there, clears 2 and takes 3.
    assert!(!sieve.access(4) && !sieve.queue.contains(1));
    assert!(!sieve.access(5) && !sieve.queue.contains(3));
    assert!(sieve.queue.contains(0) && sieve.queue.contains(2));
    // 4 and 5 are newer than the hand; they go before the hand comes round to 0.
    assert!(!sieve.access(6) && !sieve.queue.contains(4));
    assert!(sieve.access(0) && sieve.access(2));
}
