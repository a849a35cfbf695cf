//! Other processes: forked children with a worker's memory, and members of the job with memory of their own.
use super::{AREAS, Worker, Wrong, pages_of};
use crate::stress::content::Stamp;
use crate::stress::{Load, Part};
use std::io;
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::time::Duration;
use userswap::internals::bench::stress::{Span, in_child, lost_here, verdict};

/// How long a member goes on after it has written all of its memory.
const MEMBER_TIME: Duration = Duration::from_millis(100);

impl Worker<'_> {
    /// A child finds what was there, and changes its own copy only.
    pub(super) fn fork(&mut self, area: usize, span: Span) -> Result<(), Wrong> {
        self.shared.forks.fetch_add(1, Ordering::Relaxed);
        let outcome = in_child(|| {
            let outcome = self.verify_in_child(area, span);
            if let Err(Wrong(text)) = &outcome {
                say!("in a forked child: {text}");
            }
            outcome.is_ok()
        });
        self.judge("a forked child", outcome)?;
        self.verify(area, span)
    }

    /// A small load as a process of its own, which the budget is shared with.
    pub(super) fn start_member(&mut self) -> Result<(), Wrong> {
        let seed = self.random.below(1 << 31);
        let Part::First(command) = self.shared.load.part else { return Ok(()) };
        let load = Load { seed, time: MEMBER_TIME, part: Part::Member, ..self.shared.load };
        self.shared.members.fetch_add(1, Ordering::Relaxed);
        let ended = command(&load, self.shared.directory)
            .and_then(|mut command| command.stdin(Stdio::null()).stdout(Stdio::null()).status());
        self.judge("a member", ended.and_then(verdict))
    }

    /// What the system refuses is no finding.
    fn judge(&self, whose: &str, outcome: io::Result<bool>) -> Result<(), Wrong> {
        match outcome {
            Ok(true) => Ok(()),
            Ok(false) => Err(Wrong(format!("worker {}: {whose} has found something", self.id))),
            Err(error) if error.raw_os_error().is_some() => {
                self.note_refusal();
                Ok(())
            }
            Err(error) => Err(Wrong(format!("worker {}: {whose}: {error}", self.id))),
        }
    }

    fn verify_in_child(&self, area: usize, span: Span) -> Result<(), Wrong> {
        for other in 0..AREAS {
            pages_of(self.whole(other))
                .try_for_each(|page| self.verify_in_copy(other, page, None))?;
        }
        for page in pages_of(span) {
            let stamp = self.stamp(area, page).in_child();
            self.areas[area].fill(page, |index| stamp.word(index));
        }
        pages_of(span).try_for_each(|page| {
            self.verify_in_copy(area, page, Some(self.stamp(area, page).in_child()))
        })
    }

    /// As [`Self::verify_page`], but leaves the stamps alone: they are the parent's, too.
    fn verify_in_copy(&self, area: usize, page: usize, own: Option<Stamp>) -> Result<(), Wrong> {
        let (stamp, before) = (own.unwrap_or(self.stamp(area, page)), lost_here());
        let wrong = self.areas[area].wrong(page, |index| stamp.word(index));
        match wrong {
            Some(index) if lost_here() == before => Err(self.report(area, page, index)),
            _ => Ok(()),
        }
    }
}
