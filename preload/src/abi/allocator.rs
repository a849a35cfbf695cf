//! Whose malloc the program calls: ours and glibc's, or one that it brings along.
use super::symbols;
use std::sync::atomic::{AtomicU8, Ordering};

/// What [`is_foreign`] knows.
mod verdict {
    pub const UNKNOWN: u8 = 0;
    pub const LIBC: u8 = 1;
    pub const FOREIGN: u8 = 2;
}

static VERDICT: AtomicU8 = AtomicU8::new(verdict::UNKNOWN);

/// Whether the executable or one of its libraries defines malloc.
#[inline]
pub fn is_foreign() -> bool {
    // Relaxed: every thread that decides it decides the same.
    match VERDICT.load(Ordering::Relaxed) {
        verdict::UNKNOWN => decide(),
        verdict => verdict == verdict::FOREIGN,
    }
}

#[cold]
fn decide() -> bool {
    let foreign = !symbols::is_libcs(c"malloc");
    let verdict = if foreign { verdict::FOREIGN } else { verdict::LIBC };
    VERDICT.store(verdict, Ordering::Relaxed);
    foreign
}
