//! The picture at the end of the demo: RAM, swap and throughput over time, in blocks of text.

use std::env;
use std::io::IsTerminal;

use userswap::ByteSize;

use super::watch::Sample;

/// Of the whole run.
const COLUMNS: usize = 64;
/// Lines of each panel.
const ROWS: usize = 4;
/// A character has eight heights.
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Whether the picture has colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colours {
    Ansi,
    None,
}

impl Colours {
    /// Those of standard output: none where it is no terminal, or NO_COLOR says so.
    pub fn of_output() -> Colours {
        let unwanted = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if unwanted || !std::io::stdout().is_terminal() { Colours::None } else { Colours::Ansi }
    }
}

/// One quantity over the whole run.
pub struct Panel {
    pub title: &'static str,
    /// The number of an ANSI colour.
    colour: u8,
    /// As far as something was seen, of equal parts of the run.
    pub values: Vec<f64>,
    /// The highest value, in words.
    pub highest: String,
}

/// What is drawn of a run, in so many parts of its time.
pub fn panels(samples: &[Sample], parts: usize) -> [Panel; 3] {
    let end_s = samples.last().map_or(0.0, |sample| sample.at_s);
    let at = |part: usize| end_s * part as f64 / parts as f64;
    let level = |value: fn(&Sample) -> f64| -> Vec<f64> {
        (1..=parts).map(|part| between(samples, at(part), value)).collect()
    };
    let done = |part| between(samples, at(part), |sample| sample.done_bytes);
    let part_s = (end_s / parts as f64).max(1e-9);
    let rates: Vec<f64> = (0..parts).map(|part| (done(part + 1) - done(part)) / part_s).collect();
    let size = |values: &[f64]| ByteSize(highest(values) as u64).rounded().to_string();
    let (ram, swap) = (level(|sample| sample.ram_bytes), level(|sample| sample.swap_bytes));
    [
        Panel { title: "RAM", colour: 32, highest: size(&ram), values: ram },
        Panel { title: "swap", colour: 34, highest: size(&swap), values: swap },
        Panel {
            title: "throughput",
            colour: 33,
            highest: format!("{:.0} MB/s", highest(&rates) / 1e6),
            values: rates,
        },
    ]
}

/// A value at a time between samples, on the line between them.
fn between(samples: &[Sample], at_s: f64, value: fn(&Sample) -> f64) -> f64 {
    let after = samples.partition_point(|sample| sample.at_s < at_s);
    match (after.checked_sub(1).map(|before| &samples[before]), samples.get(after)) {
        (Some(before), Some(after)) => {
            let share = (at_s - before.at_s) / (after.at_s - before.at_s).max(1e-9);
            value(before) + (value(after) - value(before)) * share
        }
        (Some(one), None) | (None, Some(one)) => value(one),
        (None, None) => 0.0,
    }
}

/// Zero where there is none.
pub fn highest(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// The picture as lines of text.
pub fn draw(samples: &[Sample], colours: Colours) -> String {
    let end_s = samples.last().map_or(0.0, |sample| sample.at_s);
    let panels = panels(samples, COLUMNS).map(|panel| panel_text(&panel, colours)).concat();
    let end = format!("{end_s:.1} s");
    format!("\n{panels}{:22}0 s{end:>width$}\n", "", width = COLUMNS - 3)
}

fn panel_text(panel: &Panel, colours: Colours) -> String {
    let top = highest(&panel.values).max(1.0);
    let heights: Vec<usize> = panel
        .values
        .iter()
        .map(|value| (value / top * (8 * ROWS) as f64).round() as usize)
        .collect();
    let rows = (0..ROWS).rev().map(|row| {
        let line: String =
            heights.iter().map(|height| BLOCKS[height.saturating_sub(8 * row).min(8)]).collect();
        let line = match colours {
            Colours::Ansi => format!("\x1b[{}m{line}\x1b[0m", panel.colour),
            Colours::None => line.trim_end().to_owned(),
        };
        let (title, scale) = match row {
            0 => ("", "0"),
            row if row == ROWS - 1 => (panel.title, &*panel.highest),
            _ => ("", ""),
        };
        format!("{title:10} {scale:>9} |{line}\n")
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RAM that fills up and stays, swap that grows, at a steady pace.
    fn run() -> Vec<Sample> {
        let sample = |at: u32| Sample {
            at_s: f64::from(at),
            ram_bytes: f64::from(at.min(2)) * f64::from(1 << 20),
            swap_bytes: f64::from(at) * f64::from(1 << 20),
            done_bytes: f64::from(at) * 1e7,
        };
        [0, 1, 2, 4].map(sample).to_vec()
    }

    #[test]
    fn quantities_are_followed_between_samples() {
        let [ram, swap, throughput] = panels(&run(), 8);
        let mib = |values: &[f64]| {
            values.iter().map(|value| value / f64::from(1 << 20)).collect::<Vec<_>>()
        };
        assert_eq!(mib(&ram.values), [0.5, 1.0, 1.5, 2.0, 2.0, 2.0, 2.0, 2.0]);
        assert_eq!(mib(&swap.values), [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]);
        assert!(
            throughput.values.iter().all(|rate| (rate - 1e7).abs() < 1.0),
            "{:?}",
            throughput.values
        );
        assert_eq!([ram.highest, swap.highest, throughput.highest], ["2M", "4M", "10 MB/s"]);
    }

    #[test]
    fn a_picture_without_colours_is_plain_text() {
        let picture = draw(&run(), Colours::None);
        let lines: Vec<_> = picture.lines().skip(1).collect();
        assert_eq!(lines.len(), 3 * ROWS + 1);
        assert!(!picture.contains('\x1b'));
        assert!(
            lines[0].starts_with("RAM               2M |") && lines[0].ends_with('█'),
            "{picture}"
        );
        // It begins low, and what has gone up stays.
        let bottom: Vec<char> = lines[ROWS - 1].chars().skip(22).collect();
        assert!(bottom[0] != '█' && bottom[COLUMNS - 1] == '█', "{picture}");
        assert!(lines[3 * ROWS].ends_with("4.0 s"), "{picture}");
        let coloured = draw(&run(), Colours::Ansi);
        assert_eq!(coloured.matches("\x1b[0m").count(), 3 * ROWS);
    }

    #[test]
    fn a_run_that_was_over_at_once_has_an_empty_picture() {
        let picture = draw(&[Sample::default()], Colours::None);
        assert!(
            picture.contains("RAM") && !picture.contains('█') && !picture.contains("NaN"),
            "{picture}"
        );
    }
}
