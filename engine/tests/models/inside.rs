//! Threads inside the gate, and those that close it: `state/gate.rs`. What they do there is in cells of which the checker knows
//! who reads and who writes them.
use crate::gate::Gate;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread::{self, JoinHandle};

fn in_every_order(model: impl Fn() + Send + Sync + 'static) {
    let mut checker = loom::model::Builder::new();
    checker.preemption_bound = Some(2);
    checker.check(model);
}

/// What the gate is around.
struct Pages {
    gate: Gate,
    /// A thread's own, which it writes inside.
    own: [UnsafeCell<()>; 2],
    /// What all read inside, and a thread writes that has closed the gate.
    tables: UnsafeCell<()>,
}

impl Pages {
    fn new() -> Arc<Self> {
        let own = [(); 2].map(|()| UnsafeCell::new(()));
        Arc::new(Self { gate: Gate::default(), own, tables: UnsafeCell::new(()) })
    }

    fn change(&self, thread: usize) {
        let _inside = self.gate.enter();
        self.tables.with(|_| self.own[thread].with_mut(|_| ()));
    }

    /// Nobody is inside.
    fn copy(&self) {
        self.own.iter().for_each(|own| own.with(|_| ()));
        self.tables.with_mut(|_| thread::yield_now());
    }

    fn fork(&self) {
        self.gate.close();
        self.copy();
        self.gate.open();
    }
}

fn spawn(pages: &Arc<Pages>, act: impl FnOnce(&Pages) + 'static) -> JoinHandle<()> {
    let pages = pages.clone();
    thread::spawn(move || act(&pages))
}

fn join(threads: [JoinHandle<()>; 2]) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn while_the_gate_is_closed_nobody_is_inside_and_each_sees_what_the_others_did() {
    in_every_order(|| {
        let pages = Pages::new();
        let threads = [0, 1].map(|thread| spawn(&pages, move |pages| pages.change(thread)));
        pages.fork();
        join(threads);
        assert!(!pages.gate.is_closed());
    });
}

#[test]
fn threads_that_close_it_do_so_one_after_the_other() {
    in_every_order(|| {
        let pages = Pages::new();
        let threads = [spawn(&pages, Pages::fork), spawn(&pages, |pages| pages.change(0))];
        pages.fork();
        join(threads);
        assert!(!pages.gate.is_closed());
    });
}

#[test]
fn a_thread_that_gives_up_closing_wakes_those_who_wait_for_it() {
    in_every_order(|| {
        let pages = Pages::new();
        let gives_up = |pages: &Pages| {
            let closed = pages.gate.close_while(|| false);
            closed.iter().for_each(|_| pages.copy());
        };
        let threads = [spawn(&pages, gives_up), spawn(&pages, |pages| pages.change(0))];
        pages.change(1);
        join(threads);
        assert!(!pages.gate.is_closed());
    });
}

#[test]
fn a_request_in_flight_is_waited_for_and_what_it_brought_is_seen() {
    in_every_order(|| {
        let pages = Pages::new();
        let inside = pages.gate.enter();
        pages.gate.bring_in();
        let threads = [
            spawn(&pages, |pages| {
                pages.own[0].with_mut(|_| ());
                pages.gate.leave();
            }),
            spawn(&pages, Pages::fork),
        ];
        pages.own[1].with_mut(|_| ());
        drop(inside);
        join(threads);
    });
}

#[test]
fn a_gate_that_begins_closed_lets_all_in_when_it_opens() {
    in_every_order(|| {
        let own = [(); 2].map(|()| UnsafeCell::new(()));
        let pages = Arc::new(Pages { gate: Gate::closed(), own, tables: UnsafeCell::new(()) });
        let threads = [0, 1].map(|thread| spawn(&pages, move |pages| pages.change(thread)));
        pages.copy();
        pages.gate.open();
        join(threads);
    });
}
