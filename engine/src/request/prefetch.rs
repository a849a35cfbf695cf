//! Prefetch: a range is swapped in before it is needed.
use crate::base::index::PageRange;
use crate::state::core::Core;
use crate::state::wants::{Span, Want};
use std::ops::ControlFlow;

impl Core {
    /// Swaps a range in, as far as the budget goes without reclaiming, and waits for the reads.
    pub(crate) fn prefetch_range(&self, range: PageRange) {
        let span = Span::Run { first: range.first, count: range.count, step: 1 };
        let mut want = Want::new(span, self.node_here().id);
        loop {
            let inside = self.gate.enter();
            let more = self.prefetch_some(&mut want);
            drop(inside);
            if more.is_break() {
                return;
            }
        }
    }

    /// Reads the next batch of a want; breaks when there is none, or no room for it.
    fn prefetch_some(&self, want: &mut Want) -> ControlFlow<()> {
        let Some((mut batch, after)) = self.next_of(want) else { return ControlFlow::Break(()) };
        while batch.len() > 0 {
            let Some(started) = self.start_ahead(&batch, want) else {
                return ControlFlow::Break(());
            };
            if let Some(job) = started.job {
                self.read_now(job);
            }
            batch.keep(started.entries, batch.len() - started.entries);
        }
        want.done = after;
        ControlFlow::Continue(())
    }
}
