//! Threads that wait, and the watchdog that looks at them: `state/wait_table.rs`.
use crate::wait_table::{Wait, WaitTable, Waited};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

fn in_every_order(model: impl Fn() + Send + Sync + 'static) {
    let mut checker = loom::model::Builder::new();
    checker.preemption_bound = Some(3);
    checker.check(model);
}

/// Each wait differs from the others in all it says.
fn wait(number: u32) -> Wait {
    Wait { waited: Waited::Page(number), thread: number as i32, since_ns: 10 + u64::from(number) }
}

#[test]
fn two_threads_never_have_the_same_entry_and_each_is_seen_while_it_waits() {
    in_every_order(|| {
        let table = Arc::new(WaitTable::<2>::new());
        let waits = |number: u32| {
            let table = table.clone();
            move || {
                let entry = table.begin(wait(number), |_| false).expect("there is room for both");
                assert_eq!(entry.read(), Some(wait(number)), "nobody else writes here");
                assert_eq!(table.list().filter(|seen| *seen == wait(number)).count(), 1);
                entry.end(wait(number).since_ns);
            }
        };
        let other = thread::spawn(waits(1));
        waits(2)();
        other.join().unwrap();
        assert_eq!(table.list().count(), 0, "an end that was told frees its entry");
    });
}

#[test]
fn the_end_of_a_wait_whose_entry_is_used_again_leaves_the_new_one_alone() {
    in_every_order(|| {
        let table = Arc::new(WaitTable::<1>::new());
        let is_over = Arc::new(AtomicBool::new(false));
        let first = {
            let (table, is_over) = (table.clone(), is_over.clone());
            thread::spawn(move || {
                if let Some(entry) = table.begin(wait(1), |_| false) {
                    is_over.store(true, Ordering::Relaxed);
                    entry.end(wait(1).since_ns);
                }
            })
        };
        let second = {
            let over = is_over.clone();
            table.begin(wait(2), move |page| page == 1 && over.load(Ordering::Relaxed)).is_some()
        };
        first.join().unwrap();
        let left: Vec<u64> = table.list().map(|wait| wait.since_ns).collect();
        assert_eq!(left, if second { vec![wait(2).since_ns] } else { vec![] });
    });
}

#[test]
fn an_entry_that_one_thread_uses_again_no_other_takes_for_what_it_was_before() {
    in_every_order(|| {
        let table = Arc::new(WaitTable::<2>::new());
        // Its end nobody told.
        let _ = table.begin(wait(1), |_| false);
        let waits = |number: u32| {
            let table = table.clone();
            move || {
                let entry = table.begin(wait(number), |page| page == 1).expect("there is room");
                assert_eq!(entry.read(), Some(wait(number)));
            }
        };
        let other = thread::spawn(waits(2));
        waits(3)();
        other.join().unwrap();
        let left: Vec<u32> = table.list().map(|wait| wait.thread as u32).collect();
        assert!(left == [2, 3] || left == [3, 2], "{left:?}");
    });
}
