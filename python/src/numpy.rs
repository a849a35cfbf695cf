//! numpy's allocator protocol (NEP 49): a capsule with four C functions, chosen by context.
//!
//! numpy keeps a reference to the capsule in every array that it allocated by it, so that the capsule, and the pool in it,
//! outlive the array. Blocks from `MANAGED_MIN_BYTES` on are regions; smaller ones are the C library's, because a region
//! is whole pages. Which of the two an address is, the arena says. numpy calls these functions from any thread; none
//! needs the GIL.
#![expect(unsafe_code, reason = "numpy's C interface")]
use crate::pool::Pool;
use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::c_void;
use std::sync::Arc;

/// The smallest block that is managed, in bytes: what glibc, too, gives a mapping of its own.
const MANAGED_MIN_BYTES: usize = 128 << 10;

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
    let function = unsafe { *table.add(FEATURE_VERSION) };
    // SAFETY: this entry of numpy's table is of this type.
    let version = unsafe { std::mem::transmute::<*const c_void, FeatureVersion>(function) };
    // SAFETY: the function only returns a number.
    if unsafe { version() } < FEATURE_VERSION_MIN {
        return Err(PyImportError::new_err("pool.numpy() needs numpy 1.22 or newer"));
    }
    // SAFETY: numpy is new enough to have this entry.
    let function = unsafe { *table.add(SET_HANDLER) };
    // SAFETY: as above.
    let set = unsafe { std::mem::transmute::<*const c_void, SetHandler>(function) };
    // SAFETY: the GIL is held, and the capsule is a handler.
    let before = unsafe { set(handler.as_ptr()) };
    // SAFETY: the function returns a new reference, or NULL with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, before) }
}

unsafe extern "C" fn malloc(pool: *const Pool, bytes: usize) -> *mut c_void {
    if bytes < MANAGED_MIN_BYTES {
        // SAFETY: any size will do; numpy must get a pointer of its own for 0 as well.
        return unsafe { libc::malloc(bytes.max(1)) };
    }
    // SAFETY: the capsule that numpy holds keeps the pool.
    map(unsafe { &*pool }, bytes)
}

unsafe extern "C" fn calloc(pool: *const Pool, count: usize, item_bytes: usize) -> *mut c_void {
    let Some(bytes) = count.checked_mul(item_bytes) else { return std::ptr::null_mut() };
    if bytes < MANAGED_MIN_BYTES {
        // SAFETY: any sizes will do.
        return unsafe { libc::calloc(bytes.max(1), 1) };
    }
    // SAFETY: as in `malloc`.
    map(unsafe { &*pool }, bytes)
}

unsafe extern "C" fn realloc(pool: *const Pool, old: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: as in `malloc`.
    let managed = unsafe { &*pool };
    if !is_managed(managed, old) && bytes < MANAGED_MIN_BYTES {
        // SAFETY: what is not managed is the C library's, or NULL.
        return unsafe { libc::realloc(old, bytes.max(1)) };
    }
    let old_bytes = match managed.block_at(old.addr()) {
        Some(block) => block.bytes,
        // SAFETY: as above.
        None => unsafe { libc::malloc_usable_size(old) },
    };
    // SAFETY: the same pool.
    let new = unsafe { malloc(pool, bytes) };
    if !new.is_null() {
        // SAFETY: both are as long at least, and numpy uses neither meanwhile.
        unsafe { std::ptr::copy_nonoverlapping(old.cast::<u8>(), new.cast(), bytes.min(old_bytes)) };
        // SAFETY: numpy gives the old block up.
        unsafe { free(pool, old, old_bytes) };
    }
    new
}

unsafe extern "C" fn free(pool: *const Pool, old: *mut c_void, _bytes: usize) {
    // SAFETY: as in `malloc`.
    let pool = unsafe { &*pool };
    if is_managed(pool, old) {
        let block = pool.unmap(old.addr());
        assert!(block.is_some(), "numpy frees {old:p}, which is no block of its pool");
    } else {
        // SAFETY: what is not managed is the C library's, or NULL.
        unsafe { libc::free(old) };
    }
}

fn is_managed(pool: &Pool, address: *mut c_void) -> bool {
    pool.engine.core().arena.contains(address.addr())
}

fn map(pool: &Pool, bytes: usize) -> *mut c_void {
    // numpy makes a MemoryError of NULL.
    let address = pool.map(bytes).map_or(0, |block| block.address);
    std::ptr::with_exposed_provenance_mut(address)
}
