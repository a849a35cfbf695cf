//! numpy's allocator protocol (NEP 49): a capsule with four C functions, chosen by context.
//!
//! numpy keeps a reference to the capsule in every array that it allocated by it, so that the capsule, and the pool in it,
//! outlive the array. The blocks are the heap's, of any size. numpy calls these functions from any thread; none needs the GIL.
#![expect(unsafe_code, reason = "numpy's C interface")]
use crate::pool::{Pool, layout};
use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use userswap::Error;

/// Length of a handler's name in numpy's structure, in bytes.
const NAME_BYTES: usize = 127;

/// Version of the structure below.
const VERSION: u8 = 1;

/// Index of PyDataMem_SetHandler in numpy's table of functions since 1.22.
const SET_HANDLER: usize = 304;

/// Index of PyArray_GetNDArrayCFeatureVersion.
const FEATURE_VERSION: usize = 211;

/// What that says in numpy 1.22.
const FEATURE_VERSION_MIN: u32 = 0xf;

type SetHandler = unsafe extern "C" fn(*mut ffi::PyObject) -> *mut ffi::PyObject;
type FeatureVersion = unsafe extern "C" fn() -> u32;

/// numpy's PyDataMem_Handler, and after it what is ours.
#[repr(C)]
struct Handler {
    name: [u8; NAME_BYTES],
    version: u8,
    pool: *const Pool,
    malloc: unsafe extern "C" fn(*const Pool, usize) -> *mut c_void,
    calloc: unsafe extern "C" fn(*const Pool, usize, usize) -> *mut c_void,
    realloc: unsafe extern "C" fn(*const Pool, *mut c_void, usize) -> *mut c_void,
    free: unsafe extern "C" fn(*const Pool, *mut c_void, usize),
    /// What `pool` points to.
    _kept: Arc<Pool>,
}

// SAFETY: the pointer is to what `_kept` keeps, and a pool may be used by any thread.
unsafe impl Send for Handler {}

/// A capsule that makes numpy allocate from a pool.
pub fn handler(py: Python<'_>, pool: Arc<Pool>) -> PyResult<Bound<'_, PyCapsule>> {
    let mut name = [0; NAME_BYTES];
    name[..8].copy_from_slice(b"userswap");
    let handler = Handler {
        name,
        version: VERSION,
        pool: Arc::as_ptr(&pool),
        malloc,
        calloc,
        realloc,
        free,
        _kept: pool,
    };
    PyCapsule::new_with_value(py, handler, c"mem_handler")
}

/// Makes numpy allocate by a capsule in the calling context; returns the one before.
#[pyfunction]
pub fn set_handler<'py>(handler: &Bound<'py, PyCapsule>) -> PyResult<Bound<'py, PyAny>> {
    let py = handler.py();
    let umath = py
        .import("numpy._core._multiarray_umath")
        .or_else(|_| py.import("numpy.core._multiarray_umath"))?;
    let table = umath.getattr("_ARRAY_API")?;
    // SAFETY: the object is alive; where it is no capsule, an exception is set.
    let functions = unsafe { ffi::PyCapsule_GetPointer(table.as_ptr(), std::ptr::null()) };
    if functions.is_null() {
        return Err(PyErr::fetch(py));
    }
    let table = functions.cast::<*const c_void>();
    // SAFETY: every numpy has this entry.
    let function = unsafe { *table.wrapping_add(FEATURE_VERSION) };
    // SAFETY: this entry of numpy's table is of this type.
    let version = unsafe { std::mem::transmute::<*const c_void, FeatureVersion>(function) };
    // SAFETY: the function only returns a number.
    if unsafe { version() } < FEATURE_VERSION_MIN {
        return Err(PyImportError::new_err("pool.numpy() needs numpy 1.22 or newer"));
    }
    // SAFETY: numpy is new enough to have this entry.
    let function = unsafe { *table.wrapping_add(SET_HANDLER) };
    // SAFETY: as above.
    let set = unsafe { std::mem::transmute::<*const c_void, SetHandler>(function) };
    // SAFETY: the GIL is held, and the capsule is a handler.
    let before = unsafe { set(handler.as_ptr()) };
    // SAFETY: the function returns a new reference, or NULL with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, before) }
}

unsafe extern "C" fn malloc(pool: *const Pool, bytes: usize) -> *mut c_void {
    // SAFETY: the capsule that numpy holds keeps the pool.
    let pool = unsafe { &*pool };
    address_of(pool.recent.allocate(&pool.heap, bytes))
}

unsafe extern "C" fn calloc(pool: *const Pool, count: usize, item_bytes: usize) -> *mut c_void {
    // SAFETY: as in `malloc`.
    let pool = unsafe { &*pool };
    let bytes = count.saturating_mul(item_bytes);
    address_of(pool.recent.allocate_zeroed(&pool.heap, bytes))
}

unsafe extern "C" fn realloc(pool: *const Pool, old: *mut c_void, bytes: usize) -> *mut c_void {
    let Some(block) = NonNull::new(old.cast()) else {
        // SAFETY: the same pool.
        return unsafe { malloc(pool, bytes) };
    };
    // SAFETY: as in `malloc`.
    let pool = unsafe { &*pool };
    pool.unpin_block(block);
    address_of(layout(bytes).and_then(|layout| pool.heap.reallocate(block, layout)))
}

unsafe extern "C" fn free(pool: *const Pool, old: *mut c_void, _bytes: usize) {
    let Some(block) = NonNull::new(old.cast()) else { return };
    // SAFETY: as in `malloc`.
    let pool = unsafe { &*pool };
    pool.unpin_block(block);
    pool.recent
        .free(&pool.heap, block)
        .expect("numpy frees by the handler that allocated, and once");
}

/// numpy makes a MemoryError of NULL.
fn address_of(block: Result<NonNull<u8>, Error>) -> *mut c_void {
    block.map_or(std::ptr::null_mut(), |block| block.as_ptr().cast())
}
