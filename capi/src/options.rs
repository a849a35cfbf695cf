//! What an engine is built from: words by key, the same as on the command line.
use crate::failure::{code_of, value_of};
use crate::handle;
use crate::handle::{Handle, find};
use crate::text::text;
use std::ffi::{c_char, c_int};
use userswap::Builder;
use userswap::internals::lock::Lock;

/// What an engine is built from.
pub struct us_options {
    _opaque: [u8; 0],
}

handle!(us_options, Lock<Builder>);

/// Options for an engine with a RAM budget of so many bytes, at least 16 MiB; NULL on failure.
#[unsafe(no_mangle)]
pub extern "C" fn us_options_new(ram_bytes: u64) -> *mut us_options {
    value_of(std::ptr::null_mut(), || {
        Ok(us_options::open().insert(Lock::new(Builder::new(ram_bytes))))
    })
}

/// Chooses something other than the default. Keys and values:
/// swap `PATH[:SIZE][,pri=N]` or `mem:SIZE` (again for each device); fault thread|signal; transfer auto|move|copy;
/// io auto|uring|threads; on_full exceed|stop; placement near|spread; poll auto|off|idle|MICROSECONDS;
/// swap_ra_policy stream|scaling|fixed|vma|off; page_cluster 0-10; vma_ra_enabled true|false;
/// compress SIZE|auto (compressed memory in front of the devices, off without); encrypt true|false (all devices);
/// ram_max SIZE (what us_set_budget can raise the budget to at least); arena SIZE (address space, 256G);
/// ram_of_node NODE:SIZE (again for each node); fake_numa NODES; control on (a socket for `userswap status`).
/// All is looked at when the engine is built.
///
/// # Safety
/// Both texts are NULL or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn us_options_set(
    options: *mut us_options,
    key: *const c_char,
    value: *const c_char,
) -> c_int {
    code_of(|| {
        let options = find(options)?;
        // SAFETY: the caller's promise.
        let key = unsafe { text(key, "key") }?;
        // SAFETY: the caller's promise.
        let value = unsafe { text(value, "value") }?;
        let mut builder = options.lock();
        *builder = builder.clone().option(key, value)?;
        Ok(())
    })
}

/// Forgets options; engines that were built from them go on.
#[unsafe(no_mangle)]
pub extern "C" fn us_options_free(options: *mut us_options) -> c_int {
    code_of(|| us_options::open().remove(options).map(drop))
}
