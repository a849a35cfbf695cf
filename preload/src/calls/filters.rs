//! Filters of system calls (seccomp) that the program puts in force: what they permit is not known, so what can be left undone is.
use crate::abi::system_call::Arguments;
use libc::{c_int, c_long, c_ulong};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The program has put one in force.
static IS_FILTERED: AtomicBool = AtomicBool::new(false);

/// Which threads one applies to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// That which asks for it, and those that it makes.
    OwnThread,
    /// All that are there, ours too.
    All,
}

/// Whose one is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whose {
    /// This process's.
    Own,
    /// A child's that shares its memory (vfork), or nobody's: the call is another.
    Others,
}

/// What is done before one is in force, and may not be possible after it.
static BEFORE: OnceLock<fn(Reach) -> Whose> = OnceLock::new();

/// In the constructor.
pub fn before_any(prepare: fn(Reach) -> Whose) {
    let _ = BEFORE.set(prepare);
}

/// Whether a call that the program does not make itself can be its end.
pub fn is_filtered() -> bool {
    IS_FILTERED.load(Ordering::Relaxed)
}

/// A call is about to be made.
pub fn prepare(number: c_long, arguments: &Arguments) -> Whose {
    let is_for_all = number == libc::SYS_seccomp
        && arguments[1] as c_ulong & libc::SECCOMP_FILTER_FLAG_TSYNC != 0;
    let reach = if is_for_all { Reach::All } else { Reach::OwnThread };
    match BEFORE.get() {
        Some(prepare) if sets_one(number, arguments) => prepare(reach),
        _ => Whose::Others,
    }
}

/// The call has succeeded.
pub fn note(whose: Whose) {
    if whose == Whose::Own {
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
    fn filters_that_are_set_are_told_from_questions_and_from_a_childs() {
        let of = |operation: usize| [operation, 0, 0, 0, 0, 0];
        assert!(!sets_one(libc::SYS_prctl, &of(libc::PR_SET_NO_NEW_PRIVS as usize)));
        assert!(!sets_one(libc::SYS_seccomp, &of(libc::SECCOMP_GET_ACTION_AVAIL as usize)));
        assert!(!sets_one(libc::SYS_read, &of(libc::PR_SET_SECCOMP as usize)));
        assert!(sets_one(libc::SYS_prctl, &of(libc::PR_SET_SECCOMP as usize)));
        note(Whose::Others);
        assert!(!is_filtered());
        note(Whose::Own);
        assert!(is_filtered());
    }
}
