//! A device whose slots live in the memory of other machines: what `redis://` and `rediss://` name.
//!
//! What reads or writes a slot talks to the server on the calling thread: a fault by signal is one round trip, with no other
//! thread in between, and allocates nothing. Threads that have many requests under way leave that to helpers of theirs
//! (`device::queue`). Whatever goes wrong is an error number, and `device::retry` knows what it is worth.
//!
//! A server keeps slots as long as their engine lives, and not much longer: every group of them has an expiry, which a
//! thread of the device puts off (`keeper`). The same thread deletes slots a while after they are free. What is written to
//! such a slot meanwhile takes it back, and waits for a deletion that is under way.
mod address;
mod cluster;
mod copies;
mod devices;
mod keeper;
mod keys;
mod line;
mod moves;
pub mod open;
mod options;
mod seconds;
mod server;
mod survey;
mod talk;
pub(in crate::device) mod tls;
pub(in crate::device) mod wire;

pub use address::{Address, Scheme, check_password, has_prefix, hide_password, is_meant};
pub use options::{ALLOWED, Copies, Options, names_file};

use crate::sys::PAGE_BYTES;
use crate::sys::futex;
use crate::sys::lock::Lock;
use crate::sys::mapping::ZeroedSlice;
use crate::sys::request::{Direction, Pieces};
use crate::sys::thread::Thread;
use cluster::Cluster;
use copies::Stale;
pub(in crate::device) use keys::Copy;
use keys::Key;
use seconds::Seconds;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use talk::Act;
use tls::Tls;
use userswap_policy::lent::SlotWord;
use userswap_policy::slots::SlotRun;

/// Groups of which slots are being deleted at a time.
const DELETING_MAX: usize = 64;

/// No group.
const NOBODY: u32 = u32::MAX;

/// Groups in one conversation: 2 MiB at least, more than a request is of.
const WORDS_MAX: usize = 9;

/// Seconds for which slots are kept once their process has begun to end: it may still read them.
const ENDING_S: u32 = 10;

/// What does not change.
#[derive(Clone)]
pub struct Config {
    /// What the user has named.
    pub address: Address,
    /// The same, for messages.
    said: String,
    /// What the servers ask for.
    password: Option<open::Secret>,
    /// Slots, the header included.
    slots: u32,
    /// How many servers have each slot.
    copies: Copies,
    /// Where the second copies are.
    seconds: Seconds,
    /// How long what nobody keeps outlives the engine, in seconds.
    lease_s: u32,
    /// The engine's number, part of every key.
    engine: u64,
    /// What the servers know our connections as.
    name: String,
    /// How they are spoken to, if not in plain text.
    tls: Option<Arc<Tls>>,
    /// To which servers pages may be written.
    reach: Reach,
}

/// How far pages may go: a cluster can send us to servers that were none of it when it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reach {
    /// Nobody on the way can read them.
    Anywhere,
    /// They can be read: they stay on this machine.
    Loopback,
}

impl Reach {
    fn of(is_encrypted: bool, scheme: Scheme) -> Self {
        match scheme {
            Scheme::Plain if !is_encrypted => Self::Loopback,
            Scheme::Plain | Scheme::Tls => Self::Anywhere,
        }
    }

    fn includes(self, address: SocketAddr) -> bool {
        self == Self::Anywhere || address.ip().is_loopback()
    }
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.config.address)
    }
}

/// What this process may do with the slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// It writes and deletes them.
    Owner,
    /// It reads them, and has them kept for as long as it does.
    Borrower,
}

/// The device.
pub struct Remote {
    config: Config,
    part: Part,
    /// The process that this was made by.
    process: u32,
    cluster: Cluster,
    /// A word for each group: the slots that may hold something.
    held: ZeroedSlice<AtomicU64>,
    /// The same: those of them that are free, and still to be deleted.
    unwanted: ZeroedSlice<AtomicU64>,
    /// Which slots have one copy that is of any use.
    stale: Stale,
    /// The groups of which slots are being deleted at this moment.
    deleting: [AtomicU32; DELETING_MAX],
    /// Changes when some have been.
    deletions: AtomicU32,
    /// Seconds that groups are kept for.
    lease_s: AtomicU32,
    /// The thread that does that.
    keeper: Lock<Option<Thread>>,
    /// What it is to do.
    wanted: AtomicU32,
}

impl Remote {
    fn new(mut config: Config, part: Part, cluster: Cluster) -> io::Result<Self> {
        // With threads of its own, in what may be another process.
        config.tls = config.tls.map(|tls| Arc::new(tls.another()));
        let groups = config.slots.div_ceil(u64::BITS) as usize;
        Ok(Self {
            part,
            process: std::process::id(),
            cluster,
            held: ZeroedSlice::new(groups)?,
            unwanted: ZeroedSlice::new(groups)?,
            stale: Stale::new(groups)?,
            deleting: [const { AtomicU32::new(NOBODY) }; DELETING_MAX],
            deletions: AtomicU32::new(0),
            lease_s: AtomicU32::new(config.lease_s),
            keeper: Lock::new(None),
            wanted: AtomicU32::new(keeper::NOTHING),
            config,
        })
    }

    /// In a forked child: an empty one beside this, with connections of its own.
    ///
    /// # Errors
    /// No memory for tables, or no randomness.
    pub fn another(&self) -> io::Result<Self> {
        let engine = open::number()?;
        let config = Config { engine, name: open::name(engine), ..self.config.clone() };
        Self::new(config, Part::Owner, self.cluster.another()?)
    }

    /// In a forked child: what goes on reading these slots of the parent's, with connections of its own.
    ///
    /// # Errors
    /// No memory for tables.
    pub fn borrowed(&self, slots: impl Iterator<Item = SlotWord>) -> io::Result<Self> {
        let remote = Self::new(self.config.clone(), Part::Borrower, self.cluster.another()?)?;
        slots.for_each(|word| {
            remote.stale.inherit(&self.stale, word.index);
            remote.held[word.index].store(word.mask, Ordering::Relaxed);
        });
        Ok(remote)
    }

    /// A copy of slots, made by the servers, for a child that cannot borrow them.
    ///
    /// # Errors
    /// A server cannot be reached, or has no room.
    pub fn copied(&self, slots: impl Iterator<Item = SlotWord>) -> io::Result<Self> {
        let engine = open::number()?;
        let config = Config { engine, name: open::name(engine), ..self.config.clone() };
        let copy = Self::new(config, Part::Owner, self.cluster.another()?)?;
        for word in slots.filter(|word| word.mask != 0) {
            self.act_on_all(Act::Copy { to: &copy }, &[word])?;
            copy.stale.inherit(&self.stale, word.index);
            let held = self.held[word.index].load(Ordering::Relaxed);
            copy.held[word.index].store(held, Ordering::Relaxed);
            copy.unwanted[word.index].store(held & !word.mask, Ordering::Relaxed);
        }
        Ok(copy)
    }

    /// In a forked child: what its parent has made for it is its own.
    pub fn adopt(&mut self) {
        self.process = std::process::id();
    }

    fn key(&self, group: usize, copy: Copy) -> Key {
        let config = &self.config;
        Key::new(&config.address.prefix, group, config.engine, copy, &config.seconds)
    }

    fn lease_s(&self) -> u32 {
        self.lease_s.load(Ordering::Relaxed)
    }

    /// Transfers whole pages at once, and reads one copy rather than the other; what is less than one, of a request that is cut short on purpose, stays out.
    ///
    /// # Errors
    /// What has gone wrong, as the number that a disk would say it with; ENODATA where there is nothing.
    pub fn transfer(
        &self,
        direction: Direction,
        preferred: Copy,
        offset: u64,
        pieces: &Pieces,
    ) -> io::Result<()> {
        let first = (offset / PAGE_BYTES as u64) as u32;
        let count = pieces.iter().map(|piece| (piece.bytes / PAGE_BYTES) as u32).sum();
        let act = |words: &[SlotWord]| match direction {
            Direction::Read => self.read(preferred, (first, pieces), words),
            Direction::Write => {
                words.iter().for_each(|word| self.take_back(*word));
                self.act_on_all(Act::Write { first, from: pieces, missed: None }, words)
            }
        };
        let mut words = [SlotWord { index: 0, mask: 0 }; WORDS_MAX];
        let mut filled = 0;
        for word in SlotWord::of(SlotRun { first, count }) {
            if filled == WORDS_MAX {
                act(&words)?;
                filled = 0;
            }
            words[filled] = word;
            filled += 1;
        }
        act(&words[..filled])
    }

    /// Slots are about to be written: they are not deleted any more.
    fn take_back(&self, word: SlotWord) {
        loop {
            let seen = self.deletions.load(Ordering::SeqCst);
            // With the next load, against the two stores of `begin_deleting`: one side sees the other.
            self.unwanted[word.index].fetch_and(!word.mask, Ordering::SeqCst);
            let is_it = |group: &AtomicU32| group.load(Ordering::SeqCst) == word.index as u32;
            if !self.deleting.iter().any(is_it) {
                break;
            }
            futex::wait(&self.deletions, seen);
        }
        // Before they are there: what may exist is kept, and deleted at the end.
        self.held[word.index].fetch_or(word.mask, Ordering::Relaxed);
    }

    /// Slots hold nothing of worth any more, to this process.
    pub fn forget(&self, run: SlotRun) {
        for word in SlotWord::of(run) {
            match self.part {
                Part::Borrower => {
                    self.held[word.index].fetch_and(!word.mask, Ordering::Relaxed);
                }
                Part::Owner => {
                    let held = self.held[word.index].load(Ordering::Relaxed) & word.mask;
                    if held != 0 {
                        self.unwanted[word.index].fetch_or(held, Ordering::SeqCst);
                        self.want(keeper::DELETIONS);
                    }
                }
            }
        }
    }
}
