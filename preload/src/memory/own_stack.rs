//! A stack of ours for what is done to memory, where the program's own is managed: that of a coroutine, a fiber, or a thread
//! that brings one.
//!
//! Parts of it that were not used for a while may have left. A call that met one of these while it holds a lock which serving the
//! fault takes, too, would wait for itself.
use crate::calls::{signal_stacks, signals};
use crate::state::process;
use userswap::internals::own_stack::Shared;
use userswap::internals::signal::Blocked;

/// Who has one holds no lock before, and waits for no other.
static STACKS: Shared = Shared::new();

/// Before an engine starts.
pub fn provide() {
    STACKS.provide();
}

/// In a forked child.
pub fn renew() {
    STACKS.renew();
}

/// Does `work` on a stack that is never managed. It must not panic, nor leave in any other way.
pub fn on_own_stack<R>(work: impl FnOnce() -> R) -> R {
    let here = 0u8;
    let address = (&raw const here).addr();
    let is_managed = process::current()
        .is_some_and(|process| process.arena.contains(address) && process.engine().is_some());
    // From elsewhere a fault by signal would begin at the end of a signal stack that is in use; that stays in RAM.
    if !is_managed || signals::is_by_signal() && signal_stacks::is_in_use() {
        return work();
    }
    // A handler of the program's would run there, too, and may leave by a jump.
    let _blocked = Blocked::new();
    STACKS.call(work)
}
