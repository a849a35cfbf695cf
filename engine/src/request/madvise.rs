//! Advice about how a program will use its pages, where something follows from it at once.
//!
//! Sequential and random are remembered by page, in the arena, so that they hold from before the engine starts; the
//! advice here acts when it is given. None of it changes any content.
use crate::base::index::{PageIndex, PageRange};
use crate::state::core::Core;
use crate::state::page::PageState;
use crate::state::wants::{Span, Want};

/// Pages looked at in one passage of the gate.
const LOOK_PAGES: u32 = 4096;

impl Core {
    /// The pages will be needed soon: the server reads up to half of the budget of them, into frames that no other
    /// page has to give up. The caller waits for nothing.
    pub fn will_need(&self, range: PageRange) {
        let _inside = self.gate.enter();
        let node = self.node_here();
        let count = range.count.min(node.lock().budget / 2);
        self.want(Want::new(Span::Run { first: range.first, count, step: 1 }, node.id));
    }

    /// The pages will not be needed soon: they are the next to be reclaimed, in the order of the range.
    pub fn cool(&self, range: PageRange) {
        let parts: Vec<PageRange> = self.pages.touched.within(range).collect();
        parts.into_iter().rev().for_each(|part| self.cool_part(part));
    }

    fn cool_part(&self, part: PageRange) {
        let mut end = part.end();
        while end > part.first {
            let first = part.first.max(end.saturating_sub(LOOK_PAGES));
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
            PageState::Resident { node, .. } | PageState::Clean { node, .. } => self.node(node),
            PageState::Cached { frame, .. } => self.node_of_frame(frame),
            _ => return,
        };
        node.lock().make_oldest(page);
    }
}
