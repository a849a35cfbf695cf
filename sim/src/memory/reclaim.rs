//! OUT: pages leave.

use userswap_policy::lru::ListId;
use userswap_policy::reclaim::{Next, Round};
use userswap_policy::watermark::Pressure;

use super::removal::Victim;
use super::state::{Content, State};
use super::{Frame, Memory, PageId, Slot, Word, count};
use crate::clock::{Class, Thread, Woken};
use crate::machine::IoError;

/// Pages that are looked at together: the kernel's SWAP_CLUSTER_MAX.
pub const BATCH: u32 = 32;
/// A reclaimer that was done sleeps lightly for so long first.
const LIGHT_SLEEP_NS: u64 = 100_000_000;

#[cfg(test)]
thread_local! {
    /// A defect, for a test of what looks for defects: a write that failed counts as done.
    pub static BELIEVES_EVERY_WRITE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// What a pass came to.
#[derive(Clone, Copy, Default, Debug)]
pub struct Pass {
    pub scanned: u32,
    pub reclaimed: u32,
}

impl Memory {
    pub(super) fn wake_kswapd(&self, state: &mut State, node: u16) {
        let of = &mut state.nodes[usize::from(node)];
        if of.pressure() >= Pressure::Low && !of.health.is_hopeless() {
            of.is_woken = true;
            self.kswapd[usize::from(node)].wake_all(&self.sim);
        }
        if of.pressure() == Pressure::Balanced {
            self.release_claim(node);
        }
    }

    /// A node's reclaimer.
    pub(super) async fn kswapd(&self, node: u16) {
        let thread = self.system_thread(node.into());
        loop {
            if !std::mem::take(&mut self.state.borrow_mut().nodes[usize::from(node)].is_woken) {
                let waiters = &self.kswapd[usize::from(node)];
                if thread.wait_for(waiters, LIGHT_SLEEP_NS).await == Woken::TimedOut {
                    thread.wait(waiters).await;
                }
            }
            self.balance(&thread, node).await;
        }
    }

    /// Reclaims until the node is above its high mark, or nothing helps.
    async fn balance(&self, thread: &Thread, node: u16) {
        let mut round = Round::background(self.state.borrow().nodes[usize::from(node)].marks.high);
        while !self.is_balanced(node) {
            let mut pass = Pass::default();
            let mut left = round.scan(self.length(node), BATCH);
            while left > 0 && !self.is_balanced(node) {
                let batch = self.shrink(thread, node, left.min(BATCH), Some(node)).await;
                pass.scanned += batch.scanned;
                pass.reclaimed += batch.reclaimed;
                left = if batch.scanned == 0 { 0 } else { left.saturating_sub(batch.scanned) };
            }
            thread.settle().await;
            match round.on_pass(pass.scanned, pass.reclaimed) {
                Next::Pass => {}
                Next::Over => break,
                Next::Failed => {
                    self.state.borrow_mut().nodes[usize::from(node)].health.on_failure();
                    break;
                }
            }
        }
        self.release_claim(node);
    }

    /// Whether a node's reclaimer may stop; if so its claim to contend has ended.
    fn is_balanced(&self, node: u16) -> bool {
        let is = self.state.borrow().nodes[usize::from(node)].pressure() == Pressure::Balanced;
        if is {
            self.release_claim(node);
        }
        is
    }

    pub(super) fn length(&self, node: u16) -> u32 {
        let lists = &self.state.borrow().nodes[usize::from(node)].lists;
        lists.len(ListId::Inactive) + lists.len(ListId::Active)
    }

    /// Sends up to `most` of a node's pages out; `background` says whose reclaimer does so.
    pub(super) async fn shrink(
        &self,
        thread: &Thread,
        node: u16,
        most: u32,
        background: Option<u16>,
    ) -> Pass {
        if !self.swap.has_room() {
            return Pass::default();
        }
        let lock = &self.list_locks[usize::from(node)];
        let hold = u64::from(most) * 20;
        let isolated =
            thread.with(lock, hold, || self.state.borrow_mut().isolate(node, most)).await;
        let scanned = isolated.len() as u32;
        thread.charge(Class::System, u64::from(scanned) * self.costs.unmap.0);
        let victims = self.write_all(thread, isolated).await;
        let reclaimed = self.remove(thread, victims, background).await;
        if reclaimed > 0 {
            self.frame_waiters.wake_all(&self.sim);
        }
        count(&self.counts.swapped_out, u64::from(reclaimed));
        Pass { scanned, reclaimed }
    }

    /// Writes pages to slots; what could not be written has gone back.
    async fn write_all(&self, thread: &Thread, pages: Vec<(PageId, Frame)>) -> Vec<Victim> {
        let mut victims = Vec::with_capacity(pages.len());
        for (page, frame) in pages {
            let Some(slot) = self.swap.allocate(thread).await else {
                self.stay(page, frame);
                continue;
            };
            self.state.borrow_mut().publish(page, Word::Writing(frame, slot));
            match self.write(thread, frame, slot).await {
                Ok(()) => victims.push(Victim { page, frame, slot }),
                Err(error) => {
                    self.swap.on_write_error(slot, error);
                    self.stay(page, frame);
                }
            }
        }
        victims
    }

    /// Writes a page, once more if that fails; the index is told before and after.
    async fn write(&self, thread: &Thread, frame: Frame, slot: Slot) -> Result<(), IoError> {
        let store = self.swap.store(slot.device);
        for _ in 0..self.costs.index_per_write.get() {
            thread.with(&store.index_lock, self.costs.index_hold.0, || ()).await;
        }
        let mut result = store.drive.write(thread, 1).await;
        if result == Err(IoError::Once) {
            count(&self.counts.io_errors, 1);
            result = store.drive.write(thread, 1).await;
        }
        #[cfg(test)]
        if result.is_err() && BELIEVES_EVERY_WRITE.get() {
            return Ok(());
        }
        result.inspect_err(|_| count(&self.counts.io_errors, 1))?;
        let content: Option<Content> = *self.state.borrow_mut().content(frame);
        store.contents.borrow_mut()[slot.index as usize] = content;
        Ok(())
    }

    fn stay(&self, page: PageId, frame: Frame) {
        self.state.borrow_mut().put_back(page, frame);
        self.wake_page(page);
    }
}
