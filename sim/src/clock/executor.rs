//! The event queue, and the tasks that it wakes.
//!
//! A task is a future: what it does until it next waits happens at one moment of virtual time. An event wakes one task at
//! one moment; events of the same moment come in the order in which they were made, so that a run depends on nothing but
//! its description. Whatever wakes a task makes its other events void (a sleep that was cut short leaves none).

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::{Ns, Random};

/// A task's number, in the order of their starts.
pub type TaskId = u32;

type Task = Pin<Box<dyn Future<Output = ()>>>;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    at: Ns,
    /// Events of one moment come in the order of their numbers.
    number: u64,
    task: TaskId,
    ticket: u32,
}

/// Whether the end of a run waits for a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Program,
    /// Runs as long as there are programs.
    Daemon,
}

/// Why a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stop {
    /// Every program has ended.
    Done,
    /// These programs wait, and nothing will ever wake them.
    AsleepForEver(Vec<TaskId>),
    /// The longest time that a run may take has passed.
    TimeLimit,
    /// What looked after every event has found something.
    Found(String),
}

struct Inner {
    random: RefCell<Random>,
    /// By how many thousandths what takes time takes more or less.
    jitter: u32,
    now: Cell<Ns>,
    number: Cell<u64>,
    events: Cell<u64>,
    current: Cell<TaskId>,
    programs: Cell<u32>,
    linger: Cell<Ns>,
    queue: RefCell<BinaryHeap<Reverse<Event>>>,
    /// Of each task: its events with another ticket are void.
    tickets: RefCell<Vec<u32>>,
    kinds: RefCell<Vec<Kind>>,
    started: RefCell<Vec<(TaskId, Task)>>,
}

/// A simulation: the handle that every task has.
#[derive(Clone)]
pub struct Sim(Rc<Inner>);

impl Default for Sim {
    fn default() -> Self {
        Self::with_jitter(0, 0)
    }
}

impl Sim {
    /// At time 0, without tasks.
    pub fn new() -> Self {
        Self::default()
    }

    /// One in which every use of a CPU takes up to so many thousandths more or less, as `seed` has it. Without that,
    /// threads that do the same thing keep step for ever, which no real ones do.
    pub fn with_jitter(seed: u64, jitter: u32) -> Self {
        Self(Rc::new(Inner {
            random: RefCell::new(Random::new(seed)),
            jitter: jitter.min(1000),
            now: Cell::default(),
            number: Cell::default(),
            events: Cell::default(),
            current: Cell::default(),
            programs: Cell::default(),
            linger: Cell::default(),
            queue: RefCell::default(),
            tickets: RefCell::default(),
            kinds: RefCell::default(),
            started: RefCell::default(),
        }))
    }

    /// How long something takes this time that takes `ns` on average.
    pub fn jittered(&self, ns: Ns) -> Ns {
        let width = ns * Ns::from(self.0.jitter) / 1000;
        if width == 0 {
            return ns;
        }
        ns - width + self.0.random.borrow_mut().below(2 * width + 1)
    }

    /// The moment.
    pub fn now(&self) -> Ns {
        self.0.now.get()
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.0.events.get()
    }

    /// The task that runs at this moment.
    pub fn current(&self) -> TaskId {
        self.0.current.get()
    }

    /// Starts a task for which the run's end waits.
    pub fn program(&self, task: impl Future<Output = ()> + 'static) -> TaskId {
        self.0.programs.set(self.0.programs.get() + 1);
        self.start(Kind::Program, Box::pin(task))
    }

    /// Starts a task that serves the programs.
    pub fn daemon(&self, task: impl Future<Output = ()> + 'static) -> TaskId {
        self.start(Kind::Daemon, Box::pin(task))
    }

    fn start(&self, kind: Kind, task: Task) -> TaskId {
        let mut tickets = self.0.tickets.borrow_mut();
        let id = TaskId::try_from(tickets.len()).expect("fewer than four thousand million tasks");
        tickets.push(0);
        drop(tickets);
        self.0.kinds.borrow_mut().push(kind);
        self.0.started.borrow_mut().push((id, task));
        self.wake_at(id, self.now());
        id
    }

    /// Wakes a task at a moment that is not past, unless something else wakes it before.
    pub fn wake_at(&self, task: TaskId, at: Ns) {
        debug_assert!(at >= self.now(), "an event in the past");
        let number = self.0.number.get();
        self.0.number.set(number + 1);
        let ticket = self.0.tickets.borrow()[task as usize];
        self.0.queue.borrow_mut().push(Reverse(Event { at, number, task, ticket }));
    }

    /// Wakes a task at this moment.
    pub fn wake(&self, task: TaskId) {
        self.wake_at(task, self.now());
    }

    /// Waits to be woken.
    pub fn suspend(&self) -> impl Future<Output = ()> + use<> {
        Suspend { is_woken: false }
    }

    /// Waits for `ns`.
    pub async fn sleep(&self, ns: Ns) {
        self.wake_at(self.current(), self.now() + ns);
        self.suspend().await;
    }

    /// Lets a run go on for so long after its last program has ended, as long as there are events.
    pub fn linger(&self, ns: Ns) {
        self.0.linger.set(ns);
    }

    /// Runs until all programs have ended, at most to the moment `limit`. After every event `look` is asked whether all
    /// is as it must be.
    pub fn run(&self, limit: Ns, mut look: impl FnMut() -> Result<(), String>) -> Stop {
        let mut tasks: Vec<Option<Task>> = Vec::new();
        self.take_started(&mut tasks);
        let mut end = None;
        loop {
            let is_done = self.0.programs.get() == 0;
            if is_done && end.is_none() {
                end = Some(self.now() + self.0.linger.get());
            }
            let next = self.0.queue.borrow_mut().pop();
            let event = match next {
                Some(Reverse(event)) if end.is_none_or(|end| event.at < end) => event,
                _ if is_done => return Stop::Done,
                _ => return Stop::AsleepForEver(self.asleep(&tasks)),
            };
            if event.at > limit {
                return Stop::TimeLimit;
            }
            if self.is_void(event) {
                continue;
            }
            self.0.now.set(event.at);
            self.0.events.set(self.0.events.get() + 1);
            self.poll(event.task, &mut tasks);
            self.take_started(&mut tasks);
            if let Err(found) = look() {
                return Stop::Found(found);
            }
        }
    }

    /// Whether the task was woken by another event meanwhile; else no other event will wake it.
    fn is_void(&self, event: Event) -> bool {
        let ticket = &mut self.0.tickets.borrow_mut()[event.task as usize];
        let is_void = *ticket != event.ticket;
        if !is_void {
            *ticket = ticket.wrapping_add(1);
        }
        is_void
    }

    fn poll(&self, id: TaskId, tasks: &mut [Option<Task>]) {
        let Some(task) = &mut tasks[id as usize] else { return };
        self.0.current.set(id);
        let mut context = Context::from_waker(Waker::noop());
        if task.as_mut().poll(&mut context).is_pending() {
            return;
        }
        tasks[id as usize] = None;
        if self.0.kinds.borrow()[id as usize] == Kind::Program {
            self.0.programs.set(self.0.programs.get() - 1);
        }
    }

    fn take_started(&self, tasks: &mut Vec<Option<Task>>) {
        for (id, task) in self.0.started.borrow_mut().drain(..) {
            debug_assert_eq!(id as usize, tasks.len());
            tasks.push(Some(task));
        }
    }

    fn asleep(&self, tasks: &[Option<Task>]) -> Vec<TaskId> {
        let kinds = self.0.kinds.borrow();
        let is_program = |id: &usize| tasks[*id].is_some() && kinds[*id] == Kind::Program;
        (0..tasks.len()).filter(is_program).map(|id| id as TaskId).collect()
    }
}

/// Ready at the second poll: there is none before the event.
struct Suspend {
    is_woken: bool,
}

impl Future for Suspend {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.is_woken {
            return Poll::Ready(());
        }
        self.is_woken = true;
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_take_turns_in_the_order_of_time_and_then_of_making() {
        let sim = Sim::new();
        let seen = Rc::new(RefCell::new(Vec::new()));
        for (task, ns) in [(0, 30), (1, 10), (2, 10)] {
            let (handle, seen) = (sim.clone(), Rc::clone(&seen));
            sim.program(async move {
                handle.sleep(ns).await;
                seen.borrow_mut().push((handle.now(), task));
            });
        }
        assert_eq!(sim.run(Ns::MAX, || Ok(())), Stop::Done);
        assert_eq!(*seen.borrow(), [(10, 1), (10, 2), (30, 0)]);
    }

    #[test]
    fn what_wakes_a_sleeper_early_makes_the_rest_of_its_sleep_void() {
        let sim = Sim::new();
        let woken = Rc::new(RefCell::new(Vec::new()));
        let (sleeper, seen) = (sim.clone(), Rc::clone(&woken));
        let task = sim.program(async move {
            for _ in 0..2 {
                sleeper.sleep(100).await;
                seen.borrow_mut().push(sleeper.now());
            }
        });
        let handle = sim.clone();
        sim.program(async move {
            handle.sleep(40).await;
            handle.wake(task);
        });
        assert_eq!(sim.run(Ns::MAX, || Ok(())), Stop::Done);
        assert_eq!(*woken.borrow(), [40, 140]);
    }

    #[test]
    fn a_program_that_nothing_wakes_is_named_and_a_daemon_is_not() {
        let sim = Sim::new();
        let (program, daemon) = (sim.clone(), sim.clone());
        sim.daemon(async move { daemon.suspend().await });
        let asleep = sim.program(async move { program.suspend().await });
        assert_eq!(sim.run(Ns::MAX, || Ok(())), Stop::AsleepForEver(vec![asleep]));
    }

    #[test]
    fn a_run_ends_at_its_limit_and_at_what_was_found() {
        let endless = |sim: &Sim| {
            let handle = sim.clone();
            sim.program(async move {
                loop {
                    handle.sleep(5).await;
                }
            });
        };
        let sim = Sim::new();
        endless(&sim);
        assert_eq!(sim.run(12, || Ok(())), Stop::TimeLimit);
        let sim = Sim::new();
        endless(&sim);
        let look = || if sim.now() >= 10 { Err("ten".to_owned()) } else { Ok(()) };
        assert_eq!(sim.run(Ns::MAX, look), Stop::Found("ten".to_owned()));
    }
}
