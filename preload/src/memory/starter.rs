//! The thread that starts the engine where the program brings an allocator of its own.
//!
//! Such an allocator calls mmap with its locks held, so nothing that allocates may happen there: not even a
//! thread can be made, as the C library takes a thread's table of locals from the program's malloc. One
//! thread is made beforehand, with the process; mmap only tells it. It makes what an engine needs without any
//! lock of ours, and takes the arena over with the native phase held, where it allocates nothing. Until then,
//! some milliseconds, the program can be over its budget.
use super::{engagement, guard, relocated};
use crate::abi::{allocator, raw};
use crate::calls::filters;
use crate::state::own_threads;
use crate::state::process::{self, Phase};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use userswap::internals::futex;
use userswap::internals::signal::Blocked;

static WANTED: AtomicU32 = AtomicU32::new(0);

/// As std's own default, which would be looked up in the environment.
const STACK_BYTES: usize = 2 << 20;

/// Threads whose stacks are left to the C library's cache: an engine's, and some clients'.
const SPARE_STACKS: usize = 11;

/// In the constructor: an engine's threads shall find stacks, each with its table of thread-locals, in the C
/// library's cache. A program with one thread may have an allocator that is not made for two, so that making
/// threads beside it is no option; one with more can have used the stacks up, and its allocator is made for that.
pub fn leave_stacks() {
    if !allocator::is_foreign() {
        return;
    }
    let _blocked = Blocked::new();
    let together = Barrier::new(SPARE_STACKS);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..SPARE_STACKS)
            .map(|_| {
                let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
                thread
                    .spawn_scoped(scope, || together.wait())
                    .unwrap_or_else(|error| refuse(&error))
            })
            .collect();
        // The end of the scope would not wait for their stacks.
        threads.into_iter().for_each(|thread| drop(thread.join()));
    });
}

/// In the constructor, and in the child of a fork: makes the thread, if it will be needed.
pub fn start() {
    let Some(process) = process::current() else { return };
    if !allocator::is_foreign() || engagement::is_decided(process) {
        return;
    }
    WANTED.store(0, Ordering::Relaxed);
    // The thread inherits it.
    let _blocked = Blocked::new();
    if let Err(error) = own_threads::spawn("userswap-start", STACK_BYTES, run) {
        refuse(&error);
    }
}

fn refuse(error: &std::io::Error) -> ! {
    raw::say(&format!("no thread for starting the engine: {error}"));
    raw::exit_now(1)
}

/// The budget is passed.
pub fn wake() {
    if WANTED.swap(1, Ordering::Release) == 0 {
        futex::wake_one(&WANTED);
        let member = process::current().and_then(|process| process.member.as_ref());
        member.into_iter().for_each(|member| member.wake());
    }
}

/// Has the engine started, and waits until it is. No lock of an allocator's may be held.
pub fn engage() {
    let Some(process) = process::current() else { return };
    wake();
    while !engagement::is_decided(process) {
        userswap::internals::process::yield_now();
    }
}

fn run() {
    let Some(process) = process::current() else { return };
    let is_wanted = || WANTED.load(Ordering::Acquire) != 0 || own_threads::are_leaving();
    match process.member {
        Some(_) => guard::wait(process, is_wanted),
        None => {
            while !is_wanted() {
                futex::wait(&WANTED, 0);
            }
        }
    }
    if filters::is_engine_refused() || own_threads::are_leaving() {
        return;
    }
    let prepared = engagement::prepare(process);
    if let Phase::Native(_held) = process.phase() {
        engagement::take_over(process, prepared);
    }
    relocated::run();
}
