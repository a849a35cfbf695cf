//! Handles: numbers in the guise of pointers, each given out once, so that a stale one is known.
use crate::failure::{Failure, us_error};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use userswap::Engine;
use userswap::internals::lock::Lock;
use userswap::internals::shard::{self, SHARDS};

/// A type of handle, and what is behind it.
pub trait Handle: Sized + 'static {
    /// The type's name in C.
    const NAME: &'static str;
    /// What a handle stands for.
    type Value: Send + Sync;
    /// All that are open.
    fn open() -> &'static Open<Self>;
}

/// What an engine has given out, with the engine: a fork finds it there as long as anything of it is in use.
pub struct Part<T> {
    // First: it ends before the engine does.
    value: T,
    _engine: Arc<Engine>,
}

impl<T> Part<T> {
    /// Has `make` give a part of an engine out.
    pub fn of(
        engine: &Arc<Engine>,
        make: impl FnOnce(&Engine) -> Result<T, Failure>,
    ) -> Result<Self, Failure> {
        Ok(Self { value: make(engine)?, _engine: engine.clone() })
    }
}

impl<T> Deref for Part<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

/// The open handles of a type, once in each shard: a call looks into its thread's own. The locks are held for a look-up only, and
/// across fork; signals are not blocked, as none of this may be called by a signal handler.
pub struct Open<H: Handle> {
    shards: [Shard<H>; SHARDS],
}

/// The counter of an outer Arc is the shard's: threads that call with one handle do not take a cache line from each other.
type Shared<H> = Arc<Arc<<H as Handle>::Value>>;

/// On cache lines of its own.
#[repr(align(128))]
struct Shard<H: Handle> {
    values: Lock<BTreeMap<usize, Shared<H>>>,
}

/// No handle looks like a small number, or like an address that something else has.
static NEXT: AtomicUsize = AtomicUsize::new(0x1000);

impl<H: Handle> Open<H> {
    pub const fn new() -> Self {
        Self { shards: [const { Shard { values: Lock::new(BTreeMap::new()) } }; SHARDS] }
    }

    /// Opens a handle.
    pub fn insert(&self, value: impl Into<Arc<H::Value>>) -> *mut H {
        let number = NEXT.fetch_add(16, Ordering::Relaxed);
        let value = value.into();
        for shard in &self.shards {
            shard.values.lock().insert(number, Arc::new(value.clone()));
        }
        std::ptr::without_provenance_mut(number)
    }

    /// What a handle stands for.
    pub fn find(&self, handle: *const H) -> Result<Shared<H>, Failure> {
        let value = self.shards[shard::mine()].values.lock().get(&handle.addr()).cloned();
        value.ok_or_else(|| refusal::<H>(handle))
    }

    /// Closes a handle. What it stands for goes when no other thread is in the middle of a call with it.
    pub fn remove(&self, handle: *const H) -> Result<Arc<H::Value>, Failure> {
        let [first, others @ ..] = &self.shards;
        // Of threads that close one handle at once the first here does.
        let found = first.values.lock().remove(&handle.addr());
        let value = found.as_deref().cloned().ok_or_else(|| refusal::<H>(handle))?;
        for shard in others {
            // Not the last Arc of the value, which would be dropped under the lock.
            shard.values.lock().remove(&handle.addr());
        }
        Ok(value)
    }

    /// Everything that is open, oldest first; the locks are held until [`Open::release`].
    pub fn hold(&self) -> Vec<Arc<H::Value>> {
        let [first, others @ ..] = &self.shards;
        let values = first.values.lock();
        let all = values.values().map(|value| Arc::clone(&**value)).collect();
        std::mem::forget(values);
        others.iter().for_each(|shard| shard.values.hold());
        all
    }

    pub fn release(&self) {
        self.shards.iter().for_each(|shard| shard.values.release());
    }
}

fn refusal<H: Handle>(handle: *const H) -> Failure {
    if handle.is_null() {
        return Failure::invalid(format!(
            "the {} is NULL: was it not made? ask us_last_error() then",
            H::NAME
        ));
    }
    let line = format!("{handle:p} is no open {}: it was closed, or never opened", H::NAME);
    Failure::new(us_error::US_CLOSED, line)
}

/// Finds what a handle stands for.
pub fn find<H: Handle>(handle: *const H) -> Result<Shared<H>, Failure> {
    H::open().find(handle)
}

/// Declares a type of handle.
#[macro_export]
macro_rules! handle {
    ($name:ident, $value:ty) => {
        impl $crate::handle::Handle for $name {
            const NAME: &'static str = stringify!($name);
            type Value = $value;
            fn open() -> &'static $crate::handle::Open<Self> {
                static OPEN: $crate::handle::Open<$name> = $crate::handle::Open::new();
                &OPEN
            }
        }
    };
}
