//! The report: one JSON object for programs, two tables for people: jobs, and their parts.

use super::args::Plan;
use super::job::Job;
use super::measure::Side;
use super::row::{Ratio, Row, State};
use crate::format::Shown;
use crate::machine::{self, Machine};
use crate::outside::cells::{figure, none, ratio};
use crate::size;
use serde::Serialize;
use std::fmt::Write;

/// All rows. The fields are the keys of the JSON object.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    ram_bytes: u64,
    scale: f64,
    runs: usize,
    rows: Vec<Row>,
    /// Of each job that has one, for each fault mode.
    ratios: Vec<JobRatio>,
    /// Of these, for each fault mode.
    geometric_means: Vec<Mean>,
    machine: Machine,
    kernel: String,
    #[serde(skip)]
    sides: Vec<Side>,
    /// What the ratios are to.
    #[serde(skip)]
    to: Side,
}

/// How often the time of one side is that of the kernel; natively, where the kernel was not asked.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct JobRatio {
    job: Job,
    side: Side,
    #[serde(flatten)]
    ratio: Ratio,
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
        let ratios: Vec<JobRatio> = rows
            .iter()
            .flat_map(|row| {
                let of_side =
                    |&side| Some(JobRatio { job: row.job, side, ratio: row.ratio(side, to)? });
                sides.iter().filter_map(of_side).collect::<Vec<_>>()
            })
            .collect();
        let worst = |row: &Row| {
            let of_row = ratios.iter().filter(|ratio| ratio.job == row.job);
            of_row.map(|of| of.ratio.value).fold(f64::INFINITY, f64::min)
        };
        rows.sort_by(|one, other| worst(one).total_cmp(&worst(other)));
        let geometric_means = sides.iter().filter_map(|&side| mean(&ratios, side)).collect();
        Self {
            ram_bytes: plan.ram_bytes,
            scale: plan.scale,
            runs: plan.runs,
            rows,
            ratios,
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
        if self.ratios.iter().any(|of| of.ratio.is_bound()) {
            text.push_str("a run that was killed counts with the time that it had\n");
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

fn mean(ratios: &[JobRatio], side: Side) -> Option<Mean> {
    let of_side = ratios.iter().filter(|ratio| ratio.side == side);
    let logs: Vec<f64> = of_side.map(|of| of.ratio.value.ln()).collect();
    let jobs = logs.len();
    (jobs > 0).then(|| Mean { side, ratio: (logs.iter().sum::<f64>() / jobs as f64).exp(), jobs })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outside::jobs::args::tests::plan;
    use crate::outside::jobs::row::tests::{OURS, ended, row};
    use crate::outside::jobs::verdict::Verdict;

    fn report(rows: Vec<Row>) -> Report {
        Report::new(&plan("--vs kernel"), rows)
    }

    #[test]
    fn the_worst_row_comes_first_and_the_mean_is_geometric() {
        let text =
            report(vec![row(Job::Node, &[8.0], &[1.0]), row(Job::Java, &[1.0], &[2.0])]).text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "| job | memory | native | kernel | thread | ratio | RAM, thread |");
        assert_eq!(lines[2], "| `java` | 520 MiB | 1.00 | 1.00 | 2.00 | **0.50** | 520 MiB |");
        assert_eq!(lines[3], "| `node` | 520 MiB | 1.00 | 8.00 | 1.00 | 8.00 | 520 MiB |");
        assert_eq!(lines[7], "| `java` fill | 0.50 | 0.50 | 1.00 | **0.50** |");
        assert!(text.contains("geometric mean of kernel / thread: 2.00 (2 jobs)"), "{text}");
        let columns = |line: &str| line.matches('|').count();
        assert_eq!(columns(lines[0]), columns(lines[1]));
        assert_eq!(columns(lines[5]), columns(lines[6]));
    }

    #[test]
    fn what_is_not_installed_is_a_row_and_a_note_and_no_failure() {
        let state = State::NotInstalled { what: "node".to_owned() };
        let report = report(vec![Row { job: Job::Node, state }, row(Job::Java, &[1.0], &[1.0])]);
        let text = report.text();
        assert!(text.contains("| `node` | not installed: node |"), "{text}");
        assert!(text.contains("not measured, because not installed: node\n"), "{text}");
        assert!(report.is_right());
    }

    #[test]
    fn a_wrong_result_is_a_failure_and_a_run_that_was_killed_is_none() {
        let wrong = Verdict::Wrong { native: "1".to_owned(), here: "2".to_owned() };
        let wrong = report(vec![ended(row(Job::Node, &[1.0], &[1.0]), OURS, &wrong)]);
        assert!(!wrong.is_right());
        assert!(wrong.text().contains("node: thread: wrong: natively \"1\", here \"2\""));
        let killed = report(vec![ended(row(Job::Node, &[1.0], &[9.0]), OURS, &Verdict::TooLong)]);
        assert!(killed.is_right() && killed.text().contains("a run that was killed counts"));
        let json = serde_json::to_value(&killed).unwrap();
        assert_eq!(json["rows"][0]["runs"][2]["verdict"], "too-long");
        assert_eq!(json["ratios"][0]["bound"], "at-most");
        assert_eq!(json["geometric_means"][0]["jobs"], 1);
    }
}
