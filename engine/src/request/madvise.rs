//! What a program says about how it will use its pages, and what follows from it at once.
//!
//! Sequential and random are remembered for the pages, in the arena, so that they hold from before the
//! engine starts; the others act when they are said. None of them changes any content.
use crate::base::index::{PageIndex, PageRange};
use crate::state::core::Core;
use crate::state::page::PageState;
use crate::state::wants::{Span, Want};

/// Pages looked at under one passage of the gate.
const LOOK_PAGES: u32 = 4096;

impl Core {
    /// The pages will be needed soon: the server reads them, as far as half of the budget and frames that
    /// nobody has to give up allow. The caller waits for nothing.
    pub fn will_need(&self, range: PageRange) {
        let _inside = self.gate.enter();
        let node = self.node_here();
        let count = range.count.min(node.lock().budget / 2);
        self.want(Want::new(Span::Run { first: range.first, count, step: 1 }, node.id));
    }

    /// The pages will not be needed soon: they are the next to leave, the first of the range before others.
    pub fn cool(&self, range: PageRange) {
        let mut end = range.end();
        while end > range.first {
            let first = range.first.max(end.saturating_sub(LOOK_PAGES));
            let inside = self.gate.enter();
            for page in (first..end).rev() {
                self.cool_page(page);
            }
            drop(inside);
            end = first;
        }
    }

    fn cool_page(&self, page: PageIndex) {
        let node = match self.pages.state(page) {
            PageState::Resident { node, .. } => self.node(node),
            PageState::Cached { frame, .. } => self.node_of_frame(frame),
            _ => return,
        };
        node.lock().make_oldest(page);
    }
}
