//! Requests by every way of doing them.
use super::*;
use crate::sys::PAGE_BYTES;
use crate::sys::mapping::Access;
use crate::sys::mapping::Mapping;
use crate::sys::pages;
use crate::sys::request::Direction;
use crate::sys::request::Request as Plan;

fn on_file(plan: Plan) -> Request {
    Request::new(plan, Backing::File)
}

fn what_was_written_is_read_back_by(backend: IoBackend) {
    let file = fd::memory_file().unwrap();
    let memory = Mapping::new(8 * PAGE_BYTES, Access::ReadWrite).unwrap();
    let from = memory.address();
    pages::view_mut(from, 4 * PAGE_BYTES).fill(0x5a);
    let mut queue = Queue::new(backend, 4).unwrap();
    for (token, direction, address) in
        [(0, Direction::Write, from), (1, Direction::Read, from + 4 * PAGE_BYTES)]
    {
        let pieces = Pieces::one(address, 4 * PAGE_BYTES);
        let request = Plan::new(file.as_raw_fd(), direction, 8192);
        queue.start(&on_file(request), &pieces, token);
        let done = loop {
            match queue.finished() {
                Some(done) => break done,
                None => queue.wait(),
            }
        };
        assert_eq!(done.token, token);
        done.outcome.unwrap();
    }
    assert_eq!(pages::bytes(from, 4), pages::bytes(from + 4 * PAGE_BYTES, 4));
    assert_eq!(queue.in_flight(), 0);
}

fn a_request_ends_no_sooner_than_it_may_by(backend: IoBackend) {
    let file = fd::memory_file().unwrap();
    let memory = Mapping::new(PAGE_BYTES, Access::ReadWrite).unwrap();
    let mut queue = Queue::new(backend, 4).unwrap();
    let moment = clock::now_ns() + 20_000_000;
    for (token, not_before_ns) in [(0, moment), (1, 0)] {
        let pieces = Pieces::one(memory.address(), PAGE_BYTES);
        let request = Plan::new(file.as_raw_fd(), Direction::Write, 0);
        let request = request.no_sooner_than(not_before_ns);
        queue.start(&on_file(request), &pieces, token);
    }
    let mut ended = [0; 2];
    for _ in 0..2 {
        let done = loop {
            match queue.finished() {
                Some(done) => break done,
                None => queue.wait(),
            }
        };
        done.outcome.unwrap();
        ended[done.token as usize] = clock::now_ns();
    }
    assert!(ended[0] >= moment && ended[1] < ended[0], "{moment} {ended:?}");
    assert_eq!(queue.in_flight(), 0);
}

#[test]
fn a_request_ends_no_sooner_than_it_may() {
    a_request_ends_no_sooner_than_it_may_by(IoBackend::Uring);
    a_request_ends_no_sooner_than_it_may_by(IoBackend::Threads);
}

/// One request with a failure made; what it ended with, and the memory after it.
fn injected_into(backend: IoBackend, direction: Direction, injected: Injected) -> Ended {
    let file = fd::memory_file().unwrap();
    let memory = Mapping::new(2 * PAGE_BYTES, Access::ReadWrite).unwrap();
    let pieces = Pieces::one(memory.address(), 2 * PAGE_BYTES);
    pages::view_mut(memory.address(), 2 * PAGE_BYTES).fill(0x5a);
    let request = Plan::new(file.as_raw_fd(), direction, 0);
    if direction == Direction::Read {
        Plan::new(file.as_raw_fd(), Direction::Write, 0).transfer(&pieces).unwrap();
    }
    let mut queue = Queue::new(backend, 4).unwrap();
    queue.start(&on_file(Plan { injected: Some(injected), ..request }), &pieces, 3);
    let done = loop {
        match queue.finished() {
            Some(done) => break done,
            None => queue.wait(),
        }
    };
    assert_eq!((done.token, queue.in_flight()), (3, 0));
    let written = file.metadata().unwrap().len() as usize;
    let right = pages::bytes(memory.address(), 2).iter().filter(|byte| **byte == 0x5a).count();
    Ended { outcome: done.outcome, written, right }
}

struct Ended {
    outcome: io::Result<()>,
    written: usize,
    right: usize,
}

#[test]
fn what_is_injected_happens_by_every_way_of_doing_requests() {
    for backend in [IoBackend::Uring, IoBackend::Threads] {
        let write = |injected| injected_into(backend, Direction::Write, injected);
        let failed = write(Injected::Fails(libc::ENOMEM));
        assert_eq!(failed.outcome.unwrap_err().raw_os_error(), Some(libc::ENOMEM));
        assert_eq!(failed.written, 0);
        let torn = write(Injected::Torn);
        assert!(torn.outcome.is_ok());
        assert_eq!(torn.written, PAGE_BYTES);
        let short = write(Injected::Short);
        assert_eq!(short.outcome.unwrap_err().kind(), io::ErrorKind::WriteZero);
        let flipped = injected_into(backend, Direction::Read, Injected::Flipped);
        assert!(flipped.outcome.is_ok());
        assert_eq!(flipped.right, 2 * PAGE_BYTES - 1);
    }
}

#[test]
fn what_the_kernel_has_no_worker_for_is_done_at_once() {
    let file = fd::memory_file().unwrap();
    let memory = Mapping::new(2 * PAGE_BYTES, Access::ReadWrite).unwrap();
    pages::view_mut(memory.address(), PAGE_BYTES).fill(0x5a);
    let mut queue = Queue::new(IoBackend::Uring, 4).unwrap();
    let mut end_of = |fd, direction, at, code| {
        let pieces = Pieces::one(memory.address() + at, PAGE_BYTES);
        let request = Plan { injected: code, ..Plan::new(fd, direction, 0) };
        queue.start(&on_file(request), &pieces, 3);
        loop {
            match queue.finished() {
                Some(done) => {
                    return (done.outcome.map_err(|error| error.raw_os_error()), done.token);
                }
                None => queue.wait(),
            }
        }
    };
    let file = file.as_raw_fd();
    let cancelled = Some(Injected::Fails(libc::ECANCELED));
    assert_eq!(end_of(file, Direction::Write, 0, cancelled), (Err(Some(libc::ECANCELED)), 3));
    assert_eq!(end_of(file, Direction::Write, 0, None), (Ok(()), 3));
    assert_eq!(end_of(file, Direction::Read, PAGE_BYTES, None), (Ok(()), 3));
    assert_eq!(end_of(-1, Direction::Read, 0, None), (Err(Some(libc::EBADF)), 3));
    assert_eq!(pages::bytes(memory.address(), 1), pages::bytes(memory.address() + PAGE_BYTES, 1));
    assert_eq!(queue.in_flight(), 0);
}

#[test]
fn requests_that_wait_keep_no_thread_from_others() {
    let file = fd::memory_file().unwrap();
    let memory = Mapping::new(PAGE_BYTES, Access::ReadWrite).unwrap();
    let pieces = Pieces::one(memory.address(), PAGE_BYTES);
    let mut queue = Queue::new(IoBackend::Threads, 16).unwrap();
    let request = Plan::new(file.as_raw_fd(), Direction::Write, 0);
    // For longer than any test takes: they end with the queue.
    let late = request.no_sooner_than(clock::now_ns() + 3_600_000_000_000);
    (0..2 * THREADS as u64).for_each(|token| queue.start(&on_file(late), &pieces, token));
    queue.start(&on_file(request), &pieces, 15);
    let done = loop {
        match queue.finished() {
            Some(done) => break done,
            None => queue.wait(),
        }
    };
    assert_eq!(done.token, 15);
}

#[test]
fn what_was_written_is_read_back_by_io_uring() {
    what_was_written_is_read_back_by(IoBackend::Uring);
}

#[test]
fn what_was_written_is_read_back_by_threads() {
    what_was_written_is_read_back_by(IoBackend::Threads);
}
