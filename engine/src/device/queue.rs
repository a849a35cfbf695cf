//! Requests in flight: on an io_uring, or by writer threads where io_uring is forbidden.
//!
//! A queue belongs to one thread, which starts requests and takes their completions; the memory of a
//! request stays held until its completion was taken.
use crate::base::choice::IoBackend;
use crate::base::thread;
use crate::sys::fd;
use crate::sys::fd::Event;
use crate::sys::request::{Pieces, Request};
use crate::sys::uring::Ring;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, mpsc};

/// Threads that stand in for an io_uring: enough to keep a disk busy with large requests.
const THREADS: usize = 4;

/// How a request ended.
#[derive(Debug)]
pub struct Completion {
    /// What [`Queue::start`] was given.
    pub token: u64,
    /// All of it was transferred, or why not.
    pub outcome: io::Result<()>,
}

/// The requests that one thread has under way.
pub struct Queue {
    backend: Backend,
    in_flight: u32,
    depth: u32,
}

enum Backend {
    Uring { ring: Box<Ring>, expected: Vec<usize> },
    Threads(Workers),
}

struct Workers {
    jobs: mpsc::Sender<Job>,
    done: mpsc::Receiver<Completion>,
    finished: Arc<Event>,
}

struct Job {
    request: Request,
    pieces: Pieces,
    token: u64,
}

impl Queue {
    /// A queue for up to `depth` requests; tokens are below `depth`.
    ///
    /// # Errors
    /// io_uring was asked for and is forbidden, or no thread can be had.
    pub fn new(backend: IoBackend, depth: u32) -> io::Result<Self> {
        let backend = match backend {
            IoBackend::Threads => Backend::Threads(Workers::start()?),
            IoBackend::Uring => Self::uring(depth)?,
            IoBackend::Auto => {
                Self::uring(depth).or_else(|_| Workers::start().map(Backend::Threads))?
            }
        };
        Ok(Self { backend, in_flight: 0, depth })
    }

    /// Keeps the devices open until after the process has ended, where the back end can.
    pub fn keep_open(&self, files: &[RawFd]) {
        if let Backend::Uring { ring, .. } = &self.backend {
            ring.keep_open(files);
        }
    }

    fn uring(depth: u32) -> io::Result<Backend> {
        Ok(Backend::Uring { ring: Box::new(Ring::new(depth)?), expected: vec![0; depth as usize] })
    }

    /// Requests started and not yet taken back.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Starts a request. The pieces must stay where they are until its completion is taken.
    pub fn start(&mut self, request: Request, pieces: &Pieces, token: u64) {
        assert!(self.in_flight < self.depth, "a queue is not overfilled");
        match &mut self.backend {
            Backend::Uring { ring, expected } => {
                expected[token as usize] = pieces.bytes();
                ring.start(request, pieces, token);
            }
            Backend::Threads(workers) => workers
                .jobs
                .send(Job { request, pieces: *pieces, token })
                .expect("workers live as long as their queue"),
        }
        self.in_flight += 1;
    }

    /// Takes a finished request, if there is one.
    pub fn finished(&mut self) -> Option<Completion> {
        let completion = match &mut self.backend {
            Backend::Uring { ring, expected } => {
                let (token, result) = ring.reap()?;
                Completion { token, outcome: outcome_of(result, expected[token as usize]) }
            }
            Backend::Threads(workers) => {
                workers.finished.clear();
                workers.done.try_recv().ok()?
            }
        };
        self.in_flight -= 1;
        Some(completion)
    }

    /// Waits until a request has finished; may return early.
    pub fn wait(&mut self) {
        match &mut self.backend {
            Backend::Uring { ring, .. } => ring.wait(),
            Backend::Threads(workers) => {
                fd::poll(&[workers.finished.as_raw_fd(), -1, -1], -1);
            }
        }
    }
}

impl AsRawFd for Queue {
    /// Readable when a request has finished.
    fn as_raw_fd(&self) -> RawFd {
        match &self.backend {
            Backend::Uring { ring, .. } => ring.as_raw_fd(),
            Backend::Threads(workers) => workers.finished.as_raw_fd(),
        }
    }
}

impl Workers {
    fn start() -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let (report, done) = mpsc::channel();
        let queue = Arc::new(Mutex::new(queue));
        let finished = Arc::new(Event::new()?);
        for _ in 0..THREADS {
            let (queue, report, finished) = (queue.clone(), report.clone(), finished.clone());
            let work = move || {
                loop {
                    let next = queue.lock().expect("no worker panics").recv();
                    let Ok(job) = next else { return };
                    let outcome = job.request.transfer(&job.pieces);
                    if report.send(Completion { token: job.token, outcome }).is_err() {
                        return;
                    }
                    finished.signal();
                }
            };
            thread::spawn("userswap-io".into(), work)?;
        }
        Ok(Self { jobs, done, finished })
    }
}

/// A short transfer counts as an error: the caller repeats the whole request at once.
fn outcome_of(result: i32, expected: usize) -> io::Result<()> {
    match usize::try_from(result) {
        Ok(done) if done == expected => Ok(()),
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(_) => Err(io::Error::from_raw_os_error(-result)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::PAGE_BYTES;
    use crate::sys::clock;
    use crate::sys::mapping::Access;
    use crate::sys::mapping::Mapping;
    use crate::sys::pages;
    use crate::sys::request::Direction;

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
            let request =
                Request { fd: file.as_raw_fd(), direction, offset: 8192, not_before_ns: 0 };
            queue.start(request, &pieces, token);
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
            let direction = Direction::Write;
            let request = Request { fd: file.as_raw_fd(), direction, offset: 0, not_before_ns };
            queue.start(request, &pieces, token);
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

    #[test]
    fn what_was_written_is_read_back_by_io_uring() {
        what_was_written_is_read_back_by(IoBackend::Uring);
    }

    #[test]
    fn what_was_written_is_read_back_by_threads() {
        what_was_written_is_read_back_by(IoBackend::Threads);
    }
}
