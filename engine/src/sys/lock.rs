//! A mutex that is safe in a signal handler: no allocation, no thread-locals, no poisoning.
//!
//! Spins for a moment, then sleeps on a futex. A program's thread takes it with signals blocked (see
//! `signal::Blocked`), so a handler cannot meet a lock that its own thread holds.
use super::{clock, futex};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// Spins before sleeping: about a microsecond, what a short critical section here takes.
const SPINS: u32 = 60;

/// Data inside the lock that guards it.
// The data first: what it begins with lies on another cache line than the state, at which waiting threads look
// all the time.
#[repr(C)]
pub struct Lock<T> {
    data: UnsafeCell<T>,
    state: AtomicU32,
    contended: AtomicU64,
    waited_ns: AtomicU64,
}

// SAFETY: the guard gives out the data to one thread at a time.
unsafe impl<T: Send> Sync for Lock<T> {}
// SAFETY: owning the lock is owning the data.
unsafe impl<T: Send> Send for Lock<T> {}

/// Access to the data until dropped.
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
}

/// How often a lock was taken for some purpose, and how often that meant waiting.
#[derive(Debug, Default)]
pub struct LockUse {
    /// Times it was taken.
    pub acquisitions: AtomicU64,
    /// Times another thread had it.
    pub waits: AtomicU64,
}

/// A [`LockUse`] as it was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockCounts {
    /// Times the lock was taken.
    pub acquisitions: u64,
    /// Times another thread had it.
    pub waits: u64,
}

impl LockUse {
    /// Each number is exact; together they are no snapshot of one instant.
    pub fn read(&self) -> LockCounts {
        LockCounts {
            acquisitions: self.acquisitions.load(Ordering::Relaxed),
            waits: self.waits.load(Ordering::Relaxed),
        }
    }
}

impl<T> Lock<T> {
    /// A free lock around `data`.
    pub const fn new(data: T) -> Self {
        Self {
            state: AtomicU32::new(FREE),
            contended: AtomicU64::new(0),
            waited_ns: AtomicU64::new(0),
            data: UnsafeCell::new(data),
        }
    }

    /// Waits for the lock; taken by its own thread already, it is waited for without end.
    pub fn lock(&self) -> Guard<'_, T> {
        if !self.try_take() {
            self.lock_slowly();
        }
        Guard { lock: self }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.try_take().then(|| Guard { lock: self })
    }

    /// Waits for the lock, and counts in `used` that it was taken and whether that meant waiting.
    pub fn lock_counted(&self, used: &LockUse) -> Guard<'_, T> {
        used.acquisitions.fetch_add(1, Ordering::Relaxed);
        self.try_lock().unwrap_or_else(|| {
            used.waits.fetch_add(1, Ordering::Relaxed);
            self.lock()
        })
    }

    /// Takes the lock without a guard, to be given back by [`Lock::release`]: it is held across fork.
    pub fn hold(&self) {
        std::mem::forget(self.lock());
    }

    /// Gives back what [`Lock::hold`] took, in the parent and in the child.
    pub fn release(&self) {
        drop(Guard { lock: self });
    }

    /// How often a thread had to wait since the start.
    pub fn contended(&self) -> u64 {
        self.contended.load(Ordering::Relaxed)
    }

    /// Nanoseconds that threads have waited since the start, all together.
    pub fn waited_ns(&self) -> u64 {
        self.waited_ns.load(Ordering::Relaxed)
    }

    fn try_take(&self) -> bool {
        // Acquire pairs with the release in `drop`: the data of the last holder is visible.
        self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn lock_slowly(&self) {
        let begin = clock::now_ns();
        self.take_slowly();
        self.contended.fetch_add(1, Ordering::Relaxed);
        self.waited_ns.fetch_add(clock::now_ns() - begin, Ordering::Relaxed);
    }

    fn take_slowly(&self) {
        for _ in 0..SPINS {
            if self.state.load(Ordering::Relaxed) == FREE && self.try_take() {
                return;
            }
            std::hint::spin_loop();
        }
        // From here on the lock is taken as contended, so that its release wakes the next sleeper.
        while self.state.swap(CONTENDED, Ordering::Acquire) != FREE {
            futex::wait(&self.state, CONTENDED);
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so this thread holds the lock.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard exists, so this thread holds the lock.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        // Release pairs with the acquire of the next holder.
        if self.lock.state.swap(FREE, Ordering::Release) == CONTENDED {
            futex::wake_one(&self.lock.state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn increments_of_many_threads_are_all_seen() {
        let lock = Lock::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        *lock.lock() += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), 80_000);
        assert_eq!(lock.contended() == 0, lock.waited_ns() == 0);
    }
}
