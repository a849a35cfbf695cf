//! Engaging late: the engine is started when what the program can have filled passes the budget.
use super::locking;
use crate::abi::raw::{self, Span};
use crate::calls::{descriptors, held, signal_stacks};
use crate::state::process::{GlibcHeap, Phase, Process};
use userswap::Engine;
use userswap::internals::PAGE_BYTES;
use userswap::internals::signal::Blocked;

/// Starts the engine if the budget is passed. No lock of ours may be held.
#[inline]
pub fn engage_if_needed(process: &Process) {
    if process.engine().is_none() {
        engage_if_over(process);
    }
}

fn engage_if_over(process: &Process) {
    let blocked = Blocked::new();
    let pages = process.accessible_pages();
    if pages * PAGE_BYTES as u64 > process.options.ram_bytes {
        engage(process);
    }
    drop(blocked);
}

/// The one time this happens in a process; signals are blocked.
#[cold]
fn engage(process: &Process) {
    let errno = raw::errno();
    let _route = GlibcHeap::new();
    let Phase::Native(_held) = process.phase() else { return };
    // Locked pages cannot move between the arena and the frames.
    let locked = locking::suspend(process);
    let before = descriptors::open_now();
    let engine = match Engine::engage(process.arena.clone(), &process.options) {
        Ok(engine) => engine,
        Err(error) => {
            raw::say(&format!(
                "the program needs more than its budget and cannot be served: {error}"
            ));
            raw::exit_now(1)
        }
    };
    descriptors::protect_new(&before);
    held::prepare(&engine, &process.options);
    locking::resume(process, &engine, locked);
    signal_stacks::pin(&engine);
    process.set_engine(engine);
    raw::set_errno(errno);
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
