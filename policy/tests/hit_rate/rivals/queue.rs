//! A queue of pages from which any page can be taken: what all the rivals are made of.

/// No page: the end of the queue.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Link {
    older: u32,
    newer: u32,
    is_in: bool,
}

pub struct Queue {
    links: Vec<Link>,
    oldest: u32,
    newest: u32,
    pub len: usize,
}

impl Queue {
    /// An empty queue for pages below `pages`.
    pub fn new(pages: usize) -> Self {
        let out = Link { older: NONE, newer: NONE, is_in: false };
        Self { links: vec![out; pages], oldest: NONE, newest: NONE, len: 0 }
    }

    pub fn contains(&self, page: u32) -> bool {
        self.links[page as usize].is_in
    }

    pub fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// The page that came after `page`, which is in the queue.
    pub fn newer(&self, page: u32) -> Option<u32> {
        let newer = self.links[page as usize].newer;
        (newer != NONE).then_some(newer)
    }

    pub fn push_newest(&mut self, page: u32) {
        assert!(!self.contains(page), "a page is in a queue once");
        self.links[page as usize] = Link { older: self.newest, newer: NONE, is_in: true };
        match self.newest {
            NONE => self.oldest = page,
            newest => self.links[newest as usize].newer = page,
        }
        self.newest = page;
        self.len += 1;
    }

    /// Takes the page out; false if it is not there.
    pub fn remove(&mut self, page: u32) -> bool {
        let Link { older, newer, is_in } = self.links[page as usize];
        if !is_in {
            return false;
        }
        match older {
            NONE => self.oldest = newer,
            older => self.links[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.links[newer as usize].older = older,
        }
        self.links[page as usize].is_in = false;
        self.len -= 1;
        true
    }

    pub fn pop_oldest(&mut self) -> Option<u32> {
        let page = self.oldest()?;
        self.remove(page);
        Some(page)
    }
}
