//! The threads that read spans of slots and place what they have read.
//!
//! They are ordinary reads by a few threads, not a queue: the thread that reads a span also checks and maps it, so
//! both the disk and all CPUs are busy, and nothing is in flight between two passages of the gate.
use crate::base::error::Error;
use crate::state::core::Core;
use crate::state::frame_set::FrameSet;
use crate::state::node::{Asker, Node};
use crate::state::scratch::Scratch;
use crate::swapoff::Proceed;
use crate::swapoff::room::room_in_ram;
use crate::swapoff::task::{Goal, PATIENCE_NS, READ_PAGES, Task, WAIT_NS};
use crate::sys::lock::Lock;
use crate::sys::signal::Blocked;
use crate::sys::thread;
use crate::sys::{clock, futex};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use userswap_policy::spans::SlotMap;

/// What the readers share.
struct Shared<'a> {
    core: &'a Core,
    task: Task<'a>,
    map: &'a SlotMap,
    /// Where the next span is looked for.
    next: Lock<u32>,
    /// Pages that may still be read: for [`Goal::Fill`] what RAM has room for.
    room: AtomicU64,
    stopping: AtomicBool,
    failure: Lock<Option<Error>>,
}

/// One thread's own memory.
struct Reader<'a> {
    shared: &'a Shared<'a>,
    scratch: Box<Scratch>,
}

/// What an attempt to read the next piece of a span came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Piece {
    /// So many slots, from the first of the span on, are done.
    Done(u32),
    /// At this moment there are no frames, or none that these pages may have.
    NoFrames,
}

impl Core {
    /// Reads and places everything on `map`; `between` is asked between spans whether to go on.
    ///
    /// # Errors
    /// Cancelled, or no room: pages that were not placed stay on the device.
    pub(crate) fn read_all(
        &self,
        task: Task<'_>,
        map: &SlotMap,
        between: &mut dyn FnMut() -> Proceed,
    ) -> Result<(), Error> {
        let shared = Shared {
            core: self,
            task,
            map,
            next: Lock::new(0),
            room: AtomicU64::new(match task.goal {
                Goal::Empty => u64::MAX,
                Goal::Fill => self.inside_gate(|| self.nodes.iter().map(room_in_ram).sum()),
            }),
            stopping: AtomicBool::new(false),
            failure: Lock::new(None),
        };
        let helpers = self.readers().min(map.count().div_ceil(READ_PAGES)).saturating_sub(1);
        let read = || Reader::new(&shared).run(None);
        thread::helped("userswap-back", helpers, &read, || {
            Reader::new(&shared).run(Some(between));
        });
        let failure = shared.failure.lock().take();
        failure.map_or(Ok(()), Err)
    }
}

impl Shared<'_> {
    fn next_span(&self) -> Option<Range<u32>> {
        if self.stopping.load(Ordering::Relaxed) {
            return None;
        }
        let mut next = self.next.lock();
        let span = self.map.span_from(*next, READ_PAGES)?;
        *next = span.end;
        Some(span)
    }

    /// Takes up to `want` pages of the room that is left; what is not used is added again.
    fn reserve(&self, want: u32) -> u32 {
        let take = |room: u64| Some(room - u64::from(want).min(room));
        let before = self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        before.map_or(0, |room| u64::from(want).min(room) as u32)
    }

    /// Whether a fault has asked for the device.
    fn is_unwanted(&self) -> bool {
        self.task.goal == Goal::Empty && self.core.devices.must_yield()
    }

    fn must_stop(&self) -> bool {
        self.stopping.load(Ordering::Relaxed) || self.is_unwanted()
    }

    fn fail(&self, error: Error) {
        self.failure.lock().get_or_insert(error);
        self.stopping.store(true, Ordering::Relaxed);
    }
}

impl<'a> Reader<'a> {
    fn new(shared: &'a Shared<'a>) -> Self {
        Self { shared, scratch: Box::new(Scratch::new()) }
    }

    /// Reads spans until there is none; only the thread that called [`Core::read_all`] has a `between` to ask.
    fn run(&mut self, mut between: Option<&mut dyn FnMut() -> Proceed>) {
        while let Some(span) = self.shared.next_span() {
            if let Err(error) = self.read_span(span) {
                self.shared.fail(error);
            }
            if self.shared.is_unwanted() {
                self.shared.fail(Error::NoRoomInRam);
            }
            if let Some(between) = &mut between
                && between() == Proceed::Cancel
            {
                self.shared.fail(Error::SwapoffCancelled);
            }
        }
    }

    fn read_span(&mut self, mut span: Range<u32>) -> Result<(), Error> {
        let core = self.shared.core;
        let mut progress_ns = clock::now_ns();
        while !span.is_empty() && !self.shared.must_stop() {
            let blocked = Blocked::new();
            let inside = core.gate.enter();
            let node = core.roomiest_node();
            let freed = core.shortage.freed.load(Ordering::Acquire);
            let piece = self.read_piece(node, span.clone());
            drop(inside);
            drop(blocked);
            match piece {
                Piece::Done(slots) => {
                    span.start += slots;
                    progress_ns = clock::now_ns();
                }
                Piece::NoFrames if self.shared.task.goal == Goal::Fill => {
                    self.shared.stopping.store(true, Ordering::Relaxed);
                    return Ok(());
                }
                Piece::NoFrames
                    if clock::now_ns() - progress_ns < PATIENCE_NS
                        && !self.shared.is_unwanted() =>
                {
                    core.wake_reclaim(node);
                    futex::wait_for(&core.shortage.freed, freed, WAIT_NS);
                }
                Piece::NoFrames => return Err(Error::NoRoomInRam),
            }
        }
        Ok(())
    }

    /// Inside the gate: reads as much of a span as there are frames for, and places it.
    fn read_piece(&mut self, node: &Node, span: Range<u32>) -> Piece {
        let core = self.shared.core;
        let want = self.shared.reserve(span.end - span.start);
        let mut frames = FrameSet::new();
        core.fill_set(node, &mut frames, want, Asker::Background);
        let slots = span.start..span.start + frames.pages();
        let Shared { task, map, .. } = *self.shared;
        let read = core.read_slots(task, map, slots.clone(), frames);
        core.place(task.goal, &read, &mut self.scratch);
        self.shared.room.fetch_add(u64::from(want) - read.len() as u64, Ordering::Relaxed);
        if slots.is_empty() { Piece::NoFrames } else { Piece::Done(slots.end - slots.start) }
    }
}
