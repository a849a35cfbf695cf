//! Pages that this library has locked in memory for itself: the kernel counts them with what the program and devices lock.
use super::PAGE_BYTES;
use super::mapping::{ZeroedSlice, advise};
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// Locks that are told apart in a process: what exceeds them is taken for somebody else's.
const LOCKS_MAX: usize = PAGE_BYTES;

/// Which of them are held. A forked child finds no lock held, as the kernel passes none on.
static HELD: OnceLock<ZeroedSlice<AtomicU8>> = OnceLock::new();

/// The number of the next.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Says whether a page of ours is locked.
pub struct OwnLock(usize);

impl OwnLock {
    /// Of a page that is not locked yet.
    ///
    /// # Errors
    /// What mmap and madvise say.
    pub fn new() -> io::Result<Self> {
        if HELD.get().is_none() {
            let held = ZeroedSlice::<AtomicU8>::new(LOCKS_MAX)?;
            advise(held.as_ptr().addr(), LOCKS_MAX, libc::MADV_WIPEONFORK)?;
            // Of two that are made at once either is as good.
            let _ = HELD.set(held);
        }
        Ok(Self(NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    /// The page has been locked.
    pub fn held(&self) {
        self.mark(1);
    }

    /// The page is going to be given back.
    pub fn released(&self) {
        self.mark(0);
    }

    fn mark(&self, held: u8) {
        if let Some(mark) = HELD.get().and_then(|held| held.get(self.0)) {
            mark.store(held, Ordering::SeqCst);
        }
    }
}

/// What `look` says with as many pages locked by us; false where their number changes meanwhile.
pub fn with_count(look: impl FnOnce(usize) -> bool) -> bool {
    let before = count();
    look(before) && count() == before
}

fn count() -> usize {
    let Some(held) = HELD.get() else { return 0 };
    let used = NEXT.load(Ordering::SeqCst).min(LOCKS_MAX);
    held[..used].iter().filter(|mark| mark.load(Ordering::SeqCst) == 1).count()
}
