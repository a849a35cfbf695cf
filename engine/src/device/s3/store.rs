//! The device: how its slots are read, written, forgotten and inherited.
use super::address::Address;
use super::credentials::Credentials;
use super::log::{Appended, Found, Log, Moved, Writer};
use super::server::{Part, Server};
use super::sign::Signer;
use crate::device::far::{Far, Inherited};
use crate::device::remote::{self, tls::Tls};
use crate::sys::lock::Lock;
use crate::sys::request::{Direction, Pieces};
use crate::sys::thread::Thread;
use crate::sys::{PAGE_BYTES, clock};
use std::fmt::{self, Display};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use userswap_policy::lent::SlotWord;
use userswap_policy::segments::Segment;
use userswap_policy::slots::SlotRun;

/// How long a write waits for room in memory before it says that it has failed for now.
const PATIENCE_NS: u64 = 5_000_000_000;

/// Seconds for which objects are kept once their process has begun to end: it may still read them.
const ENDING_S: u32 = 10;

/// How often a reader looks where a page is that was moved meanwhile.
const LOOKS_MAX: u32 = 8;

/// What does not change.
#[derive(Clone)]
pub struct Config {
    /// What the user has named.
    pub address: Address,
    /// Where that is.
    pub at: SocketAddr,
    /// The key to it.
    pub credentials: Credentials,
    /// By what it is spoken to, if not in plain text.
    pub tls: Option<Arc<Tls>>,
    /// Slots, the header included.
    pub slots: u32,
    /// The engine's number, part of every object's name.
    pub engine: u64,
}

/// The device.
pub struct S3 {
    pub(super) config: Config,
    pub(super) log: Log,
    pub(super) server: Server,
    /// What the threads are to do.
    pub(super) wanted: AtomicU32,
    /// Seconds that objects are kept for after the lease was written.
    pub(super) lease_s: AtomicU32,
    /// The process that this was made by.
    process: u32,
    pub(super) threads: Lock<Vec<Thread>>,
}

/// An object of an engine, as requests name it.
pub struct Object<'a> {
    pub(super) config: &'a Config,
    pub(super) name: Name,
}

/// What an object is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Name {
    /// It has pages.
    Segment(u32),
    /// It says that the engine lives.
    Lease,
    /// It is there to see whether it can be.
    Probe,
}

impl Display for Object<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Config { address, engine, .. } = self.config;
        write!(f, "/{}/{}/{engine:016x}/", address.bucket, address.prefix)?;
        match self.name {
            Name::Segment(number) => write!(f, "{number:08x}"),
            Name::Lease => f.write_str("lease"),
            Name::Probe => f.write_str("probe"),
        }
    }
}

impl fmt::Debug for S3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.config.address)
    }
}

impl Config {
    pub(super) fn object(&self, name: Name) -> Object<'_> {
        Object { config: self, name }
    }
}

impl S3 {
    /// An empty one; nothing is asked yet.
    ///
    /// # Errors
    /// No address space.
    pub fn new(mut config: Config) -> io::Result<Self> {
        // With threads of its own, in what may be another process.
        config.tls = config.tls.map(|tls| Arc::new(tls.another()));
        let signer = Signer::new(&config.address, &config.credentials);
        Ok(Self {
            log: Log::new(config.slots, config.address.options.segment_pages())?,
            server: Server::new(config.at, config.tls.clone(), signer)?,
            wanted: AtomicU32::new(0),
            lease_s: AtomicU32::new(config.address.options.lease_s()),
            process: std::process::id(),
            threads: Lock::new(Vec::new()),
            config,
        })
    }

    pub(super) fn object_of(&self, segment: Segment) -> Object<'_> {
        self.config.object(Name::Segment(segment.number))
    }

    fn lease_for(&self, lease_s: u32) {
        self.lease_s.store(lease_s, Ordering::Relaxed);
        // The process may be gone before the thread comes to it.
        let _ = self.keep_lease();
        self.want_lease();
    }

    /// Reads pages, as many together as lie together. What is not there is left as it is, if something is: who wants it
    /// has its checksum.
    fn read(&self, first: u32, pieces: &Pieces, count: usize) -> io::Result<()> {
        let (mut done, mut found, mut looks) = (0, 0, 0);
        while done < count {
            let part = Part { pieces, skip: done, count: count - done };
            let slot = first + done as u32;
            let (place, together) = match self.log.find(slot, part) {
                (Found::Nothing, missing) => {
                    done += missing;
                    continue;
                }
                (Found::Copied, copied) => {
                    (done, found, looks) = (done + copied, found + copied, 0);
                    continue;
                }
                (Found::Stored(place), together) => (place, together),
            };
            let part = Part { count: together, ..part };
            match self.server.read(&self.object_of(place.segment), place.index, part) {
                Ok(()) => (done, found, looks) = (done + together, found + together, 0),
                // It was moved between the look and the request; then it is somewhere else now.
                Err(error) if is_gone(&error) && looks < LOOKS_MAX => {
                    looks += 1;
                    if self.log.place(slot) == Some(place) {
                        // The store has lost it.
                        done += 1;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        if found > 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ENODATA)) }
    }

    /// Writes pages to memory, from where they go on together.
    fn write(&self, first: u32, pieces: &Pieces, count: usize) -> io::Result<()> {
        let moved =
            |done: usize| move |nth: usize| Moved { slot: first + (done + nth) as u32, index: 0 };
        let mut done = 0;
        while done < count {
            let part = Part { pieces, skip: done, count: count - done };
            let slots = &moved(done);
            done += self.append_patiently(&Appended { slots, part, writer: Writer::Request })?;
        }
        Ok(())
    }

    /// Appends pages as soon as there is room; how many.
    ///
    /// # Errors
    /// There is none for too long.
    pub(super) fn append_patiently(&self, appended: &Appended) -> io::Result<usize> {
        let begun = clock::now_ns();
        loop {
            let seen = self.log.room();
            let count = self.log.append(appended)?;
            if count > 0 {
                // Perhaps it is full by that.
                self.want_upload();
                return Ok(count);
            }
            let waited = clock::now_ns() - begun;
            if waited >= PATIENCE_NS {
                return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
            }
            self.log.wait_for_room(seen, PATIENCE_NS - waited);
        }
    }
}

/// Whether there is no such object.
pub(super) fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOENT)
}

impl Far for S3 {
    fn transfer(&self, direction: Direction, offset: u64, pieces: &Pieces) -> io::Result<()> {
        let first = (offset / PAGE_BYTES as u64) as u32;
        // Less than a page, of a request that is cut short on purpose, stays out.
        let count = pieces.iter().map(|piece| piece.bytes / PAGE_BYTES).sum();
        match direction {
            Direction::Read => self.read(first, pieces, count),
            Direction::Write => self.write(first, pieces, count),
        }
    }

    fn forget(&self, run: SlotRun) {
        if self.log.forget(run) {
            self.want_tidying();
        }
    }

    fn start(self: Arc<Self>) -> io::Result<()> {
        self.start_threads()
    }

    /// Destructors may still read pages; what is left is deleted by the next engine that uses the prefix. Not by a child
    /// that has our memory (vfork).
    fn shorten(&self) {
        if self.process == std::process::id() && self.log.has_begun() {
            self.lease_for(ENDING_S);
        }
    }

    fn lengthen(&self) {
        let lease_s = self.config.address.options.lease_s();
        if self.process == std::process::id() && self.lease_s.load(Ordering::Relaxed) != lease_s {
            self.lease_for(lease_s);
        }
    }

    fn leave(&self) {
        self.stop_threads();
        self.server.disconnect();
        self.config.tls.iter().for_each(|tls| tls.leave());
    }

    fn end(&self, _is_shared: bool) {
        self.stop_threads();
        self.join_threads();
        self.delete_everything();
        self.leave();
        self.config.tls.iter().for_each(|tls| tls.end());
    }

    /// Pages move from object to object, which another process could not follow.
    fn can_be_lent(&self) -> bool {
        false
    }

    fn another(&self) -> io::Result<Box<dyn Far>> {
        let engine = remote::open::number()?;
        Ok(Box::new(Self::new(Config { engine, ..self.config.clone() })?))
    }

    fn borrowed(&self, _: &mut dyn Iterator<Item = SlotWord>) -> io::Result<Box<dyn Far>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn copied(&self, _: &mut dyn Iterator<Item = SlotWord>) -> io::Result<Inherited> {
        Ok(Inherited::File)
    }

    fn adopt(&mut self) {}
}
