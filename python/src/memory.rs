//! The owner of a block of the heap, as the base of the arrays that lie on it.
use crate::pool::{Pool, layout};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::ptr::NonNull;
use std::sync::Arc;
use userswap::Error;

/// Bytes of a pool, freed when the last array on them goes.
#[pyclass(frozen, module = "userswap._native")]
pub struct Memory {
    pool: Arc<Pool>,
    address: usize,
    bytes: usize,
}

impl Memory {
    /// Bytes that are all zero.
    ///
    /// # Errors
    /// No address space is left.
    pub fn new(pool: Arc<Pool>, bytes: usize) -> Result<Self, Error> {
        let address = pool.heap.allocate_zeroed(layout(bytes)?)?.as_ptr().expose_provenance();
        Ok(Self { pool, address, bytes })
    }
}

#[pymethods]
impl Memory {
    /// numpy's array interface, version 3. The buffer protocol would do as well, but its C functions are in the stable
    /// ABI only since Python 3.11.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("shape", (self.bytes,))?;
        interface.set_item("typestr", "|u1")?;
        interface.set_item("data", (self.address, false))?;
        interface.set_item("version", 3)?;
        Ok(interface)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let block = NonNull::new(std::ptr::with_exposed_provenance_mut(self.address));
        let block = block.expect("no block begins at zero");
        self.pool.unpin_block(block);
        self.pool.heap.free(block).expect("the block was allocated here and is freed once");
    }
}
