//! The atomics and the sleep of what is model-checked, behind one name: `tests/models.rs` puts a model
//! checker's in their place.
pub use std::sync::atomic::{AtomicU32, Ordering};

use crate::sys::futex;

/// Sleeps while `word` still holds `seen`, at most so long; may return early.
pub fn sleep(word: &AtomicU32, seen: u32, most_ns: u64) {
    futex::wait_for(word, seen, most_ns);
}

/// Wakes everybody who sleeps on `word`.
pub fn wake_all(word: &AtomicU32) {
    futex::wake_all(word);
}
