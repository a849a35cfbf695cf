//! A lock that knows which thread has it: a handler of a signal that has come in the middle of malloc forks, or ends the
//! process, without waiting for what its own thread holds.
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use userswap::internals::futex;

const FREE: u32 = 0;
/// Somebody waits, beside the number of the thread that has it.
const CONTENDED: u32 = 1 << 31;
/// Spins before sleeping: about a microsecond.
const SPINS: u32 = 60;

thread_local! {
    /// This thread's number; 0 as long as nobody has asked.
    static NUMBER: Cell<u32> = const { Cell::new(0) };
}

/// In the child of a fork, whose thread has another number.
pub fn renew() {
    NUMBER.set(0);
}

fn number() -> u32 {
    match NUMBER.get() {
        0 => {
            // SAFETY: has no conditions.
            let number = unsafe { libc::gettid() } as u32;
            NUMBER.set(number);
            number
        }
        number => number,
    }
}

/// See the top of the file.
pub struct Owned(AtomicU32);

/// Having it; dropping it gives it back.
pub struct Owner<'a>(&'a Owned);

impl Drop for Owner<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl Owned {
    /// Nobody has it.
    pub const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// Whether the calling thread has it.
    pub fn is_mine(&self) -> bool {
        // Relaxed: only this thread writes its own number.
        self.0.load(Ordering::Relaxed) & !CONTENDED == number()
    }

    /// Takes it if nobody has it.
    pub fn try_take(&self) -> Option<Owner<'_>> {
        // Acquire pairs with the release in `release`.
        let taken =
            self.0.compare_exchange(FREE, number(), Ordering::Acquire, Ordering::Relaxed).is_ok();
        taken.then_some(Owner(self))
    }

    /// Waits for it. Not to be called by the thread that has it.
    pub fn take(&self) -> Owner<'_> {
        for _ in 0..SPINS {
            if let Some(owner) = self.try_take() {
                return owner;
            }
            std::hint::spin_loop();
        }
        loop {
            let seen = self.0.load(Ordering::Relaxed);
            // Who has slept does not know whether others do.
            let next = if seen == FREE { number() | CONTENDED } else { seen | CONTENDED };
            let swapped =
                self.0.compare_exchange(seen, next, Ordering::Acquire, Ordering::Relaxed).is_ok();
            match (swapped, seen) {
                (true, FREE) => return Owner(self),
                (true, _) => futex::wait(&self.0, next),
                (false, _) => {}
            }
        }
    }

    /// Gives it back: by who has it, or in the child of a fork that was made with it.
    pub fn release(&self) {
        if self.0.swap(FREE, Ordering::Release) & CONTENDED != 0 {
            futex::wake_one(&self.0);
        }
    }
}
