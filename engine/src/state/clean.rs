//! Clean pages: whether there are any in this process, and how it goes with them in each area of the address space.
//!
//! A page that a fault reads is mapped write-protected, and its word says Clean: until the fault of its first write
//! it holds what its slot holds, and may be copied and dropped. The rule of where that pays is `policy::clean`'s.
use crate::base::choice::FaultMode;
use crate::base::index::PageIndex;
use crate::sys::device_pins::DevicePins;
use crate::sys::mapping::ZeroedSlice;
use crate::sys::merging::Merging;
use crate::sys::scattered;
use crate::sys::uffd::{Rights, Uffd, feature};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use userswap_policy::clean::Score;

/// Pages of an area: 16 MiB, of which programs give different use to.
const AREA_PAGES: u32 = 1 << 12;

/// What is known of clean pages.
pub struct CleanPages {
    /// The kernel drops many in one call, and the faults of all writers are served.
    allowed: AtomicBool,
    /// There has been one.
    seen: AtomicBool,
    /// A device that only reads a page takes no fault.
    pins: DevicePins,
    /// A page that is merged with others loses its protection.
    merging: Merging,
    /// By area.
    scores: ZeroedSlice<AtomicU8>,
}

impl CleanPages {
    /// For an arena of so many pages.
    ///
    /// A clean page's first write is a fault. By signal, and without the right to serve the kernel's faults, that would
    /// be EFAULT for a system call which writes to memory that is there.
    ///
    /// # Errors
    /// What mmap says.
    pub fn new(pages: u32, uffd: &Uffd, fault: FaultMode) -> io::Result<Self> {
        let allowed = fault == FaultMode::Thread
            && uffd.rights() == Rights::Kernel
            && uffd.has(feature::WRITEPROTECT)
            && scattered::is_supported();
        let scores = ZeroedSlice::new(pages.div_ceil(AREA_PAGES) as usize)?;
        let (allowed, seen) = (AtomicBool::new(allowed), AtomicBool::new(false));
        let (pins, merging) = (DevicePins::open(), Merging::open());
        Ok(Self { allowed, seen, pins, merging, scores })
    }

    /// Whether a page that a fault reads is to be mapped as a clean one.
    pub fn wants(&self, page: PageIndex) -> bool {
        let wants = self.allowed.load(ORDER)
            && Score::from_bits(self.score(page).load(ORDER)).protects(page);
        if wants && !self.seen.load(ORDER) {
            self.seen.store(true, ORDER);
        }
        wants
    }

    /// Whether any page may be clean, or have been.
    pub fn is_any(&self) -> bool {
        self.seen.load(ORDER)
    }

    /// Whether for certain no memory of the process is pinned for long, or locked.
    pub fn is_all_movable(&self) -> bool {
        self.pins.are_none()
    }

    /// Whether clean pages may be dropped: no device is known to hold pages of this process for long, as one that only
    /// reads would go on reading what a dropped page held; and KSM, which forgets protections, merges none.
    pub fn may_drop(&self) -> bool {
        self.pins.are_none() && !self.merging.is_any()
    }

    /// After fork, in the child: what is known of pins is the parent's.
    pub fn renew(&self) {
        self.pins.renew();
        self.merging.renew();
    }

    /// No page is protected any more.
    pub fn forget(&self) {
        self.seen.store(false, ORDER);
    }

    /// From here on no page is mapped as a clean one.
    pub fn forbid(&self) {
        self.allowed.store(false, ORDER);
    }

    /// A clean page was written to.
    pub fn on_write(&self, page: PageIndex) {
        self.update(page, Score::on_write);
    }

    /// A clean page was dropped.
    pub fn on_drop(&self, page: PageIndex) {
        self.update(page, Score::on_drop);
    }

    fn update(&self, page: PageIndex, next: fn(Score) -> Score) {
        let score = self.score(page);
        // Two at once may count as one: a score is an estimate.
        score.store(next(Score::from_bits(score.load(ORDER))).bits(), ORDER);
    }

    fn score(&self, page: PageIndex) -> &AtomicU8 {
        &self.scores[(page / AREA_PAGES) as usize]
    }
}

/// Relaxed: scores order nothing, and what was seen is asked at a fork, when no other thread runs.
const ORDER: Ordering = Ordering::Relaxed;
