//! A few shared objects that a signal handler finds without locks.
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// References to up to `N` objects.
pub struct Registry<T, const N: usize> {
    entries: [AtomicPtr<T>; N],
    readers: AtomicU32,
}

impl<T, const N: usize> Default for Registry<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, const N: usize> Registry<T, N> {
    pub const fn new() -> Self {
        Self {
            entries: [const { AtomicPtr::new(std::ptr::null_mut()) }; N],
            readers: AtomicU32::new(0),
        }
    }

    /// Keeps a reference to `object`; false when there are `N` already.
    pub fn enroll(&self, object: &Arc<T>) -> bool {
        let pointer = Arc::into_raw(object.clone()).cast_mut();
        let free = self.entries.iter().any(|entry| {
            // Release pairs with the acquire in `find`.
            entry
                .compare_exchange(
                    std::ptr::null_mut(),
                    pointer,
                    Ordering::Release,
                    Ordering::Relaxed,
                )
                .is_ok()
        });
        if !free {
            // SAFETY: the pointer was made from an Arc above and given to nobody.
            drop(unsafe { Arc::from_raw(pointer) });
        }
        free
    }

    /// Lets go of `object` once no reader looks at it any more.
    pub fn strike(&self, object: &Arc<T>) {
        let pointer = Arc::as_ptr(object).cast_mut();
        for entry in &self.entries {
            let held = entry.compare_exchange(
                pointer,
                std::ptr::null_mut(),
                Ordering::SeqCst,
                Ordering::Relaxed,
            );
            if held.is_ok() {
                while self.readers.load(Ordering::SeqCst) > 0 {
                    std::thread::yield_now();
                }
                // SAFETY: this reference was made by `enroll`, and its entry is empty now.
                drop(unsafe { Arc::from_raw(pointer) });
            }
        }
    }

    /// After fork, in the child: threads that were looking at objects do not exist here.
    pub fn forget_readers(&self) {
        self.readers.store(0, Ordering::SeqCst);
    }

    /// Calls `act` with the first object that `fits`; it is kept alive meanwhile.
    pub fn find<R>(&self, fits: impl Fn(&T) -> bool, act: impl FnOnce(&T) -> R) -> Option<R> {
        // SeqCst: either `strike` sees this reader, or this reader sees the empty entry.
        self.readers.fetch_add(1, Ordering::SeqCst);
        let found = self.entries.iter().find_map(|entry| {
            // SAFETY: what is in an entry is a live Arc until `strike` has seen no readers.
            let object = unsafe { entry.load(Ordering::SeqCst).as_ref() }?;
            fits(object).then_some(object)
        });
        let result = found.map(act);
        self.readers.fetch_sub(1, Ordering::SeqCst);
        result
    }
}
