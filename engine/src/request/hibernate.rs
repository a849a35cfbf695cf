//! Everything out, everything in: parking a program that has nothing to do for a while.
//!
//! Paging everything out writes batches of pages to the devices, by a few threads at once, moves what is in compressed
//! memory on to those behind it, and then gives the frames back to the kernel: the whole budget is spare again. The program need not know: what it touches is swapped in by a
//! fault, and nothing of the engine runs until then. Prefetching everything goes the other way, in the order of the
//! devices, as far as RAM has room.
use crate::base::error::Error;
use crate::base::index::PageRange;
use crate::base::limits::BATCH;
use crate::state::core::Core;
use crate::state::node::Node;
use crate::state::page::PageState;
use crate::state::scratch::Scratch;
use crate::swapoff::Proceed;
use crate::swapoff::room::room_in_ram;
use crate::swapoff::task::{Goal, PATIENCE_NS, Task, WAIT_NS};
use crate::sys::lock::Lock;
use crate::sys::signal::Blocked;
use crate::sys::thread;
use crate::sys::{clock, futex};
use std::sync::atomic::Ordering;

/// The most frames whose memory one call gives back: 16 MiB, so that no thread waits long for the address space.
const RELEASE_PAGES: u32 = 4096;

/// What stayed in RAM when everything was to go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stayed {
    /// Pages that are pinned.
    pub pinned: u32,
    /// Pages that no device had room for, that a device or a system call held, or that were touched meanwhile.
    pub others: u32,
}

impl Core {
    /// Swaps everything out and gives the frames back to the kernel.
    pub(crate) fn page_out_all(&self) -> Stayed {
        // First: a thread that prefetches everything meanwhile has the last word.
        self.hibernated.store(true, Ordering::Relaxed);
        let batches = self.batches();
        let next = Lock::new(batches.iter());
        let work = || {
            let mut scratch = Box::new(Scratch::new());
            loop {
                let Some(batch) = next.lock().next() else { return };
                if !self.page_out_one(*batch, &mut scratch) {
                    return;
                }
            }
        };
        let helpers = self.readers().min(batches.len() as u32).saturating_sub(1);
        thread::helped("userswap-out", helpers, &work, || {
            let _blocked = Blocked::new();
            work();
        });
        self.release_written();
        // Compressed memory is memory.
        self.demote_all();
        for node in &self.nodes {
            self.release_free(node);
        }
        self.stayed()
    }

    /// Swaps one batch out; false when no device has room for more.
    fn page_out_one(&self, batch: PageRange, scratch: &mut Scratch) -> bool {
        let _inside = self.gate.enter();
        self.wait_for_owners(batch);
        // Pages of zeros and clean ones go also where there is no room.
        self.page_out_batch(batch, scratch) == 0
    }

    /// Waits for the writes that the reclaimer has under way, and frees the cached pages that they leave.
    fn release_written(&self) {
        let begun = clock::now_ns();
        let writing = || self.nodes.iter().any(|node| node.lock().writing > 0);
        loop {
            let _blocked = Blocked::new();
            let inside = self.gate.enter();
            let (freed, waits) = (self.shortage.freed.load(Ordering::Acquire), writing());
            drop(inside);
            // A busy program writes on and on.
            if !waits || clock::now_ns() - begun > PATIENCE_NS {
                break;
            }
            futex::wait_for(&self.shortage.freed, freed, WAIT_NS);
        }
        self.release_all_cached();
    }

    /// Frees the cached pages, of which the content is on their slots.
    pub(crate) fn release_all_cached(&self) {
        for range in self.look_ranges() {
            let _blocked = Blocked::new();
            let _inside = self.gate.enter();
            self.release_cached(range);
        }
    }

    fn batches(&self) -> Vec<PageRange> {
        let pieces = self.look_ranges().into_iter().flat_map(|range| {
            let firsts = (range.first..range.end()).step_by(BATCH);
            firsts.map(move |first| {
                let count = (BATCH as u32).min(range.end() - first);
                PageRange { first, count }
            })
        });
        pieces.collect()
    }

    /// Gives the memory of free frames back to the kernel: they become spare pages of the budget.
    fn release_free(&self, node: &Node) {
        while self.inside_gate(|| self.release_free_run(node)) {}
    }

    /// As [`Self::release_free`], one run; false when there is none.
    fn release_free_run(&self, node: &Node) -> bool {
        let mut state = node.lock();
        // No fault misses these frames meanwhile: only those above the low watermark are taken.
        let most = state.available().saturating_sub(state.watermarks.low).min(RELEASE_PAGES);
        // Not holes until the memory is gone: they could be filled in between.
        let Some(run) = state.take_free(most) else { return false };
        drop(state);
        self.release_memory(run);
        let mut state = node.lock();
        state.put_hole(run);
        state.on_released(run.count);
        drop(state);
        self.announce_freed();
        true
    }

    /// Counts what is in RAM at this moment, with what another thread brings in or looks at: a page is mapped, and may have been
    /// used, before its word says so.
    fn stayed(&self) -> Stayed {
        let mut stayed = Stayed::default();
        for range in self.look_ranges() {
            for page in range.first..range.end() {
                match self.pages.state(page) {
                    PageState::Resident { pins: 0, .. }
                    | PageState::Clean { .. }
                    | PageState::Filling { .. }
                    | PageState::Leaving { .. } => stayed.others += 1,
                    PageState::Resident { .. } => stayed.pinned += 1,
                    PageState::Untouched
                    | PageState::Cached { .. }
                    | PageState::Writing { .. }
                    | PageState::Swapped { .. }
                    | PageState::Lost => {}
                }
            }
        }
        stayed
    }

    /// Swaps everything in, device by device, as far as RAM has room.
    ///
    /// # Errors
    /// A device is being added or removed.
    pub(crate) fn prefetch_all(&self) -> Result<(), Error> {
        let _changing = self.change_devices_patiently()?;
        self.hibernated.store(false, Ordering::Relaxed);
        for device in self.devices.list_all() {
            if self.inside_gate(|| self.nodes.iter().all(|node| room_in_ram(node) == 0)) {
                break;
            }
            self.sweep(Task { device, goal: Goal::Fill }, &mut || Proceed::GoOn)?;
        }
        Ok(())
    }
}
