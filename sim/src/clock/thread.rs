//! A thread: a task that needs a CPU for what it does.
//!
//! Work is charged and paid for later, before the thread touches anything that others can see: so a thread that does a
//! hundred things of its own makes one event.

use std::cell::Cell;
use std::rc::Rc;

use super::{CpuId, Cpus, Lock, Ns, Sim, Waiters, Woken};

/// Whose CPU time it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// The program's own.
    User,
    /// Spent for it.
    System,
}

/// CPU time of several threads.
#[derive(Default, Debug)]
pub struct Times {
    /// In the programs.
    pub user: Cell<Ns>,
    /// For the programs, spinning included.
    pub system: Cell<Ns>,
    /// Spent spinning for locks.
    pub spinning: Cell<Ns>,
}

/// A thread of one task; made inside that task.
pub struct Thread {
    sim: Sim,
    cpus: Rc<Cpus>,
    times: Rc<Times>,
    home: u32,
    cpu: Cell<Option<CpuId>>,
    last: Cell<Option<CpuId>>,
    owed_user: Cell<Ns>,
    owed_system: Cell<Ns>,
    ran: Cell<Ns>,
    /// Spin locks held: such a thread keeps its CPU.
    holds: Cell<u32>,
}

impl Thread {
    /// A thread that prefers the CPUs of node `home`, and has none yet.
    pub fn new(sim: &Sim, cpus: &Rc<Cpus>, times: &Rc<Times>, home: u32) -> Self {
        Self {
            sim: sim.clone(),
            cpus: Rc::clone(cpus),
            times: Rc::clone(times),
            home,
            cpu: Cell::new(None),
            last: Cell::new(None),
            owed_user: Cell::new(0),
            owed_system: Cell::new(0),
            ran: Cell::new(0),
            holds: Cell::new(0),
        }
    }

    /// The simulation.
    pub fn sim(&self) -> &Sim {
        &self.sim
    }

    /// The node that it runs on.
    pub fn node(&self) -> u32 {
        self.last.get().map_or(self.home, |cpu| self.cpus.node_of(cpu))
    }

    /// How far a node is from the one that it runs on.
    pub fn distance_to(&self, node: u32) -> u32 {
        self.cpus.distances().between(self.node(), node)
    }

    /// The CPU that it runs on, or ran on last.
    pub fn cpu(&self) -> CpuId {
        self.last.get().unwrap_or(CpuId(0))
    }

    /// Uses CPU time, which passes at the latest when something else happens.
    pub fn charge(&self, class: Class, ns: Ns) {
        let owed = match class {
            Class::User => &self.owed_user,
            Class::System => &self.owed_system,
        };
        owed.set(owed.get() + ns);
    }

    /// Lets the time pass that was charged.
    pub async fn settle(&self) {
        self.run().await;
        let (user, system) = (self.owed_user.take(), self.owed_system.take());
        let (user, system) = (self.sim.jittered(user), self.sim.jittered(system));
        if user + system == 0 {
            return;
        }
        self.sim.sleep(user + system).await;
        add(&self.times.user, user);
        add(&self.times.system, system);
        self.ran.set(self.ran.get() + user + system);
        if self.holds.get() == 0 && self.cpus.is_over(self.ran.get()) {
            self.leave_cpu();
            self.run().await;
        }
    }

    /// Waits for something, without a CPU.
    pub async fn wait(&self, waiters: &Waiters) {
        self.settle().await;
        self.leave_cpu();
        waiters.wait(&self.sim).await;
        self.run().await;
    }

    /// Waits for something, at most for `ns`, without a CPU.
    pub async fn wait_for(&self, waiters: &Waiters, ns: Ns) -> Woken {
        self.settle().await;
        self.leave_cpu();
        let woken = waiters.wait_for(&self.sim, ns).await;
        self.run().await;
        woken
    }

    /// Sleeps without a CPU.
    pub async fn sleep(&self, ns: Ns) {
        self.settle().await;
        self.leave_cpu();
        self.sim.sleep(ns).await;
        self.run().await;
    }

    /// Does something under a lock, which is held for `ns` longer than it takes to get at what it guards.
    pub async fn with<R>(&self, lock: &Lock, ns: Ns, act: impl FnOnce() -> R) -> R {
        self.lock(lock).await;
        let result = act();
        self.charge(Class::System, ns);
        self.unlock(lock).await;
        result
    }

    /// Takes a lock.
    pub async fn lock(&self, lock: &Lock) {
        self.settle().await;
        if !lock.take_free() {
            self.wait_for_lock(lock).await;
        }
        self.own(lock);
    }

    /// Takes a lock if nobody holds it.
    pub async fn try_lock(&self, lock: &Lock) -> bool {
        self.settle().await;
        let is_taken = lock.take_free();
        if is_taken {
            self.own(lock);
        }
        is_taken
    }

    /// Lets go of a lock, once what was charged under it has passed.
    pub async fn unlock(&self, lock: &Lock) {
        self.settle().await;
        self.holds.set(self.holds.get() - 1);
        lock.release(&self.sim, self.cpu());
    }

    /// Lets others have the CPU; the thread has ended, or is about to wait.
    pub fn leave_cpu(&self) {
        self.ran.set(0);
        if let Some(cpu) = self.cpu.take() {
            self.cpus.release(&self.sim, cpu);
        }
    }

    fn own(&self, lock: &Lock) {
        self.holds.set(self.holds.get() + 1);
        self.charge(Class::System, lock.on_taken(&self.cpus, self.cpu()));
    }

    async fn wait_for_lock(&self, lock: &Lock) {
        let since = self.sim.now();
        if lock.is_spinning() {
            lock.wait(&self.sim).await;
            let spun = self.sim.now() - since;
            add(&self.times.system, spun);
            add(&self.times.spinning, spun);
            self.ran.set(self.ran.get() + spun);
        } else {
            self.leave_cpu();
            lock.wait(&self.sim).await;
            self.run().await;
        }
        lock.count_wait(self.sim.now() - since);
    }

    async fn run(&self) {
        if self.cpu.get().is_none() {
            let cpu = self.cpus.acquire(&self.sim, self.home, self.last.get()).await;
            self.cpu.set(Some(cpu));
            self.last.set(Some(cpu));
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.leave_cpu();
    }
}

fn add(total: &Cell<Ns>, ns: Ns) {
    total.set(total.get() + ns);
}
