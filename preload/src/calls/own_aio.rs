//! POSIX aio carried out by threads of ours, where the C library's own would be killed.
//!
//! Those look, with all signals blocked, at lists that the C library takes from the program's malloc. Where faults come
//! by signal and that is an allocator of the program's own, the lists may be swapped out. These threads make the
//! program's calls as the program itself would, and have a signal stack as its threads have. As with the C library
//! requests for one file are carried out in their order, and there are at most so many threads.
use super::aio_events::{Event, Group};
use super::signals::is_by_signal;
use crate::abi::allocator;
use crate::abi::raw::{self, Errno, Span};
use libc::{EINPROGRESS, aiocb, c_int, c_void, sigevent};
use std::collections::VecDeque;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicIsize, AtomicU32, AtomicU64, Ordering};
use userswap::internals::futex;
use userswap::internals::lock::Lock;
use userswap::internals::signal::Blocked;

/// As many as the C library has (aio_init(3)).
const THREADS_MAX: usize = 20;
/// To make the program's calls, and to serve faults of its allocator as it makes a thread.
const STACK_BYTES: usize = 256 << 10;
/// The highest priority to give up (AIO_PRIO_DELTA_MAX).
const PRIORITY_MAX: c_int = 20;

/// Where glibc has the error number of a request: after what its user fills in, a pointer and two numbers.
pub const ERROR_AT: usize = offset_of!(aiocb, aio_sigevent)
    + size_of::<sigevent>()
    + size_of::<usize>()
    + 2 * size_of::<c_int>();
/// And what the call has returned.
const RETURNED_AT: usize = ERROR_AT + size_of::<usize>();
const _: () = assert!(RETURNED_AT + size_of::<usize>() == offset_of!(aiocb, aio_offset));

/// What is to be done.
#[derive(Clone, Copy)]
pub enum Act {
    Read,
    Write,
    /// fsync, or fdatasync.
    Sync,
    SyncData,
}

/// A request and what it said when it was made.
struct Order {
    number: u64,
    request: usize,
    fd: c_int,
    act: Act,
    buffer: Span,
    offset: libc::off_t,
    event: Event,
    group: Option<Arc<Group>>,
}

/// In their order, and what threads carry out.
struct Queue {
    orders: VecDeque<Order>,
    /// What each thread has that has something.
    busy: Vec<Busy>,
    threads: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Progress {
    UnderWay,
    /// The program can learn so at any moment.
    Ending,
    /// It may have given the request's memory back, and made it again.
    Ended,
}

/// An order that a thread has taken; its file is the thread's until it takes the next one.
struct Busy {
    /// Tells it from others for the same request.
    number: u64,
    fd: c_int,
    request: usize,
    progress: Progress,
}

static QUEUE: Lock<Queue> =
    Lock::new(Queue { orders: VecDeque::new(), busy: Vec::new(), threads: 0 });
/// Orders that there were.
static NUMBERS: AtomicU64 = AtomicU64::new(0);
/// Requests that have ended.
static ENDED: AtomicU32 = AtomicU32::new(0);

/// Whether the C library's threads would be killed.
pub fn is_needed() -> bool {
    is_by_signal() && allocator::is_foreign()
}

/// The error number of a request, EINPROGRESS until it has ended.
fn error_of(request: usize) -> &'static AtomicI32 {
    // SAFETY: a request of the program's, which it keeps until that has ended.
    unsafe { &*((request + ERROR_AT) as *const AtomicI32) }
}

/// What the program learns of a request: the error number comes last.
fn note(request: usize, returned: isize, error: Errno) {
    // SAFETY: as above.
    let returned_at = unsafe { &*((request + RETURNED_AT) as *const AtomicIsize) };
    returned_at.store(returned, Ordering::Relaxed);
    error_of(request).store(error, Ordering::Release);
}

fn fail(error: Errno) -> c_int {
    raw::set_errno(error);
    -1
}

/// Takes a request; 0, or -1 with errno set.
pub fn submit(request: *mut aiocb, act: Act, group: Option<Arc<Group>>) -> c_int {
    // SAFETY: the program passes a request.
    let asked = unsafe { request.read() };
    let address = request.addr();
    let is_wrong = !(0..=PRIORITY_MAX).contains(&asked.aio_reqprio);
    let error = if is_wrong { Some(libc::EINVAL) } else { cannot(act, asked.aio_fildes) };
    if let Some(error) = error {
        return refuse(address, error);
    }
    note(address, 0, EINPROGRESS);
    let order = Order {
        number: NUMBERS.fetch_add(1, Ordering::Relaxed),
        request: address,
        fd: asked.aio_fildes,
        act,
        buffer: Span::of(asked.aio_buf.cast_const(), asked.aio_nbytes),
        offset: asked.aio_offset,
        event: Event::of(&asked.aio_sigevent),
        group,
    };
    // Else there is no thread, and none can be made.
    if push(order) { 0 } else { refuse(address, libc::EAGAIN) }
}

fn refuse(request: usize, error: Errno) -> c_int {
    note(request, -1, error);
    fail(error)
}

/// The error with which a request is refused at once.
fn cannot(act: Act, fd: c_int) -> Option<Errno> {
    if matches!(act, Act::Read | Act::Write) {
        return None;
    }
    // SAFETY: asks for flags only.
    (unsafe { libc::fcntl(fd, libc::F_GETFL) } < 0).then_some(libc::EBADF)
}

/// Queues an order, and makes a thread if one may carry it out at once; false if there is none at all.
fn push(order: Order) -> bool {
    let (fd, number) = (order.fd, order.number);
    let blocked = Blocked::new();
    let mut queue = QUEUE.lock();
    let waits = queue.busy.iter().any(|other| other.fd == fd)
        || queue.orders.iter().any(|other| other.fd == fd)
        || queue.threads == THREADS_MAX;
    queue.orders.push_back(order);
    queue.threads += usize::from(!waits);
    drop(queue);
    if waits {
        return true;
    }
    // The thread inherits what is blocked. By its name it is the program's, which does not end before it.
    let thread = std::thread::Builder::new().name("aio".into());
    let is_made = thread.stack_size(STACK_BYTES).spawn(run).is_ok();
    drop(blocked);
    is_made || give_up(number)
}

/// Without the thread that it was to have: where there is no other, nothing that is queued is carried out. False if this
/// one is refused so; others learn it from their requests.
fn give_up(number: u64) -> bool {
    let blocked = Blocked::new();
    let mut queue = QUEUE.lock();
    queue.threads -= 1;
    let stranded = match queue.threads {
        0 => std::mem::take(&mut queue.orders),
        _ => VecDeque::new(),
    };
    drop(queue);
    drop(blocked);
    let mut is_taken = true;
    for order in stranded {
        if order.number == number {
            is_taken = false;
        } else {
            order.say(Err(libc::EAGAIN));
            order.tell();
        }
    }
    is_taken
}

/// One of the threads, which ends when there is nothing for it.
fn run() {
    let mut before = None;
    while let Some(order) = next(before) {
        before = Some(order.number);
        let outcome = order.carry_out();
        mark(order.number, Progress::Ending);
        order.say(outcome);
        mark(order.number, Progress::Ended);
        order.tell();
    }
}

fn mark(number: u64, progress: Progress) {
    let _blocked = Blocked::new();
    let mut queue = QUEUE.lock();
    let of_it = queue.busy.iter_mut().find(|busy| busy.number == number);
    of_it.into_iter().for_each(|busy| busy.progress = progress);
}

/// The first order for a file that no other thread has, after the last one of this thread.
fn next(before: Option<u64>) -> Option<Order> {
    let _blocked = Blocked::new();
    let mut queue = QUEUE.lock();
    let Queue { orders, busy, threads } = &mut *queue;
    busy.retain(|busy| Some(busy.number) != before);
    let is_free = |order: &Order| busy.iter().all(|busy| busy.fd != order.fd);
    let order = orders.iter().position(is_free).and_then(|index| orders.remove(index));
    match &order {
        Some(order) => {
            let Order { number, fd, request, .. } = *order;
            busy.push(Busy { number, fd, request, progress: Progress::UnderWay });
        }
        None => *threads -= 1,
    }
    order
}

fn outcome(returned: isize) -> Result<isize, Errno> {
    if returned >= 0 { Ok(returned) } else { Err(raw::errno()) }
}

impl Order {
    /// What the call returns. A file without places is read and written as it comes.
    fn carry_out(&self) -> Result<isize, Errno> {
        let first = outcome(self.call(true));
        if first == Err(libc::ESPIPE) { outcome(self.call(false)) } else { first }
    }

    /// The program's own call, on its memory, which gets what its calls get: these functions are ours.
    fn call(&self, has_place: bool) -> isize {
        let (fd, Span { address, bytes }) = (self.fd, self.buffer);
        let buffer = address as *mut c_void;
        match (self.act, has_place) {
            // SAFETY: the program answers for its call, here and in what follows.
            (Act::Read, true) => unsafe { libc::pread(fd, buffer, bytes, self.offset) },
            // SAFETY: as above.
            (Act::Read, false) => unsafe { libc::read(fd, buffer, bytes) },
            // SAFETY: as above.
            (Act::Write, true) => unsafe { libc::pwrite(fd, buffer, bytes, self.offset) },
            // SAFETY: as above.
            (Act::Write, false) => unsafe { libc::write(fd, buffer, bytes) },
            // SAFETY: as above.
            (Act::Sync, _) => unsafe { libc::fsync(fd) as isize },
            // SAFETY: as above.
            (Act::SyncData, _) => unsafe { libc::fdatasync(fd) as isize },
        }
    }

    /// Says so. The request may be gone as soon as it has.
    fn say(&self, outcome: Result<isize, Errno>) {
        note(self.request, outcome.unwrap_or(-1), outcome.err().unwrap_or(0));
        ENDED.fetch_add(1, Ordering::Release);
        futex::wake_all(&ENDED);
    }

    fn tell(self) {
        self.event.tell();
        self.group.iter().for_each(|group| group.leave());
    }
}

/// Waits until one of some requests has ended, or a signal comes (EINTR), or a time is over (EAGAIN).
pub fn suspend(requests: &[usize], limit: Option<libc::timespec>) -> c_int {
    /// Between two looks whether this thread is to be cancelled.
    const LOOK_NS: u64 = 100_000_000;
    let start = std::time::Instant::now();
    let limit = limit.map(|limit| {
        (limit.tv_sec.max(0) as u64).saturating_mul(1_000_000_000) + limit.tv_nsec.max(0) as u64
    });
    loop {
        let seen = ENDED.load(Ordering::Acquire);
        let has_ended = |request: &usize| error_of(*request).load(Ordering::Acquire) != EINPROGRESS;
        if requests.is_empty() || requests.iter().any(has_ended) {
            return 0;
        }
        let left = limit.map(|limit| limit.saturating_sub(start.elapsed().as_nanos() as u64));
        if left == Some(0) {
            return fail(libc::EAGAIN);
        }
        // SAFETY: has no conditions.
        unsafe { pthread_testcancel() };
        raw::set_errno(0);
        futex::wait_for(&ENDED, seen, left.unwrap_or(u64::MAX).min(LOOK_NS));
        if raw::errno() == libc::EINTR {
            return -1;
        }
    }
}

/// Waits until all have ended; false if a signal comes before.
pub fn finish(requests: &[usize]) -> bool {
    requests.iter().all(|request| suspend(std::slice::from_ref(request), None) == 0)
}

/// Whether all have ended without an error.
pub fn are_well(requests: &[usize]) -> bool {
    requests.iter().all(|request| error_of(*request).load(Ordering::Acquire) == 0)
}

/// Takes requests for a file off the queue: all, or one. What aio_cancel(3) returns.
pub fn cancel(fd: c_int, request: *const aiocb) -> c_int {
    // SAFETY: asks for flags only.
    if unsafe { libc::fcntl(fd, libc::F_GETFL) } < 0 {
        return fail(libc::EBADF);
    }
    // SAFETY: null, or a request of the program's.
    if unsafe { request.as_ref() }.is_some_and(|request| request.aio_fildes != fd) {
        return fail(libc::EINVAL);
    }
    let (is_under_way, cancelled) = take_off(fd, request.addr());
    let is_any = !cancelled.is_empty();
    for order in cancelled {
        order.say(Err(libc::ECANCELED));
        order.tell();
    }
    match (is_under_way, is_any) {
        (true, _) => libc::AIO_NOTCANCELED,
        (false, true) => libc::AIO_CANCELED,
        (false, false) => libc::AIO_ALLDONE,
    }
}

/// Orders of a file, or for one request of it, that nobody has begun; and whether there are others.
fn take_off(fd: c_int, request: usize) -> (bool, Vec<Order>) {
    let is_meant = |of: c_int, at: usize| of == fd && (request == 0 || request == at);
    loop {
        let _blocked = Blocked::new();
        let mut queue = QUEUE.lock();
        let meant = queue.busy.iter().filter(|busy| is_meant(busy.fd, busy.request));
        let progress: Vec<_> = meant.map(|busy| busy.progress).collect();
        if progress.contains(&Progress::Ending) {
            // Another thread is about to say so.
            drop(queue);
            std::thread::yield_now();
            continue;
        }
        let orders = std::mem::take(&mut queue.orders);
        let (taken, left) = orders.into_iter().partition(|order| is_meant(order.fd, order.request));
        queue.orders = left;
        let taken: VecDeque<Order> = taken;
        return (progress.contains(&Progress::UnderWay), taken.into());
    }
}

/// Before fork: no other thread has the queue then.
pub fn hold() {
    QUEUE.hold();
}

/// After fork, in the parent.
pub fn release() {
    QUEUE.release();
}

/// In the child, in which nobody carries these requests out.
pub fn renew() {
    QUEUE.release();
    let _blocked = Blocked::new();
    *QUEUE.lock() = Queue { orders: VecDeque::new(), busy: Vec::new(), threads: 0 };
}

unsafe extern "C-unwind" {
    fn pthread_testcancel();
}
