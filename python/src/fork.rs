//! fork: a child has an exact copy of every pool, with an engine of its own.
//!
//! The handlers are the C library's (pthread_atfork), not Python's (os.register_at_fork): between the two calls no fault
//! is served, so nothing but fork itself may run there. Python's run far earlier, and handlers that take locks follow: one
//! that waits for a thread that faults would wait for ever. These see every fork, whoever calls it.
#![expect(unsafe_code, reason = "the C library's interface")]
use crate::pool::Pool;
use crate::pools;
use std::sync::Arc;
use userswap::ForkTicket;
use userswap::internals::lock::Lock;
use userswap::internals::signal::Blocked;

/// What is under way between `prepare` and the other two; used by the thread that forks.
struct Pass {
    /// Dropped when all go on again: one of which this is the last reference ends here.
    pools: Vec<Arc<Pool>>,
    tickets: Vec<ForkTicket>,
    _blocked: Blocked,
}

static PASS: Lock<Option<Pass>> = Lock::new(None);

/// Registers the handlers; called once.
pub fn install() {
    // SAFETY: Python never unloads this library, so the handlers live as long as the process.
    unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) };
}

unsafe extern "C" fn prepare() {
    let _blocked = Blocked::new();
    // Until the fork is over, by the one thread that both sides have.
    let pools = pools::hold();
    let stopped = pools.iter().map(|pool| {
        pool.hold();
        pool.engine.fork_prepare()
    });
    let tickets = stopped.collect();
    *PASS.lock() = Some(Pass { pools, tickets, _blocked });
}

unsafe extern "C" fn in_parent() {
    let Some(pass) = PASS.lock().take() else { return };
    for (pool, ticket) in pass.pools.iter().zip(pass.tickets) {
        pool.engine.fork_parent(ticket);
        pool.release();
    }
    pools::release();
}

unsafe extern "C" fn in_child() {
    let Some(pass) = PASS.lock().take() else { return };
    for (pool, ticket) in pass.pools.iter().zip(pass.tickets) {
        if let Err(error) = pool.engine.fork_child(ticket) {
            end(&format!("userswap: the child of a fork cannot be served: {error}\n"));
        }
        pool.release();
    }
    pools::release();
}

/// Ends a child whose memory is not complete, before it reads any.
fn end(message: &str) -> ! {
    // SAFETY: the bytes are the message's. Not by Rust's stream, whose lock a thread of the parent may have had.
    unsafe { libc::write(libc::STDERR_FILENO, message.as_ptr().cast(), message.len()) };
    // SAFETY: nothing of the parent's may run at the end of this process.
    unsafe { libc::_exit(1) }
}
