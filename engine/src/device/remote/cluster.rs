//! Which server has a group: the only one, or the one of a cluster that was last heard to have it.
//!
//! A cluster says where a hash slot is when it is asked in the wrong place; nothing else is needed to follow it as slots
//! move and servers take each other's place. Servers are found in a fixed table, so that following allocates nothing.
use super::keys::{HASH_SLOTS, Key};
use super::server::Server;
use super::wire::Refusal;
use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU8, Ordering};

/// Servers of a cluster that are known at a time.
const SERVERS_MAX: usize = 64;

/// No server has a hash slot.
const NOBODY: u8 = u8::MAX;

/// A server to ask, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    /// Its index.
    pub server: usize,
    /// It does not own the hash slot yet, and answers only if told so.
    pub asking: bool,
}

/// The servers.
pub struct Cluster {
    servers: Box<[Server]>,
    /// Who has each hash slot, by index; empty for a single server.
    owners: Box<[AtomicU8]>,
    /// The same as it was when all of it was asked for, which no doubt changes: [`NOBODY`] where nobody has one.
    surveyed: Box<[AtomicU8]>,
}

impl Cluster {
    /// A single server.
    ///
    /// # Errors
    /// No address space, as for all that make one.
    pub fn single(address: SocketAddr) -> io::Result<Self> {
        let server = Server::new()?;
        server.take(address);
        Ok(Self { servers: Box::new([server]), owners: Box::new([]), surveyed: Box::new([]) })
    }

    /// Several, of which the first is asked for everything as long as it does not say otherwise.
    pub fn of(addresses: &[SocketAddr]) -> io::Result<Self> {
        let servers: Box<[Server]> =
            (0..SERVERS_MAX).map(|_| Server::new()).collect::<io::Result<_>>()?;
        servers.iter().zip(addresses).for_each(|(server, address)| _ = server.take(*address));
        let each = |owner| (0..HASH_SLOTS).map(|_| AtomicU8::new(owner)).collect();
        Ok(Self { servers, owners: each(0), surveyed: each(NOBODY) })
    }

    /// The same servers, to which nothing is connected.
    pub fn another(&self) -> io::Result<Self> {
        let addresses: Vec<SocketAddr> = self.addresses().collect();
        if self.owners.is_empty() {
            return Self::single(addresses[0]);
        }
        let other = Self::of(&addresses)?;
        let owners = other.owners.iter().zip(&self.owners);
        owners.for_each(|(to, from)| to.store(from.load(Ordering::Relaxed), Ordering::Relaxed));
        Ok(other)
    }

    /// Where the known servers are.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.servers.iter().map_while(Server::address)
    }

    /// A known server.
    pub fn server(&self, index: usize) -> &Server {
        &self.servers[index]
    }

    /// Who is to be asked for a key.
    pub fn owner(&self, key: &Key) -> usize {
        match self.owners.is_empty() {
            true => 0,
            // Relaxed: whoever is asked in vain says who is to be asked.
            false => self.owners[key.hash_slot()].load(Ordering::Relaxed).into(),
        }
    }

    /// Takes note of an owner; false where there is no room for one more server.
    pub fn learn(&self, slot: usize, address: SocketAddr) -> Option<usize> {
        let index = self.servers.iter().position(|server| server.take(address))?;
        self.owners.get(slot)?.store(index as u8, Ordering::Relaxed);
        Some(index)
    }

    /// A survey begins: nobody is known to have a hash slot.
    pub fn begin_survey(&self) {
        self.surveyed.iter().for_each(|owner| owner.store(NOBODY, Ordering::Relaxed));
    }

    /// Takes note of the owner of hash slots, found by a survey; None as for [`Self::learn`].
    pub fn survey(&self, mut slots: RangeInclusive<usize>, address: SocketAddr) -> Option<()> {
        slots.try_for_each(|slot| {
            let index = self.learn(slot, address)?;
            self.surveyed.get(slot)?.store(index as u8, Ordering::Relaxed);
            Some(())
        })
    }

    /// Who had a hash slot at the last survey.
    pub fn surveyed(&self, slot: usize) -> Option<u8> {
        Some(self.surveyed[slot].load(Ordering::Relaxed)).filter(|owner| *owner != NOBODY)
    }

    /// Where a server says that a hash slot is; None where it says something else.
    pub fn redirected(&self, refusal: &Refusal) -> Option<Target> {
        let mut words = refusal.text().split(' ');
        let kind = words.next()?;
        let slot: usize = words.next()?.parse().ok()?;
        let address: SocketAddr = words.next()?.parse().ok()?;
        match kind {
            "MOVED" => Some(Target { server: self.learn(slot, address)?, asking: false }),
            "ASK" => {
                let server = self.servers.iter().position(|server| server.take(address))?;
                Some(Target { server, asking: true })
            }
            _ => None,
        }
    }

    /// The owner of a key does not answer: another server is asked next time, which knows who has taken its place.
    pub fn doubt(&self, key: &Key) {
        let known = self.addresses().count();
        if let Some(owner) = self.owners.get(key.hash_slot()) {
            let next = (usize::from(owner.load(Ordering::Relaxed)) + 1) % known;
            owner.store(next as u8, Ordering::Relaxed);
        }
    }

    /// Closes all connections that nobody uses.
    pub fn disconnect(&self) {
        self.servers.iter().for_each(Server::disconnect);
    }
}
