//! mimalloc's locks are free across fork: a gate in front of all of them, which fork closes.
//!
//! A child has only the thread that forked; a lock that another thread held would stay held for ever. mimalloc
//! cares for none of its locks and does not export them, but it takes them all by pthread_mutex_lock, which
//! this library's own code finds here (build.rs). They are taken on slow paths only.
use crate::abi::symbols::symbol_functions;
use libc::{c_int, pthread_mutex_t};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use userswap::internals::futex;

symbol_functions! { Libc:
    fn pthread_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int = c"pthread_mutex_lock";
    fn pthread_mutex_unlock(mutex: *mut pthread_mutex_t) -> c_int = c"pthread_mutex_unlock";
}

/// Set while a fork is under way.
const CLOSED: u32 = 1 << 31;

/// How many threads hold such locks, or wait for one, and whether the gate is closed.
static INSIDE: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// How many such locks this thread holds, or waits for.
    static HELD: Cell<u32> = const { Cell::new(0) };
}

fn enter() {
    loop {
        let seen = INSIDE.load(Ordering::Relaxed);
        if seen & CLOSED != 0 {
            futex::wait(&INSIDE, seen);
            continue;
        }
        // Acquire pairs with the release in `open`.
        let entered =
            INSIDE.compare_exchange_weak(seen, seen + 1, Ordering::Acquire, Ordering::Relaxed);
        if entered.is_ok() {
            return;
        }
    }
}

fn leave() {
    // Release pairs with the acquire in `close`.
    if INSIDE.fetch_sub(1, Ordering::Release) & CLOSED != 0 {
        futex::wake_all(&INSIDE);
    }
}

/// Whether this thread holds one: a signal handler forks in the middle of malloc.
fn held_here() -> u32 {
    HELD.with(|held| u32::from(held.get() > 0))
}

/// Before fork: no other thread holds a lock from here on. Only one fork does this at a time.
pub fn close() {
    let quiet = CLOSED | held_here();
    let mut seen = INSIDE.fetch_or(CLOSED, Ordering::Acquire) | CLOSED;
    while seen != quiet {
        futex::wait(&INSIDE, seen);
        seen = INSIDE.load(Ordering::Acquire);
    }
}

/// After fork, in the parent and in the child.
pub fn open() {
    INSIDE.fetch_and(!CLOSED, Ordering::Release);
    futex::wake_all(&INSIDE);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_pthread_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int {
    HELD.with(|held| {
        if held.get() == 0 {
            enter();
        }
        held.set(held.get() + 1);
    });
    // SAFETY: the caller's promise.
    unsafe { pthread_mutex_lock(mutex) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_pthread_mutex_unlock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's promise.
    let error = unsafe { pthread_mutex_unlock(mutex) };
    HELD.with(|held| {
        held.set(held.get() - 1);
        if held.get() == 0 {
            leave();
        }
    });
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::UnsafeCell;
    use std::sync::atomic::AtomicBool;

    struct Mutex(UnsafeCell<pthread_mutex_t>);

    // SAFETY: only passed to the functions that lock it.
    unsafe impl Sync for Mutex {}

    #[test]
    fn a_fork_waits_for_held_locks_and_new_ones_wait_for_the_fork() {
        let new = || Mutex(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
        let (outer, inner, other) = (new(), new(), new());
        // SAFETY: the mutexes live to the end of this test.
        let lock = |mutex: &Mutex| unsafe { __wrap_pthread_mutex_lock(mutex.0.get()) };
        // SAFETY: as above; only what is locked is unlocked.
        let unlock = |mutex: &Mutex| unsafe { __wrap_pthread_mutex_unlock(mutex.0.get()) };
        let (closed, entered) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            lock(&outer);
            let fork = scope.spawn(|| {
                close();
                closed.store(true, Ordering::SeqCst);
            });
            while INSIDE.load(Ordering::SeqCst) & CLOSED == 0 {
                std::hint::spin_loop();
            }
            // What holds a lock may take another, or it would never be done.
            lock(&inner);
            unlock(&inner);
            assert!(!closed.load(Ordering::SeqCst), "the lock is still held");
            unlock(&outer);
            fork.join().unwrap();
            let late = scope.spawn(|| {
                lock(&other);
                entered.store(true, Ordering::SeqCst);
                unlock(&other);
            });
            assert_eq!(INSIDE.load(Ordering::SeqCst), CLOSED);
            assert!(!entered.load(Ordering::SeqCst), "the gate is closed");
            open();
            late.join().unwrap();
            assert_eq!(INSIDE.load(Ordering::SeqCst), 0);
        });
    }
}
