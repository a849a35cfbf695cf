//! ARC (Megiddo and Modha, FAST 2003): pages seen once and pages seen again share the memory, and what was thrown out
//! of either says which of them should have had more.
use super::{Rival, queue::Queue};

pub struct Arc {
    capacity: usize,
    /// What the pages seen once should have: the paper's p.
    target: usize,
    once: Queue,
    again: Queue,
    once_gone: Queue,
    again_gone: Queue,
}

impl Arc {
    pub fn new(pages: usize, capacity: usize) -> Self {
        let queue = || Queue::new(pages);
        let (once, again, once_gone, again_gone) = (queue(), queue(), queue(), queue());
        Self { capacity, target: 0, once, again, once_gone, again_gone }
    }

    /// The paper's REPLACE; `is_again` if the page that comes was in `again_gone`.
    fn replace(&mut self, page: u32) {
        let is_again = self.again_gone.contains(page);
        let of_once = self.once.len > 0
            && (self.once.len > self.target || is_again && self.once.len == self.target);
        let (from, to) = match of_once {
            true => (&mut self.once, &mut self.once_gone),
            false => (&mut self.again, &mut self.again_gone),
        };
        to.push_newest(from.pop_oldest().expect("memory is full"));
    }

    fn come_back(&mut self, page: u32) {
        let (once, again) = (self.once_gone.len, self.again_gone.len);
        if self.once_gone.contains(page) {
            self.target = (self.target + (again / once).max(1)).min(self.capacity);
        } else {
            self.target = self.target.saturating_sub((once / again).max(1));
        }
        self.replace(page);
        assert!(self.once_gone.remove(page) || self.again_gone.remove(page));
        self.again.push_newest(page);
    }

    fn make_room(&mut self, page: u32) {
        let once_known = self.once.len + self.once_gone.len;
        let known = once_known + self.again.len + self.again_gone.len;
        if once_known == self.capacity {
            if self.once.len < self.capacity {
                self.once_gone.pop_oldest();
                self.replace(page);
            } else {
                self.once.pop_oldest();
            }
        } else if known >= self.capacity {
            if known == 2 * self.capacity {
                self.again_gone.pop_oldest();
            }
            self.replace(page);
        }
    }
}

impl Rival for Arc {
    fn access(&mut self, page: u32) -> bool {
        if self.once.remove(page) || self.again.remove(page) {
            self.again.push_newest(page);
            return true;
        }
        if self.once_gone.contains(page) || self.again_gone.contains(page) {
            self.come_back(page);
        } else {
            self.make_room(page);
            self.once.push_newest(page);
        }
        false
    }

    fn resident(&self) -> usize {
        self.once.len + self.again.len
    }
}

#[test]
fn a_page_that_comes_back_moves_the_target_as_in_the_paper() {
    let mut arc = Arc::new(10, 2);
    // 0 is seen again; 1 and 2 pass through what is left, and 1 is remembered.
    for (page, hit) in [(0, false), (0, true), (1, false), (2, false)] {
        assert_eq!(arc.access(page), hit, "{page}");
    }
    assert!(arc.once_gone.contains(1) && arc.target == 0);
    // 1 says that those seen once should have had one page more, and takes the place of 0, as 2 is within the target.
    assert!(!arc.access(1));
    assert_eq!(arc.target, 1);
    assert!(arc.again.contains(1) && arc.once.contains(2) && arc.again_gone.contains(0));
    // And back again: once there is as much as its target, and a page of the other list returns.
    assert!(!arc.access(0));
    assert_eq!(arc.target, 0);
    assert!(arc.again.contains(0) && arc.again.contains(1) && arc.once_gone.contains(2));
}
