//! Filters of system calls (seccomp) that the program puts in force: what they permit is not known, so what can be left undone is.
use crate::abi::system_call::Arguments;
use libc::{c_int, c_long};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The program has put one in force.
static IS_FILTERED: AtomicBool = AtomicBool::new(false);

/// What is done before one is in force, and may not be possible after it.
static BEFORE: OnceLock<fn()> = OnceLock::new();

/// In the constructor.
pub fn before_any(prepare: fn()) {
    let _ = BEFORE.set(prepare);
}

/// Whether a call that the program does not make itself can be its end.
pub fn is_filtered() -> bool {
    IS_FILTERED.load(Ordering::Relaxed)
}

/// A call is about to be made.
pub fn prepare(number: c_long, arguments: &Arguments) {
    if let (true, Some(prepare)) = (sets_one(number, arguments), BEFORE.get()) {
        prepare();
    }
}

/// A call has succeeded.
pub fn note(number: c_long, arguments: &Arguments) {
    if sets_one(number, arguments) {
        IS_FILTERED.store(true, Ordering::Relaxed);
    }
}

fn sets_one(number: c_long, arguments: &Arguments) -> bool {
    match number {
        libc::SYS_prctl => arguments[0] as c_int == libc::PR_SET_SECCOMP,
        libc::SYS_seccomp => matches!(
            arguments[0] as u32,
            libc::SECCOMP_SET_MODE_STRICT | libc::SECCOMP_SET_MODE_FILTER
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_that_are_set_are_noted_and_questions_are_not() {
        let of = |operation: usize| [operation, 0, 0, 0, 0, 0];
        note(libc::SYS_prctl, &of(libc::PR_SET_NO_NEW_PRIVS as usize));
        note(libc::SYS_seccomp, &of(libc::SECCOMP_GET_ACTION_AVAIL as usize));
        note(libc::SYS_read, &of(libc::PR_SET_SECCOMP as usize));
        assert!(!is_filtered());
        note(libc::SYS_prctl, &of(libc::PR_SET_SECCOMP as usize));
        assert!(is_filtered());
    }
}
