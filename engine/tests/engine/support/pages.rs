//! Pages by address, with content that tells page, word and stamp from every other.
use super::internals::{Pagemap, bench, bench::raw};
use super::{PAGE, WORDS};
use userswap::Region;

/// The word at `index` of `page` under a stamp; stamp 0 is a page of zeros.
pub fn word(stamp: u64, page: usize, index: usize) -> u64 {
    if stamp == 0 {
        return 0;
    }
    let mixed = stamp ^ (page as u64) << 40 ^ (index as u64) << 30;
    mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1
}

/// Writes the word at `index` of memory of a test's own: the part of a live region or heap that it names has one writer.
pub fn write_at(memory: *mut u64, index: usize, word: u64) {
    raw::write(memory.addr() + index * 8, word);
}

/// Reads the word at `index` of such memory.
pub fn read_at(memory: *const u64, index: usize) -> u64 {
    raw::read(memory.addr() + index * 8)
}

/// Whether touching a page raises SIGBUS.
pub fn is_lost(pages: Pages, page: usize) -> bool {
    bench::lost::is_lost(pages.at(page) as usize)
}

/// Pages by address: tests share a region between threads in ways that slices do not allow.
#[derive(Clone, Copy)]
pub struct Pages {
    pub address: usize,
    pub count: usize,
}

impl Pages {
    pub fn of(region: &Region) -> Self {
        Self { address: region.as_slice().as_ptr() as usize, count: region.len() / PAGE }
    }

    pub fn at(&self, page: usize) -> *mut u64 {
        assert!(page < self.count);
        (self.address + page * PAGE) as *mut u64
    }

    pub fn fill(&self, page: usize, stamp: u64) {
        self.fill_with(page, |index| word(stamp, page, index));
    }

    /// Writes a page at once, which takes a fraction of the time of one word after the other.
    pub fn fill_with(&self, page: usize, word: impl FnMut(usize) -> u64) {
        raw::store(self.at(page).addr(), &std::array::from_fn::<u64, WORDS, _>(word));
    }

    pub fn write(&self, page: usize, index: usize, word: u64) {
        assert!(index < WORDS);
        write_at(self.at(page), index, word);
    }

    pub fn read(&self, page: usize, index: usize) -> u64 {
        assert!(index < WORDS);
        read_at(self.at(page), index)
    }

    /// The first word that is not as it should be.
    pub fn wrong(&self, page: usize, stamp: u64) -> Option<String> {
        let wrong = self.wrong_word(page, |index| word(stamp, page, index))?;
        Some(format!("{wrong} (stamp {stamp})"))
    }

    /// The same of content of any kind.
    pub fn wrong_word(&self, page: usize, word: impl FnMut(usize) -> u64) -> Option<String> {
        let (mut found, expected) = ([0; WORDS], std::array::from_fn::<u64, WORDS, _>(word));
        raw::load(self.at(page).addr(), &mut found);
        let index = (0..WORDS).find(|index| found[*index] != expected[*index])?;
        let (found, expected) = (found[index], expected[index]);
        Some(format!("page {page} word {index}: {found:#x}, not {expected:#x}"))
    }

    pub fn check(&self, page: usize, stamp: u64) {
        if let Some(wrong) = self.wrong(page, stamp) {
            panic!("{wrong}");
        }
    }

    pub fn fill_all(&self, stamp: u64) {
        (0..self.count).for_each(|page| self.fill(page, stamp));
    }

    pub fn check_all(&self, stamp: u64) {
        (0..self.count).for_each(|page| self.check(page, stamp));
    }

    /// Which pages are mapped at this moment.
    pub fn present(&self) -> Vec<bool> {
        let mut present = vec![false; self.count];
        let end = self.address + self.count * PAGE;
        Pagemap::open()
            .for_each_present(self.address, end, |from, to| {
                present[(from - self.address) / PAGE..(to - self.address) / PAGE].fill(true);
            })
            .unwrap();
        present
    }
}
