//! fork: a child has an exact copy of every pool, with an engine of its own.
//!
//! The handlers are the C library's (pthread_atfork), not Python's (os.register_at_fork): between the two calls no fault
//! is served, so nothing but fork itself may run there. Python's run far earlier, and handlers that take locks follow: one
//! that waits for a thread that faults would wait for ever. These see every fork, whoever calls it.
#![expect(unsafe_code, reason = "the C library's interface")]
use crate::pool::Pool;
use std::sync::{Arc, Weak};
use userswap::ForkTicket;
use userswap::internals::lock::Lock;
use userswap::internals::signal::Blocked;

/// All pools of the process, in the order in which they are stopped.
static POOLS: Lock<Vec<Weak<Pool>>> = Lock::new(Vec::new());

/// What is under way between `prepare` and the other two; used by the thread that forks.
struct Pass {
    stopped: Vec<(Arc<Pool>, ForkTicket)>,
    _blocked: Blocked,
}

static PASS: Lock<Option<Pass>> = Lock::new(None);

/// Registers the handlers; called once.
pub fn install() {
    // SAFETY: Python never unloads this library, so the handlers live as long as the process.
    unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) };
}

/// A pool from now on comes along into children.
pub fn enroll(pool: &Arc<Pool>) {
    let mut pools = POOLS.lock();
    pools.retain(|pool| pool.strong_count() > 0);
    pools.push(Arc::downgrade(pool));
}

unsafe extern "C" fn prepare() {
    let blocked = Blocked::new();
    let pools = POOLS.lock();
    let stopped = pools.iter().filter_map(Weak::upgrade).map(|pool| {
        pool.recent.hold();
        let ticket = pool.engine.fork_prepare();
        (pool, ticket)
    });
    let stopped = stopped.collect();
    // Held until the fork is over, by the one thread that both sides have.
    std::mem::forget(pools);
    *PASS.lock() = Some(Pass { stopped, _blocked: blocked });
}

unsafe extern "C" fn in_parent() {
    let Some(pass) = PASS.lock().take() else { return };
    for (pool, ticket) in pass.stopped {
        pool.engine.fork_parent(ticket);
        pool.recent.release();
    }
    POOLS.release();
}

unsafe extern "C" fn in_child() {
    let Some(pass) = PASS.lock().take() else { return };
    for (pool, ticket) in pass.stopped {
        if let Err(error) = pool.engine.fork_child(ticket) {
            end(&format!("userswap: the child of a fork cannot be served: {error}\n"));
        }
        pool.recent.release();
    }
    POOLS.release();
}

/// Ends a child whose memory is not complete, before it reads any.
fn end(message: &str) -> ! {
    // SAFETY: the bytes are the message's. Not by Rust's stream, whose lock a thread of the parent may have had.
    unsafe { libc::write(libc::STDERR_FILENO, message.as_ptr().cast(), message.len()) };
    // SAFETY: nothing of the parent's may run at the end of this process.
    unsafe { libc::_exit(1) }
}
