//! Small protocols under a model checker, which runs them in every order of their steps, with every value that
//! a relaxed load may see.
//!
//! The files are the engine's own, compiled here once more: `sync` and `sys` stand for its modules of those
//! names, with the checker's locks and atomics.
#[path = "../../src/state/kernel/exclusive.rs"]
mod exclusive;
#[path = "../../src/list_lru/mod.rs"]
#[allow(dead_code, unused_imports)]
mod list_lru;
#[path = "../../src/job/rows.rs"]
#[allow(dead_code)]
mod rows;

mod items;
mod reclaimers;
mod shares;

mod sys {
    /// In the place of `engine/src/sys/sync.rs`.
    pub mod sync {
        pub use loom::sync::atomic::{
            AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering, fence,
        };

        pub type Guard<'a, T> = loom::sync::MutexGuard<'a, T>;

        /// As `userswap::internals::lock::Lock`.
        pub struct Lock<T>(loom::sync::Mutex<T>);

        impl<T> Lock<T> {
            pub fn new(data: T) -> Self {
                Self(loom::sync::Mutex::new(data))
            }

            pub fn lock(&self) -> Guard<'_, T> {
                self.0.lock().expect("no thread panics in a model")
            }

            pub fn contended(&self) -> u64 {
                0
            }

            pub fn waited_ns(&self) -> u64 {
                0
            }
        }

        /// Ends at any time, woken or not: what holds then needs no wake-up.
        pub fn sleep(_word: &AtomicU32, _seen: u32, most_ns: u64) {
            assert!(most_ns <= 10_000_000, "no thread sleeps for more than 10 ms");
            loom::thread::yield_now();
        }

        pub fn wake_all(_word: &AtomicU32) {}
    }

    pub use userswap::internals::mapping;
}
