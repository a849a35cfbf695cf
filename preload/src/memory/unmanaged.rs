//! Memory of the program that is outside the budget: looked for now and then, and told once.
//!
//! What no call of ours ever saw (raw system calls, sbrk, stacks) can only be found in what the kernel says of the
//! whole process. A look takes some microseconds: it comes with calls on memory that is not managed, ever more
//! seldom, and with fork and the end of the process. Where a lock is held, by whomever, there is none. Nothing
//! is allocated.
use crate::state::notices;
use crate::state::process::{self, Process};
use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use userswap::internals::PAGE_BYTES;
use userswap::internals::process::{anonymous_bytes, most_anonymous_bytes, shared_memory_bytes};
use userswap::internals::signal::Blocked;

/// Tell these matters from others in what the job has told.
const MATTER: u64 = 2;
const SHARED_MATTER: u64 = 8;
/// What libraries, thread stacks and the engine itself may have.
const NEGLIGIBLE_BYTES: u64 = 16 << 20;
/// Calls between two looks, once there have been as many.
const CALLS_MAX: u32 = 64;

static CALLS: AtomicU32 = AtomicU32::new(0);
/// Bytes of files and of shared memory that the program has mapped, all together.
static MAPPED: AtomicU64 = AtomicU64::new(0);

/// A call was about memory that is not managed.
#[inline]
pub fn passed() {
    // Relaxed: looking once more or less is no matter.
    let calls = CALLS.fetch_add(1, Ordering::Relaxed);
    if calls.is_power_of_two() || calls.is_multiple_of(CALLS_MAX) {
        look();
    }
}

/// The program has mapped something else than private memory without a file.
pub fn on_mapped(bytes: usize) {
    // Relaxed: a sum, which is looked at at the end; one that gets lost in between is one call's.
    let sum = MAPPED.load(Ordering::Relaxed).saturating_add(bytes as u64);
    MAPPED.store(sum, Ordering::Relaxed);
}

/// Tells the user if more than a quarter of the budget is outside it.
#[cold]
pub fn look() {
    let Some(process) = process::current() else { return };
    // To read of oneself is to reach a point of cancellation, which the call of the program's is not.
    let _blocked = Blocked::new();
    if let Some(outside) = bytes_outside(process) {
        tell_if_much(process, outside);
    }
    // Relaxed: as above. What was never mapped is not there.
    if is_much(process, MAPPED.load(Ordering::Relaxed))
        && let Some(shared) = shared_memory_bytes()
    {
        tell_if_much_is_shared(process, shared);
    }
}

/// At the end of the process: also if that was so before. A program's runtime may have given back all that it had.
pub fn look_back() {
    look();
    let Some(process) = process::current().filter(|process| process.engine().is_none()) else {
        return;
    };
    let _blocked = Blocked::new();
    // What is managed was never more than that.
    let managed = process.options.ram_bytes.saturating_add(MAPPED.load(Ordering::Relaxed));
    if let Some(most) = most_anonymous_bytes() {
        tell_if_much(process, most.saturating_sub(managed));
    }
}

fn is_much(process: &Process, bytes: u64) -> bool {
    bytes > (process.options.ram_bytes / 4).max(NEGLIGIBLE_BYTES)
}

/// It may be there for other programs as well, and is nobody's private memory.
fn tell_if_much_is_shared(process: &Process, shared: u64) {
    if !is_much(process, shared) {
        return;
    }
    let name = program_name();
    notices::tell_once(
        SHARED_MATTER,
        name.to_bytes(),
        format_args!(
            "{}: {}M of shared memory (memfd, shm, tmpfs) is outside its budget of {}M, which is for private memory: leave \
             it that much more RAM",
            name.to_str().unwrap_or("a program"),
            shared >> 20,
            process.options.ram_bytes >> 20,
        ),
    );
}

fn tell_if_much(process: &Process, outside: u64) {
    if !is_much(process, outside) {
        return;
    }
    let name = program_name();
    notices::tell_once(
        MATTER,
        name.to_bytes(),
        format_args!(
            "{}: {}M of its memory is outside its budget of {}M: it was mapped past userswap (see --raw-calls), or \
             where that cannot manage it; leave it that much more RAM",
            name.to_str().unwrap_or("a program"),
            outside >> 20,
            process.options.ram_bytes >> 20,
        ),
    );
}

/// At least so much is; before the engine has started, what is accessible counts as being there.
fn bytes_outside(process: &Process) -> Option<u64> {
    let pages = match process.engine() {
        Some(engine) => u64::from(engine.try_pages_in_ram()?),
        None => {
            let opened = process.areas.try_lock()?.opened_pages();
            opened + process.heap_pages.load(Ordering::Relaxed)
        }
    };
    Some(anonymous_bytes()?.saturating_sub(pages * PAGE_BYTES as u64))
}

pub(super) fn program_name() -> &'static CStr {
    unsafe extern "C" {
        static program_invocation_short_name: *const libc::c_char;
    }
    // SAFETY: the C library's variable, set before any of the program's code runs.
    let name = unsafe { program_invocation_short_name };
    // SAFETY: a C string for the life of the process, or not yet set.
    if name.is_null() { c"" } else { unsafe { CStr::from_ptr(name) } }
}
