//! A process that confines itself by a filter of system calls (seccomp) still ends as it should.
//!
//! Its threads may make next to no calls then, and each other one can be its end. What is left to do at the end is done by a
//! thread that was there before the filter, to which it does not apply; it is asked by a word in memory, as waking it would take a call.
use super::last_thread::{BETWEEN_LOOKS, STACK_BYTES, is_any_left, main_thread};
use super::{rights, stats};
use crate::abi::raw;
use crate::calls::filters::{self, Prospect, Reach, Whose};
use crate::state::notices;
use crate::state::own_threads;
use crate::state::owner;
use crate::state::process::{self, Process};
use libc::c_int;
use std::fs;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use userswap::internals::signal::Blocked;

/// The process that such a thread watches.
static WATCHED: AtomicU32 = AtomicU32::new(0);

/// How often the statistics were asked for, and how often they have been written since.
static ASKED: AtomicU32 = AtomicU32::new(0);
static ANSWERED: AtomicU32 = AtomicU32::new(0);

/// A thread has ended with this status, and [`ENDED`] added to it.
static STATUS: AtomicU64 = AtomicU64::new(0);
const ENDED: u64 = 1 << 32;

/// Looks of an end that waits for its statistics: a second or so. A clock could take a call.
const LOOKS_MAX: u32 = 20_000_000;

/// Tells this matter from others in what the job has told.
const MATTER: u64 = 6;

/// In the constructor.
pub fn start() {
    filters::before_any(prepare);
}

/// In the child of a fork, which has no such thread.
pub fn renew() {
    WATCHED.store(0, Ordering::Release);
    STATUS.store(0, Ordering::Release);
}

/// Before a filter: where there is an engine, with threads of its own, there may be one more. Else the statistics are what they will be.
fn prepare(reach: Reach, prospect: Prospect) -> Whose {
    // Also of a child that shares this memory (vfork): its faults are the filter's.
    userswap::internals::filters::expect();
    let Some(process) = process::current().filter(|_| owner::is_here()) else {
        return Whose::Others;
    };
    if prospect == Prospect::Now {
        rights::engage();
    }
    if process.engine().is_some() && reach == Reach::All {
        let line = "a filter of system calls (seccomp) applies to all threads of this program, the engine's too: if the program ends or stands still, run it without its sandbox (docs/limits.md)";
        notices::tell_once(MATTER, b"filter", format_args!("{line}"));
    }
    if process.engine().is_none() || reach == Reach::All {
        stats::write_beforehand();
        return Whose::Own;
    }
    let this = std::process::id();
    if WATCHED.swap(this, Ordering::AcqRel) == this {
        return Whose::Own;
    }
    ANSWERED.store(ASKED.load(Ordering::Relaxed), Ordering::Relaxed);
    let _blocked = Blocked::new();
    let watcher = std::thread::Builder::new().name("userswap-last".into());
    if let Err(error) = watcher.stack_size(STACK_BYTES).spawn(watch) {
        WATCHED.store(0, Ordering::Release);
        raw::say(&format!("the process may not end with its last thread: {error}"));
    }
    Whose::Own
}

/// What is to be done about an end under a filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// As usual: the engine is younger than the filter, which lets its calls pass.
    Usual,
    /// Nothing, or nothing any more.
    Done,
}

/// Under a filter: a thread ends by the kernel's call for it, or by the C library's, which may be the program's last.
pub fn thread_ends(status: c_int) -> Ending {
    if let Some(ending) = unwatched() {
        return ending;
    }
    STATUS.store(ENDED | u64::from(status as u32), Ordering::Release);
    Ending::Done
}

/// Under a filter: the process ends, or a child that shares its memory (vfork), which nothing here can tell.
pub fn process_ends() -> Ending {
    if let Some(ending) = unwatched() {
        return ending;
    }
    if process::current().is_none_or(|process| process.options.stats.is_none()) {
        return Ending::Done;
    }
    let asked = ASKED.fetch_add(1, Ordering::AcqRel) + 1;
    let is_answered = |_: &u32| ANSWERED.load(Ordering::Acquire) >= asked;
    (0..LOOKS_MAX).inspect(|_| std::hint::spin_loop()).find(is_answered);
    Ending::Done
}

/// What is done where no thread watches.
fn unwatched() -> Option<Ending> {
    match process::current().and_then(Process::engine) {
        None => Some(Ending::Done),
        Some(_) if !owner::is(&WATCHED) => Some(Ending::Usual),
        Some(_) => None,
    }
}

fn watch() {
    loop {
        let asked = ASKED.load(Ordering::Acquire);
        if ANSWERED.load(Ordering::Relaxed) != asked {
            stats::write_beforehand();
            ANSWERED.store(asked, Ordering::Release);
        }
        let status = STATUS.load(Ordering::Acquire);
        if status & ENDED != 0 && has_main_ended() && is_any_left() == Some(false) {
            stats::finish();
            raw::exit_now(status as u32 as c_int);
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
}

/// Whether the main thread, which the process outlives, is one that has ended.
fn has_main_ended() -> bool {
    let Some(main) = main_thread() else { return false };
    let main = own_threads::directory().join(main).join("stat");
    // After the name, which may have any characters.
    fs::read_to_string(main)
        .is_ok_and(|text| text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z')))
}
