//! Members that take pages of one budget at once: `job/rows.rs`.
use crate::rows::{self, Row, Word};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

const LIMIT: u32 = 10;

/// As in the ledger's file.
struct Rows {
    all: Vec<Row>,
    /// Those before this one have been used.
    used: AtomicU32,
}

impl Rows {
    fn used(&self) -> &[Row] {
        &self.all[..self.used.load(Ordering::Acquire) as usize]
    }
}

/// `used` rows are there from the start; those that come meanwhile are more to try, with fewer preemptions.
fn in_every_order(used: u32, model: impl Fn(Arc<Rows>) + Send + Sync + 'static) {
    let mut checker = loom::model::Builder::new();
    checker.preemption_bound = Some(if used == 3 { 3 } else { 2 });
    checker.check(move || {
        let row = |_| std::array::from_fn(|_| AtomicU32::new(0));
        model(Arc::new(Rows { all: (0..3).map(row).collect(), used: AtomicU32::new(used) }));
    });
}

fn grow(rows: &Rows, index: usize, to: u32) -> u32 {
    rows::grow(|| rows.used(), index, to, LIMIT)
}

fn together(rows: &Arc<Rows>, act: impl Fn(&Rows, usize) -> u32 + Copy + Send + 'static) {
    let others: Vec<_> = (1..3)
        .map(|index| {
            let rows = rows.clone();
            thread::spawn(move || act(&rows, index))
        })
        .collect();
    let mut kept = vec![act(rows, 0)];
    kept.extend(others.into_iter().map(|other| other.join().unwrap()));
    assert!(kept.iter().sum::<u32>() <= LIMIT, "{kept:?} of {LIMIT}");
    let shares: Vec<u32> = rows.all.iter().map(|row| Word::Share.read(row)).collect();
    assert_eq!(shares, kept, "what a member keeps is what its row says");
}

#[test]
fn members_that_grow_at_once_never_keep_more_than_there_is() {
    in_every_order(3, |rows| together(&rows, |rows, index| grow(rows, index, 6)));
}

#[test]
fn members_that_come_meanwhile_are_seen() {
    in_every_order(1, |rows| {
        together(&rows, |rows, index| {
            rows.used.fetch_max(index as u32 + 1, Ordering::AcqRel);
            grow(rows, index, 6)
        });
    });
}

#[test]
fn what_one_gives_back_is_had_once() {
    in_every_order(3, |rows| {
        assert_eq!(grow(&rows, 0, LIMIT), LIMIT);
        together(&rows, |rows, index| match index {
            0 => {
                rows::shrink(rows.used(), 0, 4);
                4
            }
            _ => grow(rows, index, 6),
        });
    });
}
