//! The middle and the range of the figures of several runs, and the time of threads that run at once.
use serde::Serialize;
use std::time::{Duration, Instant};

/// The figures of one variant in all its runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) least: f64,
    pub(crate) median: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// None without any figure.
    pub(crate) fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut figures: Vec<f64> = figures.into_iter().collect();
        figures.sort_by(f64::total_cmp);
        let (least, most) = (*figures.first()?, *figures.last()?);
        let middle = figures.len() / 2;
        let median = match figures.len() % 2 {
            0 => f64::midpoint(figures[middle - 1], figures[middle]),
            _ => figures[middle],
        };
        Some(Self { least, median, most })
    }
}

/// The middle figure, or the mean of the two middle ones; None without any.
pub(crate) fn median(figures: impl IntoIterator<Item = f64>) -> Option<f64> {
    Spread::of(figures).map(|spread| spread.median)
}

/// The middle count; 0 without any.
pub(crate) fn median_count(counts: impl IntoIterator<Item = u64>) -> u64 {
    median(counts.into_iter().map(|count| count as f64)).unwrap_or(0.0).round() as u64
}

/// When one of several threads was at work. A thread takes its own times: another one, which waits for it, may
/// get a CPU late.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    begin: Instant,
    end: Instant,
}

impl Work {
    /// Until now.
    pub(crate) fn since(begin: Instant) -> Self {
        Self { begin, end: Instant::now() }
    }
}

/// From the first thread's begin to the last one's end.
pub(crate) fn time_of(works: impl IntoIterator<Item = Work>) -> Duration {
    let all = works
        .into_iter()
        .reduce(|all, work| Work { begin: all.begin.min(work.begin), end: all.end.max(work.end) });
    all.map_or(Duration::ZERO, |all| all.end - all.begin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_several_threads_is_from_the_first_begin_to_the_last_end() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let work = |begin, end| Work { begin: at(begin), end: at(end) };
        let all = [work(5, 9), work(3, 4), work(6, 20)];
        assert_eq!(time_of(all), Duration::from_millis(17));
        assert_eq!(time_of([]), Duration::ZERO);
    }

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_the_two_middle_values() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0]), Some(3.0));
        assert_eq!(median([9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 9.0]), Some(3.0));
        assert_eq!(median_count([7, 900, 8]), 8);
    }

    #[test]
    fn the_range_goes_from_the_least_to_the_most() {
        let spread = Spread { least: -1.0, median: 2.0, most: 9.0 };
        assert_eq!(Spread::of([9.0, -1.0, 2.0]), Some(spread));
    }
}
