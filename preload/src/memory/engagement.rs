//! Engaging late: the engine is started when what the program can have filled passes the budget.
//!
//! What it needs rights for is gathered before that if the process is about to give rights up. A child of such
//! a process could not gather it again, so it inherits an engine: a fork after that engages.
use super::{guard, locking, own_stack, relocated, starter, unmanaged};
use crate::abi::allocator;
use crate::abi::raw::{self, Span};
use crate::calls::{descriptors, filters, held, in_flight, kept_stacks, lending, libc_memory};
use crate::state::notices;
use crate::state::owner;
use crate::state::process::{GlibcHeap, Phase, Process};
use std::sync::atomic::{AtomicBool, Ordering};
use userswap::Engine;
use userswap::internals::PAGE_BYTES;
use userswap::internals::process::anonymous_bytes;
use userswap::internals::signal::Blocked;
use userswap::internals::{Gathered, Prepared};

/// Starts the engine if the budget is passed. No lock of ours may be held.
#[inline]
pub fn engage_if_needed(process: &Process) {
    if process.engine().is_none() {
        engage_if_over(process);
    }
}

fn engage_if_over(process: &Process) {
    if filters::is_engine_refused() {
        return tell_of_filter(process);
    }
    let blocked = Blocked::new();
    if fits(process) {
        guard::start_if_not_alone(process);
    } else {
        match allocator::is_foreign() {
            true => starter::wake(),
            false => engage(process),
        }
    }
    drop(blocked);
}

/// Tells this matter from others in what the job has told.
const MATTER: u64 = 7;

/// Once the program has outgrown its budget.
#[cold]
fn tell_of_filter(process: &Process) {
    if IS_TOLD.load(Ordering::Relaxed) || fits(process) || IS_TOLD.swap(true, Ordering::Relaxed) {
        return;
    }
    let name = unmanaged::program_name();
    let line = format_args!(
        "{}: a filter of system calls (seccomp), which it has put in force, refuses what an engine needs: it runs outside the \
         budget; leave it RAM, or run it without its sandbox",
        name.to_str().unwrap_or("a program"),
    );
    notices::tell_once(MATTER, name.to_bytes(), line);
}

static IS_TOLD: AtomicBool = AtomicBool::new(false);

/// Whether there is an engine, or will be none.
pub fn is_decided(process: &Process) -> bool {
    process.engine().is_some() || filters::is_engine_refused()
}

/// Before a call by which the process can lose what an engine needs. What cannot be had already is asked for
/// again when the engine starts, which says so then.
pub fn gather(process: &Process) {
    if is_decided(process) {
        return;
    }
    if allocator::is_foreign() {
        return starter::engage();
    }
    let errno = raw::errno();
    let _blocked = Blocked::new();
    let _route = GlibcHeap::new();
    if let Phase::Native(_held) = process.phase() {
        let mut gathered = process.gathered.lock();
        if !gathered.as_ref().is_some_and(Gathered::is_of_this_process) {
            let _raised = descriptors::Raised::new();
            let gather = || Engine::gather(process.arena.clone(), &process.options).ok();
            *gathered = own_stack::on_large_stack(gather);
        }
    }
    raw::set_errno(errno);
}

/// Before fork: the child of a process that has given rights up finds an engine.
pub fn engage_if_gathered(process: &Process) {
    let _blocked = Blocked::new();
    // What a child has of its parent's is none of its own.
    let is_gathered = || process.gathered.lock().as_ref().is_some_and(Gathered::is_of_this_process);
    // A child of vfork would start its parent's threads as its own.
    if owner::is_here() && !is_decided(process) && is_gathered() && can_make_threads() {
        engage(process);
    }
}

/// Whether the kernel makes this process threads: not once its children are to have another PID namespace, or clock. Those
/// gather by themselves what they need.
pub fn can_make_threads() -> bool {
    let namespace = |name: &str| std::fs::read_link(format!("/proc/thread-self/ns/{name}")).ok();
    // Before the first child the other has no name.
    let is_same = |name: &str| {
        let own = namespace(name);
        own.is_none() || namespace(&format!("{name}_for_children")) == own
    };
    is_same("pid") && is_same("time")
}

/// Whether the budget has room for what the program can have filled; if so the job's other members do not get it.
fn fits(process: &Process) -> bool {
    match &process.member {
        None => process.accessible_pages() * PAGE_BYTES as u64 <= process.options.ram_bytes,
        Some(member) if member.holds(pages_of(process)) => true,
        Some(member) => {
            // A filter may end a process that opens files.
            if !filters::is_filtered() {
                look_at_heap(process);
            }
            member.covers(pages_of(process))
        }
    }
}

/// A heap of so many pages at most is looked at: 4 MiB.
const LOOKED_AT_PAGES: u64 = 1024;
/// Of a small one so many pages count in any case, and a part more than is filled: it fills up without telling.
const COUNTED_PAGES: u64 = 64;
const COUNTED_PART: u64 = 16;

/// Finds out how much of a small heap is not filled: each size of blocks has 64 KiB of its own, most of which a shell never
/// uses, and a job can have dozens of shells.
fn look_at_heap(process: &Process) {
    let heap = process.heap_pages.load(Ordering::Relaxed);
    let filled = match heap {
        COUNTED_PAGES..=LOOKED_AT_PAGES => anonymous_bytes().map(|bytes| bytes / PAGE_BYTES as u64),
        _ => None,
    };
    let counted = filled.map_or(heap, |filled| filled + COUNTED_PAGES + heap / COUNTED_PART);
    process.untouched_pages.store(heap.saturating_sub(counted), Ordering::Relaxed);
}

/// Lets the job have what the program has given back; signals are blocked.
pub fn settle(process: &Process) {
    if let (Some(member), None) = (&process.member, process.engine()) {
        member.settle(|| pages_of(process));
    }
}

/// Pages that the program can have filled, as far as the job counts them.
pub fn pages_of(process: &Process) -> u32 {
    let untouched = process.untouched_pages.load(Ordering::Relaxed);
    u32::try_from(process.accessible_pages().saturating_sub(untouched)).unwrap_or(u32::MAX)
}

/// The one time this happens in a process; signals are blocked.
#[cold]
pub fn engage(process: &Process) {
    let errno = raw::errno();
    own_stack::on_large_stack(|| {
        let _route = GlibcHeap::new();
        match process.phase() {
            Phase::Native(_held) => take_over(process, prepare(process)),
            Phase::Engaged(_) => return,
        }
        relocated::start();
    });
    raw::set_errno(errno);
}

/// Makes the engine. Where the program brings an allocator, no lock of ours may be held.
pub fn prepare(process: &Process) -> Prepared {
    let _raised = descriptors::Raised::new();
    let gathered = process.gathered.lock().take().filter(Gathered::is_of_this_process);
    let gathered = gathered
        .map_or_else(|| Engine::gather(process.arena.clone(), &process.options), Ok)
        .unwrap_or_else(|error| give_up(&error));
    let engine = Engine::prepare(gathered, &process.options, process.member.clone());
    engine.unwrap_or_else(|error| give_up(&error))
}

/// Gives the engine the arena; the native phase is held, and nothing here calls the program's malloc.
pub fn take_over(process: &Process, engine: Prepared) {
    // Locked pages cannot move between the arena and the frames.
    let locked = locking::suspend(process);
    held::prepare(process, engine.core());
    let notes = held::noted(process);
    lending::prepare(engine.core());
    // What there must be room for comes first.
    let mut kept = [libc_memory::kept(process), kept_stacks::kept(process)].concat();
    let unnoted = kept.clone();
    kept.extend(notes.iter().map(|(_, range)| *range).chain(locked.iter().copied()));
    let can_fill = |range| held::readable_pages(process, process.span_of(range)).is_some();
    own_stack::provide();
    let engaged = engine.engage(&kept, can_fill);
    let (engine, left_out) = engaged.unwrap_or_else(|error| give_up(&error));
    let mut left_out = left_out.into_iter();
    for (range, but) in unnoted.into_iter().zip(left_out.by_ref()) {
        if but.is_none() {
            kept_stacks::forget_unpinned(range);
        }
    }
    for ((note, range), but) in notes.into_iter().zip(left_out.by_ref()) {
        if but.is_some() {
            in_flight::hand_over(&engine, note, range);
        }
    }
    for (range, but) in locked.into_iter().zip(left_out) {
        locking::resume(process, range, but);
    }
    process.set_engine(engine);
}

fn give_up(error: &userswap::Error) -> ! {
    raw::say(&format!("the program needs more than its budget and cannot be served: {error}"));
    raw::exit_now(1)
}

/// Makes memory that was mapped anew inside the arena the engine's.
pub fn join(engine: &Engine, span: Span) {
    // Kernels without transparent huge pages refuse the first.
    let _ = raw::advise(span, libc::MADV_NOHUGEPAGE);
    let _ = raw::advise(span, libc::MADV_DONTFORK);
    if let Err(error) = engine.core().uffd.register(span.address, span.bytes) {
        raw::say(&format!("cannot register memory again: {error}"));
        raw::exit_now(1);
    }
}
