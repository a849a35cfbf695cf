//! Members that take pages of one budget at once: `job/rows.rs`.
use crate::rows::{self, Row, Word};
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::thread;

const LIMIT: u32 = 10;

fn in_every_order(model: impl Fn(Arc<Vec<Row>>) + Send + Sync + 'static) {
    let mut checker = loom::model::Builder::new();
    checker.preemption_bound = Some(3);
    checker.check(move || {
        let row = |_| std::array::from_fn(|_| AtomicU32::new(0));
        model(Arc::new((0..3).map(row).collect()));
    });
}

fn together(rows: &Arc<Vec<Row>>, act: impl Fn(&[Row], usize) -> u32 + Copy + Send + 'static) {
    let others: Vec<_> = (1..3)
        .map(|index| {
            let rows = rows.clone();
            thread::spawn(move || act(&rows, index))
        })
        .collect();
    let mut kept = vec![act(rows, 0)];
    kept.extend(others.into_iter().map(|other| other.join().unwrap()));
    assert!(kept.iter().sum::<u32>() <= LIMIT, "{kept:?} of {LIMIT}");
    let shares: Vec<u32> = rows.iter().map(|row| Word::Share.read(row)).collect();
    assert_eq!(shares, kept, "what a member keeps is what its row says");
}

#[test]
fn members_that_grow_at_once_never_keep_more_than_there_is() {
    in_every_order(|rows| together(&rows, |rows, index| rows::grow(rows, index, 6, LIMIT)));
}

#[test]
fn what_one_gives_back_is_had_once() {
    in_every_order(|rows| {
        assert_eq!(rows::grow(&rows, 0, LIMIT, LIMIT), LIMIT);
        together(&rows, |rows, index| match index {
            0 => {
                rows::shrink(rows, 0, 4);
                4
            }
            _ => rows::grow(rows, index, 6, LIMIT),
        });
    });
}
