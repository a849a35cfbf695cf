//! A machine's memory that swaps: pages, nodes, devices, and the threads that move pages between them. The decisions are
//! policy's; what happens takes virtual time here.
//!
//! The order of events is the kernel's: a page's state says who owns it, an owner alone changes it, all others wait
//! for it or go away. Whatever is decided under a lock is done while it is held and paid for before it is let go.

mod check;
mod fault;
mod reclaim;
mod removal;
mod rules;
mod state;
mod swap;
mod swapoff;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::clock::{Cpus, Lock, Random, Sim, Thread, Times, Waiters, Waiting};
use crate::machine::{Device, Drive, Machine};
use userswap_policy::kernel::contention::Contention;

pub use fault::{Access, Outcome};
pub use rules::{Costs, Removal, Replacement, Rules};
pub use state::{Frame, Page, PageId, Word};
pub use swap::Slot;
pub use swapoff::Swapoff;

#[cfg(test)]
pub use reclaim::BELIEVES_EVERY_WRITE;
use state::State;
use swap::Swap;

/// Pages with the same remainder wait in one queue.
const PAGE_WAITERS: usize = 64;

/// What happened.
#[derive(Default, Debug)]
pub struct Counts {
    /// Faults on pages without content.
    pub first_touches: Cell<u64>,
    /// Pages read from devices by faults.
    pub swapped_in: Cell<u64>,
    /// Pages written to devices.
    pub swapped_out: Cell<u64>,
    /// Of these, by the threads that needed pages.
    pub direct: Cell<u64>,
    /// Reclaimers that slept because another one was exclusive.
    pub stalls: Cell<u64>,
    /// Batches left for later because their lock was taken.
    pub skips: Cell<u64>,
    /// Requests that failed.
    pub io_errors: Cell<u64>,
    /// Pages that could not be read back.
    pub lost: Cell<u64>,
    /// Times a thread found nothing to reclaim, and slept.
    pub congested: Cell<u64>,
    /// Programs that got no page at all.
    pub killed: Cell<u64>,
}

impl Counts {
    /// A program ends because it got no page.
    pub fn kill(&self) {
        count(&self.killed, 1);
    }
}

/// Adds to a count.
pub(crate) fn count(of: &Cell<u64>, by: u64) {
    of.set(of.get() + by);
}

/// The memory of one machine.
pub struct Memory {
    sim: Sim,
    cpus: Rc<Cpus>,
    /// CPU time of the programs' threads.
    pub programs: Rc<Times>,
    /// CPU time of reclaimers and other threads of the system.
    pub background: Rc<Times>,
    costs: Costs,
    rules: Cell<Rules>,
    state: RefCell<State>,
    swap: Swap,
    /// Of each node's lists.
    list_locks: Vec<Lock>,
    kswapd: Vec<Waiters>,
    page_waiters: Vec<Waiters>,
    frame_waiters: Waiters,
    /// The node whose reclaimer may contend.
    exclusive: Cell<Option<u16>>,
    stalled: Waiters,
    /// What the last check has seen.
    checked: Cell<u64>,
    /// What happened.
    pub counts: Counts,
}

/// A memory, as everybody who uses it has it.
pub type Shared = Rc<Memory>;

impl Memory {
    /// Of a machine with `pages` pages of programs, none of which has content; its reclaimers sleep.
    pub fn start(machine: &Machine, devices: &[Device], set: Setup) -> Shared {
        let sim = Sim::with_jitter(set.seed, machine.jitter_permille.get());
        let cpus = machine.cpus();
        let nodes = machine.nodes() as usize;
        let waiters = |count: usize| (0..count).map(|_| Waiters::default()).collect();
        let mut random = Random::new(set.seed);
        let drives: Vec<_> = devices
            .iter()
            .map(|device| {
                let pages = machine.pages(*device.size.get_ref());
                (device, pages, Drive::new(device, Random::new(random.number())))
            })
            .collect();
        let swap = Swap::new(machine, set.rules, &set.costs, drives);
        let state = State::new(machine, set.rules, set.pages);
        let memory = Rc::new(Self {
            sim,
            cpus,
            programs: Rc::default(),
            background: Rc::default(),
            rules: Cell::new(set.rules),
            state: RefCell::new(state),
            swap,
            list_locks: (0..nodes).map(|_| Lock::new(Waiting::Queued, 2)).collect(),
            kswapd: waiters(nodes),
            page_waiters: waiters(PAGE_WAITERS),
            frame_waiters: Waiters::default(),
            exclusive: Cell::new(None),
            stalled: Waiters::default(),
            checked: Cell::new(u64::MAX),
            counts: Counts::default(),
            costs: set.costs,
        });
        for node in 0..nodes as u16 {
            let reclaimer = Rc::clone(&memory);
            memory.sim.daemon(async move { reclaimer.kswapd(node).await });
        }
        memory
    }

    /// Its time.
    pub fn sim(&self) -> &Sim {
        &self.sim
    }

    /// A thread of a program at home on a node.
    pub fn program_thread(&self, node: u32) -> Thread {
        Thread::new(&self.sim, &self.cpus, &self.programs, node)
    }

    /// A thread of the system.
    pub fn system_thread(&self, node: u32) -> Thread {
        Thread::new(&self.sim, &self.cpus, &self.background, node)
    }

    /// The devices.
    pub fn swap(&self) -> &Swap {
        &self.swap
    }

    fn contention(&self) -> Contention {
        self.rules.get().contention
    }

    fn waiters_of(&self, page: PageId) -> &Waiters {
        &self.page_waiters[page as usize % PAGE_WAITERS]
    }

    /// The page's state has changed.
    fn wake_page(&self, page: PageId) {
        self.waiters_of(page).wake_all(&self.sim);
    }
}

/// What a memory begins with.
#[derive(Clone)]
pub struct Setup {
    /// Pages of all programs.
    pub pages: u32,
    /// What things cost.
    pub costs: Costs,
    /// What decides.
    pub rules: Rules,
    /// For what is random.
    pub seed: u64,
}
