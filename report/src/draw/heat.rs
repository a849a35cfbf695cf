//! Heat maps: fault latency over time, and where faults were over time.
use super::over_time::time_axis;
use super::svg::{INNER, LEFT, Picture};
use crate::access::BLOCK_PAGES;
use crate::record::Record;
use crate::size::{self, PAGE_BYTES};
use std::fmt::Write as _;

const COLUMNS_MAX: u64 = 180;
const ROWS_MAX: usize = 72;
/// Shades beside none.
const SHADES: u32 = 6;

/// Counts in rows, the lowest first.
struct Grid {
    rows: Vec<Vec<u64>>,
    row_height: f64,
}

/// The column of a time; columns are as many as moments, up to [`COLUMNS_MAX`].
fn columns(record: &Record) -> (usize, impl Fn(u64) -> usize) {
    let columns = COLUMNS_MAX.min(record.moments.len() as u64).max(1);
    let duration = record.duration_ms().max(1) as f64;
    let share = move |at_ms: u64| at_ms.saturating_sub(1) as f64 / duration;
    let column = move |at_ms| ((share(at_ms) * columns as f64) as u64).min(columns - 1);
    (columns as usize, move |at_ms| column(at_ms) as usize)
}

/// Cells of a shade are one path: thousands of elements would make a slow page.
fn draw(picture: &mut Picture, grid: &Grid) {
    let most = grid.rows.iter().flatten().copied().max().unwrap_or(0);
    let columns = grid.rows.first().map_or(1, Vec::len);
    let width = INNER / columns as f64;
    let mut paths = vec![String::new(); SHADES as usize + 1];
    for (row, counts) in grid.rows.iter().enumerate() {
        let y = picture.y((row + 1) as f64 * grid.row_height);
        for (column, count) in counts.iter().enumerate() {
            let (x, path) =
                (LEFT + column as f64 * width, &mut paths[shade(*count, most) as usize]);
            write!(path, "M{x:.1} {y:.1}h{width:.2}v{:.2}h-{width:.2}z", grid.row_height)
                .expect("a string takes all");
        }
    }
    for (shade, path) in paths.iter().enumerate().skip(1).filter(|(_, path)| !path.is_empty()) {
        picture.add(format_args!("<path class=\"h{shade}\" d=\"{path}\"/>"));
    }
}

/// By the logarithm: a cell with one fault is seen beside one with a million.
fn shade(count: u64, most: u64) -> u32 {
    match count {
        0 => 0,
        _ => {
            let share = (count as f64).ln_1p() / (most as f64).ln_1p();
            (share * f64::from(SHADES)).ceil().clamp(1.0, f64::from(SHADES)) as u32
        }
    }
}

/// How long faults took, in powers of two.
pub fn latency(record: &Record) -> Option<Picture> {
    let bounds = record.totals.fault_latency.keys().map(|below| power(*below));
    let (lowest, highest) = (bounds.clone().min()?, bounds.max()?);
    let (columns, column_of) = columns(record);
    let rows = (highest - lowest + 1) as usize;
    let mut grid = Grid { rows: vec![vec![0u64; columns]; rows], row_height: 13.0 };
    for moment in &record.moments {
        for bucket in &moment.sample.fault_latency {
            let row = (power(bucket.below_ns) - lowest) as usize;
            let cell = &mut grid.rows[row][column_of(moment.at_ms)];
            *cell = cell.saturating_add(bucket.faults);
        }
    }
    let mut picture = Picture::new("latency", "Fault latency", rows as f64 * grid.row_height);
    for row in (0..rows).step_by(rows.div_ceil(9)) {
        let label = size::time((1u64 << (lowest as usize + row).min(63)) as f64);
        picture.tick_y(row as f64 * grid.row_height, &label);
    }
    draw(&mut picture, &grid);
    time_axis(&mut picture, record);
    picture.note =
        "Darker, or in the dark brighter: more faults, by the logarithm of their number.".into();
    Some(picture)
}

/// The power of two at or below a bucket's values.
fn power(below_ns: u64) -> u32 {
    below_ns.saturating_sub(1).max(1).ilog2()
}

/// Where faults were.
pub fn access(record: &Record) -> Option<Picture> {
    let (columns, column_of) = columns(record);
    let map = record.access.map(ROWS_MAX, columns, column_of);
    if map.rows.is_empty() {
        return None;
    }
    let base = record.header.record.as_ref().map_or(0, |record| record.address);
    let row_height = (288.0 / map.rows.len() as f64).clamp(4.0, 16.0);
    let height = map.rows.len() as f64 * row_height;
    let mut picture = Picture::new("access", "Faults by address and time", height);
    let every = (map.rows.len()).div_ceil((height / 16.0).clamp(1.0, 9.0) as usize);
    for (row, block) in map.rows.iter().enumerate().step_by(every) {
        let address = u64::from(*block) * u64::from(BLOCK_PAGES) * PAGE_BYTES;
        picture.tick_y(row as f64 * row_height, &format!("{:#x}", base.wrapping_add(address)));
    }
    draw(&mut picture, &Grid { rows: map.faults, row_height });
    time_axis(&mut picture, record);
    let block = size::bytes(map.joined * u64::from(BLOCK_PAGES) * PAGE_BYTES);
    picture.note = format!(
        "Blocks of {block} without a fault have no row. Uses of pages in RAM are no faults, and not seen."
    );
    Some(picture)
}
