//! Freeing slots that other processes may still read (`loans`).
//!
//! What the owner frees while a borrower has it is *lent*: taken, but this process's no more. It is asked again who still
//! reads those every so often as slots are allocated, and before a device counts as full.
use super::Devices;
use super::counts::SlotCounts;
use super::loans::{Part, Table};
use super::record::{Device, DeviceState, Holding, Store, Supply};
use std::sync::atomic::Ordering;
use userswap_policy::lent::SlotWord;
use userswap_policy::slots::SlotRun;

/// Slots allocated between two questions who reads the lent ones: 64 MiB, which takes long to write against what the
/// question costs (a lock tried for each borrower, some nanoseconds for 64 slots).
const ASK_SLOTS: u32 = 1 << 14;

impl Store {
    /// Counts allocated slots; whether it is time to ask who still reads the lent ones.
    pub(super) fn is_due(&mut self, allocated: u32) -> bool {
        if self.lent.count() == 0 {
            return false;
        }
        self.allocated += allocated;
        let is_due = self.allocated >= ASK_SLOTS;
        if is_due {
            self.allocated = 0;
        }
        is_due
    }

    /// Frees the slots of a word; returns how many.
    fn free_word(&mut self, word: SlotWord) -> u32 {
        word.runs().for_each(|run| self.free(run));
        word.mask.count_ones()
    }

    /// Frees a run but for what is borrowed; returns how many slots are free.
    fn free_or_lend(&mut self, table: &Table, run: SlotRun) -> u32 {
        SlotWord::of(run)
            .map(|word| {
                let free = self.lent.keep(word, table.borrowed(word.index));
                self.free_word(free)
            })
            .sum()
    }

    /// Frees the lent slots that `borrowed` does not tell of any more; returns how many.
    pub(super) fn give_back(&mut self, borrowed: impl Fn(usize) -> u64) -> u32 {
        self.lent
            .span()
            .map(|index| {
                let free = self.lent.give_back(index, borrowed(index));
                self.free_word(free)
            })
            .sum()
    }
}

impl Devices {
    /// Frees a run of a device whose lock is held.
    pub(super) fn free_run(&self, device: &Device, store: &mut Store, run: SlotRun) {
        device.freed.fetch_add(u64::from(run.count), Ordering::Relaxed);
        let was_full = store.is_full();
        self.forget(device, run);
        let loans = store.loans.as_ref().filter(|loans| loans.table().any()).cloned();
        let free = match (loans, store.holding) {
            (Some(loans), Holding::Own) => store.free_or_lend(loans.table(), run),
            (loans, _) => {
                store.free(run);
                // From here on their owner may write to them.
                if let Some(loans) = loans
                    && let Part::Borrower(row) = loans.part()
                {
                    let drop =
                        |word: SlotWord| loans.table().drop_slots(row, word.index, word.mask);
                    SlotWord::of(run).for_each(drop);
                }
                run.count
            }
        };
        self.note_freed(device, store, was_full, free);
    }

    /// Frees the lent slots of a device that nobody reads any more.
    pub(super) fn take_back(&self, device: &Device) {
        let Some(loans) = device.loans().filter(|_| device.store().lock().lent.count() > 0) else {
            return;
        };
        // Not under the device's lock: these are system calls.
        loans.bury();
        let mut store = device.store().lock();
        let was_full = store.is_full();
        let free = store.give_back(|word| loans.table().borrowed(word));
        self.note_freed(device, &mut store, was_full, free);
    }

    /// Whether other processes have its file.
    pub(crate) fn is_shared(&self, device: &Device) -> bool {
        let Some(loans) = device.loans() else { return false };
        if device.store().lock().holding == Holding::Own {
            loans.bury();
        }
        loans.table().any()
    }

    fn note_freed(&self, device: &Device, store: &mut Store, was_full: bool, free: u32) {
        if store.supply != Supply::Enough {
            if store.state == DeviceState::On {
                self.counts.subtract(SlotCounts { free: 0, total: free.into() });
            }
            return self.supply_again(device, store);
        }
        if store.state == DeviceState::On && free > 0 {
            self.counts.add_free(free);
            if was_full {
                self.table().on_not_full(device.id());
            }
        }
    }
}
