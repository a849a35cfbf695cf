//! All pools of the process: those that a fork stops, and that are to be tidied up at its end. Closed ones with arrays are among them.
use crate::pool::Pool;
use pyo3::prelude::*;
use std::sync::{Arc, Weak};
use userswap::internals::lock::Lock;
use userswap::internals::signal::Blocked;

/// In the order in which they are stopped. Held across fork.
static POOLS: Lock<Vec<Weak<Pool>>> = Lock::new(Vec::new());

/// A pool is among them from now on, as long as it or an array of it is in use.
pub fn enroll(pool: &Arc<Pool>) {
    let mut pools = POOLS.lock();
    pools.retain(|pool| pool.strong_count() > 0);
    pools.push(Arc::downgrade(pool));
}

/// All of them; the list is held until [`release`], in a fork on both sides.
pub fn hold() -> Vec<Arc<Pool>> {
    let pools = POOLS.lock();
    let all = pools.iter().filter_map(Weak::upgrade).collect();
    std::mem::forget(pools);
    all
}

/// Gives back what [`hold`] took.
pub fn release() {
    POOLS.release();
}

/// Has Python call [`at_exit`]; once.
pub fn install(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let function = wrap_pyfunction!(at_exit, module)?;
    module.py().import("atexit")?.call_method1("register", (function,))?;
    Ok(())
}

/// Removes the names of control sockets, and has servers keep pages for seconds only: nobody tells an engine that its process ends.
#[pyfunction]
fn at_exit() {
    let _blocked = Blocked::new();
    let all = hold();
    release();
    for pool in &all {
        pool.engine.withdraw_control();
        pool.engine.shorten_leases();
    }
}
