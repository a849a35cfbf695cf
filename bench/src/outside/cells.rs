//! How figures look in the tables that are rows of text.

use crate::figures::Spread;

/// Where there is no figure.
pub(super) fn none() -> String {
    "–".to_owned()
}

/// A ratio below 1 is one that we lose.
pub(super) fn ratio(ratio: f64) -> String {
    if ratio < 1.0 { format!("**{ratio:.2}**") } else { format!("{ratio:.2}") }
}

/// Three digits, as long as they mean something.
pub(super) fn figure(seconds: f64) -> String {
    if seconds < 10.0 { format!("{seconds:.2}") } else { format!("{seconds:.1}") }
}

pub(super) fn seconds(spread: Option<Spread>) -> String {
    spread.map_or_else(none, |Spread { least, median, most }| {
        format!("{} ({}–{})", figure(median), figure(least), figure(most))
    })
}
