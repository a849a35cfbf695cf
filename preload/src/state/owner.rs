//! The process that this memory belongs to: a child that shares it (vfork, CLONE_VM) is another, and leaves what is its parent's.
use super::own_threads;
use super::process::GlibcHeap;
use libc::c_int;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;
use userswap::internals::own_table;

static OWNER: AtomicU32 = AtomicU32::new(0);

/// This one, from here on: at its start, and in the child of a fork.
pub fn renew() {
    OWNER.store(std::process::id(), Ordering::Release);
}

/// Whether it is this one.
pub fn is_here() -> bool {
    std::process::id() == OWNER.load(Ordering::Acquire)
}

/// Whether it is the one in a word, without a call.
pub fn is(process: &AtomicU32) -> bool {
    process.load(Ordering::Acquire) == OWNER.load(Ordering::Acquire)
}

/// Threads are looked at so often, as one of ours that has just been made has the program's name for a moment.
const LOOKS: u32 = 6;
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// The flags of a call without `unshares`, which asks for a descriptor table of this thread's own, where the program has no
/// other thread: that would only be one without our threads, whose later descriptors faults by signal want. Where it has,
/// those are borrowed from now on.
pub fn with_our_table(flags: c_int, unshares: c_int) -> c_int {
    if flags & unshares == 0 {
        return flags;
    }
    if has_one_thread() {
        return flags & !unshares;
    }
    // A child that shares this memory has a table of its own already.
    if is_here() {
        own_table::may_be_several();
    }
    flags
}

/// Whether it is this one, in which the program has no thread but this one.
fn has_one_thread() -> bool {
    // First: a child that shares this memory and is killed would leave the route as it is.
    if !is_here() {
        return false;
    }
    (0..LOOKS).any(|look| {
        if look > 0 {
            thread::sleep(BETWEEN_LOOKS);
        }
        let _route = GlibcHeap::new();
        let number = own_threads::by_names();
        // None where they cannot be counted; one that is coming may be the program's.
        number.all > 0 && number.all <= number.ours + 1
    })
}
