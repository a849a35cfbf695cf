//! Waiting for other threads, by words in memory that may be missing when the kernel looks at them.
use super::arguments::{self, Arguments};
use super::held::{Held, is_needed};
use crate::abi::raw::errno;
use crate::abi::system_call::{enter, to_c};
use crate::state::process;

/// How often a wait is tried whose word has left again before the kernel looked; then it is kept.
const REPEATS_MAX: u32 = 100;

/// futex, by number.
///
/// A plain wait only reads its word, and has not begun when that is missing. It is brought in and tried again,
/// so that a thread that waits for long keeps no page. All else writes to the word, also at the end of a wait.
pub fn futex(arguments: &Arguments) -> usize {
    let [word, operation, ..] = *arguments;
    let is_concerned = process::is_managed(word) && (is_needed() || is_inherited(operation));
    let enter = || {
        let [a, b, c, d, e, f] = *arguments;
        // SAFETY: the program asks for it.
        to_c(unsafe { enter(libc::SYS_futex, a, b, c, d, e, f) })
    };
    if !is_concerned && !is_needed() {
        return enter();
    }
    if is_plain_wait(operation) {
        for _ in 0..REPEATS_MAX {
            drop(hold(arguments));
            let result = enter();
            if result != usize::MAX || errno() != libc::EFAULT {
                return result;
            }
        }
    }
    let _held = hold(arguments);
    enter()
}

fn hold(arguments: &Arguments) -> Held {
    arguments::hold(libc::SYS_futex, arguments)
}

fn command(operation: usize) -> i32 {
    operation as i32 & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME)
}

fn is_plain_wait(operation: usize) -> bool {
    matches!(command(operation), libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET)
}

/// Whether the kernel writes to the word where it cannot wait for a page: also with the right to have its faults
/// served.
fn is_inherited(operation: usize) -> bool {
    matches!(
        command(operation),
        libc::FUTEX_LOCK_PI
            | libc::FUTEX_LOCK_PI2
            | libc::FUTEX_UNLOCK_PI
            | libc::FUTEX_TRYLOCK_PI
            | libc::FUTEX_WAIT_REQUEUE_PI
            | libc::FUTEX_CMP_REQUEUE_PI
    )
}
