//! Pictures as SVG, and pages that hold them.
//!
//! Written out here rather than by a plotting crate: colours are names that a style sheet gives a light and a dark value, which
//! those crates have no way to write.
mod axis;
mod curve;
mod heat;
mod over_time;
mod page;
mod svg;

pub use page::{html, html_compared, svg};

use crate::record::Record;
use svg::Picture;

/// All pictures of a record that it has something for.
fn pictures(record: &Record) -> Vec<Picture> {
    let all = [
        over_time::ram(record),
        over_time::throughput(record),
        over_time::stalled(record),
        heat::latency(record),
        heat::access(record),
        curve::reads(record),
    ];
    all.into_iter().flatten().collect()
}
