//! A lock that costs what locks cost: the lines that come from the CPU that held it last, and waiting.
//!
//! Waiters get it in the order in which they came. One that spins keeps its CPU; one that sleeps gives it up.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use super::{CpuId, Cpus, Ns, Sim, TaskId};

/// How its waiters wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiting {
    /// On their CPU, each on a line of its own (the kernel's queued lock).
    Queued,
    /// On their CPU and all on the lock's line, which each of them takes again at every release (a ticket lock).
    Ticket,
    /// Without a CPU (a mutex).
    Sleeping,
}

/// What happened to a lock.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct LockCounts {
    /// Times it was taken.
    pub acquisitions: u64,
    /// Times a thread had to wait for it.
    pub waits: u64,
    /// Time that threads waited, all together.
    pub waited: Ns,
}

/// A lock.
pub struct Lock {
    waiting: Waiting,
    /// Cache lines that whoever takes it has to get: its own, and what it guards.
    lines: u32,
    is_held: Cell<bool>,
    last: Cell<Option<CpuId>>,
    waiters: RefCell<VecDeque<TaskId>>,
    counts: Cell<LockCounts>,
}

impl Lock {
    /// A free lock, under which `lines` cache lines change, its own among them.
    pub fn new(waiting: Waiting, lines: u32) -> Self {
        Self {
            waiting,
            lines,
            is_held: Cell::new(false),
            last: Cell::new(None),
            waiters: RefCell::new(VecDeque::new()),
            counts: Cell::new(LockCounts::default()),
        }
    }

    /// What happened to it so far.
    pub fn counts(&self) -> LockCounts {
        self.counts.get()
    }

    pub(super) fn is_spinning(&self) -> bool {
        self.waiting != Waiting::Sleeping
    }

    /// Takes it if it is free and none waits for it.
    pub(super) fn take_free(&self) -> bool {
        if self.is_held.get() {
            return false;
        }
        self.is_held.set(true);
        true
    }

    /// Counts an acquisition; what it costs to get at the lines.
    pub(super) fn on_taken(&self, cpus: &Cpus, cpu: CpuId) -> Ns {
        let mut counts = self.counts.get();
        counts.acquisitions += 1;
        self.counts.set(counts);
        let line = self.last.get().map_or(0, |last| cpus.line(last, cpu));
        let crowd = match self.waiting {
            Waiting::Ticket => self.waiters.borrow().len() as Ns,
            Waiting::Queued | Waiting::Sleeping => 0,
        };
        line * (Ns::from(self.lines) + crowd)
    }

    /// Waits until it is handed over.
    pub(super) async fn wait(&self, sim: &Sim) {
        self.waiters.borrow_mut().push_back(sim.current());
        sim.suspend().await;
    }

    pub(super) fn count_wait(&self, waited: Ns) {
        let mut counts = self.counts.get();
        counts.waits += 1;
        counts.waited += waited;
        self.counts.set(counts);
    }

    /// Hands it to the first that waits.
    pub(super) fn release(&self, sim: &Sim, cpu: CpuId) {
        assert!(self.is_held.get(), "a lock is released by its holder");
        self.last.set(Some(cpu));
        match self.waiters.borrow_mut().pop_front() {
            Some(next) => sim.wake(next),
            None => self.is_held.set(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Distances, Reach, Stop, Thread, Times};
    use std::rc::Rc;

    const LINE: Reach = Reach { own: 10, other: 100 };

    /// Threads that each hold the lock twice for 1000 ns; the end, and CPU time.
    fn run(waiting: Waiting, threads: u32, per_node: u32) -> (Ns, Ns, LockCounts) {
        let sim = Sim::new();
        let cpus = Rc::new(Cpus::new(Distances::equal(2), per_node, LINE));
        let (times, lock) = (Rc::new(Times::default()), Rc::new(Lock::new(waiting, 2)));
        for index in 0..threads {
            let (sim, cpus) = (sim.clone(), Rc::clone(&cpus));
            let (times, lock) = (Rc::clone(&times), Rc::clone(&lock));
            let handle = sim.clone();
            handle.program(async move {
                let thread = Thread::new(&sim, &cpus, &times, index % 2);
                for _ in 0..2 {
                    thread.with(&lock, 1000, || ()).await;
                }
            });
        }
        assert_eq!(sim.run(Ns::MAX, || Ok(())), Stop::Done);
        (sim.now(), times.system.get(), lock.counts())
    }

    #[test]
    fn a_lock_alone_costs_what_is_done_under_it() {
        let (end, system, counts) = run(Waiting::Queued, 1, 1);
        assert_eq!((end, system), (2000, 2000));
        assert_eq!(counts, LockCounts { acquisitions: 2, waits: 0, waited: 0 });
    }

    #[test]
    fn waiters_that_spin_use_their_cpu_and_pay_for_lines() {
        // Two nodes in turns: three hand-overs of two lines, and 1000 ns each four times.
        let (end, system, counts) = run(Waiting::Queued, 2, 1);
        assert_eq!(end, 4 * 1000 + 3 * 200);
        assert_eq!((counts.acquisitions, counts.waits), (4, 3));
        assert_eq!(system, 4 * 1000 + 3 * 200 + counts.waited);
    }

    #[test]
    fn a_ticket_lock_slows_down_with_every_waiter() {
        let (queued, ..) = run(Waiting::Queued, 8, 4);
        let (ticket, ..) = run(Waiting::Ticket, 8, 4);
        assert!(ticket > queued, "{ticket} against {queued} ns");
    }

    #[test]
    fn waiters_that_sleep_leave_their_cpu_to_others() {
        let (_, system, counts) = run(Waiting::Sleeping, 4, 1);
        assert!(counts.waits > 0 && counts.waited > 0);
        assert!(system < 8 * 1000 + 8 * 200 + 1, "{system} ns");
    }
}
