//! What the kernel permits only to a process of one thread: a user namespace of its own (unshare(2), setns(2)). The sandbox
//! of a browser tries that, in a child that has one thread natively.
//!
//! Where all other threads are ours they end, in order, and others take their places afterwards. Meanwhile this thread is on a stack of
//! ours, and touches no managed memory that is not kept in RAM, as in the child of a fork.
use super::fork;
use crate::abi::raw;
use crate::calls::{descriptors, filters, libc_memory, trap};
use crate::memory::{engagement, guard, own_stack, relocated, starter};
use crate::state::own_threads;
use crate::state::owner;
use crate::state::process::{self, GlibcHeap, Process};
use libc::c_int;
use userswap::Engine;
use userswap::internals::clock;
use userswap::internals::own_table;
use userswap::internals::signal::Blocked;

/// How long those that have ended are waited for, and between two looks.
const PATIENCE_NS: u64 = 2_000_000_000;
const LOOK_NS: u64 = 1_000_000;

/// After a call that has failed: whether it may be for other threads. A process whose children are to be in another PID
/// namespace, or have another clock, could have no threads again.
pub fn may_help(flags: c_int) -> bool {
    raw::errno() == libc::EINVAL
        && flags & libc::CLONE_NEWUSER != 0
        && flags & (libc::CLONE_NEWPID | libc::CLONE_NEWTIME) == 0
}

/// Makes the call again in a process of one thread, where all others are ours, and others like them may begin. Its status, and errno.
pub fn again(call: impl Fn() -> c_int) -> c_int {
    let made = process::current()
        .filter(|process| owner::is_here() && can_be_alone(process))
        .and_then(|process| without_others(process, || (call(), raw::errno())));
    let (status, errno) = made.unwrap_or((-1, libc::EINVAL));
    raw::set_errno(errno);
    status
}

/// Threads that begin under a filter of the program's have it, and ours may be older.
fn can_be_alone(process: &Process) -> bool {
    let _route = GlibcHeap::new();
    let number = own_threads::count();
    number.ours > 0
        && number.staying == 0
        && number.all <= number.ours + 1
        && !filters::is_filtered()
        // Ours would go on with the table that this thread has for itself.
        && !own_table::is_apart()
        && engagement::can_make_threads()
        && process.engine().is_none_or(Engine::can_be_alone)
}

fn without_others<R>(process: &Process, act: impl FnOnce() -> R) -> Option<R> {
    let _blocked = Blocked::new();
    let _route = GlibcHeap::new();
    let _raised = descriptors::Raised::new();
    // While faults are served.
    let mut pinned = libc_memory::pin(process);
    pinned.extend(fork::pin_stack(process));
    trap::pause();
    let outcome = own_stack::on_large_stack(|| replacing_ours(process, act));
    trap::resume();
    if let Some(engine) = process.engine() {
        pinned.iter().for_each(|range| engine.core().unpin_range(*range));
    }
    outcome
}

/// Ends our threads, and starts others.
fn replacing_ours<R>(process: &Process, act: impl FnOnce() -> R) -> Option<R> {
    own_threads::ask_to_leave();
    relocated::wake();
    starter::wake();
    process.member.iter().for_each(|member| member.wake());
    let act = || {
        wait_for_ends();
        // Threads get stacks that others had, as in the child of a fork.
        libc_memory::keep_blocks();
        act()
    };
    let outcome = match process.engine() {
        None => Ok(Some(act())),
        Some(engine) => engine.alone(act),
    };
    own_threads::may_come();
    match process.engine() {
        Some(_) if relocated::runs() => relocated::start(),
        Some(_) => {}
        None => {
            starter::start();
            guard::renew(process);
        }
    }
    outcome.unwrap_or_else(|error| {
        raw::say(&format!("the memory of this process cannot be served any more: {error}"));
        raw::exit_now(1)
    })
}

/// The kernel takes a thread off its list a little after it has ended.
fn wait_for_ends() {
    let until = clock::now_ns() + PATIENCE_NS;
    while own_threads::count().all > 1 && clock::now_ns() < until {
        clock::sleep_until(clock::now_ns() + LOOK_NS);
    }
}
