//! What a run had beyond its budget, by the statistics of its engines: a run with more RAM than the other side is no figure.

use crate::size;
use serde_json::Value;
use thiserror::Error;
use userswap::internals::PAGE_BYTES;

/// The processes of a job may have so many budgets together for a moment: each that starts takes its floor, which the others
/// have still to give up (docs/job.md), and a budget has room for as many floors as it is large. 16 that start at once had 1.4.
const JOB_BUDGETS: u64 = 2;

/// Why a run is no figure, in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum Excess {
    #[error(
        "it went beyond its budget, by {} one after the other, as pages could not leave: give it more room with --swap, or use a smaller load",
        size::display(*.0)
    )]
    Stuck(u64),
    #[error(
        "its processes had {} of RAM together, with a budget of {}: use a larger --ram",
        size::display(*.held),
        size::display(*.budget)
    )]
    Job { held: u64, budget: u64 },
}

impl Excess {
    /// That of the processes that left these.
    pub(super) fn of(statistics: &[Value]) -> Option<Self> {
        let numbers =
            |name: &'static str| statistics.iter().filter_map(move |of| of[name].as_u64());
        let bytes = |pages: u64| pages.saturating_mul(PAGE_BYTES as u64);
        let stuck = bytes(numbers("budget_exceeded").sum());
        if stuck > 0 {
            return Some(Self::Stuck(stuck));
        }
        // Of the whole job, as each of its processes knew it at its end.
        let held = bytes(numbers("job_held_pages_max").max()?);
        let budget = bytes(numbers("job_budget_pages").max()?);
        (held > JOB_BUDGETS * budget).then_some(Self::Job { held, budget })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pages_that_could_not_leave_are_an_excess_of_any_process() {
        let process = |exceeded: u64| json!({ "budget_exceeded": exceeded });
        assert_eq!(Excess::of(&[]), None);
        assert_eq!(Excess::of(&[process(0), process(0)]), None);
        let excess = Excess::of(&[process(0), process(256), process(512)]).unwrap();
        assert_eq!(excess, Excess::Stuck(3 << 20));
        assert!(excess.to_string().contains("3 MiB"), "{excess}");
    }

    #[test]
    fn processes_that_had_far_more_than_the_budget_together_are_one() {
        let process = |held: u64| json!({ "budget_exceeded": 0, "job_budget_pages": 8192, "job_held_pages_max": held });
        // 32 MiB, and one more process that begins.
        assert_eq!(Excess::of(&[process(8192), process(12288)]), None);
        let job = Excess::Job { held: 263 << 20, budget: 32 << 20 };
        assert_eq!(Excess::of(&[process(8192), process(263 << 8)]), Some(job));
    }
}
