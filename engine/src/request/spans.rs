//! Scattered pages are forgotten by the span: all pages that follow each other are owned, mapped or not, and one call drops
//! what is mapped of them. Moving each of them to a frame would flush the other CPUs' TLBs for each.
//!
//! Nothing is waited for while pages are owned; what somebody else owns ends a span, and is left to `discard.rs`. So are
//! pages that are mapped in long runs: their frames serve the next faults without the kernel's allocator.
use crate::base::index::{NodeId, PageIndex, PageRange};
use crate::request::content::Content;
use crate::state::core::Core;
use crate::state::page::{Mapped, PageState};
use crate::sys::PAGE_BYTES;
use crate::transfer::drop::drop_memory;
use crate::transfer::verdict::Call;

/// Pages that are owned at a time.
const SPAN_MAX: u32 = 512;

/// Mapped pages in a row that are worth a call of their own, which moves them.
const RUN_MIN: u32 = 16;

/// Owned pages that follow each other.
struct Span {
    pages: PageRange,
    /// Those that are mapped, all of one node.
    mapped: u32,
    node: NodeId,
}

impl Core {
    /// Forgets the content of a range, but for what is mapped in long runs, or owned by another thread.
    pub(super) fn drop_spans(&self, range: PageRange) {
        let mut page = range.first;
        while page < range.end() {
            let run = self.mapped_run(page, range.end());
            if run >= RUN_MIN {
                page += run;
                continue;
            }
            let span = self.own_span(page, range.end());
            page = span.pages.end().max(page + 1);
            self.drop_span(&span);
        }
    }

    /// Mapped pages in a row from a page on.
    fn mapped_run(&self, first: PageIndex, end: PageIndex) -> u32 {
        let is_mapped = |page: &PageIndex| self.pages.state(*page).mapped().is_some();
        (first..end).take_while(is_mapped).count() as u32
    }

    fn own_span(&self, first: PageIndex, end: PageIndex) -> Span {
        let pages = PageRange { first, count: 0 };
        let mut span = Span { pages, mapped: 0, node: NodeId(0) };
        let mut in_a_row = 0;
        for page in first..end.min(first + SPAN_MAX) {
            let mapped = span.mapped;
            if in_a_row == RUN_MIN || !self.own(page, &mut span) {
                break;
            }
            span.pages.count += 1;
            in_a_row = if span.mapped > mapped { in_a_row + 1 } else { 0 };
        }
        span
    }

    /// Owns the next page of a span, without its content if that was not mapped; false when it is not to be had.
    fn own(&self, page: PageIndex, span: &mut Span) -> bool {
        let seen = self.pages.load(page);
        match seen.state() {
            PageState::Untouched => {
                !self.arena.is_foreign(page)
                    && self.pages.claim(page, seen, PageState::Filling { slot: None })
            }
            PageState::Swapped { slot } => {
                let claimed = self.pages.claim(page, seen, PageState::Filling { slot: None });
                if claimed {
                    self.free_slot(slot);
                }
                claimed
            }
            PageState::Cached { frame, slot, .. } => {
                let claimed = self.uncache(page, seen, PageState::Filling { slot: None });
                if claimed {
                    self.discard(Content::Frame(frame, slot));
                }
                claimed
            }
            state => match state.mapped() {
                Some(Mapped { slot, node, pins }) if span.mapped == 0 || node == span.node => {
                    let claimed = self.pages.claim(page, seen, PageState::Leaving { slot });
                    if claimed {
                        self.forget_pins(pins);
                        (span.mapped, span.node) = (span.mapped + 1, node);
                    }
                    claimed
                }
                _ => false,
            },
        }
    }

    /// Drops what is mapped of a span, and publishes its pages.
    fn drop_span(&self, span: &Span) {
        let (first, count) = (span.pages.first, span.pages.count);
        if span.mapped > 0 {
            let bytes = count as usize * PAGE_BYTES;
            drop_memory(Call::DropUnwanted, self.page_address(first), bytes);
            let mut state = self.node(span.node).lock();
            state.on_moved_out(span.mapped);
            state.on_released(span.mapped);
            // Before publishing: the thread that fills a page next puts it on a list again.
            for page in first..span.pages.end() {
                if matches!(self.pages.state(page), PageState::Leaving { .. }) {
                    state.lists.remove(page);
                }
            }
        }
        for page in first..span.pages.end() {
            if let PageState::Leaving { slot } = self.pages.state(page) {
                self.free_any_slot(slot);
            }
            self.publish(page, PageState::Untouched);
        }
    }
}
