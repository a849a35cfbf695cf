//! A process that confines itself by a filter of system calls (seccomp) still ends as it should.
//!
//! Its threads may make next to no calls then, and each other one can be its end. What is left to do at the end is done by a
//! thread that was there before the filter, to which it does not apply; it is asked by a word in memory, as waking it would take a call.
use super::last_thread::{BETWEEN_LOOKS, STACK_BYTES, TASKS, is_any_left};
use super::stats;
use crate::abi::raw;
use crate::calls::filters;
use crate::state::process::{self, Process};
use libc::c_int;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use userswap::internals::signal::Blocked;

/// The process that such a thread watches.
static WATCHED: AtomicU32 = AtomicU32::new(0);

/// How often the statistics were asked for, and how often they have been written since.
static ASKED: AtomicU32 = AtomicU32::new(0);
static ANSWERED: AtomicU32 = AtomicU32::new(0);

/// A thread has ended with this status, and [`ENDED`] added to it.
static STATUS: AtomicU64 = AtomicU64::new(0);
const ENDED: u64 = 1 << 32;

/// For so long an end waits for its statistics.
const PATIENCE: Duration = Duration::from_secs(1);

/// In the constructor.
pub fn start() {
    filters::before_any(prepare);
}

/// Before a filter: where there is an engine, with threads of its own, there may be one more. Else the statistics are what they will be.
fn prepare() {
    let Some(process) = process::current() else { return };
    if process.engine().is_none() {
        return stats::write_beforehand();
    }
    let this = std::process::id();
    if !stats::is_owner() || WATCHED.swap(this, Ordering::AcqRel) == this {
        return;
    }
    STATUS.store(0, Ordering::Relaxed);
    ANSWERED.store(ASKED.load(Ordering::Relaxed), Ordering::Relaxed);
    let watcher = std::thread::Builder::new().name("userswap-last".into());
    if let Err(error) = watcher.stack_size(STACK_BYTES).spawn(watch) {
        WATCHED.store(0, Ordering::Release);
        raw::say(&format!("the process may not end with its last thread: {error}"));
    }
}

/// Under a filter: a thread ends by the kernel's call for it, which may be the program's last.
pub fn thread_ends(status: c_int) {
    STATUS.store(ENDED | u64::from(status as u32), Ordering::Release);
}

/// Under a filter: the process ends, or a child that shares its memory (vfork), which nothing here can tell.
pub fn process_ends() {
    if process::current().and_then(Process::engine).is_none() || !stats::is_watched(&WATCHED) {
        return;
    }
    let asked = ASKED.fetch_add(1, Ordering::AcqRel) + 1;
    let until = Instant::now() + PATIENCE;
    while ANSWERED.load(Ordering::Acquire) < asked && Instant::now() < until {
        std::hint::spin_loop();
    }
}

fn watch() {
    let _blocked = Blocked::new();
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
    let main = Path::new(TASKS).join(std::process::id().to_string()).join("stat");
    // After the name, which may have any characters.
    fs::read_to_string(main)
        .is_ok_and(|text| text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z')))
}
