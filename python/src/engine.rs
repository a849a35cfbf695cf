//! The engine as Python holds it: opening, closing, allocating, changing, counting.
use crate::memory::Memory;
use crate::numpy;
use crate::pool::Pool;
use crate::pools;
use crate::refusal::{raised, value};
use crate::request::Target;
use crate::swapoff;
use crate::view::Layout;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use userswap::internals::PAGE_BYTES;
use userswap::{Builder, SwapSpec};

/// An engine, until it is closed. Memory and numpy handlers of it keep it running.
#[pyclass(frozen, module = "userswap._native")]
pub struct Engine {
    // Not across anything that waits.
    pool: Mutex<Option<Arc<Pool>>>,
}

/// Address, bytes of an item, shape, strides.
type LayoutParts = (usize, usize, Vec<usize>, Vec<isize>);

#[pymethods]
impl Engine {
    /// Starts an engine; `options` are words, by the names of `userswap run`'s options.
    #[new]
    fn new(py: Python<'_>, ram_bytes: u64, options: Vec<(String, String)>) -> PyResult<Self> {
        let mut builder = Builder::new(ram_bytes);
        for (key, word) in options {
            builder = builder.option(&key, &word).map_err(raised)?;
        }
        let engine = py.detach(|| builder.build()).map_err(raised)?;
        let pool = Pool::new(engine, ram_bytes);
        pools::enroll(&pool);
        Ok(Self { pool: Mutex::new(Some(pool)) })
    }

    /// Lets go of the engine, which ends with its last array.
    fn close(&self, py: Python<'_>) {
        let pool = self.slot().take();
        py.detach(|| drop(pool));
    }

    #[getter]
    fn closed(&self) -> bool {
        self.slot().is_none()
    }

    /// Memory for an array, all zero.
    fn allocate(&self, bytes: usize) -> PyResult<Memory> {
        let pool = self.pool()?;
        Memory::new(pool, bytes).map_err(raised)
    }

    #[pyo3(signature = (layout, progress=None))]
    fn prefetch(
        &self,
        py: Python<'_>,
        layout: LayoutParts,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.target(layout)?.map_or(Ok(()), |target| target.prefetch(py, progress))
    }

    fn page_out(&self, py: Python<'_>, layout: LayoutParts) -> PyResult<usize> {
        self.target(layout)?.map_or(Ok(0), |target| target.page_out(py))
    }

    fn discard(&self, py: Python<'_>, layout: LayoutParts) -> PyResult<()> {
        self.target(layout)?.map_or(Ok(()), |target| target.discard(py))
    }

    fn pin(&self, py: Python<'_>, layout: LayoutParts) -> PyResult<()> {
        self.target(layout)?.map_or(Ok(()), |target| target.pin(py))
    }

    fn unpin(&self, py: Python<'_>, layout: LayoutParts) -> PyResult<()> {
        if let Some(target) = self.target(layout)? {
            target.unpin(py);
        }
        Ok(())
    }

    /// A capsule for `set_handler`, which keeps the engine running.
    fn numpy_handler<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        numpy::handler(py, self.pool()?)
    }

    fn set_budget(&self, py: Python<'_>, bytes: u64) -> PyResult<()> {
        let pool = self.pool()?;
        py.detach(|| pool.engine.set_budget(bytes)).map_err(raised)?;
        pool.recent.note_budget(bytes);
        Ok(())
    }

    fn set(&self, py: Python<'_>, key: &str, word: &str) -> PyResult<String> {
        let pool = self.pool()?;
        py.detach(|| pool.engine.set(key, word)).map_err(raised)
    }

    fn swapon(&self, py: Python<'_>, spec: &str) -> PyResult<()> {
        let pool = self.pool()?;
        let spec: SwapSpec = spec.parse().map_err(value)?;
        py.detach(|| pool.engine.swapon(&spec)).map_err(raised)
    }

    /// Empties a device and lets go of it; `progress` is told pages left and pages in all.
    #[pyo3(signature = (path, progress=None))]
    fn swapoff(
        &self,
        py: Python<'_>,
        path: &str,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let pool = self.pool()?;
        swapoff::carry_out(py, &pool, Path::new(path), progress)
    }

    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counters = PyDict::new(py);
        for (name, count) in self.pool()?.engine.counters().values() {
            counters.set_item(name, count)?;
        }
        Ok(counters)
    }

    /// In bytes.
    fn usage<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let pool = self.pool()?;
        let usage = py.detach(|| pool.engine.usage());
        let parts = [
            ("ram", u64::from(usage.budget)),
            ("resident", u64::from(usage.resident)),
            ("cached", u64::from(usage.cached)),
            ("compressed", u64::from(usage.compressed)),
            ("writing", u64::from(usage.writing)),
            ("free", u64::from(usage.free)),
            ("spare", u64::from(usage.spare)),
            ("debt", u64::from(usage.debt)),
            ("swapped", usage.slots_used),
            ("swap", usage.slots),
        ];
        let dict = PyDict::new(py);
        for (name, pages) in parts {
            dict.set_item(name, pages * PAGE_BYTES as u64)?;
        }
        Ok(dict)
    }
}

impl Engine {
    fn slot(&self) -> std::sync::MutexGuard<'_, Option<Arc<Pool>>> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pool(&self) -> PyResult<Arc<Pool>> {
        self.slot().clone().ok_or_else(|| value("this pool is closed: make another one"))
    }

    fn target(&self, layout: LayoutParts) -> PyResult<Option<Target>> {
        let (address, item_bytes, shape, strides) = layout;
        Target::find(self.pool()?, Layout { address, item_bytes, shape, strides })
    }
}
