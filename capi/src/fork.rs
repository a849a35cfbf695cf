//! fork: all engines of the process at once, in the form that pthread_atfork takes.
//!
//! Between the first and the last of the three functions all signals are blocked, and the tables of handles are held, with
//! all in them that has a lock of its own.
use crate::cache::{us_account, us_shrinker};
use crate::engine::us_engine;
use crate::failure::{Failure, code_of, us_error};
use crate::handle::Handle;
use crate::heap::us_heap;
use crate::options::us_options;
use crate::region::us_region;
use std::sync::{Arc, Weak};
use userswap::internals::lock::Lock;
use userswap::internals::process;
use userswap::internals::signal::Blocked;
use userswap::{Builder, Engine, ForkTicket};

/// What stands still until the fork is over.
struct Forking {
    /// Dropped when all go on again: one of which this is the last reference ends here.
    engines: Vec<Arc<Engine>>,
    tickets: Vec<ForkTicket>,
    options: Vec<Arc<Lock<Builder>>>,
    /// Last, so that signals come again when all else is done.
    _blocked: Blocked,
}

/// Written between [`hold`] and [`release`] only, by the thread that forks.
static FORKING: Lock<Option<Forking>> = Lock::new(None);

/// All engines of the process, oldest first, also those that were closed while something of them is in use. Held across fork.
static ENGINES: Lock<Vec<Weak<Engine>>> = Lock::new(Vec::new());

/// An engine from now on comes along into children.
pub fn enroll(engine: &Arc<Engine>) {
    let mut engines = ENGINES.lock();
    engines.retain(|engine| engine.strong_count() > 0);
    engines.push(Arc::downgrade(engine));
}

/// Before fork: stops all engines of the process, so that the child gets an exact copy of their memory.
/// pthread_atfork(us_fork_prepare, us_fork_parent, us_fork_child) sees to all. Without it a child does not have
/// the memory: touching it is SIGSEGV, never wrong data, and calls for it fail.
#[unsafe(no_mangle)]
pub extern "C" fn us_fork_prepare() {
    code_of(|| {
        let _blocked = Blocked::new();
        let options = hold();
        let engines = hold_engines();
        let tickets = engines.iter().map(|engine| engine.fork_prepare()).collect();
        *FORKING.lock() = Some(Forking { engines, tickets, options, _blocked });
        Ok(())
    });
}

/// After fork, in the parent, also when fork failed: goes on.
#[unsafe(no_mangle)]
pub extern "C" fn us_fork_parent() {
    code_of(|| {
        let forking = taken()?;
        for (engine, ticket) in forking.engines.iter().zip(forking.tickets) {
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
        let forking = taken()?;
        for (engine, ticket) in forking.engines.iter().zip(forking.tickets) {
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
    release(&forking);
    Ok(forking)
}

/// Holds the tables of handles, and the options in them, which other threads may be in the middle of changing.
fn hold() -> Vec<Arc<Lock<Builder>>> {
    let options = us_options::open().hold();
    options.iter().for_each(|options| options.hold());
    us_account::open().hold();
    us_shrinker::open().hold();
    us_heap::open().hold();
    us_region::open().hold();
    us_engine::open().hold();
    options
}

/// Holds the list of engines, which are stopped in the order in which they were built.
fn hold_engines() -> Vec<Arc<Engine>> {
    let engines = ENGINES.lock();
    let all = engines.iter().filter_map(Weak::upgrade).collect();
    std::mem::forget(engines);
    all
}

fn release(forking: &Forking) {
    ENGINES.release();
    us_engine::open().release();
    us_region::open().release();
    us_heap::open().release();
    us_shrinker::open().release();
    us_account::open().release();
    forking.options.iter().for_each(|options| options.release());
    us_options::open().release();
}
