//! The owner of a block, as the base of the arrays that lie on it.
use crate::pool::{Block, Pool};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;

/// Bytes of a pool, freed when the last array on them goes.
#[pyclass(frozen, module = "userswap._native")]
pub struct Memory {
    pool: Arc<Pool>,
    block: Arc<Block>,
}

impl Memory {
    /// The owner of a block that was just mapped.
    pub fn new(pool: Arc<Pool>, block: Arc<Block>) -> Self {
        Self { pool, block }
    }
}

#[pymethods]
impl Memory {
    /// numpy's array interface, version 3. The buffer protocol would do as well, but its C functions are in the stable
    /// ABI only since Python 3.11.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("shape", (self.block.bytes,))?;
        interface.set_item("typestr", "|u1")?;
        interface.set_item("data", (self.block.address, false))?;
        interface.set_item("version", 3)?;
        Ok(interface)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        drop(self.pool.unmap(self.block.address));
    }
}
