//! What the engine's own threads, the server and the reclaimers, share: how they are woken, and that they shall end.
use crate::device::queue::{Queue, Workers};
use crate::device::record::Device;
use crate::state::core::Core;
use crate::sys::fd::Event;
use crate::sys::lock::Lock;
use crate::sys::process;
use crate::sys::rings;
use crate::sys::signal::Blocked;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::mpsc;
use userswap_policy::servers::{servers, servers_max};

/// The threads' common state.
pub struct Threads {
    /// What a forked child, which has none of those threads, closes.
    inherited: Lock<Inherited>,
    /// Queues that have no threads for servers yet; a forked child has none of them.
    pub rings: Lock<Vec<mpsc::Sender<Workers>>>,
    /// Wakes the server for readahead.
    pub server_wanted: Event,
    /// Servers that help while one does not keep up.
    pub helpers: Vec<Helper>,
    /// Servers that may be awake at once, and those that there are; the first is counted in both.
    servers: AtomicU8,
    servers_max: AtomicU8,
    /// How many of the two groups are told to end: all but the servers, and the servers.
    stopping: AtomicU8,
}

/// Descriptors of the threads' queues, of addresses that they take blocks to, and of a trace.
#[derive(Default)]
struct Inherited {
    fds: Vec<RawFd>,
    /// No child has a mapping of any.
    are_private: bool,
}

/// Which threads are told to end.
const NONE: u8 = 0;
const ALL_BUT_SERVERS: u8 = 1;
const ALL: u8 = 2;

impl Threads {
    /// No thread yet.
    ///
    /// # Errors
    /// No descriptor to be had.
    pub fn new() -> io::Result<Self> {
        let cpus = process::usable_cpus();
        let helpers = (1..servers_max(cpus)).map(|_| Helper::new());
        Ok(Self {
            inherited: Lock::new(Inherited::default()),
            rings: Lock::new(Vec::new()),
            server_wanted: Event::new()?,
            helpers: helpers.collect::<io::Result<_>>()?,
            servers: AtomicU8::new(servers(cpus)),
            servers_max: AtomicU8::new(1),
            stopping: AtomicU8::new(NONE),
        })
    }

    /// Before a fork: a child would keep the rings by their mappings, and with them the devices that are registered there, whose
    /// space would be taken for as long as it runs. Looked for once, where there are new ones. Allocates nothing; where /proc or the
    /// kernel does not tell them apart, children have them.
    pub fn keep_rings_to_process(&self) {
        let mut inherited = self.inherited.lock();
        if !inherited.are_private && !inherited.fds.is_empty() {
            let others = self.server_wanted.as_raw_fd();
            rings::keep_to_process(&inherited.fds, others);
            inherited.are_private = true;
        }
    }

    /// Across a fork: no other thread has what a child needs.
    pub fn hold(&self) {
        self.inherited.hold();
        self.rings.hold();
    }

    /// After [`Self::hold`], on both sides.
    pub fn release(&self) {
        self.rings.release();
        self.inherited.release();
    }

    /// In a forked child: it has none of them.
    pub fn take_inherited(&self) -> Vec<RawFd> {
        std::mem::take(&mut *self.inherited.lock()).fds
    }

    /// Takes note of descriptors that a forked child closes.
    pub fn note_fds(&self, fds: impl IntoIterator<Item = RawFd>) {
        let mut inherited = self.inherited.lock();
        inherited.fds.extend(fds);
        inherited.are_private = false;
    }

    /// One of them is closed.
    pub fn forget_fd(&self, closed: RawFd) {
        self.inherited.lock().fds.retain(|fd| *fd != closed);
    }

    /// Takes note of a queue that a thread of the engine's will have.
    pub fn note_queue(&self, queue: &mut Queue) {
        self.note_fds([queue.as_raw_fd()]);
        self.rings.lock().extend(queue.for_talkers());
    }

    /// Whether any helper is awake.
    pub fn is_helped(&self) -> bool {
        // Relaxed: who reads an old value takes more messages at once, or fewer, once more.
        self.helpers.iter().any(|helper| helper.awake.load(Ordering::Relaxed))
    }

    /// Wakes one more helper, if there is one asleep.
    pub fn wake_helper(&self) {
        let allowed = usize::from(self.servers()) - 1;
        let is_asleep = |helper: &&Helper| !helper.awake.swap(true, Ordering::Relaxed);
        if let Some(helper) = self.helpers[..allowed].iter().find(is_asleep) {
            helper.wanted.signal();
        }
    }

    /// How many servers there may be awake at once, the first included.
    pub fn servers(&self) -> u8 {
        self.servers.load(Ordering::Relaxed).min(self.servers_max.load(Ordering::Relaxed))
    }

    /// From now on no more than so many are woken.
    pub fn set_servers(&self, number: u8) {
        self.servers.store(number.max(1), Ordering::Relaxed);
    }

    /// There are so many helpers, though more might have been wanted.
    pub fn has_helpers(&self, number: usize) {
        self.servers_max.store(number as u8 + 1, Ordering::Relaxed);
    }
}

/// A server that helps.
pub struct Helper {
    /// Wakes it.
    pub wanted: Event,
    /// It is looking for messages, or has been woken.
    pub awake: AtomicBool,
}

impl Helper {
    fn new() -> io::Result<Self> {
        Ok(Self { wanted: Event::new()?, awake: AtomicBool::new(false) })
    }
}

impl Core {
    /// The queues that want threads for servers, if there are servers.
    pub(crate) fn rings_for_servers(&self) -> Vec<mpsc::Sender<Workers>> {
        match self.devices.list().any(Device::is_remote) {
            true => std::mem::take(&mut *self.threads.rings.lock()),
            false => Vec::new(),
        }
    }

    /// Gives them some, by a thread that no fault and no fork waits for; without, they do with one request at a time.
    pub(crate) fn start_talkers(&self, rings: Vec<mpsc::Sender<Workers>>) {
        let _blocked = Blocked::new();
        for ring in rings {
            let Ok(workers) = Workers::start() else { return };
            // A queue that has ended wants none.
            let _ = ring.send(workers);
        }
    }

    /// Tells all threads to end.
    pub(crate) fn stop(&self) {
        // Nobody needs the pages any more.
        self.devices.set_patience_ns(0);
        self.end_servers();
        self.wake_others();
    }

    /// Tells all threads but the servers to end, until [`Self::resume`].
    pub(crate) fn pause(&self) {
        self.threads.stopping.store(ALL_BUT_SERVERS, Ordering::Release);
        self.wake_others();
    }

    fn wake_others(&self) {
        self.nodes.iter().for_each(|node| node.reclaim_wanted.signal());
        self.shrinkers.wake();
        self.demotion.wake();
        self.member.get().into_iter().for_each(|member| member.wake());
        self.wake_watchdog();
    }

    /// Tells the servers to end, too.
    pub(crate) fn end_servers(&self) {
        self.threads.stopping.store(ALL, Ordering::Release);
        self.threads.server_wanted.signal();
        self.threads.helpers.iter().for_each(|helper| helper.wanted.signal());
    }

    /// Those that were told to pause have ended, and others may begin.
    pub(crate) fn resume(&self) {
        // Their queues are closed, and the numbers may be the program's by now.
        drop(self.threads.take_inherited());
        self.threads.rings.lock().clear();
        self.threads.stopping.store(NONE, Ordering::Release);
    }

    /// Has the watchdog look at what has changed.
    pub fn wake_watchdog(&self) {
        // Release pairs with the acquire of the watchdog: it sees what was changed before.
        self.waits.changes.fetch_add(1, Ordering::Release);
        crate::sys::futex::wake_all(&self.waits.changes);
    }

    /// Whether the threads shall end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.threads.stopping.load(Ordering::Acquire) != NONE
    }

    /// Whether the servers shall end.
    pub(crate) fn are_servers_stopping(&self) -> bool {
        self.threads.stopping.load(Ordering::Acquire) == ALL
    }
}
