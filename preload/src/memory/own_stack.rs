//! A stack of ours for what is done to memory, where the program's own is managed: that of a coroutine, a fiber, or a thread
//! that brings one.
//!
//! Parts of it that were not used for a while may have left. A call that met one of these while it holds a lock which serving the
//! fault takes, too, would wait for itself.
use crate::abi::raw;
use crate::calls::given_stacks::{self, Apart};
use crate::calls::signals;
use crate::state::process;
use userswap::internals::own_stack::{OwnStack, Shared};
use userswap::internals::signal::Blocked;

/// What starting an engine has, in this process or in a forked child: eight times what it was seen to take.
const LARGE_BYTES: usize = 512 << 10;

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

/// Does `work` on a stack that is never managed. It must not panic, nor leave in any other way. Of the errno that calls of ours
/// leave there the program sees nothing.
pub fn on_own_stack<R>(work: impl FnOnce() -> R) -> R {
    let errno = raw::errno();
    let done = match is_managed() && !is_bound() {
        true => {
            // A handler of the program's would run there, too, and may leave by a jump.
            let _blocked = Blocked::new();
            STACKS.call(work)
        }
        false => work(),
    };
    raw::set_errno(errno);
    done
}

/// Does `work` on a stack that starting an engine has room on: that of the thread which passes the budget, or forks, may be
/// as small as it likes. As [`on_own_stack`] otherwise; also from a signal stack.
pub fn on_large_stack<R>(work: impl FnOnce() -> R) -> R {
    let _blocked = Blocked::new();
    // What is met there begins on another signal stack: this thread's may be in use, or as small, or managed and not there.
    let apart = (signals::reserved() != 0).then(Apart::new);
    match (OwnStack::of(LARGE_BYTES), apart) {
        (Ok(mut stack), None) => stack.run(work),
        (Ok(mut stack), Some(Some(apart))) => stack.run(|| apart.with(work)),
        // There was no memory for one of them.
        _ => work(),
    }
}

/// Whether the stack of this thread may have left, in part.
fn is_managed() -> bool {
    let here = 0u8;
    let address = (&raw const here).addr();
    process::current()
        .is_some_and(|process| process.arena.contains(address) && process.engine().is_some())
}

/// Whether this thread has to stay where it is: from elsewhere a fault by signal, or a call that is caught, would begin at the end of
/// a signal stack that is in use. By signal that stays in RAM; else it must not be one that may have left, and what is done from such
/// a one makes no calls that are caught.
fn is_bound() -> bool {
    let can_be_met = signals::is_by_signal() || signals::reserved() != 0 && !is_managed();
    can_be_met && given_stacks::is_in_use()
}
