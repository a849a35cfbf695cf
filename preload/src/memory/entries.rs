//! The memory calls as the program calls them: results become -1 and errno here, and nowhere else.
use crate::abi::callers;
use crate::abi::callers::entry;
use crate::abi::raw::{Errno, MapRequest, RemapRequest, set_errno};
use crate::heap::mimalloc;
use crate::memory::{advice, locking, mappings, protection, remap};
use crate::state::process;
use libc::{c_int, c_void, off_t, size_t};

fn to_c(outcome: Result<usize, Errno>) -> c_int {
    match outcome {
        Ok(value) => value as c_int,
        Err(error) => {
            set_errno(error);
            -1
        }
    }
}

fn to_pointer(outcome: Result<usize, Errno>) -> *mut c_void {
    match outcome {
        Ok(address) => address as *mut c_void,
        Err(error) => {
            set_errno(error);
            libc::MAP_FAILED
        }
    }
}

/// mmap.
///
/// # Safety
/// As the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    bytes: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    let address = address as usize;
    to_pointer(mappings::map(MapRequest { address, bytes, protection, flags, fd, offset }))
}

/// mmap64.
///
/// # Safety
/// As the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    address: *mut c_void,
    bytes: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    let address = address as usize;
    to_pointer(mappings::map(MapRequest { address, bytes, protection, flags, fd, offset }))
}

/// munmap.
///
/// # Safety
/// As the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(address: *mut c_void, bytes: size_t) -> c_int {
    to_c(mappings::unmap(address as usize, bytes))
}

/// mremap; the last argument is read only with the flags that use it.
///
/// # Safety
/// As the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    address: *mut c_void,
    bytes: size_t,
    new_bytes: size_t,
    flags: c_int,
    new_address: *mut c_void,
) -> *mut c_void {
    let (address, new_address) = (address as usize, new_address as usize);
    to_pointer(remap::remap(RemapRequest { address, bytes, new_bytes, flags, new_address }))
}

entry!(
    /// mprotect; mimalloc's own calls only announce what it is about to use.
    mprotect(*mut c_void, size_t, c_int) -> c_int, "rcx", "x3", serve_mprotect
);

extern "C" fn serve_mprotect(
    address: *mut c_void,
    bytes: size_t,
    protection: c_int,
    caller: usize,
) -> c_int {
    let address = address as usize;
    if callers::is_ours(caller)
        && let Some(process) = process::current()
        && process.arena.contains(address)
    {
        mimalloc::commit(process, address, bytes);
        return 0;
    }
    to_c(protection::protect(address, bytes, protection))
}

/// madvise.
///
/// # Safety
/// As the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(address: *mut c_void, bytes: size_t, advice: c_int) -> c_int {
    to_c(advice::advise(address as usize, bytes, advice))
}

/// posix_madvise, which returns its error.
///
/// # Safety
/// As the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_madvise(
    address: *mut c_void,
    bytes: size_t,
    advice: c_int,
) -> c_int {
    advice::advise_posix(address as usize, bytes, advice).err().unwrap_or(0)
}

/// mincore.
///
/// # Safety
/// As the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mincore(address: *mut c_void, bytes: size_t, vector: *mut u8) -> c_int {
    to_c(advice::in_core(address as usize, bytes, vector))
}

/// mlock.
///
/// # Safety
/// As the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock(address: *const c_void, bytes: size_t) -> c_int {
    to_c(locking::lock(libc::SYS_mlock, address as usize, bytes, 0))
}

/// mlock2.
///
/// # Safety
/// As the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock2(address: *const c_void, bytes: size_t, flags: c_int) -> c_int {
    to_c(locking::lock(libc::SYS_mlock2, address as usize, bytes, flags))
}

/// munlock.
///
/// # Safety
/// As the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munlock(address: *const c_void, bytes: size_t) -> c_int {
    to_c(locking::unlock(address as usize, bytes))
}

/// mlockall.
///
/// # Safety
/// As the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    to_c(locking::lock_all(flags))
}

/// munlockall.
///
/// # Safety
/// As the function of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munlockall() -> c_int {
    to_c(locking::unlock_all())
}
