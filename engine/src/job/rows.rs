//! The rows of a ledger, and the one rule by which pages are taken: first written down, then added up.
//!
//! A row is written by its member alone, so nothing is left half-done when that dies. What all hold is never kept, but
//! added up anew: a member writes what it wants into its row and *then* adds up all rows. Of two that grow at once at
//! least one sees the other, so together they never keep more than there is; both may take less than they could, and
//! try again. That holds for rows that are taken meanwhile, too: which rows there are is looked at for each sum anew, and a
//! member says that it has one before it grows. A row of the dead counts until it is swept.
use crate::sys::sync::{AtomicU32, Ordering, fence};

/// A member, as it lets the others see it; as large as a cache line.
pub type Row = [AtomicU32; 16];

/// What a row says. All but the share are read together with others of another moment: none of them decides alone.
#[derive(Clone, Copy, Debug)]
pub enum Word {
    /// Pages that it holds of the budget.
    Share,
    /// Its process; 0 when the row is free.
    Pid,
    /// Pages below which it does not work.
    Floor,
    /// Pages that it could use.
    Demand,
    /// Pages that it refaults in a second.
    Rate,
    /// Pages that it uses.
    Used,
    /// 1 when it has an engine, 0 before.
    Engaged,
    /// How fast it gets on, of a thousand.
    Speed,
    /// Counts how often others have asked it to look again at what it should have; it sleeps here.
    Asked,
}

impl Word {
    /// This word of a row.
    pub fn of(self, row: &Row) -> &AtomicU32 {
        &row[self as usize]
    }

    /// Its value. Relaxed: a number that is shown, or decided by together with others.
    pub fn read(self, row: &Row) -> u32 {
        self.of(row).load(Ordering::Relaxed)
    }

    /// Changes a row of this process's own. Relaxed: see [`Word::read`].
    pub fn write(self, row: &Row, value: u32) {
        self.of(row).store(value, Ordering::Relaxed);
    }
}

/// Pages that all rows hold.
pub fn held(rows: &[Row]) -> u64 {
    // Acquire pairs with the release of a member that gives pages back.
    rows.iter().map(|row| u64::from(Word::Share.of(row).load(Ordering::Acquire))).sum()
}

/// Lets one of the rows that there are at a moment grow to `to` pages as far as `limit` allows for all; returns what it
/// holds then, which is never less than before, and may be less than there is if another grows at the same moment. Only
/// its member does this, one thread at a time.
pub fn grow<'a>(rows: impl Fn() -> &'a [Row], index: usize, to: u32, limit: u32) -> u32 {
    let row = &rows()[index];
    let before = Word::Share.read(row);
    if to <= before {
        return before;
    }
    let beside_others = |own: u32, most: u32| {
        let others = held(rows()).saturating_sub(own.into());
        u64::from(limit).saturating_sub(others).clamp(before.into(), most.into()) as u32
    };
    // No more than there seems to be: the others take what is written here for held.
    let wanted = beside_others(before, to);
    Word::Share.write(row, wanted);
    // Between the store and the loads: of two members that grow at once, one sees the other's store, and its row.
    fence(Ordering::SeqCst);
    let kept = beside_others(wanted, wanted);
    Word::Share.write(row, kept);
    kept
}

/// A row gives pages back, which its member has given up before.
pub fn shrink(rows: &[Row], index: usize, to: u32) {
    // Release pairs with the acquire in `held`.
    Word::Share.of(&rows[index]).store(to, Ordering::Release);
}
