//! fork: all engines of the process at once, in the form that pthread_atfork takes.
//!
//! Between the first and the last of the three functions all signals are blocked, and the tables of handles are held.
use crate::cache::{us_account, us_shrinker};
use crate::engine::us_engine;
use crate::failure::{Failure, code_of, us_error};
use crate::handle::Handle;
use crate::heap::us_heap;
use crate::options::us_options;
use crate::region::us_region;
use std::sync::Arc;
use userswap::internals::lock::Lock;
use userswap::internals::process;
use userswap::internals::signal::Blocked;
use userswap::{Engine, ForkTicket};

/// What stands still until the fork is over.
struct Forking {
    engines: Vec<(Arc<Engine>, ForkTicket)>,
    /// Last, so that signals come again when all else is done.
    _blocked: Blocked,
}

/// Written between [`hold`] and [`release`] only, by the thread that forks.
static FORKING: Lock<Option<Forking>> = Lock::new(None);

/// Before fork: stops all engines of the process, so that the child gets an exact copy of their memory.
/// pthread_atfork(us_fork_prepare, us_fork_parent, us_fork_child) sees to all. Without it a child does not have
/// the memory: touching it is SIGSEGV, never wrong data.
#[unsafe(no_mangle)]
pub extern "C" fn us_fork_prepare() {
    code_of(|| {
        let blocked = Blocked::new();
        let engines = hold().into_iter().map(|engine| {
            let ticket = engine.fork_prepare();
            (engine, ticket)
        });
        let forking = Forking { engines: engines.collect(), _blocked: blocked };
        *FORKING.lock() = Some(forking);
        Ok(())
    });
}

/// After fork, in the parent, also when fork failed: goes on.
#[unsafe(no_mangle)]
pub extern "C" fn us_fork_parent() {
    code_of(|| {
        let Forking { engines, _blocked } = taken()?;
        for (engine, ticket) in engines {
            engine.fork_parent(ticket);
        }
        Ok(())
    });
}

/// After fork, in the child: goes on with descriptors and threads of its own. Where that cannot be, the child's memory is not
/// complete, and it ends with a message (SIGABRT).
#[unsafe(no_mangle)]
pub extern "C" fn us_fork_child() {
    code_of(|| {
        let Forking { engines, _blocked } = taken()?;
        for (engine, ticket) in engines {
            if let Err(error) = engine.fork_child(ticket) {
                // A thread of the parent may have held the lock of standard error.
                let line = format!("userswap: a forked process cannot have its memory: {error}\n");
                process::say(&[&line]);
                std::process::abort();
            }
        }
        Ok(())
    });
}

/// What [`us_fork_prepare`] left; the tables are free from here on.
fn taken() -> Result<Forking, Failure> {
    let forking = FORKING.lock().take();
    let forking = forking.ok_or_else(|| {
        let line = "a fork ends that was not prepared: call us_fork_prepare before fork";
        Failure::new(us_error::US_INVALID, line)
    })?;
    release();
    Ok(forking)
}

/// Holds the tables of handles; the engines are stopped in the order in which they were built.
fn hold() -> Vec<Arc<Engine>> {
    us_options::open().hold();
    us_account::open().hold();
    us_shrinker::open().hold();
    us_heap::open().hold();
    us_region::open().hold();
    us_engine::open().hold()
}

fn release() {
    us_engine::open().release();
    us_region::open().release();
    us_heap::open().release();
    us_shrinker::open().release();
    us_account::open().release();
    us_options::open().release();
}
