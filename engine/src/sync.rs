//! What [`list_lru`](crate::list_lru) synchronises with, behind one name: its model check
//! (`tests/list_lru_model.rs`) compiles the same files over a model checker's locks and atomics.
pub use crate::sys::lock::{Guard, Lock};
pub use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
