//! What a program did over the last minutes: from counts that only grow to rates, and to the columns of a graph.

use std::collections::VecDeque;
use std::time::Duration;

use userswap::internals::status::Status;

use super::figures::Figures;

/// The longest time that a graph can show.
pub const SPAN_MAX: Duration = Duration::from_secs(15 * 60);
/// Steps that are kept of one program: the whole span at the interval unless set, the last minutes at shorter ones.
const STEPS_MAX: usize = 2000;
/// What histograms and hit rates are taken over.
const RECENT: Duration = Duration::from_secs(60);
/// Whole answers are kept this far apart, as each has thousands of bytes.
const ANSWERS_APART: Duration = Duration::from_secs(1);

/// What happened between two answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    from: Duration,
    to: Duration,
    pub figures: Figures,
}

/// An answer, and when it came.
struct Answer {
    at: Duration,
    status: Box<Status>,
}

/// The steps of one program, oldest first, and its answers of the last minute.
#[derive(Default)]
pub struct History {
    steps: VecDeque<Step>,
    recent: VecDeque<Answer>,
    last: Option<Answer>,
}

impl History {
    /// Takes an answer that came `at` this time since the start.
    pub fn push(&mut self, at: Duration, status: Box<Status>) {
        if let Some(last) = &self.last {
            // Another engine under the same name: the process has become another program.
            if faults(&status) < faults(&last.status) {
                *self = Self::default();
            } else {
                let figures = Figures::between(&last.status, &status, at.saturating_sub(last.at));
                self.steps.push_back(Step { from: last.at, to: at, figures });
            }
        }
        let oldest = at.saturating_sub(SPAN_MAX);
        while self.steps.len() > STEPS_MAX || self.steps.front().is_some_and(|it| it.to < oldest) {
            self.steps.pop_front();
        }
        self.keep_recent(at);
        self.last = Some(Answer { at, status });
    }

    /// Keeps the answer before the one that came `at` this time if it is far enough from the one kept last, and of those
    /// older than a minute the newest, which the minute begins with.
    fn keep_recent(&mut self, at: Duration) {
        let Some(last) = self.last.take() else { return };
        if self.recent.back().is_none_or(|kept| last.at >= kept.at + ANSWERS_APART) {
            self.recent.push_back(last);
        }
        while self.recent.get(1).is_some_and(|second| second.at + RECENT <= at) {
            self.recent.pop_front();
        }
    }

    /// The latest answer.
    pub fn status(&self) -> Option<&Status> {
        self.last.as_ref().map(|answer| &*answer.status)
    }

    /// What happened between the last two answers.
    pub fn figures(&self) -> Option<&Figures> {
        self.steps.back().map(|step| &step.figures)
    }

    /// The answer of a minute ago, or the first one since.
    pub fn minute_ago(&self) -> Option<&Status> {
        self.recent.front().map(|answer| &*answer.status)
    }

    /// The most of `value` in the `span` before `now`.
    pub fn most(&self, now: Duration, span: Duration, value: fn(&Figures) -> f64) -> f64 {
        let recent = self.steps.iter().filter(|step| step.to + span > now);
        recent.map(|step| value(&step.figures)).fold(0.0, f64::max)
    }

    /// A graph of the `span` before `now`: the mean of `value` in each of `count` columns, None where nothing is known.
    ///
    /// Columns begin at multiples of their width, so that they move as a whole and keep their height.
    pub fn columns(
        &self,
        now: Duration,
        span: Duration,
        count: usize,
        value: impl Fn(&Figures) -> f64,
    ) -> Vec<Option<f64>> {
        let width = span.as_secs_f64() / count.max(1) as f64;
        let end = (now.as_secs_f64() / width).floor() + 1.0;
        let mut sums = vec![Sum::default(); count];
        for step in &self.steps {
            // In columns, counted from the first one shown.
            let place = |at: Duration| at.as_secs_f64() / width - end + count as f64;
            let (from, to) = (place(step.from).max(0.0), place(step.to).min(count as f64));
            let mut column = from.floor();
            while column < to {
                let sum = &mut sums[column as usize];
                let weight = (column + 1.0).min(to) - column.max(from);
                sum.weighted += value(&step.figures) * weight;
                sum.weight += weight;
                column += 1.0;
            }
        }
        sums.into_iter().map(Sum::mean).collect()
    }
}

#[derive(Clone, Default)]
struct Sum {
    weighted: f64,
    weight: f64,
}

impl Sum {
    fn mean(self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.weighted / self.weight)
    }
}

fn faults(status: &Status) -> u64 {
    status.counters.get("pgfault").copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::examples::status;
    use super::*;

    const fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn with_faults(count: u64) -> Box<Status> {
        let mut status = status();
        status.counters.insert("pgfault".to_owned(), count);
        Box::new(status)
    }

    #[test]
    fn a_column_is_the_mean_of_what_lies_in_it() {
        let mut history = History::default();
        for (at, count) in [(100, 0), (102, 200), (104, 600), (105, 700)] {
            history.push(seconds(at), with_faults(count));
        }
        assert_eq!(history.figures().unwrap().faults_per_second, 100.0);
        let graph = history.columns(seconds(105), seconds(10), 5, |it| it.faults_per_second);
        assert_eq!(graph, [None, None, Some(100.0), Some(200.0), Some(100.0)]);
        let later = history.columns(seconds(109), seconds(10), 5, |it| it.faults_per_second);
        assert_eq!(
            later,
            [Some(100.0), Some(200.0), Some(100.0), None, None],
            "whole columns move"
        );
    }

    #[test]
    fn another_engine_begins_anew() {
        let mut history = History::default();
        for (at, count) in [(1, 500), (2, 600), (3, 4)] {
            history.push(seconds(at), with_faults(count));
        }
        assert_eq!(history.figures(), None);
        assert!(history.minute_ago().is_none());
        history.push(seconds(4), with_faults(9));
        assert_eq!(history.figures().unwrap().faults_per_second, 5.0);
    }

    #[test]
    fn a_minute_of_answers_and_a_span_of_steps_are_kept() {
        let mut history = History::default();
        for tick in 0..12_000 {
            history.push(Duration::from_millis(tick * 100), with_faults(tick));
        }
        assert!((60..=62).contains(&history.recent.len()), "{}", history.recent.len());
        let minute = history.minute_ago().unwrap();
        assert!((11_390..=11_400).contains(&faults(minute)), "{}", faults(minute));
        assert_eq!(history.steps.len(), STEPS_MAX);
    }
}
