//! How a run ended, held against the native one, and the parts that it timed itself.

use super::job::Job;
use crate::outside::excess::Excess;
use crate::process::Finished;
use crate::watch::Ending;
use serde::Serialize;

/// No more of a result than this is shown.
const SHOWN_CHARS: usize = 80;

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "verdict")]
pub(super) enum Verdict {
    /// Well, and with the native result.
    Same,
    /// Well, but with another result.
    Wrong {
        /// The first line that differs, natively.
        native: String,
        /// The same line here.
        here: String,
    },
    /// By itself, but not well.
    Failed { why: String },
    /// It was killed after its time.
    TooLong,
}

impl Verdict {
    /// Of a run that has to have the result that a native one printed as `expected`.
    pub(super) fn of(job: Job, finished: &Finished, expected: &str) -> Self {
        if finished.seen.is_some_and(|seen| seen.ending == Ending::Killed) {
            return Self::TooLong;
        }
        if !finished.status.success() {
            let last = finished.stderr.lines().rfind(|line| part(line).is_none());
            let why = format!("{}: {}", finished.status, last.unwrap_or("nothing was said").trim());
            return Self::Failed { why };
        }
        let (native, here) = (job.result(expected), job.result(&finished.stdout));
        if native.is_empty() {
            return Self::Failed { why: "it printed no result natively".to_owned() };
        }
        if native == here {
            return Self::Same;
        }
        let (native, here) = first_difference(&native, &here);
        Self::Wrong { native, here }
    }

    /// The same of a run that had so much beyond its budget: how fast it was with that says nothing.
    pub(super) fn within(self, excess: Option<&Excess>) -> Self {
        match (self, excess) {
            (Self::Same, Some(excess)) => Self::Failed { why: excess.to_string() },
            (verdict, _) => verdict,
        }
    }

    /// What is wrong, in a line; nothing where nothing is.
    pub(super) fn complaint(&self) -> Option<String> {
        match self {
            Self::Same | Self::TooLong => None,
            Self::Wrong { native, here } => {
                Some(format!("wrong: natively {native:?}, here {here:?}"))
            }
            Self::Failed { why } => Some(format!("failed: {why}")),
        }
    }
}

fn first_difference(native: &str, here: &str) -> (String, String) {
    let lines = native.lines().count().max(here.lines().count());
    let line = |text: &str, number: usize| -> String {
        text.lines().nth(number).unwrap_or_default().chars().take(SHOWN_CHARS).collect()
    };
    let different =
        (0..lines).find(|&number| native.lines().nth(number) != here.lines().nth(number));
    let number = different.unwrap_or(0);
    (line(native, number), line(here, number))
}

/// A part of a job, as the job timed it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct JobPart {
    pub(super) name: String,
    pub(super) seconds: f64,
}

/// The parts of a job that ended, in their order.
pub(super) fn parts(stderr: &str) -> Vec<JobPart> {
    stderr.lines().filter_map(part).collect()
}

fn part(line: &str) -> Option<JobPart> {
    let (name, seconds) = line.strip_prefix("part ")?.split_once(' ')?;
    Some(JobPart { name: name.to_owned(), seconds: seconds.trim().parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Seen;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;
    use std::time::Duration;

    fn finished(status: i32, stdout: &str, ending: Ending) -> Finished {
        Finished {
            status: ExitStatus::from_raw(status),
            wall: Duration::from_secs(1),
            user: Duration::ZERO,
            sys: Duration::ZERO,
            major_faults: None,
            seen: Some(Seen { anon_bytes_max: 1, ending }),
            stdout: stdout.to_owned(),
            stderr: "no more memory\npart fill 1.25\n".to_owned(),
        }
    }

    #[test]
    fn another_result_is_wrong_and_shows_the_line_that_differs() {
        let same = Verdict::of(Job::Node, &finished(0, "a\nb\n", Ending::Own), "a\nb\n");
        assert_eq!((same.complaint(), same), (None, Verdict::Same));
        for (stdout, here) in [("a\nc\n", "c"), ("a\n", ""), ("", "")] {
            let verdict = Verdict::of(Job::Node, &finished(0, stdout, Ending::Own), "a\nb\n");
            let native = if stdout.is_empty() { "a" } else { "b" };
            let wrong = Verdict::Wrong { native: native.to_owned(), here: here.to_owned() };
            assert_eq!(verdict, wrong, "{stdout:?}");
            assert!(verdict.complaint().unwrap().starts_with("wrong: natively "), "{stdout:?}");
        }
    }

    #[test]
    fn a_run_that_was_killed_took_too_long_and_one_that_died_failed() {
        let killed = Verdict::of(Job::Node, &finished(9, "", Ending::Killed), "a\n");
        assert_eq!(killed, Verdict::TooLong);
        let died = Verdict::of(Job::Node, &finished(11, "", Ending::Own), "a\n");
        let complaint = died.complaint().unwrap();
        let silent = Verdict::of(Job::Usemem, &finished(0, "9 usecs\n", Ending::Own), "7 usecs\n");
        assert!(silent.complaint().unwrap().contains("no result"), "{silent:?}");
        assert!(
            complaint.contains("SIGSEGV") && complaint.ends_with("no more memory"),
            "{complaint}"
        );
    }

    #[test]
    fn a_run_beyond_its_budget_failed_and_a_wrong_one_stays_wrong() {
        let excess = Excess::Stuck(3 << 20);
        assert_eq!(Verdict::Same.within(None), Verdict::Same);
        let complaint = Verdict::Same.within(Some(&excess)).complaint().unwrap();
        assert!(
            complaint
                .starts_with("failed: it went beyond its budget, by 3 MiB one after the other"),
            "{complaint}"
        );
        assert_eq!(Verdict::TooLong.within(Some(&excess)), Verdict::TooLong);
    }

    #[test]
    fn the_parts_of_a_job_are_found_among_other_lines() {
        let stderr = "warning\npart fill 1.25\npart walk x\npart check 0.5\n";
        let names: Vec<_> =
            parts(stderr).into_iter().map(|part| (part.name, part.seconds)).collect();
        assert_eq!(names, [("fill".to_owned(), 1.25), ("check".to_owned(), 0.5)]);
    }
}
