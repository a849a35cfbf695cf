//! Tasks that sleep until something happens, in the order in which they came.

use std::cell::RefCell;
use std::collections::VecDeque;

use super::{Ns, Sim, TaskId};

/// What ended a sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woken {
    /// Somebody.
    Early,
    /// Its time.
    TimedOut,
}

/// Those who wait for one thing.
#[derive(Default)]
pub struct Waiters(RefCell<VecDeque<TaskId>>);

impl Waiters {
    /// Waits until woken.
    pub async fn wait(&self, sim: &Sim) {
        self.0.borrow_mut().push_back(sim.current());
        sim.suspend().await;
    }

    /// Waits until woken, at most for `ns`.
    pub async fn wait_for(&self, sim: &Sim, ns: Ns) -> Woken {
        let task = sim.current();
        self.0.borrow_mut().push_back(task);
        sim.wake_at(task, sim.now() + ns);
        sim.suspend().await;
        let mut waiters = self.0.borrow_mut();
        let Some(at) = waiters.iter().position(|other| *other == task) else { return Woken::Early };
        waiters.remove(at);
        Woken::TimedOut
    }

    /// Wakes all; returns how many.
    pub fn wake_all(&self, sim: &Sim) -> usize {
        let mut waiters = self.0.borrow_mut();
        waiters.iter().for_each(|task| sim.wake(*task));
        let count = waiters.len();
        waiters.clear();
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn a_sleep_says_what_ended_it() {
        let sim = Sim::new();
        let waiters = Rc::new(Waiters::default());
        let (handle, queue) = (sim.clone(), Rc::clone(&waiters));
        sim.program(async move {
            assert_eq!(queue.wait_for(&handle, 10).await, Woken::TimedOut);
            assert_eq!(handle.now(), 10);
            assert_eq!(queue.wait_for(&handle, 100).await, Woken::Early);
            assert_eq!(handle.now(), 30);
        });
        let handle = sim.clone();
        sim.program(async move {
            handle.sleep(30).await;
            assert_eq!(waiters.wake_all(&handle), 1);
        });
        assert_eq!(sim.run(Ns::MAX, || Ok(())), super::super::Stop::Done);
    }
}
