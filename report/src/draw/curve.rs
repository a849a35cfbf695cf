//! The miss-ratio curve.
use super::axis::Scale;
use super::svg::{INNER, Picture};
use crate::advice;
use crate::record::Record;
use crate::size::{self, PAGE_BYTES};

/// Budgets that are drawn.
const POINTS: u64 = 240;

/// Pages that come back by budget.
pub fn reads(record: &Record) -> Option<Picture> {
    let largest = record.curve.largest();
    if largest == 0 {
        return None;
    }
    let mut picture = Picture::new("curve", "Pages that would have come back, by RAM", 200.0);
    let now = record.budget_pages().min(largest);
    let x = Scale::to(largest as f64 * 1.08 * PAGE_BYTES as f64, INNER);
    let most = record.curve.reads(0);
    let y = Scale::to(most as f64 * 1.05, picture.inside());
    for tick in y.ticks(5) {
        picture.tick_y(y.at(tick), &size::count(tick as u64));
    }
    for tick in x.byte_ticks(8) {
        picture.tick_x(x.at(tick), &size::bytes(tick as u64));
    }
    let end = (largest as f64 * 1.08) as u64;
    let point = |budget: u64| {
        let reads = record.curve.reads(budget) as f64;
        (x.at(budget as f64 * PAGE_BYTES as f64), y.at(reads))
    };
    let budgets = (0..=POINTS).map(|step| now + (end - now) * step / POINTS);
    picture.line("a", &budgets.map(point).collect::<Vec<_>>());
    picture.legend.push(("a", "pages back".into()));
    if let Some(near) = advice::smallest_near_native(record).filter(|_| record.totals.stall_ns > 0)
    {
        let (along, up) = point(near);
        picture.line("b", &[(along, 0.0), (along, up.max(picture.inside()))]);
        picture.legend.push(("b", format!("{}: within 10 % of native speed", size::pages(near))));
    }
    picture.note = format!(
        "From the recorded budget of {} on; of smaller ones the record tells nothing.",
        size::pages(now)
    );
    Some(picture)
}
