//! Reads that no thread waits for: what is wanted and not yet read.
//!
//! Faulting threads leave wants here; the server takes them and reads. Wants are hints: when too many
//! wait, the oldest is dropped, and a stream that counted on it is told.
use crate::base::index::{NodeId, PageRange};
use crate::device::SlotSpan;
use crate::state::batch::Gaps;
use crate::state::core::Core;
use crate::state::reads::Landing;
use crate::sys::lock::Lock;
use std::sync::atomic::{AtomicBool, Ordering};
use userswap_policy::stream::Ahead;

/// Wants that may wait to be taken.
pub const WANTS_MAX: usize = 16;

/// What is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Span {
    /// A stream's next window: mapped, but for its marker.
    Ahead(Ahead),
    /// Pages to be mapped.
    Run {
        /// The one needed first.
        first: u32,
        /// Number of pages.
        count: u32,
        /// Pages from one to the next.
        step: i32,
    },
    /// Pages to be marked.
    Pages(PageRange),
    /// Slots whose pages are to be marked.
    Slots(SlotSpan),
}

/// A span to read for the program of a node.
#[derive(Clone, Copy, Debug)]
pub struct Want {
    /// The pages or slots.
    pub span: Span,
    /// The node whose frames are to be used.
    pub node: NodeId,
    /// Pages or slots of the span, from its start, that are there or coming.
    pub done: u32,
}

impl Want {
    /// All of a span.
    pub fn new(span: Span, node: NodeId) -> Self {
        Self { span, node, done: 0 }
    }

    /// Pages or slots of the span.
    pub fn len(&self) -> u32 {
        match self.span {
            Span::Ahead(Ahead { count, .. }) | Span::Run { count, .. } => count,
            Span::Pages(range) => range.count,
            Span::Slots(span) => span.count,
        }
    }

    /// Whether its requests may read over slots.
    pub fn gaps(&self) -> Gaps {
        match self.span {
            Span::Ahead(_) | Span::Run { .. } => Gaps::Small,
            Span::Pages(_) | Span::Slots(_) => Gaps::None,
        }
    }

    /// What becomes of its pages.
    pub fn landing(&self) -> Landing {
        match self.span {
            Span::Ahead(ahead) => Landing::Mapped { marker: Some(ahead.marker) },
            Span::Run { .. } => Landing::Mapped { marker: None },
            Span::Pages(_) | Span::Slots(_) => Landing::Marked,
        }
    }
}

/// What the server has not taken yet.
pub struct Wants {
    queue: Lock<Queue>,
    /// The server found no frames for a want, and is to be woken when there are some.
    starved: AtomicBool,
}

struct Queue {
    waiting: [Option<Want>; WANTS_MAX],
    next: usize,
}

impl Wants {
    /// Nothing is wanted.
    pub fn new() -> Self {
        let queue = Queue { waiting: [None; WANTS_MAX], next: 0 };
        Self { queue: Lock::new(queue), starved: AtomicBool::new(false) }
    }

    /// Adds a want; returns the oldest if it had to make room.
    fn push(&self, want: Want) -> Option<Want> {
        let mut queue = self.queue.lock();
        let index = queue.next % WANTS_MAX;
        queue.next += 1;
        queue.waiting[index].replace(want)
    }

    /// Takes the oldest want.
    pub fn take(&self) -> Option<Want> {
        let mut queue = self.queue.lock();
        let start = queue.next;
        (0..WANTS_MAX).find_map(|step| queue.waiting[(start + step) % WANTS_MAX].take())
    }
}

impl Core {
    /// Leaves a want to the server.
    pub(crate) fn want(&self, want: Want) {
        if let Some(dropped) = self.wants.push(want) {
            self.drop_want(&dropped);
        }
        self.threads.server_wanted.signal();
    }

    /// What is left of a want will not be read.
    pub(crate) fn drop_want(&self, want: &Want) {
        if let Span::Ahead(ahead) = want.span {
            self.streams.lock().on_ahead(ahead, want.done);
        }
    }

    /// The server is about to wait for frames, and looks once more after this.
    pub(crate) fn starve(&self) {
        // SeqCst pairs with the load in `feed_readahead`: whoever frees frames sees this, or the server's
        // next look sees the frames.
        self.wants.starved.store(true, Ordering::SeqCst);
    }

    /// Wakes the server if it waits for frames: some have become available.
    pub(crate) fn feed_readahead(&self) {
        if self.wants.starved.load(Ordering::SeqCst)
            && self.wants.starved.swap(false, Ordering::SeqCst)
        {
            self.threads.server_wanted.signal();
        }
    }
}
