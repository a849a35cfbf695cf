//! mremap: content moves to other pages, and no byte is copied.
use crate::base::index::{PageIndex, PageRange};
use crate::request::content::{Content, TakeFor};
use crate::state::core::Core;
use crate::state::page::PageState;
use crate::transfer::lru_add::Origin;
use userswap_policy::frames::FrameRun;

impl Core {
    /// Claims a page without content. The program does not use it yet, but it may have been filled with a run of zeros
    /// next to it, or by an old fault message of what was mapped there before.
    fn claim_fresh(&self, page: PageIndex, state: PageState) {
        while !self.pages.change(page, PageState::Untouched, state) {
            let content = self.take_content(page, &mut TakeFor::Drop);
            self.discard(content);
        }
    }

    /// Moves the content of pages to other pages that are Untouched (mremap): no byte is copied.
    pub fn move_range(&self, from: PageRange, to: PageIndex) {
        let _inside = self.gate.enter();
        let mut keep = TakeFor::keep();
        let sources = self.pages.touched.within(from);
        for source in sources.flat_map(|part| part.first..part.end()) {
            let target = to + (source - from.first);
            let content = self.take_content(source, &mut keep);
            let (state, frame) = match content {
                Content::None => continue,
                Content::Lost => (PageState::Lost, None),
                Content::Slot(slot) => (PageState::Swapped { slot }, None),
                Content::Frame(frame, slot) => (PageState::Filling { slot }, Some((frame, slot))),
            };
            if let PageState::Swapped { slot } | PageState::Filling { slot: Some(slot) } = state {
                self.devices.set_page(slot, target);
            }
            self.claim_fresh(target, state);
            if let Some((frame, slot)) = frame {
                let node = self.node_of_frame(frame);
                let range = PageRange { first: target, count: 1 };
                self.map_in(node, range, FrameRun { first: frame, count: 1 });
                self.publish_resident(node, range, Origin::New, |_| slot);
            }
        }
    }
}
