//! The report: one JSON object for programs, two tables for people: jobs, and their parts.

use super::args::Plan;
use super::job::Job;
use super::measure::{Run, Side};
use super::verdict::Verdict;
use crate::figures::Spread;
use crate::format::Shown;
use crate::machine::{self, Machine};
use crate::outside::cells::{figure, none, ratio, seconds};
use crate::size;
use serde::Serialize;
use std::fmt::Write;

/// One job.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) job: Job,
    #[serde(flatten)]
    pub(super) state: State,
}

/// What is known of a job.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub(super) enum State {
    /// It did not run.
    NotInstalled { what: String },
    /// It ran, the native run first.
    Measured { count: u64, limit_s: f64, runs: Vec<Run> },
}

/// How long one side took.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Taken {
    /// It did not run, or not well.
    Unknown,
    Known(Spread),
    /// A run was killed after this.
    Longer(f64),
}

/// How often the time of one side is that of the other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Ratio {
    value: f64,
    bound: Bound,
}

/// What a ratio says that has a run in it that was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Bound {
    Exact,
    AtMost,
    AtLeast,
}

impl Row {
    pub(super) fn runs(&self) -> &[Run] {
        match &self.state {
            State::NotInstalled { .. } => &[],
            State::Measured { runs, .. } => runs,
        }
    }

    fn of(&self, side: Side) -> impl Iterator<Item = &Run> {
        self.runs().iter().filter(move |run| run.side == side)
    }

    fn taken(&self, side: Side) -> Taken {
        if self.of(side).any(|run| run.verdict.complaint().is_some()) {
            return Taken::Unknown;
        }
        match self.of(side).find(|run| run.verdict == Verdict::TooLong) {
            Some(killed) => Taken::Longer(killed.wall_s),
            None => {
                Spread::of(self.of(side).map(|run| run.wall_s)).map_or(Taken::Unknown, Taken::Known)
            }
        }
    }

    /// The kernel's time divided by that of `side`; natively, where the kernel was not asked.
    fn ratio(&self, side: Side, to: Side) -> Option<Ratio> {
        let (value, bound) = match (self.taken(to), self.taken(side)) {
            (Taken::Known(rival), Taken::Known(ours)) => (rival.median / ours.median, Bound::Exact),
            (Taken::Known(rival), Taken::Longer(ours)) => (rival.median / ours, Bound::AtMost),
            (Taken::Longer(rival), Taken::Known(ours)) => (rival / ours.median, Bound::AtLeast),
            _ => return None,
        };
        Some(Ratio { value, bound })
    }

    fn anon(&self, side: Side) -> String {
        let most = self.of(side).map(|run| run.anon_bytes_max).max();
        most.map_or_else(none, |bytes| size::display(bytes >> 20 << 20))
    }

    fn time(&self, side: Side) -> String {
        let bad = self.of(side).find_map(|run| match run.verdict {
            Verdict::Wrong { .. } => Some("**wrong**"),
            Verdict::Failed { .. } => Some("**failed**"),
            Verdict::Same | Verdict::TooLong => None,
        });
        if let Some(bad) = bad {
            return bad.to_owned();
        }
        match self.taken(side) {
            Taken::Unknown => none(),
            Taken::Known(one) if one.least == one.most => figure(one.median),
            Taken::Known(spread) => seconds(Some(spread)),
            Taken::Longer(limit) => format!("killed after {}", figure(limit)),
        }
    }

    /// Median seconds of the parts of the job on one side, by the native run's order.
    fn part(&self, side: Side, name: &str) -> Option<f64> {
        let named =
            |run: &Run| run.parts.iter().find(|part| part.name == name).map(|part| part.seconds);
        Spread::of(self.of(side).filter_map(named)).map(|spread| spread.median)
    }
}

/// All rows. The fields are the keys of the JSON object.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    ram_bytes: u64,
    scale: f64,
    runs: usize,
    rows: Vec<Row>,
    /// For each fault mode.
    geometric_means: Vec<Mean>,
    machine: Machine,
    kernel: String,
    #[serde(skip)]
    sides: Vec<Side>,
    /// What the ratios are to.
    #[serde(skip)]
    to: Side,
}

/// The geometric mean of the ratios of all jobs that have one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Mean {
    side: Side,
    ratio: f64,
    jobs: usize,
}

impl Report {
    pub(super) fn new(plan: &Plan, mut rows: Vec<Row>) -> Self {
        let sides: Vec<Side> = plan.faults.iter().map(|&fault| Side::Userswap(fault)).collect();
        let to = plan.rival.map_or(Side::Native, |_| Side::Kernel);
        let worst = |row: &Row| {
            let ratios = sides.iter().filter_map(|&side| row.ratio(side, to));
            ratios.map(|ratio| ratio.value).fold(f64::INFINITY, f64::min)
        };
        rows.sort_by(|one, other| worst(one).total_cmp(&worst(other)));
        let geometric_means = sides.iter().filter_map(|&side| mean(&rows, side, to)).collect();
        Self {
            ram_bytes: plan.ram_bytes,
            scale: plan.scale,
            runs: plan.runs,
            rows,
            geometric_means,
            machine: Machine::this(),
            kernel: machine::kernel_release(),
            sides,
            to,
        }
    }

    /// Whether every run that was made ended well and with the native result, as far as it was let.
    pub(super) fn is_right(&self) -> bool {
        self.complaints().is_empty()
    }

    fn complaints(&self) -> Vec<String> {
        let lines = self.rows.iter().flat_map(|row| {
            row.runs().iter().filter_map(|run| {
                let complaint = run.verdict.complaint()?;
                Some(format!("{}: {}: {complaint}\n", row.job, run.side))
            })
        });
        lines.collect()
    }

    fn head(&self, first: &[&str]) -> String {
        let mut head: Vec<String> = first.iter().map(ToString::to_string).collect();
        if self.to == Side::Kernel {
            head.push(self.to.to_string());
        }
        head.extend(self.sides.iter().flat_map(|side| [side.to_string(), "ratio".to_owned()]));
        head.join(" | ")
    }

    fn line(&self, row: &Row) -> String {
        let name = format!("`{}`", row.job);
        if let State::NotInstalled { what } = &row.state {
            return format!("| {name} | not installed: {what} |\n");
        }
        let mut cells = vec![name, row.anon(Side::Native), row.time(Side::Native)];
        if self.to == Side::Kernel {
            cells.push(row.time(Side::Kernel));
        }
        for &side in &self.sides {
            cells.push(row.time(side));
            cells.push(row.ratio(side, self.to).map_or_else(none, Ratio::text));
        }
        cells.extend(self.sides.iter().map(|&side| row.anon(side)));
        format!("| {} |\n", cells.join(" | "))
    }

    /// The parts of all jobs, the worst first.
    fn part_lines(&self) -> String {
        let mut lines: Vec<(f64, String)> = Vec::new();
        for row in &self.rows {
            for part in row.of(Side::Native).flat_map(|run| &run.parts) {
                lines.push(self.part_line(row, &part.name));
            }
        }
        lines.sort_by(|one, other| one.0.total_cmp(&other.0));
        lines.into_iter().map(|(_, line)| line).collect()
    }

    fn part_line(&self, row: &Row, name: &str) -> (f64, String) {
        let seconds = |side| row.part(side, name);
        let text = |seconds: Option<f64>| seconds.map_or_else(none, figure);
        let mut cells = vec![format!("`{}` {name}", row.job), text(seconds(Side::Native))];
        let mut worst = f64::INFINITY;
        if self.to == Side::Kernel {
            cells.push(text(seconds(Side::Kernel)));
        }
        for &side in &self.sides {
            let of_side = seconds(self.to).zip(seconds(side)).map(|(rival, ours)| rival / ours);
            worst = worst.min(of_side.unwrap_or(f64::INFINITY));
            cells.push(text(seconds(side)));
            cells.push(of_side.map_or_else(none, ratio));
        }
        (worst, format!("| {} |\n", cells.join(" | ")))
    }

    /// What the tables do not say, a line each.
    fn notes(&self) -> String {
        let mut text = String::new();
        for Mean { side, ratio, jobs } in &self.geometric_means {
            let _ =
                writeln!(text, "geometric mean of {} / {side}: {ratio:.2} ({jobs} jobs)", self.to);
        }
        let missing =
            self.rows.iter().filter(|row| matches!(row.state, State::NotInstalled { .. }));
        let missing: Vec<String> = missing.map(|row| row.job.to_string()).collect();
        if !missing.is_empty() {
            let _ = writeln!(text, "not measured, because not installed: {}", missing.join(", "));
        }
        text.extend(self.complaints());
        text
    }
}

impl Shown for Report {
    fn text(&self) -> String {
        let head = self.head(&["job", "memory", "native"]);
        let anon: String = self.sides.iter().map(|side| format!(" | RAM, {side}")).collect();
        let columns = head.matches('|').count() + 1 + self.sides.len();
        let lines: String = self.rows.iter().map(|row| self.line(row)).collect();
        let mut text = format!("| {head}{anon} |\n|{}\n{lines}\n", "---|".repeat(columns));
        let parts = self.part_lines();
        if !parts.is_empty() {
            let head = self.head(&["part", "native"]);
            let columns = head.matches('|').count() + 1;
            let _ = writeln!(text, "| {head} |\n|{}\n{parts}", "---|".repeat(columns));
        }
        let budget = size::display(self.ram_bytes);
        text + &self.notes()
            + &format!("{budget} of RAM; {}, Linux {}\n", self.machine, self.kernel)
    }
}

impl Ratio {
    fn text(self) -> String {
        let bound = match self.bound {
            Bound::Exact => "",
            Bound::AtMost => "< ",
            Bound::AtLeast => "> ",
        };
        format!("{bound}{}", ratio(self.value))
    }
}

fn mean(rows: &[Row], side: Side, to: Side) -> Option<Mean> {
    let ratios = rows.iter().filter_map(|row| row.ratio(side, to));
    let logs: Vec<f64> = ratios.map(|ratio| ratio.value.ln()).collect();
    let jobs = logs.len();
    (jobs > 0).then(|| Mean { side, ratio: (logs.iter().sum::<f64>() / jobs as f64).exp(), jobs })
}
