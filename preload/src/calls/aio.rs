//! POSIX aio: a request and its buffer are kept in RAM until it has ended.
//!
//! The C library's threads carry requests out, with all signals blocked and by calls of their own. What ends a request
//! is a word in it, so each call of this family, by which the program learns of that too, lets go of what has
//! ended. The entry points are as safe as the functions that they stand in for; a thread may be cancelled in them.
use super::aio_events::Group;
use super::held::{Held, is_needed};
use super::own_aio::{self, Act, ERROR_AT};
use crate::abi::next::next_functions;
use crate::abi::raw::{self, Span};
use crate::state::notices;
use libc::{EINPROGRESS, aiocb, c_int, sigevent, ssize_t, timespec};
use std::collections::BTreeMap;
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
    // One that has ended, of which the program did not ask: its pins go before the new ones come.
    let blocked = Blocked::new();
    let before = REQUESTS.lock().known.remove(&request.addr());
    drop((before, blocked));
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

/// Gives a request to the C library, or to threads of ours.
fn submit(request: *mut aiocb, act: Act, call: impl FnOnce() -> c_int) -> c_int {
    if !is_needed() || request.is_null() {
        return call();
    }
    if own_aio::is_needed() {
        return own_aio::submit(request, act, None);
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

fn sync(operation: c_int, request: *mut aiocb, call: impl FnOnce() -> c_int) -> c_int {
    match operation {
        libc::O_SYNC => submit(request, Act::Sync, call),
        libc::O_DSYNC => submit(request, Act::SyncData, call),
        // Refused.
        _ => call(),
    }
}

/// Which are there.
fn listed(list: List, count: c_int) -> impl Iterator<Item = *mut aiocb> {
    // SAFETY: the program passes as many.
    let at = move |index| unsafe { list.wrapping_add(index).read() };
    (0..usize::try_from(count).unwrap_or(0)).map(at).filter(|request| !request.is_null())
}

/// Gives it several. Those that it does not take say so.
fn submit_all(list: List, count: c_int, call: impl FnOnce() -> c_int) -> c_int {
    settle_many();
    // Asked for once: the list may be gone when the call returns.
    let mut kept = Vec::new();
    for request in listed(list, count) {
        if act_of(request).is_some() {
            kept.push((request, keep(request)));
        }
    }
    let status = call();
    kept.iter().for_each(|(request, number)| give(*request, *number));
    kept.iter().for_each(|(request, _)| settle_one(*request));
    status
}

fn submit_list(
    mode: c_int,
    list: List,
    count: c_int,
    event: *const sigevent,
    call: impl FnOnce() -> c_int,
) -> c_int {
    match (is_needed(), own_aio::is_needed()) {
        (false, _) => call(),
        (true, false) => submit_all(list, count, call),
        (true, true) => carry_out_all(mode, list, count, event),
    }
}

/// What one of a list is for; None if for nothing.
fn act_of(request: *mut aiocb) -> Option<Act> {
    // SAFETY: the program passes a request.
    match unsafe { request.read() }.aio_lio_opcode {
        libc::LIO_READ => Some(Act::Read),
        libc::LIO_WRITE => Some(Act::Write),
        _ => None,
    }
}

/// Has threads of ours carry out several; what lio_listio(3) returns.
fn carry_out_all(mode: c_int, list: List, count: c_int, event: *const sigevent) -> c_int {
    let does_wait = mode == libc::LIO_WAIT;
    if !does_wait && mode != libc::LIO_NOWAIT {
        raw::set_errno(libc::EINVAL);
        return -1;
    }
    let group = Group::new(if does_wait { std::ptr::null() } else { event });
    let mut given = Vec::new();
    let mut is_refused = false;
    for request in listed(list, count) {
        let Some(act) = act_of(request) else { continue };
        match own_aio::submit(request, act, Some(group.join())) {
            0 => given.push(request.addr()),
            _ => {
                is_refused = true;
                group.leave();
            }
        }
    }
    group.leave();
    if does_wait && !own_aio::finish(&given) {
        return -1;
    }
    if is_refused || does_wait && !own_aio::are_well(&given) {
        raw::set_errno(libc::EIO);
        return -1;
    }
    0
}

/// Waits for one of ours.
fn suspend(
    list: List,
    count: c_int,
    limit: *const timespec,
    call: impl FnOnce() -> c_int,
) -> c_int {
    if !own_aio::is_needed() {
        return and_settle(call);
    }
    let requests: Vec<_> = listed(list, count).map(|request| request.addr()).collect();
    // SAFETY: null, or a time of the program's.
    own_aio::suspend(&requests, unsafe { limit.as_ref() }.copied())
}

fn cancel(fd: c_int, request: *mut aiocb, call: impl FnOnce() -> c_int) -> c_int {
    if !own_aio::is_needed() {
        return and_settle_one(request, call);
    }
    own_aio::cancel(fd, request)
}

/// Before fork: no other thread has the lists then.
pub fn hold() {
    REQUESTS.hold();
    own_aio::hold();
}

/// After fork, in the parent.
pub fn release() {
    own_aio::release();
    REQUESTS.release();
}

/// In the child, in which nobody carries these requests out.
pub fn renew() {
    own_aio::renew();
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
    fn aio_read(request: *mut aiocb) -> c_int { |call| submit(request, Act::Read, call) }
    fn aio_read64(request: *mut aiocb) -> c_int { |call| submit(request, Act::Read, call) }
    fn aio_write(request: *mut aiocb) -> c_int { |call| submit(request, Act::Write, call) }
    fn aio_write64(request: *mut aiocb) -> c_int { |call| submit(request, Act::Write, call) }
    fn aio_fsync(operation: c_int, request: *mut aiocb) -> c_int { |call| sync(operation, request, call) }
    fn aio_fsync64(operation: c_int, request: *mut aiocb) -> c_int { |call| sync(operation, request, call) }
    fn lio_listio(mode: c_int, list: List, count: c_int, event: *mut sigevent) -> c_int {
        |call| submit_list(mode, list, count, event, call)
    }
    fn lio_listio64(mode: c_int, list: List, count: c_int, event: *mut sigevent) -> c_int {
        |call| submit_list(mode, list, count, event, call)
    }
    fn aio_error(request: *const aiocb) -> c_int { |call| and_settle_one(request, call) }
    fn aio_error64(request: *const aiocb) -> c_int { |call| and_settle_one(request, call) }
    fn aio_return(request: *mut aiocb) -> ssize_t { |call| and_settle_one(request, call) }
    fn aio_return64(request: *mut aiocb) -> ssize_t { |call| and_settle_one(request, call) }
    fn aio_suspend(list: List, count: c_int, limit: *const timespec) -> c_int {
        |call| suspend(list, count, limit, call)
    }
    fn aio_suspend64(list: List, count: c_int, limit: *const timespec) -> c_int {
        |call| suspend(list, count, limit, call)
    }
    fn aio_cancel(fd: c_int, request: *mut aiocb) -> c_int { |call| cancel(fd, request, call) }
    fn aio_cancel64(fd: c_int, request: *mut aiocb) -> c_int { |call| cancel(fd, request, call) }
}
