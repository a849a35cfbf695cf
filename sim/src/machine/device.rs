//! A swap device as a machine has it: how long a request takes, and how it can fail. It holds no slots.

use std::cell::{Cell, RefCell};

use serde::Deserialize;

use super::{Bytes, Impossible, Time};
use crate::clock::{Class, DISTANCE_OWN, Ns, Random, Reach, Thread, Waiters};

/// Who moves the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceKind {
    /// The CPU copies them: persistent memory, a RAM disk, compressed memory.
    Copy,
    /// The device does, while the thread sleeps.
    Queue,
}

/// A device of a scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Where it is close to.
    pub node: Option<toml::Spanned<u32>>,
    /// A priority that a user gave.
    pub priority: Option<u16>,
    /// Whether the device lists know its node.
    #[serde(default = "yes")]
    pub is_listed_by_node: bool,
    /// How much it holds.
    pub size: toml::Spanned<Bytes>,
    /// Who moves the bytes.
    pub kind: DeviceKind,
    /// Time for each page, of the CPU or of the device.
    pub page: Time,
    /// The same for a CPU of another node, at the distance 20; without it no difference.
    pub page_other_node: Option<Time>,
    /// Time of a request beside its pages.
    #[serde(default)]
    pub request: Time,
    /// Requests at a time; more wait.
    #[serde(default = "queue_depth")]
    pub queue_depth: u32,
    /// What goes wrong.
    #[serde(default)]
    pub fault: Fault,
}

fn yes() -> bool {
    true
}

fn queue_depth() -> u32 {
    64
}

/// How a device fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Fault {
    /// Of a million reads so many fail.
    pub reads_ppm: u32,
    /// Of a million writes so many fail.
    pub writes_ppm: u32,
    /// From this moment on it takes ten times as long.
    pub slow_from: Option<Time>,
    /// From this moment on nothing works, and its content is gone.
    pub dead_from: Option<Time>,
}

impl Device {
    /// What cannot be on a machine of so many nodes.
    ///
    /// # Errors
    /// A node that does not exist, no room, no queue.
    pub fn check(&self, nodes: u32) -> Result<(), Impossible> {
        if let Some(node) = &self.node
            && *node.get_ref() >= nodes
        {
            let message = format!("a device on node {}: use 0 to {}", node.get_ref(), nodes - 1);
            return Err(Impossible::new(node.span(), message));
        }
        if self.size.get_ref().pages() < 2 || self.queue_depth == 0 {
            let message = "a device needs two pages at least, and a queue_depth of 1".to_owned();
            return Err(Impossible::new(self.size.span(), message));
        }
        Ok(())
    }
}

/// A request that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoError {
    /// This one did.
    Once,
    /// All will: the device is dead.
    Dead,
}

/// What the request is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    Read,
    Write,
}

/// A device at work.
pub struct Drive {
    about: Device,
    random: RefCell<Random>,
    busy_until: Cell<Ns>,
    in_flight: Cell<u32>,
    waiters: Waiters,
}

impl Drive {
    /// Idle; `random` decides which requests fail.
    pub fn new(about: &Device, random: Random) -> Self {
        Self {
            about: about.clone(),
            random: RefCell::new(random),
            busy_until: Cell::new(0),
            in_flight: Cell::new(0),
            waiters: Waiters::default(),
        }
    }

    /// Whether its content is gone at this moment.
    pub fn is_dead(&self, now: Ns) -> bool {
        self.about.fault.dead_from.is_some_and(|from| now >= from.0)
    }

    /// Reads pages that lie together.
    ///
    /// # Errors
    /// Nothing was read.
    pub async fn read(&self, thread: &Thread, pages: u32) -> Result<(), IoError> {
        self.request(thread, pages, Direction::Read).await
    }

    /// Writes pages that lie together.
    ///
    /// # Errors
    /// What is on the device there is not known.
    pub async fn write(&self, thread: &Thread, pages: u32) -> Result<(), IoError> {
        self.request(thread, pages, Direction::Write).await
    }

    async fn request(
        &self,
        thread: &Thread,
        pages: u32,
        direction: Direction,
    ) -> Result<(), IoError> {
        match self.about.kind {
            DeviceKind::Copy => {
                thread.charge(Class::System, self.duration(thread, pages));
                thread.settle().await;
            }
            DeviceKind::Queue => self.queued(thread, pages).await,
        }
        self.outcome(thread.sim().now(), direction)
    }

    /// Transfers follow each other, what a request takes beside them does not.
    async fn queued(&self, thread: &Thread, pages: u32) {
        thread.settle().await;
        while self.in_flight.get() >= self.about.queue_depth {
            thread.wait(&self.waiters).await;
        }
        self.in_flight.set(self.in_flight.get() + 1);
        let now = thread.sim().now();
        let transfer = self.duration(thread, pages) - self.about.request.0;
        let end = self.busy_until.get().max(now) + transfer;
        self.busy_until.set(end);
        thread.sleep(end - now + self.about.request.0).await;
        self.in_flight.set(self.in_flight.get() - 1);
        self.waiters.wake_all(thread.sim());
    }

    fn duration(&self, thread: &Thread, pages: u32) -> Ns {
        let node = self.about.node.as_ref().map(|node| *node.get_ref());
        let distance = node.map_or(DISTANCE_OWN, |node| thread.distance_to(node));
        let own = self.about.page.0;
        let other = self.about.page_other_node.map_or(own, |time| time.0);
        let page = Reach { own, other }.at(distance);
        let is_slow = self.about.fault.slow_from.is_some_and(|from| thread.sim().now() >= from.0);
        let factor = if is_slow { 10 } else { 1 };
        self.about.request.0 + page * u64::from(pages) * factor
    }

    fn outcome(&self, now: Ns, direction: Direction) -> Result<(), IoError> {
        if self.is_dead(now) {
            return Err(IoError::Dead);
        }
        let fault = self.about.fault;
        let ppm = match direction {
            Direction::Read => fault.reads_ppm,
            Direction::Write => fault.writes_ppm,
        };
        if self.random.borrow_mut().happens(ppm) { Err(IoError::Once) } else { Ok(()) }
    }
}
