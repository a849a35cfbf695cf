//! Published, simulated, error.

use std::fmt::{self, Write as _};

use serde::Serialize;

/// Where a simulated number comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// A cost in the scenario file was chosen so that this one comes out.
    Calibrated,
    /// Nothing was chosen for its sake.
    Predicted,
}

/// One number.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// What it is about.
    pub case: String,
    /// As its source has it, if one does.
    pub published: Option<f64>,
    /// As it came out here: the median, where there were several runs.
    pub simulated: f64,
    /// The lowest and highest, where there were several runs.
    pub range: Option<(f64, f64)>,
    /// Whether it was calibrated.
    pub standing: Standing,
}

impl Row {
    /// A prediction.
    pub fn predicted(case: impl Into<String>, published: Option<f64>, simulated: f64) -> Self {
        let standing = Standing::Predicted;
        Self { case: case.into(), published, simulated, range: None, standing }
    }

    /// What a cost was chosen for.
    pub fn calibrated(case: impl Into<String>, published: f64, simulated: f64) -> Self {
        let standing = Standing::Calibrated;
        Self { case: case.into(), published: Some(published), simulated, range: None, standing }
    }

    /// With another standing.
    pub fn standing(self, standing: Standing) -> Self {
        Self { standing, ..self }
    }

    /// The median of several runs, with their spread.
    pub fn over(mut self, values: &[f64]) -> Self {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        if let [lowest, .., highest] = values[..] {
            self.simulated = values[values.len() / 2];
            self.range = Some((lowest, highest));
        }
        self
    }

    /// By how much the simulated number misses the published one, as a share of that.
    pub fn error(&self) -> Option<f64> {
        let published = self.published.filter(|published| *published != 0.0)?;
        Some((self.simulated - published) / published)
    }
}

/// Numbers of one unit.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Table {
    /// What they are, with the unit.
    pub title: String,
    /// In the source's order.
    pub rows: Vec<Row>,
}

impl Table {
    /// A table with a title.
    pub fn new(title: impl Into<String>, rows: Vec<Row>) -> Self {
        Self { title: title.into(), rows }
    }
}

/// What a scenario found.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The scenario.
    pub scenario: String,
    /// What it is about, in a line.
    pub about: String,
    /// What `--seed` was.
    pub seed: u64,
    /// Events of all its runs.
    pub events: u64,
    /// The tables.
    pub tables: Vec<Table>,
    /// Where the model misses, and why.
    pub notes: Vec<String>,
}

impl Report {
    /// Without tables.
    pub fn new(scenario: &str, about: &str, seed: u64) -> Self {
        let (scenario, about) = (scenario.to_owned(), about.to_owned());
        Self { scenario, about, seed, events: 0, tables: Vec::new(), notes: Vec::new() }
    }

    /// The table with this title.
    pub fn table(&self, title: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.title == title)
    }

    /// As one JSON object.
    ///
    /// # Panics
    /// Never: every key is a string.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report has string keys only")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} (seed {}, {} events)",
            self.scenario, self.about, self.seed, self.events
        )?;
        for table in &self.tables {
            write!(f, "\n{}", Lines(table))?;
        }
        for note in &self.notes {
            write!(f, "\n{note}\n")?;
        }
        Ok(())
    }
}

struct Lines<'a>(&'a Table);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = &self.0.rows;
        let width = rows.iter().map(|row| row.case.chars().count()).max().unwrap_or(0).max(4);
        writeln!(f, "{}", self.0.title)?;
        writeln!(f, "  {:width$} {:>12} {:>12} {:>8}", "", "published", "simulated", "error")?;
        for row in rows {
            let published = row.published.map_or_else(|| "-".to_owned(), number);
            let error =
                row.error().map_or_else(String::new, |error| format!("{:+.1} %", error * 100.0));
            let (case, simulated) = (&row.case, number(row.simulated));
            let mut line = format!("  {case:width$} {published:>12} {simulated:>12} {error:>8}");
            if let Some((low, high)) = row.range {
                write!(line, "  {} to {}", number(low), number(high))?;
            }
            if row.standing == Standing::Calibrated {
                line.push_str("  calibrated");
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// With as many digits as a reader needs.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        0.0 => "0".to_owned(),
        size if size < 0.1 => format!("{value:.4}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_shows_both_numbers_and_the_error() {
        let rows = vec![
            Row::calibrated("one list", 1475358.0, 1475358.0),
            Row::predicted("per-node lists", Some(2.0), 2.5).over(&[2.5, 2.25, 3.0]),
            Row::predicted("no source", None, 0.01234),
        ];
        let text = Lines(&Table::new("rate, KB/s", rows)).to_string();
        let expected = "rate, KB/s
                    published    simulated    error
  one list            1475358      1475358   +0.0 %  calibrated
  per-node lists        2.000        2.500  +25.0 %  2.250 to 3.000
  no source                 -       0.0123
";
        assert_eq!(text, expected);
    }
}
