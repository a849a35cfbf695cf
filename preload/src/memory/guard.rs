//! The thread that starts the engine of an idle process whose job is short of pages.
//!
//! A process without an engine cannot give pages back. Where it has more than an engine would need, and is not alone in
//! its job, a thread sleeps in it until others ask, and starts the engine if it should have less than it has. The child of
//! a fork makes its parent's pages its own by writing, unseen: there the thread looks at the kernel's count.
use super::engagement;
use crate::abi::{allocator, raw};
use crate::calls::filters;
use crate::state::own_threads;
use crate::state::process::{self, Process};
use std::sync::atomic::{AtomicBool, Ordering};
use userswap::internals::anonymous_pages;
use userswap::internals::signal::Blocked;

/// Between two looks at what a child has made its own, unless it may be much.
const LOOK_NS: u64 = 50_000_000;
/// Otherwise it is woken by those that want pages; this is for the budget of a job that has been made smaller.
const LOOK_NS_MAX: u64 = 1_600_000_000;
/// What the engine's start needs.
const STACK_BYTES: usize = 2 << 20;

static RUNS: AtomicBool = AtomicBool::new(false);

/// Starts the thread where others can be short of what this process has.
pub fn start_if_not_alone(process: &Process) {
    if process.member.as_ref().is_some_and(|member| !member.is_alone()) {
        start_if_large(process);
    }
}

/// Starts the thread where this process has more than an engine would need: it is not alone, or soon will not be.
pub fn start_if_large(process: &Process) {
    // An allocator that the program brings has the starter do this: no thread can be made under its locks.
    if RUNS.load(Ordering::Relaxed) || engagement::is_decided(process) || allocator::is_foreign() {
        return;
    }
    let is_large = process.member.as_ref().is_some_and(|member| member.is_large());
    if is_large && !RUNS.swap(true, Ordering::Relaxed) {
        start();
    }
}

/// In the child of a fork, which has its parent's threads no more, or after the thread was made to end.
pub fn renew(process: &Process) {
    RUNS.store(false, Ordering::Relaxed);
    start_if_large(process);
}

fn start() {
    // The thread inherits it.
    let _blocked = Blocked::new();
    if let Err(error) = own_threads::spawn("userswap-guard", STACK_BYTES, run) {
        raw::say(&format!("no thread for giving memory to the job's others: {error}"));
    }
}

fn run() {
    let Some(process) = process::current() else { return };
    wait(process, || process.engine().is_some() || own_threads::are_leaving());
    if !filters::is_engine_refused() && !own_threads::are_leaving() {
        engagement::engage(process);
    }
}

/// Returns when the process needs an engine, or as soon as it is told to look and `ends` says so.
pub fn wait(process: &Process, ends: impl Fn() -> bool) {
    let Some(member) = &process.member else { return };
    loop {
        // A filter of the program's may apply here, too.
        if filters::is_engine_refused() {
            return;
        }
        let asked = member.asked();
        let pages = engagement::pages_of(process);
        let own = match member.inherited() {
            0 => pages,
            _ => anonymous_pages().unwrap_or(u32::MAX),
        };
        if ends() || member.must_give_way(pages, own) {
            return;
        }
        member.rest(asked, if member.inherited() > 0 { LOOK_NS } else { LOOK_NS_MAX });
    }
}
