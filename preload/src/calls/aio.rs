//! POSIX aio: a request and its buffer are kept in RAM until it has ended.
//!
//! The C library's threads carry requests out, with all signals blocked and by calls of their own. What ends a request
//! is a word in it, so each call of this family, by which the program learns of that too, lets go of what has
//! ended. The entry points are as safe as the functions that they stand in for; a thread may be cancelled in them.
use super::held::{Held, is_needed};
use super::signals::is_by_signal;
use crate::abi::allocator;
use crate::abi::next::next_functions;
use crate::abi::raw::{self, Span};
use crate::state::{notices, process};
use libc::{EINPROGRESS, aiocb, c_int, sigevent, ssize_t, timespec};
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};
use userswap::internals::lock::Lock;
use userswap::internals::signal::Blocked;

type List = *const *mut aiocb;

next_functions! {
    fn aio_read(request: *mut aiocb) -> c_int;
    fn aio_read64(request: *mut aiocb) -> c_int;
    fn aio_write(request: *mut aiocb) -> c_int;
    fn aio_write64(request: *mut aiocb) -> c_int;
    fn aio_fsync(operation: c_int, request: *mut aiocb) -> c_int;
    fn aio_fsync64(operation: c_int, request: *mut aiocb) -> c_int;
    fn lio_listio(mode: c_int, list: List, count: c_int, event: *mut sigevent) -> c_int;
    fn lio_listio64(mode: c_int, list: List, count: c_int, event: *mut sigevent) -> c_int;
    fn aio_error(request: *const aiocb) -> c_int;
    fn aio_error64(request: *const aiocb) -> c_int;
    fn aio_return(request: *mut aiocb) -> ssize_t;
    fn aio_return64(request: *mut aiocb) -> ssize_t;
    fn aio_suspend(list: List, count: c_int, limit: *const timespec) -> c_int;
    fn aio_suspend64(list: List, count: c_int, limit: *const timespec) -> c_int;
    fn aio_cancel(fd: c_int, request: *mut aiocb) -> c_int;
    fn aio_cancel64(fd: c_int, request: *mut aiocb) -> c_int;
}

/// Where glibc has the error number of a request: after what its user fills in, a pointer and two numbers.
const ERROR_AT: usize = offset_of!(aiocb, aio_sigevent)
    + size_of::<sigevent>()
    + size_of::<usize>()
    + 2 * size_of::<c_int>();

/// Tells this matter from others in what the job has told.
const MATTER: u64 = 5;

/// Requests that nobody looks at for having ended, unless the program asks for them or there is no room for another.
const LEFT_ALONE: usize = 64;

/// A request on its way.
struct Request {
    /// Tells it from one that was at the same address before, or will be.
    number: u64,
    /// The C library has it: its word says whether it has ended.
    is_given: bool,
    _held: Held,
}

/// By address, as many as the program has given to the C library, which has its own structures for each.
struct Requests {
    known: BTreeMap<usize, Request>,
    /// When there are so many, all are looked at: twice as many as were on their way the last time.
    look_at: usize,
}

impl Requests {
    /// Lets go of all that have ended.
    fn look(&mut self) {
        self.known.retain(|address, request| !request.is_given || is_on_its_way(*address));
        self.look_at = (2 * self.known.len()).max(LEFT_ALONE);
    }
}

static REQUESTS: Lock<Requests> =
    Lock::new(Requests { known: BTreeMap::new(), look_at: LEFT_ALONE });
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// A request and its buffer, and whether there was room for all of it.
fn hold_whole(request: *mut aiocb) -> (Held, bool) {
    let mut held = Held::none();
    let is_kept = held.add_whole(Span::of(request.cast_const(), size_of::<aiocb>()));
    // SAFETY: the program passes a request.
    let copy = unsafe { request.read() };
    let is_kept = is_kept && held.add_whole(Span::of(copy.aio_buf.cast_const(), copy.aio_nbytes));
    (held, is_kept)
}

/// Before the C library gets a request; its number.
fn keep(request: *mut aiocb) -> u64 {
    let (mut held, mut is_kept) = hold_whole(request);
    if !is_kept {
        drop(held);
        settle_all();
        (held, is_kept) = hold_whole(request);
    }
    if !is_kept {
        let line = "requests of aio for more than may be pinned can fail with EFAULT; raise --ram, or make them smaller";
        notices::tell_once(MATTER, b"", format_args!("{line}"));
    }
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    let new = Request { number, is_given: false, _held: held };
    let _blocked = Blocked::new();
    REQUESTS.lock().known.insert(request.addr(), new);
    number
}

/// Lets go of one that is not on its way.
fn forget(request: *mut aiocb, number: u64) {
    let _blocked = Blocked::new();
    let known = &mut REQUESTS.lock().known;
    if known.get(&request.addr()).is_some_and(|known| known.number == number) {
        known.remove(&request.addr());
    }
}

/// The C library has a request now, unless it refused it.
fn give(request: *mut aiocb, number: u64) {
    let _blocked = Blocked::new();
    if let Some(known) = REQUESTS.lock().known.get_mut(&request.addr()) {
        known.is_given |= known.number == number;
    }
}

/// Lets go of what has ended; its memory may be gone by now.
fn settle(requests: impl FnOnce(&mut Requests)) {
    if !is_needed() {
        return;
    }
    let errno = raw::errno();
    let blocked = Blocked::new();
    requests(&mut REQUESTS.lock());
    drop(blocked);
    raw::set_errno(errno);
}

fn settle_all() {
    settle(Requests::look);
}

/// The same where it is time to look: each look is a system call for each request.
fn settle_many() {
    settle(|requests| {
        if requests.known.len() >= requests.look_at {
            requests.look();
        }
    });
}

fn settle_one(request: *const aiocb) {
    settle(|requests| {
        let address = request.addr();
        if requests.known.get(&address).is_some_and(|known| known.is_given)
            && !is_on_its_way(address)
        {
            requests.known.remove(&address);
        }
    });
}

fn is_on_its_way(request: usize) -> bool {
    let mut error = [0; size_of::<c_int>()];
    raw::read_memory(request + ERROR_AT, &mut error) == error.len()
        && c_int::from_ne_bytes(error) == EINPROGRESS
}

/// Whether the C library's threads would be killed: with all signals blocked they look at lists that it takes from the
/// program's malloc, which may be swapped out where that is an allocator of the program's own.
fn is_refused() -> bool {
    let is_engaged = || process::current().is_some_and(|process| process.engine().is_some());
    let is_refused = is_by_signal() && allocator::is_foreign() && is_engaged();
    if is_refused {
        let line = "aio of a program with an allocator of its own fails with ENOSYS beyond its budget; --fault thread serves it";
        notices::tell_once(MATTER, b"refused", format_args!("{line}"));
        raw::set_errno(libc::ENOSYS);
    }
    is_refused
}

/// Gives a request to the C library.
fn submit(request: *mut aiocb, call: impl FnOnce() -> c_int) -> c_int {
    if !is_needed() || request.is_null() {
        return call();
    }
    if is_refused() {
        return -1;
    }
    // Not every program asks for what has ended.
    settle_many();
    let number = keep(request);
    let status = call();
    if status == 0 {
        give(request, number)
    } else {
        forget(request, number)
    }
    status
}

/// Gives it several. Those that it does not take say so.
fn submit_all(list: List, count: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if !is_needed() {
        return call();
    }
    if is_refused() {
        return -1;
    }
    settle_many();
    // Asked for once: the list may be gone when the call returns.
    let mut kept = Vec::new();
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the program passes as many.
        let request = unsafe { list.wrapping_add(index).read() };
        // SAFETY: null, or a request.
        let operation = unsafe { request.as_ref() }.map(|request| request.aio_lio_opcode);
        if matches!(operation, Some(libc::LIO_READ | libc::LIO_WRITE)) {
            kept.push((request, keep(request)));
        }
    }
    let status = call();
    kept.iter().for_each(|(request, number)| give(*request, *number));
    kept.iter().for_each(|(request, _)| settle_one(*request));
    status
}

/// Before fork: no other thread has the list then.
pub fn hold() {
    REQUESTS.hold();
}

/// After fork, in the parent.
pub fn release() {
    REQUESTS.release();
}

/// In the child, in which nobody carries these requests out.
pub fn renew() {
    REQUESTS.release();
    let _blocked = Blocked::new();
    REQUESTS.lock().known.clear();
}

/// Declares entry points, each with how it makes the call after ours.
macro_rules! entries {
    ($( fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty { $served:expr } )+) => {
        mod exported {
            use super::*;
            $(
                #[unsafe(no_mangle)]
                pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
                    let call = || super::$name($($argument),*);
                    $served(call)
                }
            )+
        }
    };
}

/// By which the program learns that some of its requests have ended.
fn and_settle<R>(call: impl FnOnce() -> R) -> R {
    let result = call();
    settle_many();
    result
}

/// By which it learns of one; of any, if it names none.
fn and_settle_one<R>(request: *const aiocb, call: impl FnOnce() -> R) -> R {
    let result = call();
    if request.is_null() {
        settle_all()
    } else {
        settle_one(request)
    }
    result
}

entries! {
    fn aio_read(request: *mut aiocb) -> c_int { |call| submit(request, call) }
    fn aio_read64(request: *mut aiocb) -> c_int { |call| submit(request, call) }
    fn aio_write(request: *mut aiocb) -> c_int { |call| submit(request, call) }
    fn aio_write64(request: *mut aiocb) -> c_int { |call| submit(request, call) }
    fn aio_fsync(operation: c_int, request: *mut aiocb) -> c_int { |call| submit(request, call) }
    fn aio_fsync64(operation: c_int, request: *mut aiocb) -> c_int { |call| submit(request, call) }
    fn lio_listio(mode: c_int, list: List, count: c_int, event: *mut sigevent) -> c_int {
        |call| submit_all(list, count, call)
    }
    fn lio_listio64(mode: c_int, list: List, count: c_int, event: *mut sigevent) -> c_int {
        |call| submit_all(list, count, call)
    }
    fn aio_error(request: *const aiocb) -> c_int { |call| and_settle_one(request, call) }
    fn aio_error64(request: *const aiocb) -> c_int { |call| and_settle_one(request, call) }
    fn aio_return(request: *mut aiocb) -> ssize_t { |call| and_settle_one(request, call) }
    fn aio_return64(request: *mut aiocb) -> ssize_t { |call| and_settle_one(request, call) }
    fn aio_suspend(list: List, count: c_int, limit: *const timespec) -> c_int { and_settle }
    fn aio_suspend64(list: List, count: c_int, limit: *const timespec) -> c_int { and_settle }
    fn aio_cancel(fd: c_int, request: *mut aiocb) -> c_int { |call| and_settle_one(request, call) }
    fn aio_cancel64(fd: c_int, request: *mut aiocb) -> c_int { |call| and_settle_one(request, call) }
}
