//! One server: a fixed number of connections to it, each used by one thread at a time.
//!
//! A connection that breaks while commands that change something are under way leaves a *doubt*: the server may have
//! received them, and carry them out as late as it likes, after commands of another connection. A slot that has been
//! given out anew would then hold what was there before. So before anything is changed there again, the server is told to
//! end the connection in doubt; whatever it had not carried out by then, it never will.
use super::wire::{Reply, Wire, nonsense};
use super::{Config, Copies};
use crate::base::log;
use crate::sys::lock::{Guard, Lock};
use crate::sys::{clock, futex};
use std::io;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

/// Connections to a server: more threads than that wait for each other.
pub const WIRES: usize = 16;

/// A server that has not answered for so long is asked now and then only: its pages are told to be lost one by one, and
/// not each after a time of its own. As long as what the engine waits for any device.
const GIVEN_UP_NS: u64 = 40_000_000_000;

/// How often it is asked then.
const NOW_AND_THEN_NS: u64 = 1_000_000_000;

/// A server of two is asked by others than the keeper if it has not been for so long.
const UNASKED_NS: u64 = 10_000_000_000;

/// After so long nothing is written any more to a server of two that does not answer, until it does.
const SPARED_NS: u64 = 2_000_000_000;

/// No connection is in doubt.
const NONE: i64 = 0;

/// A server, or room for one.
pub struct Server {
    /// Never a lock: a forked child reads it, and the thread that had the lock would be missing there.
    address: OnceLock<SocketAddr>,
    wires: Box<[Lock<Wire>]>,
    /// A bit for each connection that nobody uses.
    free: AtomicU32,
    /// What the server calls each connection.
    ids: [AtomicI64; WIRES],
    /// Connections that broke with changes under way, by what the server calls them.
    doubts: [AtomicI64; WIRES],
    /// Since when it has not answered; 0 for a server that does.
    silent_since_ns: AtomicU64,
    /// When it was asked last.
    asked_ns: AtomicU64,
    /// Whether it was said that nothing is written to it.
    is_told: AtomicBool,
}

/// A connection in use by one thread.
struct Claim<'a> {
    server: &'a Server,
    index: usize,
    wire: Guard<'a, Wire>,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        // Release and the acquire in `claim` are not needed for the connection, which has a lock: it is free at once.
        self.server.free.fetch_or(1 << self.index, Ordering::Release);
        futex::wake_one(&self.server.free);
    }
}

/// Whether a conversation changes what the server holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// It only reads.
    Look,
    /// It writes or deletes.
    Change,
    /// It finds out whether the server answers again.
    Ask,
}

impl Server {
    /// Room for a server, to which nothing is connected.
    ///
    /// # Errors
    /// No address space.
    pub fn new() -> io::Result<Self> {
        let wire = |_| Wire::new().map(Lock::new);
        Ok(Self {
            address: OnceLock::new(),
            wires: (0..WIRES).map(wire).collect::<io::Result<_>>()?,
            free: AtomicU32::new(u32::MAX >> (u32::BITS - WIRES as u32)),
            ids: [const { AtomicI64::new(NONE) }; WIRES],
            doubts: [const { AtomicI64::new(NONE) }; WIRES],
            silent_since_ns: AtomicU64::new(0),
            asked_ns: AtomicU64::new(0),
            is_told: AtomicBool::new(false),
        })
    }

    /// Where it is; None where this is room for one.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address.get().copied()
    }

    /// Gives room to a server, unless another has taken it: whether it is this one's.
    pub fn take(&self, address: SocketAddr) -> bool {
        *self.address.get_or_init(|| address) == address
    }

    /// Whether it did not answer when it was asked last.
    pub fn is_silent(&self) -> bool {
        self.silent_since_ns.load(Ordering::Relaxed) != 0
    }

    /// Whether it has not answered for so long that what another has as well is not written to it; that is said once.
    pub fn is_spared(&self, config: &Config) -> bool {
        let since = self.silent_since_ns.load(Ordering::Relaxed);
        let is_spared = since != 0 && clock::now_ns().saturating_sub(since) >= SPARED_NS;
        if is_spared && !self.is_told.swap(true, Ordering::Relaxed) {
            log::server_is_spared(&config.said);
        }
        is_spared
    }

    /// Asks a silent server, now and then, whether it answers again; true if it does, or was none.
    pub fn ask(&self, config: &Config) -> bool {
        let asked = self.asked_ns.load(Ordering::Relaxed);
        if self.is_silent() && clock::now_ns().saturating_sub(asked) >= NOW_AND_THEN_NS {
            // It has noted how that ended.
            let _ = self.converse(config, Purpose::Ask, &mut |wire| {
                wire.say(&[b"PING"])?;
                wire.flush()?;
                match wire.reply()? {
                    // It may be forbidden, which is an answer; that it is not ready is none.
                    Reply::Refused if wire.refusal().is_passing() => Err(wire.refusal().error()),
                    _ => Ok(()),
                }
            });
        }
        let answers = !self.is_silent();
        if answers && self.is_told.swap(false, Ordering::Relaxed) {
            log::server_answers(&config.said);
        }
        answers
    }

    /// Talks to the server by a connection that nobody else uses meanwhile; once more by a new one where the first turns
    /// out to have been closed while nobody used it.
    ///
    /// # Errors
    /// It cannot be reached, or what `talk` says; the connection is closed then.
    pub fn converse<T>(
        &self,
        config: &Config,
        purpose: Purpose,
        talk: &mut dyn FnMut(&mut Wire) -> io::Result<T>,
    ) -> io::Result<T> {
        let begun = clock::now_ns();
        self.refuse_given_up(config, purpose, begun)?;
        let mut claim = self.claim();
        let was_open = claim.wire.is_open();
        let mut outcome = claim.converse(config, purpose, talk);
        if was_open && outcome.as_ref().is_err_and(is_closed) {
            outcome = claim.converse(config, purpose, talk);
        }
        self.asked_ns.store(clock::now_ns(), Ordering::Relaxed);
        match outcome.is_ok() {
            true if !self.is_silent() => {}
            true => self.silent_since_ns.store(0, Ordering::Relaxed),
            false => {
                let since = &self.silent_since_ns;
                let _ = since.compare_exchange(0, begun, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
        outcome
    }

    fn refuse_given_up(&self, config: &Config, purpose: Purpose, now: u64) -> io::Result<()> {
        let since = self.silent_since_ns.load(Ordering::Relaxed);
        if since == 0 {
            return Ok(());
        }
        let silent_ns = now.saturating_sub(since);
        let asked = self.asked_ns.load(Ordering::Relaxed);
        let unasked_ns = now.saturating_sub(asked);
        let is_asked = match (config.copies, purpose) {
            (_, Purpose::Ask) => true,
            // Another has it, and the keeper asks, unless something keeps that.
            (Copies::Two, Purpose::Look) => unasked_ns >= UNASKED_NS,
            (Copies::Two, Purpose::Change) => silent_ns < SPARED_NS || unasked_ns >= UNASKED_NS,
            (Copies::One, _) => silent_ns <= GIVEN_UP_NS || unasked_ns >= NOW_AND_THEN_NS,
        };
        if is_asked {
            return Ok(());
        }
        // Until it is given up, whoever finds no other copy either goes on asking.
        let is_lost = silent_ns > GIVEN_UP_NS && purpose == Purpose::Look;
        let error = if is_lost { libc::ENODATA } else { libc::ETIMEDOUT };
        Err(io::Error::from_raw_os_error(error))
    }

    fn claim(&self) -> Claim<'_> {
        loop {
            let free = self.free.load(Ordering::Relaxed);
            if free == 0 {
                futex::wait(&self.free, 0);
                continue;
            }
            let index = free.trailing_zeros() as usize;
            let taken = free & !(1 << index);
            let order = Ordering::Acquire;
            if self.free.compare_exchange_weak(free, taken, order, Ordering::Relaxed).is_ok() {
                return Claim { server: self, index, wire: self.wires[index].lock() };
            }
        }
    }

    /// Closes the connections that nobody uses.
    pub fn disconnect(&self) {
        for wire in &self.wires {
            if let Some(mut wire) = wire.try_lock() {
                wire.close();
            }
        }
    }

    /// Has the server end connections that are in doubt.
    fn settle(&self, config: &Config, wire: &mut Wire) -> io::Result<()> {
        for doubt in &self.doubts {
            let id = doubt.load(Ordering::Acquire);
            if id == NONE {
                continue;
            }
            // A server that was started anew counts from the beginning: the number may be somebody else's.
            if is_ours(config, wire, id)? {
                wire.command(4)?;
                [b"CLIENT".as_slice(), b"KILL", b"ID"]
                    .iter()
                    .try_for_each(|word| wire.word(word))?;
                wire.number(id as u64)?;
                wire.flush()?;
                if wire.reply()? == Reply::Refused {
                    return Err(wire.refusal().error());
                }
            }
            let _ = doubt.compare_exchange(id, NONE, Ordering::AcqRel, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Claim<'_> {
    fn converse<T>(
        &mut self,
        config: &Config,
        purpose: Purpose,
        talk: &mut dyn FnMut(&mut Wire) -> io::Result<T>,
    ) -> io::Result<T> {
        let begun = self.begin(config, purpose);
        let outcome = begun.and_then(|()| {
            let outcome = talk(&mut self.wire);
            if outcome.is_err() && purpose == Purpose::Change {
                let id = self.server.ids[self.index].load(Ordering::Relaxed);
                // One at most: nothing is changed by a connection before the doubts are settled.
                self.server.doubts[self.index].store(id, Ordering::Release);
            }
            outcome
        });
        if outcome.is_err() {
            self.wire.close();
        }
        outcome
    }

    /// Connects where there is no connection, and settles what must be.
    fn begin(&mut self, config: &Config, purpose: Purpose) -> io::Result<()> {
        if !self.wire.is_open() {
            let address = self.server.address().ok_or(io::ErrorKind::NotConnected)?;
            self.wire.open(address, config.tls.as_ref())?;
            let id = introduce(config, &mut self.wire)?;
            self.server.ids[self.index].store(id, Ordering::Relaxed);
        }
        match purpose {
            Purpose::Look | Purpose::Ask => Ok(()),
            Purpose::Change => self.server.settle(config, &mut self.wire),
        }
    }
}

/// The password and our name; returns what the server calls the connection.
fn introduce(config: &Config, wire: &mut Wire) -> io::Result<i64> {
    if let Some(password) = &config.password {
        let user = config.address.user.as_ref();
        wire.command(if user.is_some() { 3 } else { 2 })?;
        wire.word(b"AUTH")?;
        user.map_or(Ok(()), |user| wire.word(user.as_bytes()))?;
        wire.word(password.text.as_bytes())?;
    }
    wire.say(&[b"CLIENT", b"SETNAME", config.name.as_bytes()])?;
    wire.say(&[b"CLIENT", b"ID"])?;
    wire.flush()?;
    if config.password.is_some() {
        accepted(wire)?;
    }
    accepted(wire)?;
    match wire.reply()? {
        Reply::Number(id) => Ok(id),
        Reply::Refused => Err(wire.refusal().error()),
        _ => Err(nonsense()),
    }
}

fn accepted(wire: &mut Wire) -> io::Result<()> {
    match wire.reply()? {
        Reply::Simple => Ok(()),
        Reply::Refused => Err(wire.refusal().error()),
        _ => Err(nonsense()),
    }
}

/// Whether a connection is one of this device's.
fn is_ours(config: &Config, wire: &mut Wire, id: i64) -> io::Result<bool> {
    wire.command(4)?;
    [b"CLIENT".as_slice(), b"LIST", b"ID"].iter().try_for_each(|word| wire.word(word))?;
    wire.number(id as u64)?;
    wire.flush()?;
    match wire.reply()? {
        Reply::Bulk(bytes) => {
            let name = config.name.as_bytes();
            wire.bulk(bytes).map(|line| line.windows(name.len()).any(|part| part == name))
        }
        Reply::Nothing => Ok(false),
        Reply::Refused => Err(wire.refusal().error()),
        _ => Err(nonsense()),
    }
}

/// Whether the server has ended a connection.
fn is_closed(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ECONNRESET | libc::EPIPE | libc::ECONNABORTED))
}
