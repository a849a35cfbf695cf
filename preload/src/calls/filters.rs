//! Filters of system calls (seccomp) that the program puts in force: what is left undone then, and whether an engine could live with one.
use super::reading::Reader;
use super::signals::is_by_signal;
use crate::abi::filter_program::{self, Answer, Data, INSTRUCTIONS_MAX};
use crate::abi::system_call::Arguments;
use libc::{c_int, c_long, c_ulong};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The program has put one in force.
static IS_FILTERED: AtomicBool = AtomicBool::new(false);
/// One under which an engine cannot start.
static IS_ENGINE_REFUSED: AtomicBool = AtomicBool::new(false);

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

/// What becomes of an engine that has not started yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prospect {
    /// It starts when it is needed.
    Possible,
    /// It has to start before, with threads that the filter does not apply to.
    Now,
    /// There will be none.
    Refused,
}

/// One that is about to be put in force.
#[derive(Clone, Copy, Debug)]
pub struct Coming {
    whose: Whose,
    prospect: Prospect,
}

impl Coming {
    /// What an engine needs is not needed then.
    pub fn refuses_engine(&self) -> bool {
        self.prospect == Prospect::Refused
    }
}

/// What is done before one is in force, and may not be possible after it.
static BEFORE: OnceLock<fn(Reach, Prospect) -> Whose> = OnceLock::new();

/// In the constructor.
pub fn before_any(prepare: fn(Reach, Prospect) -> Whose) {
    let _ = BEFORE.set(prepare);
}

/// Whether a call that the program does not make itself can be its end.
pub fn is_filtered() -> bool {
    IS_FILTERED.load(Ordering::Relaxed)
}

/// Whether this process has to go on without an engine.
#[inline]
pub fn is_engine_refused() -> bool {
    IS_ENGINE_REFUSED.load(Ordering::Relaxed)
}

/// A call is about to be made.
pub fn prepare(number: c_long, arguments: &Arguments) -> Coming {
    let is_for_all = number == libc::SYS_seccomp
        && arguments[1] as c_ulong & libc::SECCOMP_FILTER_FLAG_TSYNC != 0;
    let reach = if is_for_all { Reach::All } else { Reach::OwnThread };
    let Some(prepare) = BEFORE.get().filter(|_| sets_one(number, arguments)) else {
        return Coming { whose: Whose::Others, prospect: Prospect::Possible };
    };
    let prospect = match refuses_engine(number, arguments) {
        false => Prospect::Possible,
        true if is_for_all || is_by_signal() || is_alone() => Prospect::Refused,
        true => Prospect::Now,
    };
    Coming { whose: prepare(reach, prospect), prospect }
}

/// The call has succeeded.
pub fn note(filter: Coming) {
    if filter.whose == Whose::Own {
        IS_FILTERED.store(true, Ordering::Relaxed);
        IS_ENGINE_REFUSED.fetch_or(filter.prospect == Prospect::Refused, Ordering::Relaxed);
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

/// Whether the process has one thread. What /proc does not tell is taken for more.
fn is_alone() -> bool {
    // A link for itself, one for its name, one for each thread.
    let links = |data: std::fs::Metadata| std::os::unix::fs::MetadataExt::nlink(&data);
    std::fs::metadata("/proc/self/task").is_ok_and(|data| links(data) == 3)
}

/// What a thread of the C library's is made with (pthread_create(3)).
const THREAD: usize = 0x3d_0f00;

/// Calls without which there is no engine, each with its first three arguments; commands of userfaultfd and of the page map from
/// linux/userfaultfd.h and linux/fs.h. What filters seldom know, or the engine does without, is not asked for.
const CALLS: [(c_long, [usize; 3]); 12] = [
    (libc::SYS_ioctl, [3, 0xc020_aa00, 0]),
    (libc::SYS_ioctl, [3, 0xc028_aa03, 0]),
    (libc::SYS_ioctl, [3, 0x8010_aa02, 0]),
    (libc::SYS_ioctl, [3, 0xc060_6610, 0]),
    (libc::SYS_mmap, [0, 4096, (libc::PROT_READ | libc::PROT_WRITE) as usize]),
    (libc::SYS_munmap, [4096, 4096, 0]),
    (libc::SYS_mprotect, [4096, 4096, (libc::PROT_READ | libc::PROT_WRITE) as usize]),
    (libc::SYS_madvise, [4096, 4096, libc::MADV_DONTNEED as usize]),
    (libc::SYS_read, [3, 4096, 8]),
    (libc::SYS_futex, [4096, libc::FUTEX_PRIVATE_FLAG as usize, 0]),
    (libc::SYS_rt_sigprocmask, [libc::SIG_SETMASK as usize, 4096, 4096]),
    (libc::SYS_clone, [THREAD, 4096, 4096]),
];
/// Those that it does without where they end with an error.
const CALLS_TO_TRY: [(c_long, [usize; 3]); 3] = [
    (libc::SYS_clone3, [4096, 88, 0]),
    (libc::SYS_io_uring_setup, [8, 4096, 0]),
    (libc::SYS_io_uring_enter, [3, 1, 1]),
];

/// Whether the engine's calls would not pass.
fn refuses_engine(number: c_long, arguments: &Arguments) -> bool {
    let is_program = match number {
        libc::SYS_seccomp => arguments[0] as u32 == libc::SECCOMP_SET_MODE_FILTER,
        _ => arguments[1] as u32 == libc::SECCOMP_MODE_FILTER,
    };
    if !is_program {
        return true;
    }
    let Some(program) = program_at(arguments[2]) else { return false };
    let answer = |(number, [a, b, c]): &(c_long, [usize; 3])| {
        let data = Data::of(*number, &[*a, *b, *c, 0, 0, 0]);
        filter_program::answer(&program, &data).unwrap_or(Answer::Trapped)
    };
    let is_made = |call| matches!(answer(call), Answer::Made | Answer::Asked);
    let is_tried = |call| answer(call) != Answer::Trapped;
    !(CALLS.iter().all(is_made) && CALLS_TO_TRY.iter().all(is_tried))
}

/// None for one that the kernel will refuse.
fn program_at(address: usize) -> Option<Vec<libc::sock_filter>> {
    let mut reader = Reader::default();
    let length = usize::from(reader.value::<u16>(address)?);
    let first = reader.value::<usize>(address.checked_add(size_of::<usize>())?)?;
    let count = (1..=INSTRUCTIONS_MAX).contains(&length).then_some(length)?;
    (0..count).map(|index| reader.entry(first, index)).collect()
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
        let coming = |whose| Coming { whose, prospect: Prospect::Refused };
        note(coming(Whose::Others));
        assert!(!is_filtered() && !is_engine_refused());
        note(coming(Whose::Own));
        assert!(is_filtered() && is_engine_refused());
    }
}
