//! The Python package's native half: an engine, memory that numpy arrays lie on, and numpy's allocator.
//!
//! Python code (`lib/userswap`) checks what people pass and makes arrays; this crate translates, and decides nothing.
//! The GIL is released around everything that can wait, and signals are looked at in between. `unsafe` is where numpy
//! and the C library call in: `numpy.rs` and `fork.rs`.
mod engine;
mod fork;
mod memory;
mod numpy;
mod pins;
mod pool;
mod pools;
mod recent;
mod refusal;
mod request;
mod swapoff;
mod view;

use pyo3::prelude::*;

/// What `userswap` imports. Without the GIL as well: classes are frozen, what changes in them is within locks.
#[pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use crate::engine::Engine;
    #[pymodule_export]
    use crate::memory::Memory;
    #[pymodule_export]
    use crate::numpy::set_handler;
    #[pymodule_export]
    use crate::refusal::Error;
    #[pymodule_export]
    use crate::refusal::parse_size;

    use super::{Bound, PyModule, PyResult, fork, pools};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        fork::install();
        pools::install(module)
    }
}
