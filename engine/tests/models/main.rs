//! Small protocols under a model checker, which runs them in every order of their steps, with every value that
//! a relaxed load may see.
//!
//! The files are the engine's own, compiled here once more: `sync` and `sys` stand for its modules of those
//! names, with the checker's locks and atomics.
//!
//! What one lock guards has no protocol to run: a node's lists, the unevictable one among them, change under the node's lock
//! alone (`engine/tests/engine/unevictable.rs` has their tests).
#[path = "../../src/state/kernel/exclusive.rs"]
mod exclusive;
#[path = "../../src/state/gate.rs"]
mod gate;
#[path = "../../src/base/index.rs"]
#[allow(dead_code)]
mod index;
#[path = "../../src/base/limits.rs"]
#[allow(dead_code)]
mod limits;
#[path = "../../src/list_lru/mod.rs"]
#[allow(dead_code, unused_imports)]
mod list_lru;
#[path = "../../src/device/loans.rs"]
#[allow(dead_code)]
mod loans;
#[path = "../../src/job/rows.rs"]
#[allow(dead_code)]
mod rows;
#[path = "../../src/state/wait_table.rs"]
#[allow(dead_code)]
mod wait_table;
#[path = "../../src/state/word.rs"]
#[allow(dead_code)]
mod word;

mod clean;
mod inside;
mod items;
mod lending;
mod reclaimers;
mod shares;
mod waits;

mod base {
    pub(crate) use crate::{index, limits};
}

mod sys {
    pub use userswap::internals::PAGE_BYTES;

    /// In the place of `engine/src/sys/sync.rs`.
    pub mod sync {
        pub use loom::sync::atomic::{
            AtomicBool, AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering, fence,
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

            pub fn try_lock(&self) -> Option<Guard<'_, T>> {
                self.0.try_lock().ok()
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

        loom::lazy_static! {
            /// All words are slept on in one place: who wakes wakes too many, who look again.
            static ref SLEEPERS: (loom::sync::Mutex<()>, loom::sync::Condvar) =
                (loom::sync::Mutex::new(()), loom::sync::Condvar::new());
        }

        /// Ends when it is woken only: a wake-up that is missed is a deadlock, which the checker finds.
        pub fn wait(word: &AtomicU32, seen: u32) {
            let awake = SLEEPERS.0.lock().expect("no thread panics in a model");
            if word.load(Ordering::Relaxed) == seen {
                drop(SLEEPERS.1.wait(awake));
            }
        }

        pub fn wake_all(_word: &AtomicU32) {
            let _awake = SLEEPERS.0.lock().expect("no thread panics in a model");
            SLEEPERS.1.notify_all();
        }
    }

    /// In the place of `engine/src/sys/shared.rs`: a process is a thread here, and its locks end when it drops them.
    pub mod shared {
        use super::sync::{AtomicU64, Ordering};
        use loom::sync::{Arc, Mutex};
        use std::io;

        /// Rows that a model uses, of one word each.
        const ROWS: usize = 4;
        /// Words of a page: where a row begins.
        const PAGE_WORDS: usize = 512;

        pub struct SharedWords(Vec<AtomicU64>);

        impl SharedWords {
            pub fn new(_count: usize) -> io::Result<Self> {
                Ok(Self((0..2 + ROWS).map(|_| AtomicU64::new(0)).collect()))
            }

            pub fn at(&self, index: usize) -> &AtomicU64 {
                match index {
                    0 | 1 => &self.0[index],
                    _ => &self.0[1 + index / PAGE_WORDS],
                }
            }

            pub fn clear(&self, first: usize, _count: usize) {
                self.at(first).store(0, Ordering::Release);
            }
        }

        /// Which description has each byte.
        #[derive(Default)]
        struct Holders {
            holders: [Option<u32>; ROWS],
            descriptions: u32,
        }

        pub struct ByteLocks {
            file: Arc<Mutex<Holders>>,
            own: u32,
        }

        impl ByteLocks {
            pub fn new() -> io::Result<Self> {
                Ok(Self { file: Arc::new(Mutex::new(Holders::default())), own: 0 })
            }

            pub fn another(&self) -> io::Result<Self> {
                let mut file = self.file.lock().unwrap();
                file.descriptions += 1;
                Ok(Self { file: self.file.clone(), own: file.descriptions })
            }

            pub fn try_lock(&self, byte: u32) -> bool {
                let holder = &mut self.file.lock().unwrap().holders[byte as usize];
                *holder.get_or_insert(self.own) == self.own
            }

            pub fn unlock(&self, byte: u32) {
                self.file.lock().unwrap().holders[byte as usize] = None;
            }

            pub fn descriptor(&self) -> std::os::fd::RawFd {
                unreachable!("a model's processes have no descriptors")
            }

            pub fn become_another(&self, _other: &Self) -> io::Result<()> {
                unreachable!("a model's processes have their own")
            }
        }

        impl Drop for ByteLocks {
            fn drop(&mut self) {
                let mut file = self.file.lock().unwrap();
                let own = file.holders.iter_mut().filter(|holder| **holder == Some(self.own));
                own.for_each(|holder| *holder = None);
            }
        }
    }

    pub use userswap::internals::mapping;
}
