//! A key of thread-specific data (pthread_key_create(3)), made once: its destructor ends what a thread has of ours.
//!
//! Not a thread-local with a destructor: that of a key runs in rounds with the program's own, and at the end of every thread.
use libc::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

/// Made by the constructor, before there is a second thread; without one, what threads have stays.
pub struct ThreadKey(AtomicU32);

impl ThreadKey {
    /// Not made yet.
    pub const fn none() -> Self {
        Self(AtomicU32::new(u32::MAX))
    }

    /// With what is called at the end of a thread that has set a value.
    pub fn make(&self, at_end: unsafe extern "C" fn(*mut c_void)) {
        let mut key = 0;
        // SAFETY: the destructor lives as long as the process.
        if unsafe { libc::pthread_key_create(&mut key, Some(at_end)) } == 0 {
            // Relaxed: there is no second thread yet.
            self.0.store(key, Ordering::Relaxed);
        }
    }

    /// Keeps a value for this thread; without the key, or memory for it, there is none.
    pub fn set(&self, value: *const c_void) {
        if let Some(key) = self.known() {
            // SAFETY: the key exists.
            unsafe { libc::pthread_setspecific(key, value) };
        }
    }

    /// This thread's value, null if it has none.
    pub fn get(&self) -> *mut c_void {
        let key = self.known();
        // SAFETY: the key exists.
        key.map_or(std::ptr::null_mut(), |key| unsafe { libc::pthread_getspecific(key) })
    }

    pub fn is_made(&self) -> bool {
        self.known().is_some()
    }

    fn known(&self) -> Option<u32> {
        let key = self.0.load(Ordering::Relaxed);
        (key != u32::MAX).then_some(key)
    }
}
