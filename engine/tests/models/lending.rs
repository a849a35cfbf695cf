//! Who may still read a slot: the table of `device/loans.rs`. A process is a thread here, and the content of the slot a
//! cell of which the checker knows who reads and who writes it.
use crate::loans::{Loan, Table};
use crate::sys::shared::ByteLocks;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

/// The word that all slots of a model are in.
const WORD: usize = 0;

fn in_every_order(model: impl Fn() + Send + Sync + 'static) {
    let mut checker = loom::model::Builder::new();
    checker.preemption_bound = Some(3);
    checker.check(model);
}

/// A table, the slots' contents, and the owner's locks.
struct Device {
    table: Table,
    slots: [UnsafeCell<()>; 2],
}

impl Device {
    fn new() -> Arc<Self> {
        let slots = [(); 2].map(|()| UnsafeCell::new(()));
        Arc::new(Self { table: Table::new(64).unwrap(), slots })
    }

    fn lend(&self, locks: &ByteLocks, mask: u64) -> Loan {
        let slots = std::iter::once((WORD, mask));
        self.table.lend(locks.another().unwrap(), slots).expect("a model has rows enough")
    }

    /// A borrower reads a slot and drops it.
    fn read(&self, loan: &Loan, slot: usize) {
        self.slots[slot].with(|_| thread::yield_now());
        self.table.drop_slots(loan.row, WORD, 1 << slot);
    }

    /// The owner writes to those of its slots that nobody reads.
    fn write_free(&self, locks: &ByteLocks) -> u64 {
        self.table.bury(locks);
        let borrowed = self.table.borrowed(WORD);
        for (slot, content) in self.slots.iter().enumerate() {
            if borrowed >> slot & 1 == 0 {
                content.with_mut(|_| ());
            }
        }
        borrowed
    }
}

/// Waits until no process is left, and finds everything free.
fn assert_all_free(device: &Device, locks: &ByteLocks) {
    device.table.bury(locks);
    assert!(!device.table.any());
    assert_eq!(device.table.borrowed(WORD), 0);
}

#[test]
fn a_slot_that_a_borrower_hands_on_and_drops_is_never_written_before_the_last_has_read_it() {
    in_every_order(|| {
        let (device, owner) = (Device::new(), ByteLocks::new().unwrap());
        let loan = device.lend(&owner, 1);
        let parent = {
            let device = device.clone();
            thread::spawn(move || {
                let handed_on = device.lend(&loan.locks, 1);
                let child = {
                    let device = device.clone();
                    thread::spawn(move || device.read(&handed_on, 0))
                };
                device.read(&loan, 0);
                drop(loan);
                child
            })
        };
        device.write_free(&owner);
        parent.join().unwrap().join().unwrap();
        assert_all_free(&device, &owner);
    });
}

#[test]
fn a_row_whose_borrower_has_gone_is_cleared_by_one_and_never_under_its_next_holder() {
    in_every_order(|| {
        let (device, owner) = (Device::new(), ByteLocks::new().unwrap());
        let dies = device.lend(&owner, 1);
        let lives = device.lend(&owner, 2);
        let parent = {
            let device = device.clone();
            thread::spawn(move || {
                let handed_on = device.lend(&lives.locks, 2);
                drop(lives);
                handed_on
            })
        };
        drop(dies);
        device.write_free(&owner);
        let handed_on = parent.join().unwrap();
        assert_eq!(device.write_free(&owner), 2, "the first is free, the second read");
        device.read(&handed_on, 1);
        drop(handed_on);
        assert_all_free(&device, &owner);
    });
}
