//! What is known of one job: how long it took on each side, and how the sides compare.

use super::job::Job;
use super::measure::{Run, Side};
use super::verdict::Verdict;
use crate::figures::Spread;
use crate::outside::cells::{figure, none, ratio, seconds};
use crate::size;
use serde::Serialize;

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
pub(super) struct Ratio {
    pub(super) value: f64,
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

    pub(super) fn of(&self, side: Side) -> impl Iterator<Item = &Run> {
        self.runs().iter().filter(move |run| run.side == side)
    }

    /// Whether a run of this side failed, or had another result: then it has no figures.
    fn is_bad(&self, side: Side) -> bool {
        self.of(side).any(|run| run.verdict.complaint().is_some())
    }

    fn taken(&self, side: Side) -> Taken {
        if self.is_bad(side) {
            return Taken::Unknown;
        }
        match self.of(side).find(|run| run.verdict == Verdict::TooLong) {
            Some(killed) => Taken::Longer(killed.figures.wall_s),
            None => Spread::of(self.of(side).map(|run| run.figures.wall_s))
                .map_or(Taken::Unknown, Taken::Known),
        }
    }

    /// The kernel's time divided by that of `side`; natively, where the kernel was not asked.
    pub(super) fn ratio(&self, side: Side, to: Side) -> Option<Ratio> {
        let (value, bound) = match (self.taken(to), self.taken(side)) {
            (Taken::Known(rival), Taken::Known(ours)) => (rival.median / ours.median, Bound::Exact),
            (Taken::Known(rival), Taken::Longer(ours)) => (rival.median / ours, Bound::AtMost),
            (Taken::Longer(rival), Taken::Known(ours)) => (rival / ours.median, Bound::AtLeast),
            _ => return None,
        };
        Some(Ratio { value, bound })
    }

    pub(super) fn anon(&self, side: Side) -> String {
        // A run may be over before anybody looks.
        let most = self.of(side).map(|run| run.anon_bytes_max).max().filter(|&bytes| bytes > 0);
        most.map_or_else(none, |bytes| size::display(bytes >> 20 << 20))
    }

    pub(super) fn time(&self, side: Side) -> String {
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
    pub(super) fn part(&self, side: Side, name: &str) -> Option<f64> {
        let named =
            |run: &Run| run.parts.iter().find(|part| part.name == name).map(|part| part.seconds);
        let runs = self.of(side).filter(|_| !self.is_bad(side));
        Spread::of(runs.filter_map(named)).map(|spread| spread.median)
    }
}

impl Ratio {
    /// Whether one of the two times is only known to be longer.
    pub(super) fn is_bound(self) -> bool {
        self.bound != Bound::Exact
    }

    pub(super) fn text(self) -> String {
        let bound = match self.bound {
            Bound::Exact => "",
            Bound::AtMost => "< ",
            Bound::AtLeast => "> ",
        };
        format!("{bound}{}", ratio(self.value))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::outside::jobs::verdict::JobPart;
    use crate::process::Figures;
    use userswap::FaultMode;

    pub(in super::super) const OURS: Side = Side::Userswap(FaultMode::Thread);

    fn run(side: Side, wall_s: f64, verdict: Verdict) -> Run {
        Run {
            side,
            figures: Figures { wall_s, user_s: 0.5, sys_s: 0.25, major_faults: None },
            anon_bytes_max: 520 << 20,
            parts: vec![JobPart { name: "fill".to_owned(), seconds: wall_s / 2.0 }],
            verdict,
        }
    }

    /// A job that took these seconds on the kernel's swap and here, one run after the other.
    pub(in super::super) fn row(job: Job, kernel: &[f64], ours: &[f64]) -> Row {
        let of = |side, walls: &[f64]| -> Vec<Run> {
            walls.iter().map(|&wall_s| run(side, wall_s, Verdict::Same)).collect()
        };
        let runs = [of(Side::Native, &[1.0]), of(Side::Kernel, kernel), of(OURS, ours)].concat();
        Row { job, state: State::Measured { count: 1, limit_s: 200.0, runs } }
    }

    /// The same, with another end of the runs of a side.
    pub(in super::super) fn ended(mut row: Row, side: Side, verdict: &Verdict) -> Row {
        if let State::Measured { runs, .. } = &mut row.state {
            runs.iter_mut()
                .filter(|run| run.side == side)
                .for_each(|run| run.verdict = verdict.clone());
        }
        row
    }

    fn ratio_of(row: &Row) -> Option<String> {
        row.ratio(OURS, Side::Kernel).map(Ratio::text)
    }

    #[test]
    fn the_ratio_is_that_of_the_medians() {
        let row = row(Job::Node, &[2.0, 9.0, 4.0], &[8.0]);
        assert_eq!(ratio_of(&row).as_deref(), Some("**0.50**"));
        assert_eq!(
            (row.time(Side::Kernel), row.time(OURS)),
            ("4.00 (2.00–9.00)".into(), "8.00".into())
        );
        assert_eq!(row.anon(OURS), "520 MiB");
        assert_eq!((row.part(OURS, "fill"), row.part(OURS, "walk")), (Some(4.0), None));
    }

    #[test]
    fn a_run_that_was_killed_bounds_the_ratio() {
        let killed = |side| ended(row(Job::Node, &[50.0], &[200.0]), side, &Verdict::TooLong);
        assert_eq!(ratio_of(&killed(OURS)).as_deref(), Some("< **0.25**"));
        assert_eq!(killed(OURS).time(OURS), "killed after 200.0");
        assert_eq!(ratio_of(&killed(Side::Kernel)).as_deref(), Some("> **0.25**"));
        let both = ended(killed(OURS), Side::Kernel, &Verdict::TooLong);
        assert_eq!(ratio_of(&both), None);
    }

    #[test]
    fn a_wrong_result_has_no_time() {
        let wrong = Verdict::Wrong { native: "a".to_owned(), here: "b".to_owned() };
        let wrong = ended(row(Job::Node, &[1.0], &[1.0]), OURS, &wrong);
        assert_eq!((wrong.time(OURS).as_str(), ratio_of(&wrong)), ("**wrong**", None));
        let failed = Verdict::Failed { why: "signal 9".to_owned() };
        let failed = ended(row(Job::Node, &[1.0], &[1.0]), OURS, &failed);
        assert_eq!((failed.time(OURS).as_str(), ratio_of(&failed)), ("**failed**", None));
        for bad in [wrong, failed] {
            assert_eq!((bad.part(OURS, "fill"), bad.part(Side::Native, "fill")), (None, Some(0.5)));
        }
    }
}
