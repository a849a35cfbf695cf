//! TLS to servers: `rediss://`, and `https://` to stores of objects.
//!
//! Hands are shaken by a library that allocates, and looks at a hundred kilobytes of certificates: not on a thread that
//! faults by signal, nor on a stack that is the program's. Four threads of the device (*hands*) do it for whoever needs a
//! connection, who waits for them; before they are started, and after they have ended, a thread that lives only for that. From then on who
//! needs a page sends and receives by itself (`records`), as without TLS.
pub mod files;
mod handshake;
pub mod records;
pub mod trust;

use super::line::Line;
use crate::sys::futex;
use crate::sys::lock::Lock;
use crate::sys::signal::Blocked;
use crate::sys::thread::Thread;
use records::Session;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use trust::Trust;

/// Connections that are made at a time: one server that does not answer does not keep the others waiting.
const HANDS: usize = 4;

/// Set in the calls of a hand whose thread is to end.
const OVER: u32 = 1 << 31;

/// TLS to the servers of a device, in one process.
pub struct Tls {
    trust: Arc<Trust>,
    hands: [Hand; HANDS],
    /// A bit for each that nobody waits for.
    free: AtomicU32,
    /// Whether they have threads.
    is_served: AtomicBool,
    threads: Lock<Vec<Thread>>,
}

/// What makes one connection at a time.
struct Hand {
    job: Lock<Job>,
    /// Counts what there was to look at.
    calls: AtomicU32,
    /// Counts what was done.
    done: AtomicU32,
}

/// A connection to be made, or made.
enum Job {
    Nothing,
    Asked(SocketAddr, Option<Box<Session>>),
    Ended(io::Result<Line>),
}

impl Tls {
    /// By certificates, without threads.
    pub fn new(trust: Arc<Trust>) -> Self {
        Self {
            trust,
            hands: [const { Hand::new() }; HANDS],
            free: AtomicU32::new((1 << HANDS) - 1),
            is_served: AtomicBool::new(false),
            threads: Lock::new(Vec::new()),
        }
    }

    /// By the same certificates, for another device or process.
    pub fn another(&self) -> Self {
        Self::new(self.trust.clone())
    }

    /// Why a server was refused last.
    pub fn refusal(&self) -> Option<String> {
        self.trust.refusal()
    }

    /// Starts the threads, unless they run. A caller has signals blocked, which they inherit.
    ///
    /// # Errors
    /// No thread is to be had.
    pub fn start(self: &Arc<Self>) -> io::Result<()> {
        let mut threads = self.threads.lock();
        while threads.len() < HANDS {
            let (tls, index) = (self.clone(), threads.len());
            threads.push(Thread::spawn("userswap-tls", move || tls.serve(index))?);
        }
        self.is_served.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Has the threads end, which nobody waits for.
    pub fn leave(&self) {
        self.is_served.store(false, Ordering::SeqCst);
        for hand in &self.hands {
            hand.calls.fetch_or(OVER, Ordering::SeqCst);
            futex::wake_all(&hand.calls);
        }
    }

    /// After that: waits for them.
    pub fn end(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        threads.into_iter().for_each(Thread::join);
    }

    /// Has a connection made, and waits for it. What is left of the one before is freed on the way.
    ///
    /// # Errors
    /// As for [`handshake::shake_hands`]; or no thread is to be had.
    pub fn dial(self: &Arc<Self>, to: SocketAddr, spent: Option<Box<Session>>) -> io::Result<Line> {
        let index = self.claim();
        let hand = &self.hands[index];
        let seen = hand.done.load(Ordering::Acquire);
        *hand.job.lock() = Job::Asked(to, spent);
        hand.calls.fetch_add(1, Ordering::SeqCst);
        futex::wake_all(&hand.calls);
        // After the job is there, against `serve`, which looks for one after this has become false.
        if !self.is_served.load(Ordering::SeqCst)
            && let Err(error) = self.serve_once(index)
            && hand.take().is_some()
        {
            hand.end(Err(error));
        }
        while hand.done.load(Ordering::Acquire) == seen {
            futex::wait(&hand.done, seen);
        }
        let job = std::mem::replace(&mut *hand.job.lock(), Job::Nothing);
        // Release: whoever claims it next finds it empty.
        self.free.fetch_or(1 << index, Ordering::Release);
        futex::wake_one(&self.free);
        match job {
            Job::Ended(outcome) => outcome,
            Job::Nothing | Job::Asked(..) => unreachable!("what is done has ended"),
        }
    }

    fn claim(&self) -> usize {
        loop {
            let free = self.free.load(Ordering::Relaxed);
            if free == 0 {
                futex::wait(&self.free, 0);
                continue;
            }
            let taken = free & (free - 1);
            let order = Ordering::Acquire;
            if self.free.compare_exchange_weak(free, taken, order, Ordering::Relaxed).is_ok() {
                return free.trailing_zeros() as usize;
            }
        }
    }

    /// What a thread of the device does.
    fn serve(&self, index: usize) {
        let hand = &self.hands[index];
        loop {
            let calls = hand.calls.load(Ordering::SeqCst);
            self.work(index);
            if calls >= OVER {
                return;
            }
            futex::wait(&hand.calls, calls);
        }
    }

    /// A thread for one job.
    fn serve_once(self: &Arc<Self>, index: usize) -> io::Result<()> {
        let tls = self.clone();
        let _blocked = Blocked::new();
        Thread::spawn("userswap-tls", move || tls.work(index)).map(Thread::detach)
    }

    /// Makes the connection that is asked for, unless another thread does.
    fn work(&self, index: usize) {
        let hand = &self.hands[index];
        if let Some((to, spent)) = hand.take() {
            drop(spent);
            hand.end(handshake::shake_hands(&self.trust, to));
        }
    }
}

impl Hand {
    const fn new() -> Self {
        let (calls, done) = (AtomicU32::new(0), AtomicU32::new(0));
        Self { job: Lock::new(Job::Nothing), calls, done }
    }

    /// What is to be done, which is then the caller's.
    fn take(&self) -> Option<(SocketAddr, Option<Box<Session>>)> {
        let mut job = self.job.lock();
        match std::mem::replace(&mut *job, Job::Nothing) {
            Job::Asked(to, spent) => Some((to, spent)),
            other => {
                *job = other;
                None
            }
        }
    }

    /// An error that would have to be freed does not go to whoever waits.
    fn end(&self, outcome: io::Result<Line>) {
        let number = |error: io::Error| error.raw_os_error().unwrap_or(libc::EPROTO);
        let outcome = outcome.map_err(|error| io::Error::from_raw_os_error(number(error)));
        *self.job.lock() = Job::Ended(outcome);
        self.done.fetch_add(1, Ordering::Release);
        futex::wake_all(&self.done);
    }
}

#[cfg(test)]
mod tests {
    use super::files::Files;
    use super::trust::Remedies;
    use super::*;
    use std::net::TcpListener;

    /// Of an authority that has signed nothing.
    const AUTHORITY: &str = "\
-----BEGIN CERTIFICATE-----
MIIBbjCCARWgAwIBAgIUVO6+rJGgozsjL+5Ohak7Bqr0OncwCgYIKoZIzj0EAwIw
DTELMAkGA1UEAwwCY2EwHhcNMjYxMTIyMjMyMjAxWhcNMjYxMTI0MjMyMjAxWjAN
MQswCQYDVQQDDAJjYTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABIyXsiNGqHQR
CDuIB0xbazOJAfmDz5fTofMhEkDxeSRx5mERhsLVY1JqSKK11c2EDJ+mnfdxH7fS
rE/2k7jJAXmjUzBRMB0GA1UdDgQWBBRvUiHP5ddmGd+NjgYoY9+i7VtxzjAfBgNV
HSMEGDAWgBRvUiHP5ddmGd+NjgYoY9+i7VtxzjAPBgNVHRMBAf8EBTADAQH/MAoG
CCqGSM49BAMCA0cAMEQCIBO3kxscivJIEf4vwsJ4mTKb3tbW45lRLMzbHB+hel5k
AiBpPXxq74qhNpyffJGwx1798zKSC2QIqi36dlmSycN6RQ==
-----END CERTIFICATE-----
";

    fn tls() -> Arc<Tls> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), AUTHORITY).unwrap();
        let files = Files { cacert: Some(file.path().to_owned()), ..Files::default() };
        let remedies = &Remedies { name: "", version: "", plain: "" };
        let trust = Trust::new(&[], &files, remedies).unwrap();
        Arc::new(Tls::new(Arc::new(trust)))
    }

    /// Asks until it is over; only where there is nobody that is said.
    fn ask(
        tls: &Arc<Tls>,
        to: SocketAddr,
        is_nobody: bool,
        is_over: &AtomicBool,
        count: &AtomicU32,
    ) {
        while !is_over.load(Ordering::Relaxed) {
            let error = tls.dial(to, None).err().expect("nobody speaks TLS there");
            assert_eq!(error.raw_os_error() == Some(libc::ECONNREFUSED), is_nobody, "{error}");
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn wait_for_more(answers: &[AtomicU32; 2]) {
        let count = |answers: &AtomicU32| answers.load(Ordering::Relaxed);
        let seen = answers.each_ref().map(count);
        while answers.iter().zip(seen).any(|(answers, seen)| count(answers) - seen < 100) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn everybody_gets_the_answer_of_the_server_that_they_asked_for_whoever_makes_connections() {
        let tls = tls();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let closing = listener.local_addr().unwrap();
        let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
        let (is_over, is_asked) = (AtomicBool::new(false), Arc::new(AtomicBool::new(true)));
        let server = std::thread::spawn({
            let is_asked = is_asked.clone();
            move || {
                let mut connections = listener.incoming();
                while connections.next().is_some() && is_asked.load(Ordering::Relaxed) {}
            }
        });
        // More threads than hands; at first without threads of the device, then with them, then without again.
        let answers = [AtomicU32::new(0), AtomicU32::new(0)];
        std::thread::scope(|scope| {
            for number in 0..12 {
                let (tls, answers, is_over) = (&tls, &answers, &is_over);
                let (to, answers) = ([nobody, closing][number % 2], &answers[number % 2]);
                scope.spawn(move || ask(tls, to, to == nobody, is_over, answers));
            }
            let more = || wait_for_more(&answers);
            more();
            tls.start().unwrap();
            more();
            tls.leave();
            tls.end();
            more();
            is_over.store(true, Ordering::Relaxed);
        });
        is_asked.store(false, Ordering::Relaxed);
        // It waits for one more.
        let _ = std::net::TcpStream::connect(closing);
        server.join().unwrap();
        assert_eq!(tls.free.load(Ordering::Relaxed), (1 << HANDS) - 1, "every hand is free");
    }
}
