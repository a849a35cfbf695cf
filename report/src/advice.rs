//! What more RAM would have done, estimated from a record.
use crate::record::Record;

/// A run is as fast as natively if swapping adds no more than this.
const NEAR_NATIVE: f64 = 0.10;

/// Budgets of a table, in eighths of the recorded one.
const EIGHTHS: [u64; 8] = [8, 10, 12, 16, 24, 32, 48, 64];

/// A budget, and what it would have done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// In pages.
    pub budget: u64,
    /// Pages that come back from a device.
    pub reads: u64,
    /// Of the recorded ones.
    pub share: f64,
    /// Seconds for which a thread waits: as many for each page as in the record.
    pub stalled_s: f64,
}

/// How far an estimate can be relied on, the worst reason first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// Nothing is known of it.
    NothingRead,
    /// Events are missing.
    Lost,
    /// The record has no end.
    NoEnd,
    /// It is a child, whose pages from before the fork are not known.
    Forked,
    /// The record looked at a share of the pages.
    Sampled,
    /// The record is of a budget that is near to the program's size.
    BudgetNear,
    /// Nothing speaks against it.
    None,
}

impl Doubt {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::NothingRead => "nothing was read back: there is nothing to estimate from",
            Self::Lost => "not sure: events were lost, and with them pages that came back",
            Self::NoEnd => {
                "not sure: the record has no end: the program was killed or became another by exec, or there was no room for more"
            }
            Self::Forked => "less sure: pages from before the fork are not in the record",
            Self::Sampled => "fairly sure: it looked at a share of the pages only",
            Self::BudgetNear => {
                "fairly sure: the budget was near to what the program needs, so that much of what it did was not seen"
            }
            Self::None => "as sure as one run of the program is like another",
        }
    }

    /// The worst doubt about a record.
    pub fn about(record: &Record) -> Self {
        let cases = [
            (record.curve.largest() == 0, Self::NothingRead),
            (record.lost > 0, Self::Lost),
            (!record.has_ended, Self::NoEnd),
            (record.header.forked, Self::Forked),
            (record.curve.share() < 1.0, Self::Sampled),
            (record.curve.largest() < 2 * record.budget_pages(), Self::BudgetNear),
        ];
        cases.into_iter().find(|(is_so, _)| *is_so).map_or(Self::None, |(_, doubt)| doubt)
    }
}

/// What a budget would have done.
pub fn estimate(record: &Record, budget: u64) -> Estimate {
    let all = record.curve.reads(0).max(1);
    let reads = record.curve.reads(budget);
    let share = reads as f64 / all as f64;
    Estimate { budget, reads, share, stalled_s: share * record.totals.stall_ns as f64 / 1e9 }
}

/// The recorded budget and larger ones, up to the first that reads nothing back.
pub fn table(record: &Record) -> Vec<Estimate> {
    let now = record.budget_pages();
    let mut budgets: Vec<u64> =
        EIGHTHS.iter().map(|eighths| now.saturating_mul(*eighths) / 8).collect();
    budgets.extend(smallest_near_native(record));
    budgets.push(record.curve.largest());
    budgets.retain(|budget| (now..=record.curve.largest().max(now)).contains(budget));
    budgets.sort_unstable();
    budgets.dedup();
    budgets.into_iter().map(|budget| estimate(record, budget)).collect()
}

/// Seconds that it would have taken without waiting for a page.
pub fn unstalled_s(record: &Record) -> f64 {
    (duration_s(record) - record.totals.stall_ns as f64 / 1e9).max(0.0)
}

/// Seconds that the program would have taken with all of its memory in RAM, at least: of those without waiting the share that
/// CPU time outside the kernel has of all CPU time since the record began. What a fault costs beyond the wait (switches
/// between threads, pages that are mapped and unmapped) is no part of it.
pub fn native_s(record: &Record) -> f64 {
    let (all, user) = (record.totals.cpu_ms, record.totals.user_ms);
    match user {
        // Records of older versions do not tell.
        0 => unstalled_s(record),
        user => unstalled_s(record) * (user as f64 / all.max(user) as f64),
    }
}

fn duration_s(record: &Record) -> f64 {
    record.duration_ms() as f64 / 1e3
}

/// The smallest budget, in pages, with which all that swapping costs adds no more than a tenth to the native time.
pub fn smallest_near_native(record: &Record) -> Option<u64> {
    let native_s = native_s(record);
    let swapping_s = duration_s(record) - native_s;
    let share = (native_s * NEAR_NATIVE / swapping_s.max(1e-9)).min(1.0);
    let reads = record.curve.reads(0) as f64 * share;
    let now = record.budget_pages();
    (record.curve.largest() > 0)
        .then(|| record.curve.budget_for(reads as u64).unwrap_or(now).max(now))
}
