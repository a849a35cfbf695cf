//! Plots as SVG: simulated numbers as bars beside the published ones.

use std::path::Path;

use plotters::prelude::*;

use super::Report;

/// Why there is no plot.
#[derive(Debug)]
pub struct BadPlot(String);

impl std::fmt::Display for BadPlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

const WIDTH: u32 = 900;
const HEIGHT_PER_TABLE: u32 = 360;
/// Room for the names of the cases below the axis.
const NAMES: u32 = 110;

/// Writes the tables of a report, one below the other, as an SVG file.
///
/// # Errors
/// The file cannot be written, or there is nothing to plot.
pub fn plot(report: &Report, file: &Path) -> Result<(), BadPlot> {
    let refuse = |error: String| BadPlot(format!("{}: {error}", file.display()));
    // The backend writes when it is dropped, where an error would be a panic.
    std::fs::write(file, "").map_err(|error| refuse(error.to_string()))?;
    let count = report.tables.len() as u32;
    let area = SVGBackend::new(file, (WIDTH, HEIGHT_PER_TABLE * count)).into_drawing_area();
    draw(report, &area).map_err(|error| refuse(error.to_string()))?;
    area.present().map_err(|error| refuse(error.to_string()))
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<<SVGBackend<'static> as DrawingBackend>::ErrorType>>;

fn draw(report: &Report, area: &Area<'_>) -> Drawn {
    area.fill(&WHITE)?;
    for (table, part) in report.tables.iter().zip(area.split_evenly((report.tables.len(), 1))) {
        let highest =
            table.rows.iter().flat_map(|row| [Some(row.simulated), row.published]).flatten();
        let highest = highest.fold(0.0_f64, f64::max).max(1e-9);
        let cases = table.rows.len() as i32;
        let mut chart = ChartBuilder::on(&part)
            .caption(&table.title, ("sans-serif", 18))
            .margin(10)
            .x_label_area_size(NAMES)
            .y_label_area_size(80)
            .build_cartesian_2d(0.0..f64::from(cases), 0.0..highest * 1.1)?;
        let name = |at: &f64| {
            let case = table.rows.get(at.floor() as usize);
            case.map_or_else(String::new, |row| row.case.clone())
        };
        let style = TextStyle::from(("sans-serif", 11)).transform(FontTransform::Rotate90);
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(table.rows.len().max(2) + 1)
            .x_label_formatter(&name)
            .x_label_style(style)
            .draw()?;
        for (at, row) in table.rows.iter().enumerate() {
            let bar = |from: f64, value: f64, style: ShapeStyle| {
                let left = at as f64 + from;
                Rectangle::new([(left, 0.0), (left + 0.35, value)], style)
            };
            let published = row.published.map(|value| bar(0.1, value, BLACK.mix(0.35).filled()));
            chart.draw_series(published)?;
            chart.draw_series([bar(0.5, row.simulated, BLUE.mix(0.7).filled())])?;
        }
    }
    Ok(())
}
