//! The memory calls as the program calls them: results become -1 and errno here, and nowhere else.
//!
//! The entry points here are as safe as the functions of the C library that they stand in for.
use super::own_stack::on_own_stack;
use super::program_break::{self, To};
use super::protection::Key;
use super::{
    advice, advised_lists, commitment, locking, mappings, origins, protection, remap, segments,
    unmanaged,
};
use crate::abi::callers::{self, entry};
use crate::abi::next;
use crate::abi::raw::{self, Errno, MapRequest, RemapRequest, Span, set_errno};
use crate::abi::system_call::Arguments;
use crate::calls::{arguments, by_number, trap};
use crate::state::process;
use libc::{c_int, c_long, c_uint, c_ulong, c_void, off_t, size_t, ssize_t};

fn or<T>(outcome: Result<T, Errno>, failed: T) -> T {
    outcome.unwrap_or_else(|error| {
        set_errno(error);
        failed
    })
}

fn to_c(outcome: Result<usize, Errno>) -> c_int {
    or(outcome.map(|value| value as c_int), -1)
}

fn to_pointer(outcome: Result<usize, Errno>) -> *mut c_void {
    or(outcome.map(|address| address as *mut c_void), libc::MAP_FAILED)
}

/// In the constructor: what is called by number does not go through the functions, where a library may have written a
/// jump to itself.
pub fn start() {
    by_number::serve_memory(serve_number);
}

fn serve_number(number: c_long, arguments: &Arguments) -> Option<usize> {
    let [address, bytes, third, fourth, fifth, sixth] = *arguments;
    let (span, flags) = (Span { address, bytes }, fourth as c_int);
    let outcome = match number {
        libc::SYS_mmap => {
            let (protection, fd, offset) = (third as c_int, fifth as c_int, sixth as off_t);
            map(MapRequest { address, bytes, protection, flags, fd, offset })
        }
        libc::SYS_munmap => unmap(span),
        libc::SYS_mremap => {
            let (new_bytes, new_address) = (third, fifth);
            remap(RemapRequest { address, bytes, new_bytes, flags, new_address })
        }
        libc::SYS_madvise => advise(span, third as c_int),
        libc::SYS_process_madvise => on_own_stack(|| advised_lists::advise(arguments))?,
        libc::SYS_mseal => seal(span, third),
        // Where the break is then, also where it may not go.
        libc::SYS_brk => Ok(go(To::Address(address))?.now),
        _ => return None,
    };
    Some(or(outcome, usize::MAX))
}

fn map(request: MapRequest) -> Result<usize, Errno> {
    trap::follow();
    let MapRequest { bytes, flags, fd, .. } = request;
    let outcome = on_own_stack(|| mappings::map(request));
    if outcome.is_ok() && (fd >= 0 || flags & libc::MAP_SHARED != 0) {
        unmanaged::on_mapped(bytes);
    }
    if outcome.is_ok_and(|address| !process::is_managed(address)) {
        unmanaged::passed();
    }
    outcome
}

fn unmap(span: Span) -> Result<usize, Errno> {
    if !process::is_managed(span.address) {
        unmanaged::passed();
    }
    on_own_stack(|| mappings::unmap(span))
}

fn remap(request: RemapRequest) -> Result<usize, Errno> {
    let origin = origins::of_page(request.address);
    on_own_stack(|| remap::remap(request)).inspect(|address| {
        origins::moved(Span { address: *address, bytes: request.new_bytes }, origin);
        if !process::is_managed(*address) {
            unmanaged::on_mapped(request.new_bytes);
        }
    })
}

fn advise(span: Span, advice: c_int) -> Result<usize, Errno> {
    on_own_stack(|| advice::advise(span, advice))
}

/// What is sealed could not be taken from the program and given back any more: of managed memory it is as with a kernel that
/// cannot seal.
fn seal(span: Span, flags: usize) -> Result<usize, Errno> {
    match process::current().and_then(|process| process.within_arena(span)) {
        Some(_) => Err(libc::ENOSYS),
        None => raw::seal(span, flags),
    }
}

fn go(to: To) -> Option<program_break::Moved> {
    let process = process::current()?;
    Some(on_own_stack(|| program_break::go(process, to)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn brk(address: *mut c_void) -> c_int {
    match go(To::Address(address as usize)) {
        Some(moved) => to_c(moved.outcome().map(|()| 0)),
        None => next::brk(address),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sbrk(bytes: isize) -> *mut c_void {
    match go(To::By(bytes)) {
        Some(moved) => to_pointer(moved.outcome().map(|()| moved.before)),
        None => next::sbrk(bytes),
    }
}

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
    to_pointer(map(MapRequest { address, bytes, protection, flags, fd, offset }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    address: *mut c_void,
    bytes: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the same function by its other name.
    unsafe { mmap(address, bytes, protection, flags, fd, offset) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(address: *mut c_void, bytes: size_t) -> c_int {
    to_c(unmap(Span::of(address, bytes)))
}

/// mremap; the last argument is read only with the flags that use it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    address: *mut c_void,
    bytes: size_t,
    new_bytes: size_t,
    flags: c_int,
    new_address: *mut c_void,
) -> *mut c_void {
    let (address, new_address) = (address as usize, new_address as usize);
    to_pointer(remap(RemapRequest { address, bytes, new_bytes, flags, new_address }))
}

/// How much it is, is not told here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shmat(id: c_int, address: *const c_void, flags: c_int) -> *mut c_void {
    unmanaged::on_mapped(usize::MAX);
    match on_own_stack(|| segments::attach(id, address.addr(), flags)) {
        Some(attached) => to_pointer(attached),
        None => next::shmat(id, address, flags),
    }
}

/// Before it is gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shmdt(address: *const c_void) -> c_int {
    unmanaged::look();
    match on_own_stack(|| segments::detach(address.addr())) {
        Some(detached) => to_c(detached),
        None => next::shmdt(address),
    }
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
    let span = Span::of(address, bytes);
    if callers::is_ours(caller)
        && let Some(process) = process::current()
        && process.arena.contains(span.address)
    {
        on_own_stack(|| commitment::commit(process, span));
        return 0;
    }
    if !process::is_managed(span.address) {
        unmanaged::passed();
    }
    to_c(on_own_stack(|| protection::protect(span, protection, Key::Kept)))
}

/// pkey_mprotect; without a key (-1) it is mprotect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pkey_mprotect(
    address: *mut c_void,
    bytes: size_t,
    protection: c_int,
    key: c_int,
) -> c_int {
    let key = if key == -1 { Key::Kept } else { Key::Given(key) };
    to_c(on_own_stack(|| protection::protect(Span::of(address, bytes), protection, key)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(address: *mut c_void, bytes: size_t, advice: c_int) -> c_int {
    to_c(advise(Span::of(address, bytes), advice))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn process_madvise(
    descriptor: c_int,
    list: *const libc::iovec,
    count: size_t,
    advice: c_int,
    flags: c_uint,
) -> ssize_t {
    let given = [descriptor as usize, list.addr(), count, advice as usize, flags as usize];
    by_number::serve(libc::SYS_process_madvise, &arguments::of(given)) as ssize_t
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mseal(address: *mut c_void, bytes: size_t, flags: c_ulong) -> c_int {
    to_c(seal(Span::of(address, bytes), flags as usize))
}

/// posix_madvise, which returns its error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_madvise(
    address: *mut c_void,
    bytes: size_t,
    advice: c_int,
) -> c_int {
    on_own_stack(|| advice::advise_posix(Span::of(address, bytes), advice)).err().unwrap_or(0)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mincore(address: *mut c_void, bytes: size_t, vector: *mut u8) -> c_int {
    to_c(on_own_stack(|| advice::in_core(Span::of(address, bytes), vector)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock(address: *const c_void, bytes: size_t) -> c_int {
    to_c(on_own_stack(|| locking::lock(libc::SYS_mlock, Span::of(address, bytes), 0)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock2(address: *const c_void, bytes: size_t, flags: c_int) -> c_int {
    to_c(on_own_stack(|| locking::lock(libc::SYS_mlock2, Span::of(address, bytes), flags)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn munlock(address: *const c_void, bytes: size_t) -> c_int {
    to_c(on_own_stack(|| locking::unlock(Span::of(address, bytes))))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    to_c(on_own_stack(|| locking::lock_all(flags)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn munlockall() -> c_int {
    to_c(on_own_stack(locking::unlock_all))
}
