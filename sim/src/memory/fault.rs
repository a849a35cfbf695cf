//! IN: a program uses a page, and gets it.

use std::cell::Cell;

use userswap_policy::reclaim::{Next, Round};
use userswap_policy::watermark::Pressure;

use super::reclaim::BATCH;
use super::state::Content;
use super::{Frame, Memory, PageId, Slot, Word, count};
use crate::clock::{Class, Thread};
use crate::machine::IoError;

/// Times that a thread sleeps for a page before it is killed: a tenth of a second each.
const PATIENCE: u32 = 20;
const PATIENCE_NS: u64 = 2_000_000_000;

/// What a program does with a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Looks at it.
    Read,
    /// Changes it.
    Write,
}

/// How that ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It has the page, with these many writes in it.
    Done(u32),
    /// The page could not be read back.
    Lost,
    /// No page can be had: the program is killed.
    NoMemory,
}

impl Memory {
    /// A program's thread uses a page.
    pub async fn access(&self, thread: &Thread, page: PageId, access: Access) -> Outcome {
        thread.charge(Class::User, self.costs.touch.0);
        loop {
            let word = self.state.borrow().word(page);
            let result = match word {
                Word::Resident(frame) => return self.touch(thread, (page, frame), access),
                Word::Lost => return Outcome::Lost,
                Word::Untouched => self.first_touch(thread, page).await,
                Word::Swapped(slot, _) => self.swap_in(thread, page, slot, word).await,
                Word::Filling | Word::Leaving(_) | Word::Writing(..) | Word::Reading(_) => {
                    self.wait_for_page(thread, page).await;
                    Ok(())
                }
            };
            if let Err(outcome) = result {
                return outcome;
            }
        }
    }

    /// A page that nobody will use again gives up what it has; a busy one is waited for.
    pub async fn discard(&self, thread: &Thread, page: PageId) {
        loop {
            let word = self.state.borrow().word(page);
            match word {
                Word::Untouched => return,
                Word::Lost => return self.forget(page),
                Word::Resident(frame) => return self.drop_resident(page, frame),
                Word::Swapped(slot, _) => {
                    self.forget(page);
                    return self.swap.free(thread, slot).await;
                }
                _ => self.wait_for_page(thread, page).await,
            }
        }
    }

    fn drop_resident(&self, page: PageId, frame: Frame) {
        self.state.borrow_mut().nodes[usize::from(frame.node)].lists.remove(frame.index);
        self.forget(page);
        self.state.borrow_mut().free(frame);
        self.frame_waiters.wake_all(&self.sim);
    }

    fn forget(&self, page: PageId) {
        let mut state = self.state.borrow_mut();
        state.pages[page as usize].version = 0;
        state.publish(page, Word::Untouched);
    }

    async fn wait_for_page(&self, thread: &Thread, page: PageId) {
        thread.settle().await;
        // It may have ceased to be busy while the thread got its CPU.
        if self.state.borrow().word(page).is_busy() {
            thread.wait(self.waiters_of(page)).await;
        }
    }

    fn touch(&self, thread: &Thread, (page, frame): (PageId, Frame), access: Access) -> Outcome {
        let distance = thread.distance_to(frame.node.into());
        thread.charge(Class::User, self.costs.touch_more(distance));
        let mut state = self.state.borrow_mut();
        if access == Access::Write {
            let version = &mut state.pages[page as usize].version;
            *version += 1;
            let version = *version;
            *state.content(frame) = Some(Content { page, version });
        }
        Outcome::Done(state.content(frame).expect("a resident page has content").version)
    }

    async fn first_touch(&self, thread: &Thread, page: PageId) -> Result<(), Outcome> {
        self.state.borrow_mut().publish(page, Word::Filling);
        thread.charge(Class::System, self.costs.fault.0);
        count(&self.counts.first_touches, 1);
        let Some(frame) = self.frame(thread).await else {
            self.give_up(page, Word::Untouched);
            return Err(Outcome::NoMemory);
        };
        let distance = thread.distance_to(frame.node.into());
        thread.charge(Class::System, self.costs.fault_more(distance));
        thread.settle().await;
        self.map(page, frame, 0, Word::Untouched);
        Ok(())
    }

    async fn swap_in(
        &self,
        thread: &Thread,
        page: PageId,
        slot: Slot,
        before: Word,
    ) -> Result<(), Outcome> {
        self.state.borrow_mut().publish(page, Word::Reading(slot));
        thread.charge(Class::System, self.costs.swap_fault.0);
        let Some(frame) = self.frame(thread).await else {
            self.give_up(page, before);
            return Err(Outcome::NoMemory);
        };
        let store = self.swap.store(slot.device);
        thread.with(&store.index_lock, self.costs.index_hold.0, || ()).await;
        let Ok(content) = self.read(thread, slot).await else {
            self.lose(page, frame);
            self.swap.free(thread, slot).await;
            return Err(Outcome::Lost);
        };
        assert_eq!(content.page, page, "a slot gives back the page that was written to it");
        count(&self.counts.swapped_in, 1);
        thread.with(&store.index_lock, self.costs.index_hold.0, || ()).await;
        self.swap.free(thread, slot).await;
        self.map(page, frame, content.version, before);
        Ok(())
    }

    /// Reads a slot, once more if that fails.
    pub(super) async fn read(&self, thread: &Thread, slot: Slot) -> Result<Content, IoError> {
        let store = self.swap.store(slot.device);
        let mut result = store.drive.read(thread, 1).await;
        if result == Err(IoError::Once) {
            count(&self.counts.io_errors, 1);
            result = store.drive.read(thread, 1).await;
        }
        result.inspect_err(|_| count(&self.counts.io_errors, 1))?;
        let content = store.contents.borrow()[slot.index as usize];
        Ok(content.expect("a slot in use has content"))
    }

    pub(super) fn lose(&self, page: PageId, frame: Frame) {
        count(&self.counts.lost, 1);
        self.state.borrow_mut().free(frame);
        self.give_up(page, Word::Lost);
    }

    fn give_up(&self, page: PageId, word: Word) {
        self.state.borrow_mut().publish(page, word);
        self.wake_page(page);
    }

    /// A page that its owner has filled is its program's.
    pub(super) fn map(&self, page: PageId, frame: Frame, version: u32, before: Word) {
        let mut state = self.state.borrow_mut();
        *state.content(frame) = Some(Content { page, version });
        state.publish(page, Word::Resident(frame));
        state.list(page, frame, before);
        drop(state);
        self.wake_page(page);
    }

    /// A frame for a thread: of its own node if that has some to spare, of the nearest that has, or what it reclaims.
    async fn frame(&self, thread: &Thread) -> Option<Frame> {
        let patience = Cell::new(PATIENCE);
        loop {
            if let Some(frame) = self.take_frame(thread.node(), Pressure::Low) {
                return Some(frame);
            }
            if self.reclaim_directly(thread).await > 0 {
                continue;
            }
            // What is left below the minimum is for those that nothing else helps.
            if patience.get() < PATIENCE / 2
                && let Some(frame) = self.take_frame(thread.node(), Pressure::Min)
            {
                return Some(frame);
            }
            patience.set(patience.get().checked_sub(1)?);
            count(&self.counts.congested, 1);
            thread.wait_for(&self.frame_waiters, PATIENCE_NS / u64::from(PATIENCE)).await;
        }
    }

    /// A frame of the node nearest to `from` that is above its low mark, else, with all reclaimers woken, of one that is
    /// not worse off than `worst`.
    pub(super) fn take_frame(&self, from: u32, worst: Pressure) -> Option<Frame> {
        let mut state = self.state.borrow_mut();
        for node in self.nearest(from) {
            if state.nodes[usize::from(node)].pressure() < Pressure::Low {
                return state.take(node);
            }
        }
        for node in self.nearest(from) {
            self.wake_kswapd(&mut state, node);
        }
        let may = |node: &u16| state.nodes[usize::from(*node)].pressure() <= worst;
        let allowed: Vec<_> = self.nearest(from).filter(may).collect();
        allowed.into_iter().find_map(|node| state.take(node))
    }

    /// All nodes, the nearest first.
    fn nearest(&self, from: u32) -> impl Iterator<Item = u16> + '_ {
        self.cpus.distances().nearest(from).map(|node| node as u16)
    }

    /// Direct reclaim: some pages of any node, the nearest first; returns how many.
    async fn reclaim_directly(&self, thread: &Thread) -> u32 {
        let mut round = Round::direct();
        let home = thread.node();
        let mut total = 0;
        loop {
            let (mut scanned, mut reclaimed) = (0, 0);
            for node in self.nearest(home) {
                let most = round.scan(self.length(node), BATCH).min(BATCH);
                let pass = self.shrink(thread, node, most, None).await;
                scanned += pass.scanned;
                reclaimed += pass.reclaimed;
                if reclaimed >= BATCH {
                    break;
                }
            }
            total += reclaimed;
            count(&self.counts.direct, u64::from(reclaimed));
            if round.on_pass(scanned, reclaimed) != Next::Pass || (scanned == 0 && total == 0) {
                return total;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Machine, Source};
    use crate::memory::{Rules, Setup};

    /// Frames are taken of one node until it is low, then of the next: the order of the nodes.
    #[test]
    fn a_node_that_is_short_gets_frames_of_the_nearest_one_that_is_not() {
        let order = |distances: &str| {
            let machine: Machine = Source::new(
                "machine",
                &format!(
                    "nodes = 4\ncpus_per_node = 1\nmemory_per_node = \"1 MiB\"\n\
                     line_same_node = \"40 ns\"\nline_other_node = \"40 ns\"\n{distances}"
                ),
            )
            .read()
            .unwrap();
            machine.check().unwrap();
            let costs = include_str!("../../scenarios/stress-costs.toml");
            let costs = Source::new("costs", costs).read().unwrap();
            let setup = Setup { pages: 1, costs, rules: Rules::default(), seed: 1 };
            let memory = Memory::start(&machine, &[], setup);
            let take = || memory.take_frame(0, Pressure::Balanced);
            let mut nodes: Vec<u16> = std::iter::from_fn(take).map(|frame| frame.node).collect();
            nodes.dedup();
            nodes
        };
        assert_eq!(order(""), [0, 1, 2, 3]);
        let pairs =
            "distances = [[10, 40, 12, 30], [40, 10, 30, 12], [12, 30, 10, 40], [30, 12, 40, 10]]";
        assert_eq!(order(pairs), [0, 2, 3, 1]);
    }
}
