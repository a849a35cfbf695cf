//! The same picture as an SVG file.

use std::path::Path;

use plotters::prelude::*;

use super::chart::{Panel, highest, panels};
use super::watch::Sample;
use crate::failure::Failure;

const SIZE: (u32, u32) = (860, 480);
/// Of the whole run; finer than the samples of a short one.
const PARTS: usize = 120;

type Drawn = Result<(), DrawingAreaErrorKind<<SVGBackend<'static> as DrawingBackend>::ErrorType>>;

/// Writes it.
///
/// # Errors
/// The file cannot be written.
pub fn write(samples: &[Sample], title: &str, file: &Path) -> Result<(), Failure> {
    let refuse = |error: String| {
        Failure::usage(format!(
            "--svg {}: {error}; name a file in a writable directory",
            file.display()
        ))
    };
    let mut text = String::new();
    draw(samples, title, &mut text).map_err(|error| refuse(error.to_string()))?;
    std::fs::write(file, text).map_err(|error| refuse(error.to_string()))
}

fn draw(samples: &[Sample], title: &str, text: &mut String) -> Drawn {
    let end_s = samples.last().map_or(0.0, |sample| sample.at_s).max(1e-3);
    let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let rest = area.titled(title, ("sans-serif", 16))?;
    let colours = [RGBColor(46, 125, 50), RGBColor(21, 101, 192), RGBColor(230, 120, 0)];
    let parts = rest.split_evenly((3, 1));
    for ((panel, colour), part) in panels(samples, PARTS).iter().zip(colours).zip(&parts) {
        one(panel, colour, end_s, part)?;
    }
    area.present()
}

fn one(
    panel: &Panel,
    colour: RGBColor,
    end_s: f64,
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
) -> Drawn {
    let unit = if panel.title == "throughput" { (1e6, "MB/s") } else { (f64::from(1 << 20), "M") };
    let values: Vec<f64> = panel.values.iter().map(|value| value / unit.0).collect();
    let top = highest(&values).max(1e-3) * 1.1;
    let mut chart = ChartBuilder::on(area)
        .caption(format!("{}, at most {}", panel.title, panel.highest), ("sans-serif", 13))
        .margin(6)
        .x_label_area_size(18)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..end_s, 0.0..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .y_labels(3)
        .x_labels(8)
        .x_label_formatter(&|at| format!("{at:.1} s"))
        .y_label_formatter(&|value| format!("{value:.0} {}", unit.1))
        .draw()?;
    let at = |part: usize| end_s * part as f64 / PARTS as f64;
    let seen = values.iter().enumerate().map(|(part, value)| (at(part + 1), *value));
    let points: Vec<_> = std::iter::once((0.0, 0.0)).chain(seen).collect();
    let below = [(end_s, 0.0), (0.0, 0.0)];
    let filled: Vec<_> = points.iter().copied().chain(below).collect();
    chart.draw_series([Polygon::new(filled, colour.mix(0.15).filled())])?;
    chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_every_panel_and_its_text() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("demo.svg");
        let samples = [
            Sample::default(),
            Sample { at_s: 1.0, ram_bytes: 1e6, swap_bytes: 2e6, done_bytes: 3e6 },
        ];
        write(&samples, "a title", &file).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        for part in [
            "<svg",
            "a title",
            "RAM, at most",
            "swap, at most",
            "throughput, at most 3 MB/s",
            "</svg>",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
        assert_eq!(text.matches("<polygon").count(), 3);
        let refusal = write(&samples, "", &directory.path().join("no/demo.svg")).unwrap_err();
        assert!(refusal.message.contains("no/demo.svg"), "{}", refusal.message);
    }
}
