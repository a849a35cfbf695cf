//! The locks, atomics and the sleep of what is model-checked, behind one name: `tests/models.rs` and
//! `tests/list_lru_model.rs` use a model checker's instead.
pub use crate::sys::lock::{Guard, Lock};
pub use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering, fence,
};

use crate::sys::futex;

/// Sleeps while `word` still holds `seen`, at most so long; may return early.
pub fn sleep(word: &AtomicU32, seen: u32, most_ns: u64) {
    futex::wait_for(word, seen, most_ns);
}

/// Sleeps while `word` still holds `seen`, until woken; may return early.
pub fn wait(word: &AtomicU32, seen: u32) {
    futex::wait(word, seen);
}

/// Wakes all threads that sleep on `word`.
pub fn wake_all(word: &AtomicU32) {
    futex::wake_all(word);
}
