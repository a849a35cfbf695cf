//! Plots as SVG: simulated numbers as bars beside the published ones.

use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Report, Table};

/// Why there is no plot.
#[derive(Debug)]
pub struct BadPlot(String);

impl std::fmt::Display for BadPlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

const WIDTH: u32 = 900;
const HEIGHT_PER_TABLE: u32 = 380;
/// Room for the names of the cases below the axis.
const NAMES: u32 = 170;
/// From this ratio of the highest to the lowest number on, the axis is logarithmic.
const LOGARITHMIC: f64 = 50.0;

/// Writes the tables of a report, one below the other, as an SVG file.
///
/// # Errors
/// The file cannot be written, or there is nothing to plot.
pub fn plot(report: &Report, file: &Path) -> Result<(), BadPlot> {
    let refuse = |error: String| BadPlot(format!("{}: {error}", file.display()));
    // The backend writes when it is dropped, where an error would be a panic.
    std::fs::write(file, "").map_err(|error| refuse(error.to_string()))?;
    let count = report.tables.len();
    let size = (WIDTH, HEIGHT_PER_TABLE * count as u32);
    let area = SVGBackend::new(file, size).into_drawing_area();
    let draw_all = || -> Drawn {
        area.fill(&WHITE)?;
        let parts = area.split_evenly((count, 1));
        report.tables.iter().zip(&parts).try_for_each(|(table, part)| draw(table, part))
    };
    draw_all().map_err(|error| refuse(error.to_string()))?;
    area.present().map_err(|error| refuse(error.to_string()))
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<<SVGBackend<'static> as DrawingBackend>::ErrorType>>;

/// How high a number stands.
#[derive(Clone, Copy)]
enum Axis {
    Linear,
    /// In powers of ten above this one.
    Logarithmic(f64),
}

impl Axis {
    fn of(table: &Table) -> Self {
        let numbers = table.rows.iter().flat_map(|row| [Some(row.simulated), row.published]);
        let positive = || numbers.clone().flatten().filter(|number| *number > 0.0);
        let lowest = positive().fold(f64::MAX, f64::min);
        match positive().fold(0.0, f64::max) / lowest {
            ratio if ratio > LOGARITHMIC => Self::Logarithmic(lowest.log10().floor()),
            _ => Self::Linear,
        }
    }

    fn height(self, number: f64) -> f64 {
        match self {
            Self::Linear => number,
            Self::Logarithmic(lowest) => (number.log10() - lowest).max(0.0),
        }
    }

    fn label(self, height: f64) -> String {
        match self {
            Self::Linear => format!("{height}"),
            Self::Logarithmic(lowest) => format!("{:.3e}", 10_f64.powf(height + lowest)),
        }
    }
}

fn draw(table: &Table, part: &Area<'_>) -> Drawn {
    let axis = Axis::of(table);
    let heights = table.rows.iter().flat_map(|row| [Some(row.simulated), row.published]);
    let highest = heights.flatten().map(|number| axis.height(number)).fold(1e-9, f64::max);
    let mut chart = ChartBuilder::on(part)
        .caption(&table.title, ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(NAMES)
        .y_label_area_size(80)
        .build_cartesian_2d(0.0..table.rows.len() as f64, 0.0..highest * 1.1)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .max_light_lines(0)
        .y_label_formatter(&|height| axis.label(*height))
        .draw()?;
    let upright = TextStyle::from(("sans-serif", 11)).transform(FontTransform::Rotate90);
    let upright = upright.pos(Pos::new(HPos::Left, VPos::Center));
    for (at, row) in table.rows.iter().enumerate() {
        let bar = |from: f64, number: f64, style: ShapeStyle| {
            let left = at as f64 + from;
            Rectangle::new([(left, 0.0), (left + 0.35, axis.height(number))], style)
        };
        let published = row.published.map(|number| bar(0.1, number, BLACK.mix(0.35).filled()));
        chart.draw_series(published)?;
        chart.draw_series([bar(0.5, row.simulated, BLUE.mix(0.7).filled())])?;
        // A little below the axis.
        let below = (at as f64 + 0.5, highest * -0.03);
        chart.plotting_area().draw(&Text::new(row.case.clone(), below, upright.clone()))?;
    }
    Ok(())
}
