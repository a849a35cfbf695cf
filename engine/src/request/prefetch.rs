//! Prefetch: a range is brought in before it is needed.
use crate::base::index::PageRange;
use crate::state::core::Core;
use crate::state::wants::{Span, Want};

/// Whether there is more to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    More,
    Ended,
}

impl Core {
    /// Brings a range in, as far as the budget goes without reclaiming; the program need not wait for it.
    pub(crate) fn prefetch_range(&self, range: PageRange) {
        let span = Span::Run { first: range.first, count: range.count, step: 1 };
        let mut want = Want::new(span, self.node_here().id);
        loop {
            let inside = self.gate.enter();
            let progress = self.prefetch_some(&mut want);
            drop(inside);
            if progress == Progress::Ended {
                return;
            }
        }
    }

    /// Reads the next batch of a want.
    fn prefetch_some(&self, want: &mut Want) -> Progress {
        let Some((mut batch, behind)) = self.next_of(want) else { return Progress::Ended };
        while batch.len() > 0 {
            let Some(started) = self.start_ahead(&batch, want) else { return Progress::Ended };
            if let Some(job) = started.job {
                self.read_now(job);
            }
            batch.keep(started.entries, batch.len() - started.entries);
        }
        want.done = behind;
        Progress::More
    }
}
