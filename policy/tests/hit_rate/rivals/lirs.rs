//! LIRS (Jiang and Zhang, SIGMETRICS 2002): what counts is how many other pages were used between two uses of a page.
//! Pages for which these were few stay; one page in a hundred is kept for all others.
use super::{Rival, queue::Queue};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    Unknown,
    /// Low inter-reference recency: stays.
    Low,
    High,
    /// High, and not in memory.
    Gone,
}

pub struct Lirs {
    low_max: usize,
    high_max: usize,
    low: usize,
    status: Vec<Status>,
    /// The paper's stack S: by recency, with a low page at its bottom.
    recency: Queue,
    /// The paper's list Q: high pages in memory, the next victim oldest.
    high: Queue,
}

impl Lirs {
    pub fn new(pages: usize, capacity: usize) -> Self {
        // The paper's share for pages of high recency.
        let high_max = (capacity / 100).max(1);
        Self {
            low_max: capacity - high_max,
            high_max,
            low: 0,
            status: vec![Status::Unknown; pages],
            recency: Queue::new(pages),
            high: Queue::new(pages),
        }
    }

    fn refresh(&mut self, page: u32) -> bool {
        let was_in = self.recency.remove(page);
        self.recency.push_newest(page);
        was_in
    }

    /// Takes off the bottom of the stack what is not low.
    fn prune(&mut self) {
        while let Some(page) = self.recency.oldest() {
            match self.status[page as usize] {
                Status::Low => return,
                Status::Gone => self.status[page as usize] = Status::Unknown,
                Status::High | Status::Unknown => {}
            }
            self.recency.remove(page);
        }
    }

    /// The low page at the bottom becomes high, at the end of its list.
    fn demote_bottom(&mut self) {
        let page = self.recency.pop_oldest().expect("a low page is at the bottom");
        assert!(self.status[page as usize] == Status::Low);
        self.status[page as usize] = Status::High;
        self.low -= 1;
        self.high.push_newest(page);
        self.prune();
    }

    fn become_low(&mut self, page: u32) {
        self.high.remove(page);
        self.status[page as usize] = Status::Low;
        self.low += 1;
        if self.low > self.low_max {
            self.demote_bottom();
        }
    }

    fn make_room(&mut self) {
        if self.high.len == self.high_max && self.low == self.low_max {
            let page = self.high.pop_oldest().expect("there is one");
            let is_known = self.recency.contains(page);
            self.status[page as usize] = if is_known { Status::Gone } else { Status::Unknown };
        }
    }
}

impl Rival for Lirs {
    fn access(&mut self, page: u32) -> bool {
        let status = self.status[page as usize];
        let hit = matches!(status, Status::Low | Status::High);
        if !hit {
            self.make_room();
        }
        let was_recent = self.refresh(page);
        match status {
            Status::Low => self.prune(),
            Status::High if was_recent => self.become_low(page),
            Status::Gone => self.become_low(page),
            Status::Unknown if self.low < self.low_max => self.become_low(page),
            Status::High | Status::Unknown => {
                self.status[page as usize] = Status::High;
                self.high.remove(page);
                self.high.push_newest(page);
            }
        }
        hit
    }

    fn resident(&self) -> usize {
        self.low + self.high.len
    }
}

#[test]
fn of_a_loop_all_low_pages_hit_as_in_the_paper() {
    // Of a loop that is larger than memory the pages that came first stay, and only the others miss.
    let (capacity, length, rounds) = (100, 150, 5);
    let mut lirs = Lirs::new(length, capacity);
    let misses = (0..rounds * length).filter(|time| !lirs.access((time % length) as u32)).count();
    let low = capacity - 1;
    assert_eq!(misses, length + (rounds - 1) * (length - low));
}

#[test]
fn a_page_used_twice_soon_takes_the_place_of_the_least_recent_low_page() {
    // Memory for two low pages and a high one.
    let mut lirs = Lirs::new(10, 3);
    for page in [0, 1, 2] {
        assert!(!lirs.access(page));
    }
    assert!(lirs.status[2] == Status::High);
    assert!(lirs.access(2));
    assert!(lirs.status[2] == Status::Low && lirs.status[0] == Status::High);
    // 0 is the only high page now, and goes for 3.
    assert!(!lirs.access(3));
    assert!(!lirs.access(0) && lirs.access(1) && lirs.access(2));
}
