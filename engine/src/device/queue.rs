//! Requests in flight: on an io_uring, or by threads where that is forbidden, and where a server is asked.
//!
//! A queue belongs to one thread, which starts requests and takes their completions; the memory of a
//! request stays held until its completion was taken.
use crate::base::choice::IoBackend;
use crate::device::request::{Backing, Request};
use crate::sys::clock;
use crate::sys::fd;
use crate::sys::fd::Event;
use crate::sys::request::{self as kernel, Injected, Piece, Pieces};
use crate::sys::thread::Thread;
use crate::sys::uring::Ring;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::Duration;

/// Threads that stand in for an io_uring, or talk to servers: enough to keep a disk busy with large requests.
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
    talkers: Talkers,
    in_flight: u32,
    depth: u32,
}

enum Backend {
    Uring { ring: Box<Ring>, started: Vec<Started>, carried: Carried },
    Threads(Workers),
}

/// Who carries out what a ring is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Carried {
    ByKernel,
    /// The thread itself, at once: what would wait in the kernel needs a worker there, and the user's limit on threads (RLIMIT_NPROC)
    /// leaves none.
    AtOnce,
}

/// What a ring has under way.
#[derive(Default)]
struct Started {
    /// Bytes that are to be transferred.
    bytes: usize,
    /// What is to happen to it, for tests.
    injected: Option<(Injected, Piece)>,
    /// What is transferred then.
    pieces: Option<Box<Pieces>>,
    /// What became of it, if it was carried out at once.
    ended: Option<io::Result<()>>,
}

/// Who talks to servers, beside a ring.
enum Talkers {
    /// They come by this when somebody has started them: not the queue's own thread, which would wait for them to run. What
    /// the C library looks at as a thread begins may be on a page that this very queue is to bring.
    Awaited(mpsc::Receiver<Workers>),
    There(Workers),
}

impl Talkers {
    fn there(&mut self) -> Option<&Workers> {
        if let Self::Awaited(coming) = self
            && let Ok(workers) = coming.try_recv()
        {
            *self = Self::There(workers);
        }
        match self {
            Self::There(workers) => Some(workers),
            Self::Awaited(_) => None,
        }
    }
}

/// Threads that do requests one by one.
pub struct Workers {
    jobs: Arc<Jobs>,
    done: mpsc::Receiver<Completion>,
    finished: Arc<Event>,
}

struct Job {
    request: Request,
    pieces: Pieces,
    token: u64,
}

/// What the workers are to do, and whether more will come. One that may not end yet keeps no worker from the others.
#[derive(Default)]
struct Jobs {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    jobs: Vec<Job>,
    is_over: bool,
}

impl Jobs {
    fn push(&self, job: Job) {
        self.waiting.lock().expect("no worker panics").jobs.push(job);
        self.changed.notify_one();
    }

    /// The next job whose time has come; None when there will be none.
    fn next(&self) -> Option<Job> {
        let mut waiting = self.waiting.lock().expect("no worker panics");
        while !waiting.is_over {
            let now = clock::now_ns();
            let moments = waiting.jobs.iter().map(|job| job.request.plan.not_before_ns).enumerate();
            let earliest = moments.min_by_key(|(_, not_before_ns)| (*not_before_ns).max(now));
            waiting = match earliest {
                Some((index, moment)) if moment <= now => return Some(waiting.jobs.remove(index)),
                Some((_, moment)) => {
                    let left = Duration::from_nanos(moment - now);
                    self.changed.wait_timeout(waiting, left).expect("no worker panics").0
                }
                None => self.changed.wait(waiting).expect("no worker panics"),
            };
        }
        None
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.jobs.waiting.lock().expect("no worker panics").is_over = true;
        self.jobs.changed.notify_all();
    }
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
        let (_, coming) = mpsc::channel();
        Ok(Self { backend, talkers: Talkers::Awaited(coming), in_flight: 0, depth })
    }

    /// How talkers come to it, if it needs any for servers: until then their requests are done at once.
    pub fn for_talkers(&mut self) -> Option<mpsc::Sender<Workers>> {
        let Backend::Uring { .. } = self.backend else { return None };
        let (to, coming) = mpsc::channel();
        self.talkers = Talkers::Awaited(coming);
        Some(to)
    }

    /// Keeps the devices open until after the process has ended, where the back end can.
    pub fn keep_open(&self, files: &[RawFd]) {
        if let Backend::Uring { ring, .. } = &self.backend {
            ring.keep_open(files);
        }
    }

    fn uring(depth: u32) -> io::Result<Backend> {
        let started = (0..depth).map(|_| Started::default()).collect();
        let ring = Box::new(Ring::new(depth)?);
        Ok(Backend::Uring { ring, started, carried: Carried::ByKernel })
    }

    /// Requests started and not yet taken back.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Whether it can carry out requests for slots that are there; those for others are done at once.
    pub fn carries(&mut self, backing: &Backing) -> bool {
        match (backing, &self.backend) {
            (Backing::Zram(_) | Backing::Packed(_) | Backing::Mapped, _) => false,
            (Backing::File | Backing::Memory, _) => true,
            (Backing::Remote(_), Backend::Threads(_)) => true,
            (Backing::Remote(_), Backend::Uring { .. }) => self.talkers.there().is_some(),
        }
    }

    /// Starts a request that it carries. The pieces must stay where they are until its completion is taken.
    pub fn start(&mut self, request: &Request, pieces: &Pieces, token: u64) {
        assert!(self.in_flight < self.depth, "a queue is not overfilled");
        let job = || Job { request: request.clone(), pieces: *pieces, token };
        match (&mut self.backend, &self.talkers, &request.backing) {
            (Backend::Uring { ring, .. }, Talkers::There(talkers), Backing::Remote(_)) => {
                talkers.jobs.push(job());
                ring.watch(talkers.finished.as_raw_fd());
            }
            (Backend::Uring { ring, started, carried: Carried::ByKernel }, ..) => {
                let (entry, plan) = (&mut started[token as usize], request.plan);
                *entry = Started::of(plan, pieces);
                ring.start(plan, entry.pieces.as_deref().unwrap_or(pieces), token);
            }
            (Backend::Uring { ring, started, carried: Carried::AtOnce }, ..) => {
                let ended = Some(request.transfer(pieces));
                started[token as usize] = Started { ended, ..Started::default() };
                ring.complete(token);
            }
            (Backend::Threads(workers), ..) => workers.jobs.push(job()),
        }
        self.in_flight += 1;
    }

    /// What is started from here on may wait for others, until there are so many `together`, of which a device is told at once, or
    /// until [`Queue::end_groups`].
    pub fn begin_groups(&mut self, together: usize) {
        if let Backend::Uring { ring, .. } = &mut self.backend {
            ring.begin_groups(together);
        }
    }

    /// Has the device told of what was started.
    pub fn end_groups(&mut self) {
        if let Backend::Uring { ring, .. } = &mut self.backend {
            ring.end_groups();
        }
    }

    /// Takes a finished request, if there is one.
    pub fn finished(&mut self) -> Option<Completion> {
        let completion = match (&mut self.backend, &self.talkers) {
            (Backend::Uring { ring, started, carried }, talkers) => match (ring.reap(), talkers) {
                (Some((token, result)), _) => {
                    let outcome = started[token as usize].outcome(result);
                    if outcome.as_ref().is_err_and(is_cancelled) {
                        *carried = Carried::AtOnce;
                    }
                    Some(Completion { token, outcome })
                }
                (None, Talkers::There(talkers)) => {
                    let finished = talkers.finished();
                    // What ends from here on is seen at once.
                    ring.watch(talkers.finished.as_raw_fd());
                    finished
                }
                (None, Talkers::Awaited(_)) => None,
            },
            (Backend::Threads(workers), _) => workers.finished(),
        };
        self.in_flight -= u32::from(completion.is_some());
        completion
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

impl Started {
    fn of(request: kernel::Request, pieces: &Pieces) -> Self {
        let Some(injected) = request.injected else {
            return Self { bytes: pieces.bytes(), ..Self::default() };
        };
        let mut transferred = *pieces;
        if !injected.cut(&mut transferred) {
            transferred.clear();
        }
        Self {
            bytes: transferred.bytes(),
            injected: Some((injected, pieces.first())),
            pieces: Some(Box::new(transferred)),
            ended: None,
        }
    }

    fn outcome(&mut self, result: i32) -> io::Result<()> {
        if let Some(ended) = self.ended.take() {
            return ended;
        }
        let outcome = outcome_of(result, self.bytes);
        match self.injected {
            None => outcome,
            Some((injected, first)) => injected.outcome(outcome, first),
        }
    }
}

impl Workers {
    /// Starts them. A caller has signals blocked, which they inherit.
    ///
    /// # Errors
    /// No thread or no descriptor is to be had.
    pub fn start() -> io::Result<Self> {
        let (report, done) = mpsc::channel();
        let jobs = Arc::new(Jobs::default());
        let finished = Arc::new(Event::new()?);
        for _ in 0..THREADS {
            let (jobs, report, finished) = (jobs.clone(), report.clone(), finished.clone());
            let work = move || {
                while let Some(job) = jobs.next() {
                    let outcome = job.request.transfer(&job.pieces);
                    if report.send(Completion { token: job.token, outcome }).is_err() {
                        return;
                    }
                    finished.signal();
                }
            };
            Thread::spawn("userswap-io", work)?.detach();
        }
        Ok(Self { jobs, done, finished })
    }

    fn finished(&self) -> Option<Completion> {
        self.finished.clear();
        self.done.try_recv().ok()
    }
}

/// Nobody cancels a request of ours: there is no worker for it.
fn is_cancelled(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ECANCELED)
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
mod tests;
