//! CPUs and the threads that want them.
//!
//! A thread that becomes ready takes the CPU it had, if that is idle, else one of its node, else of the nearest; when none is idle it
//! waits in one queue for all CPUs, as after perfect balancing. It gives its CPU up when it sleeps, and after a slice
//! when others wait.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use super::{Distances, Ns, Reach, Sim, TaskId};

/// A CPU, counted through all nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuId(pub u32);

/// All CPUs of a machine.
pub struct Cpus {
    distances: Distances,
    per_node: u32,
    /// To get a cache line from another CPU, which wrote it last.
    line: Reach,
    /// Longest time for which a thread keeps a CPU that others want.
    slice: Ns,
    switch: Ns,
    idle: RefCell<Vec<VecDeque<CpuId>>>,
    idle_count: Cell<u32>,
    ready: RefCell<VecDeque<TaskId>>,
    /// The CPU that a thread out of the queue was given.
    given: RefCell<Vec<(TaskId, CpuId)>>,
}

impl Cpus {
    /// All idle.
    pub fn new(distances: Distances, per_node: u32, line: Reach) -> Self {
        let nodes = distances.nodes();
        let of_node = |node| (node * per_node..(node + 1) * per_node).map(CpuId).collect();
        Self {
            distances,
            per_node,
            line,
            slice: 3_000_000,
            switch: 1_500,
            idle: RefCell::new((0..nodes).map(of_node).collect()),
            idle_count: Cell::new(nodes * per_node),
            ready: RefCell::new(VecDeque::new()),
            given: RefCell::new(Vec::new()),
        }
    }

    /// How far the nodes are from each other.
    pub fn distances(&self) -> &Distances {
        &self.distances
    }

    /// The node of a CPU.
    pub fn node_of(&self, cpu: CpuId) -> u32 {
        cpu.0 / self.per_node
    }

    /// What a thread on `to` waits for a line that was last written on `from`.
    pub fn line(&self, from: CpuId, to: CpuId) -> Ns {
        if from == to {
            return 0;
        }
        self.line.at(self.distances.between(self.node_of(from), self.node_of(to)))
    }

    /// Whether a thread that has run for so long must let others run.
    pub fn is_over(&self, ran: Ns) -> bool {
        ran >= self.slice && !self.ready.borrow().is_empty()
    }

    /// Waits for a CPU, near `home` and best the `last` one.
    pub async fn acquire(&self, sim: &Sim, home: u32, last: Option<CpuId>) -> CpuId {
        if let Some(cpu) = self.take_idle(home, last) {
            return cpu;
        }
        let task = sim.current();
        self.ready.borrow_mut().push_back(task);
        sim.suspend().await;
        let mut given = self.given.borrow_mut();
        let at = given.iter().position(|(other, _)| *other == task);
        given.swap_remove(at.expect("a ready thread is woken with a CPU")).1
    }

    /// Gives a CPU to the next thread that wants one.
    pub fn release(&self, sim: &Sim, cpu: CpuId) {
        if let Some(next) = self.ready.borrow_mut().pop_front() {
            self.given.borrow_mut().push((next, cpu));
            sim.wake_at(next, sim.now() + self.switch);
            return;
        }
        self.idle.borrow_mut()[self.node_of(cpu) as usize].push_back(cpu);
        self.idle_count.set(self.idle_count.get() + 1);
    }

    fn take_idle(&self, home: u32, last: Option<CpuId>) -> Option<CpuId> {
        if self.idle_count.get() == 0 {
            return None;
        }
        let mut idle = self.idle.borrow_mut();
        let node = self.distances.nearest(home).find(|node| !idle[*node as usize].is_empty())?;
        let cpus = &mut idle[node as usize];
        let same = last.and_then(|last| cpus.iter().position(|cpu| *cpu == last));
        self.idle_count.set(self.idle_count.get() - 1);
        cpus.remove(same.unwrap_or(0))
    }
}
