//! Engines: building and closing one, and what is asked of it as a whole.
use crate::failure::{Failure, code_of, us_error, value_of};
use crate::fork;
use crate::handle;
use crate::handle::{Handle, find};
use crate::options::us_options;
use crate::text::text;
use std::ffi::{c_char, c_int};
use std::path::Path;
use std::sync::Arc;
use userswap::{Engine, SwapSpec};

/// A RAM budget, swap devices, and the memory that shares them.
pub struct us_engine {
    _opaque: [u8; 0],
}

handle!(us_engine, Engine);

/// Builds an engine and starts its threads; NULL on failure.
#[unsafe(no_mangle)]
pub extern "C" fn us_engine_new(options: *const us_options) -> *mut us_engine {
    value_of(std::ptr::null_mut(), || {
        let builder = find(options)?.lock().clone();
        let engine = Arc::new(builder.build()?);
        fork::enroll(&engine);
        Ok(us_engine::open().insert(engine))
    })
}

/// Closes an engine. Its regions, heaps, caches and accounts stay valid; its threads end with the last of them.
#[unsafe(no_mangle)]
pub extern "C" fn us_engine_close(engine: *mut us_engine) -> c_int {
    code_of(|| us_engine::open().remove(engine).map(drop))
}

/// Changes the RAM budget, in bytes; a smaller one is reclaimed for in the background.
#[unsafe(no_mangle)]
pub extern "C" fn us_set_budget(engine: *mut us_engine, ram_bytes: u64) -> c_int {
    code_of(|| Ok(find(engine)?.set_budget(ram_bytes)?))
}

/// Changes a setting as `userswap set` does, such as "swap_ra_policy" to "off".
///
/// # Safety
/// Both texts are NULL or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn us_set(
    engine: *mut us_engine,
    key: *const c_char,
    value: *const c_char,
) -> c_int {
    code_of(|| {
        let engine = find(engine)?;
        // SAFETY: the caller's promise.
        let key = unsafe { text(key, "key") }?;
        // SAFETY: the caller's promise.
        let value = unsafe { text(value, "value") }?;
        engine.set(key, value)?;
        Ok(())
    })
}

/// Swaps everything out and gives the memory back to the kernel; pinned pages stay.
#[unsafe(no_mangle)]
pub extern "C" fn us_page_out_all(engine: *mut us_engine) -> c_int {
    code_of(|| {
        find(engine)?.page_out_all();
        Ok(())
    })
}

/// Swaps in what the budget has room for.
#[unsafe(no_mangle)]
pub extern "C" fn us_prefetch_all(engine: *mut us_engine) -> c_int {
    code_of(|| Ok(find(engine)?.prefetch_all()?))
}

/// Takes one more swap device into use: `PATH[:SIZE][,pri=N]` or `mem:SIZE`.
///
/// # Safety
/// The text is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn us_swapon(engine: *mut us_engine, device: *const c_char) -> c_int {
    code_of(|| {
        let engine = find(engine)?;
        // SAFETY: the caller's promise.
        let device = unsafe { text(device, "device") }?;
        let spec = device.parse::<SwapSpec>();
        Ok(engine.swapon(&spec.map_err(|error| Failure::invalid(error.to_string()))?)?)
    })
}

/// Empties a swap device, by its path, and lets go of it; waits for that.
///
/// # Safety
/// The text is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn us_swapoff(engine: *mut us_engine, path: *const c_char) -> c_int {
    code_of(|| {
        let engine = find(engine)?;
        // SAFETY: the caller's promise.
        let path = unsafe { text(path, "path") }?;
        Ok(engine.swapoff(Path::new(path))?)
    })
}

/// How many NUMA nodes the engine has, which count from 0; 0 on failure.
#[unsafe(no_mangle)]
pub extern "C" fn us_nodes(engine: *const us_engine) -> u32 {
    value_of(0, || Ok(find(engine)?.nodes() as u32))
}

/// The node of the CPU that the calling thread runs on; 0 on failure.
#[unsafe(no_mangle)]
pub extern "C" fn us_node_here(engine: *const us_engine) -> u32 {
    value_of(0, || Ok(u32::from(find(engine)?.node_here().0)))
}

/// Writes the path of the control socket into `room` bytes, ended by zero. US_INVALID without a socket (the option
/// "control"), US_RANGE if there is not room enough.
///
/// # Safety
/// `path` is NULL, or has room for so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn us_control_socket(
    engine: *const us_engine,
    path: *mut c_char,
    room: usize,
) -> c_int {
    code_of(|| {
        let socket = find(engine)?.control_socket().ok_or_else(|| {
            Failure::invalid(
                "the engine has no control socket: build it with the option control=on",
            )
        })?;
        let socket = crate::text::c_string(&socket.to_string_lossy());
        let bytes = socket.as_bytes_with_nul();
        if path.is_null() {
            return Err(Failure::invalid("the place for the path is NULL: pass its address"));
        }
        if bytes.len() > room {
            let line =
                format!("{room} bytes are too few for the path: pass {} at least", bytes.len());
            return Err(Failure::new(us_error::US_RANGE, line));
        }
        // SAFETY: there is room for so many bytes, the caller says, and the path is not theirs.
        unsafe { path.copy_from_nonoverlapping(bytes.as_ptr().cast(), bytes.len()) };
        Ok(())
    })
}
