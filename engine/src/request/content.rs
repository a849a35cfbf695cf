//! Taking the content of a page, for a request that wants it gone or elsewhere.
use crate::base::index::{FrameIndex, PageIndex, PageRange, Slot};
use crate::state::core::Core;
use crate::state::node::Node;
use crate::state::page::{Mapped, PageState, Standing, Waiters, Word};
use crate::state::scratch::Unmapped;
use crate::sys::{PAGE_BYTES, process};
use crate::transfer::drop::drop_memory;
use crate::transfer::map::TRIES_MAX;
use crate::transfer::verdict::{Call, Extent, Verdict, verdict};
use std::sync::atomic::Ordering;
use userswap_policy::frames::FrameRun;

/// How often one request waits for what becomes free, for all its pages together, before it copies what a device or a pipe holds on to: a
/// transfer takes milliseconds, whatever was under way when the request began has had as long by then, and a pipe, which may
/// hold a page for longer, only reads.
const WAITS_MAX: u32 = 200;

/// Why the content of pages is taken.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum TakeFor {
    /// To be forgotten.
    Drop,
    /// To go elsewhere, every byte of it, if possible with its physical page; with the waits that the request has left.
    Keep { waits: u32 },
}

impl TakeFor {
    /// To go elsewhere, for all pages of one request.
    pub(crate) fn keep() -> Self {
        Self::Keep { waits: WAITS_MAX }
    }
}

/// What a page held.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Content {
    /// Nothing: it was never touched, or its content is gone already.
    None,
    /// What could not be read from its device.
    Lost,
    /// A held frame, and the slot that still has a copy of it.
    Frame(FrameIndex, Option<Slot>),
    /// A slot, which is the only copy.
    Slot(Slot),
}

impl Core {
    /// Takes the content of a page, which is Untouched then; waits while another thread owns the page.
    pub(crate) fn take_content(&self, page: PageIndex, take_for: &mut TakeFor) -> Content {
        loop {
            let freed = self.shortage.freed.load(Ordering::Acquire);
            let seen = self.pages.load(page);
            let taken = match seen.state() {
                PageState::Untouched => return Content::None,
                PageState::Filling { .. } | PageState::Leaving { .. } => {
                    self.pages.wait_owned(page);
                    continue;
                }
                // The device needs the frame until it has written it.
                PageState::Writing { .. } if *take_for != TakeFor::Drop => {
                    self.wait_for_freed(freed);
                    continue;
                }
                PageState::Resident { .. } | PageState::Clean { .. } => {
                    self.take_resident(page, seen, take_for)
                }
                _ => self.take_unmapped(page, seen),
            };
            if let Some(content) = taken {
                return content;
            }
        }
    }

    /// Takes the content of a page that is not mapped; None if its word has changed.
    fn take_unmapped(&self, page: PageIndex, seen: Word) -> Option<Content> {
        if let PageState::Cached { frame, slot, .. } = seen.state() {
            let taken = self.uncache(page, seen, PageState::Untouched);
            return taken.then_some(Content::Frame(frame, slot));
        }
        if seen.state() == PageState::Lost {
            return self.take_lost(page, seen).then_some(Content::Lost);
        }
        if !self.pages.claim(page, seen, PageState::Untouched) {
            return None;
        }
        Some(match seen.state() {
            PageState::Swapped { slot } => Content::Slot(slot),
            PageState::Writing { frame, slot } => {
                self.orphan(frame, slot);
                Content::None
            }
            state => {
                unreachable!("{state:?} is not a state without an owner and without a mapping")
            }
        })
    }

    /// Takes the poison off a lost page; owns it meanwhile, so that no fault fills it before.
    fn take_lost(&self, page: PageIndex, seen: Word) -> bool {
        let claimed = self.pages.claim(page, seen, PageState::Leaving { slot: None });
        if claimed {
            drop_memory(Call::DropUnwanted, self.page_address(page), PAGE_BYTES);
            self.publish(page, PageState::Untouched);
        }
        claimed
    }

    /// Takes the content of a resident page; None if its word has changed, or if it is to be tried again because a
    /// device or a system call holds the page.
    fn take_resident(
        &self,
        page: PageIndex,
        seen: Word,
        take_for: &mut TakeFor,
    ) -> Option<Content> {
        let Mapped { slot, pins, node } = seen.state().mapped()?;
        if !self.pages.claim(page, seen, PageState::Leaving { slot }) {
            return None;
        }
        let node = self.node(node);
        let mut taken = [Unmapped::Stayed];
        self.unmap(node, PageRange { first: page, count: 1 }, &mut taken);
        let content = match (taken[0], take_for) {
            (Unmapped::Frame(frame), _) => Content::Frame(frame, slot),
            (Unmapped::Gone, _) => {
                self.free_any_slot(slot);
                Content::None
            }
            (Unmapped::Stayed, TakeFor::Drop) => {
                self.drop_in_place(node, page, slot);
                Content::None
            }
            (Unmapped::Stayed, TakeFor::Keep { waits: 0 }) => {
                let copy = self.copy_of(node, page);
                self.drop_in_place(node, page, slot.filter(|_| copy.is_none()));
                copy.map_or(Content::None, |frame| Content::Frame(frame, slot))
            }
            (Unmapped::Stayed, TakeFor::Keep { waits }) => {
                *waits -= 1;
                let state = PageState::Resident { slot, pins, node: node.id };
                self.wait_for_holder(page, state, seen.standing());
                return None;
            }
        };
        self.forget_pins(pins);
        node.lock().lists.remove(page);
        self.publish(page, PageState::Untouched);
        Some(content)
    }

    /// A page that stays for now is mapped again; waits for whatever holds it.
    fn wait_for_holder(&self, page: PageIndex, state: PageState, standing: Standing) {
        if self.pages.publish_mapped(page, state, standing) == Waiters::Some {
            self.wake_faults(PageRange { first: page, count: 1 });
        }
        let node = state.mapped().expect("it is mapped").node;
        self.node(node).lock().enlist(&self.pages, page, 1);
        let freed = self.shortage.freed.load(Ordering::Acquire);
        self.wait_for_freed(freed);
    }

    /// Lets the kernel drop a page that would not move: it is pinned, or went without us.
    pub(crate) fn drop_in_place(&self, node: &Node, page: PageIndex, slot: Option<Slot>) {
        drop_memory(Call::DropUnwanted, self.page_address(page), PAGE_BYTES);
        let mut state = node.lock();
        state.on_moved_out(1);
        state.on_released(1);
        drop(state);
        self.free_any_slot(slot);
    }

    /// Copies a page that the caller owns in Leaving to a held frame; None when the page went without us.
    fn copy_of(&self, node: &Node, page: PageIndex) -> Option<FrameIndex> {
        let frames = self.frames_for_copy(node, 1);
        let (from, to) = (self.page_address(page), self.frame_address(frames.first));
        let mut tries = 0;
        while let Err(errno) = self.own_memory.read(from, to, PAGE_BYTES) {
            match verdict(Call::ReadKept, Extent::Page, errno) {
                Verdict::Again if tries < TRIES_MAX => tries += 1,
                Verdict::GoneOrDie if self.is_missing(page) => {
                    node.lock().put_free(frames);
                    return None;
                }
                _ => process::die("userswap: cannot read a page that is to be moved", errno),
            }
        }
        Some(frames.first)
    }

    /// Frees the frame and the slot of a content.
    pub(crate) fn discard(&self, content: Content) {
        match content {
            Content::None | Content::Lost => {}
            Content::Slot(slot) => self.free_slot(slot),
            Content::Frame(frame, slot) => {
                self.node_of_frame(frame).lock().put_free(FrameRun { first: frame, count: 1 });
                if let Some(slot) = slot {
                    self.free_slot(slot);
                }
            }
        }
    }

    /// Subtracts pins from those that the engine counts against its budget.
    pub(crate) fn forget_pins(&self, pins: u32) {
        self.devices.allowance.pins.fetch_sub(pins, Ordering::Relaxed);
    }
}
