//! The dispatch: one fault, from a page's word to what is done about it. Both deliveries, by message and by signal,
//! come here.
//!
//! The word is looked at again whenever the act finds that it has changed; each act has a file of its own.
use crate::base::counters::count;
use crate::base::index::{PageIndex, PageRange};
use crate::state::core::Core;
use crate::state::node::Node;
use crate::state::page::{Mapped, PageState, Waiters, Word};
use crate::state::reads::ReadJob;
use crate::sys::PAGE_BYTES;
use crate::sys::uffd::Access;
use userswap_trace::{Event, Kind};

/// What became of a fault.
#[derive(Debug)]
pub enum Step {
    /// The page is there, or its fault was told to try again.
    Done,
    /// Another thread owns the page; its publication wakes the fault.
    Busy,
    /// The caller reads this, at once or with others in flight, and finishes it then.
    Read(ReadJob),
    /// The page belongs to no region.
    Foreign,
}

impl Core {
    /// Serves a fault on `page` by a CPU of `near`; safe in a signal handler.
    pub(crate) fn handle_fault(&self, page: PageIndex, access: Access, near: &Node) -> Step {
        let _serving = self.trace.serve();
        count(&self.counters.pgfault, 1);
        loop {
            let seen = self.pages.load(page);
            let step = match seen.state() {
                PageState::Untouched => self.fill_with_zeros(page, near),
                PageState::Filling { .. } | PageState::Leaving { .. } => {
                    count(&self.counters.fault_busy, 1);
                    self.pages.note_waiter(page).then_some(Step::Busy)
                }
                PageState::Resident { .. } | PageState::Clean { .. } => {
                    self.confirm_mapped(page, seen, access)
                }
                PageState::Cached { .. } => self.map_cached(page, seen, near),
                PageState::Writing { .. } => self.copy_from_write(page, seen),
                PageState::Swapped { .. } => self.start_read(page, access, near).map(Step::Read),
                PageState::Lost => self.poison_again(page, seen),
            };
            let Some(step) = step else { continue };
            // What is there was noted while it was owned: once published it may leave before this.
            if seen.state().mapped().is_none() {
                self.trace.note(|| event_of(page, (seen.state(), access), &step));
            }
            return step;
        }
    }

    /// The word says that the page is there: it is protected and to be written to, the message is older than its
    /// answer, or the program dropped the page past us, by a raw madvise; then it gets zeros, as it would from the
    /// kernel.
    fn confirm_mapped(&self, page: PageIndex, seen: Word, access: Access) -> Option<Step> {
        let Mapped { slot, pins, node } = seen.state().mapped()?;
        if !self.pages.claim(page, seen, PageState::Leaving { slot }) {
            return None;
        }
        self.trace.note(|| event_of(page, (seen.state(), access), &Step::Done));
        let range = PageRange { first: page, count: 1 };
        if access == Access::Protected {
            count(&self.counters.pgfault_wp, 1);
            self.clean_pages.on_write(page);
            self.unprotect(range);
        }
        // Owned: the page cannot be unmapped between the look and the copy, which fails where a page is.
        let copied = self.uffd.copy(self.page_address(page), self.zeros_address(), PAGE_BYTES);
        let state = match seen.state() {
            clean @ PageState::Clean { .. } if copied.is_err() && access != Access::Protected => {
                clean
            }
            _ => PageState::Resident { slot, pins, node },
        };
        if self.pages.publish_mapped(page, state, seen.standing()) == Waiters::Some {
            self.wake_faults(range);
        }
        self.node(node).lock().enlist(&self.pages, page, 1);
        self.wake_faults(range);
        Some(Step::Done)
    }
}

/// What a trace says of a fault: the state that it met, what was wanted there, and what became of it.
fn event_of(page: PageIndex, (state, access): (PageState, Access), step: &Step) -> Event {
    let kind = match (state, step) {
        (_, Step::Foreign) | (PageState::Lost, _) => Kind::Nothing,
        (PageState::Untouched, _) => Kind::FirstTouch,
        (PageState::Filling { .. } | PageState::Leaving { .. }, _) => Kind::Waited,
        (PageState::Resident { .. } | PageState::Clean { .. }, _) => match access {
            Access::Protected => Kind::Written,
            Access::Read | Access::Write => Kind::Present,
        },
        (PageState::Cached { .. } | PageState::Writing { .. }, _) => Kind::SecondChance,
        (PageState::Swapped { .. }, _) => Kind::Read,
    };
    Event::fault(kind, page)
}
