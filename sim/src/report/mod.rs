//! What a scenario found: tables for people, JSON for programs, plots.

mod plot;
mod table;

pub use plot::{BadPlot, plot};
pub use table::{Report, Row, Standing, Table};
