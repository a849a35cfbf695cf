//! swapon and swapoff while the program runs.
//!
//! Swapping off brings back, batch by batch, every page whose content is on the device: what is cached
//! first, the rest read in runs of slots. A page that the budget has room for stays in RAM; any other goes
//! to another device from its frame, without a detour through the program. The gate is passed for each
//! batch, so nobody waits for longer than that. The device is off the lists from the start; if it cannot
//! be emptied it comes back through the same code as a new one (and, as in the kernel, an automatic
//! priority is then the lowest).
use crate::arena::PageRange;
use crate::arrival::Arrival;
use crate::core::Core;
use crate::device::open;
use crate::device::record::{Device, DeviceState, number_of};
use crate::device::spec::SwapSpec;
use crate::error::Error;
use crate::node::{Asker, FrameSet, Node};
use crate::page::{PageIndex, PageState, Slot, Word};
use crate::reclaim::{Scratch, Victim};
use crate::sys::request::{Direction, Pieces};
use crate::sys::signal::Blocked;
use crate::sys::{PAGE_BYTES, futex};
use std::path::Path;
use std::sync::atomic::Ordering;
use userswap_policy::devices::DeviceId;
use userswap_policy::frames::FrameRun;

/// Pages brought back at a time: 1 MiB, what a disk likes best.
const BATCH: usize = crate::reclaim::BATCH;
/// Pages looked at between two passages of the gate.
const LOOK_PAGES: u32 = 1 << 13;
/// How long one wait for frames or for pages in transition lasts.
const WAIT_NS: u64 = 10_000_000;
/// How many waits without any progress mean that there is no room: two seconds.
const WAITS_MAX: u32 = 200;

/// How far a swapoff has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Slots still in use on the device.
    pub pages_left: u64,
    /// Slots that were in use at the start.
    pub pages_total: u64,
}

/// What a watcher of a swapoff wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proceed {
    /// On with it.
    GoOn,
    /// The device stays in use.
    Cancel,
}

/// A page to bring back: where it was found, and the slot it is on.
#[derive(Clone, Copy, Debug)]
struct Found {
    slot: Slot,
    page: PageIndex,
}

/// Nobody else changes the set of devices as long as this exists.
struct Changing<'a>(&'a Core);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.changing_devices.store(false, Ordering::Release);
    }
}

impl Core {
    /// Takes one more device into use while the program runs.
    ///
    /// # Errors
    /// The device cannot be used, or the set of devices is being changed; nothing is changed then.
    pub fn swap_on(&self, spec: &SwapSpec) -> Result<(), Error> {
        let _changing = self.change_devices()?;
        let budget: u64 = self.nodes.iter().map(|node| u64::from(node.lock().budget)).sum();
        let bytes = crate::engine::default_swap_bytes(budget * PAGE_BYTES as u64);
        let opened = open::open(spec, bytes)?;
        let added = self.inside_gate(|| self.devices.swap_on(opened, &self.topology));
        self.devices_full.store(false, Ordering::Relaxed);
        self.nodes.iter().for_each(|node| self.wake_reclaim(node));
        added.map(|_| ())
    }

    /// Brings everything on a device back or elsewhere and lets go of it. `watch` is told about progress
    /// between batches and may cancel.
    ///
    /// # Errors
    /// No such device, no room for its pages, cancelled: the device stays in use and nothing is lost.
    pub fn swap_off(
        &self,
        path: &Path,
        watch: &mut dyn FnMut(Progress) -> Proceed,
    ) -> Result<(), Error> {
        let _changing = self.change_devices()?;
        let device = self.find_device(path)?;
        self.check_room_without(device)?;
        self.inside_gate(|| self.devices.swap_off_begin(device))?;
        match self.bring_back(device, watch) {
            Ok(()) => {
                self.let_go(device);
                Ok(())
            }
            Err(error) => {
                self.inside_gate(|| self.devices.swap_off_failed(device));
                Err(error)
            }
        }
    }

    fn change_devices(&self) -> Result<Changing<'_>, Error> {
        match self.changing_devices.swap(true, Ordering::Acquire) {
            false => Ok(Changing(self)),
            true => Err(Error::DevicesChanging),
        }
    }

    /// A fork meanwhile would copy locks that nobody in the child gives back.
    fn inside_gate<R>(&self, act: impl FnOnce() -> R) -> R {
        let _blocked = Blocked::new();
        self.gate.enter();
        let result = act();
        self.gate.leave();
        result
    }

    fn find_device(&self, path: &Path) -> Result<&Device, Error> {
        let wanted = path.display().to_string();
        let real = path.canonicalize().ok().map(|path| path.display().to_string());
        let names = |device: &Device| device.label().map(|label| label.name.clone());
        let found = self.devices.list().find(|device| {
            names(device).is_some_and(|name| name == wanted || Some(&name) == real.as_ref())
        });
        found.ok_or_else(|| {
            let names: Vec<String> = self.devices.list().filter_map(names).collect();
            Error::NoSuchDevice(wanted, names.join(", "))
        })
    }

    /// Refuses at once what could not end well.
    fn check_room_without(&self, device: &Device) -> Result<(), Error> {
        let _blocked = Blocked::new();
        let mut pages = 0u64;
        for range in self.look_ranges() {
            self.gate.enter();
            let needs_room = |page: &PageIndex| match self.pages.state(*page) {
                PageState::Swapped { slot } => self.is_on(device, slot),
                _ => false,
            };
            pages += (range.first..range.end()).filter(needs_room).count() as u64;
            self.gate.leave();
        }
        let own = {
            let store = device.store().lock();
            match store.state {
                DeviceState::On => i64::from(store.slots.pages() - store.slots.used()),
                _ => 0,
            }
        };
        let elsewhere = (self.devices.room().0 - own).max(0) as u64;
        let in_ram: u64 = self.nodes.iter().map(room_in_ram).sum();
        if pages > elsewhere + in_ram {
            let name = device.label().map_or_else(String::new, |label| label.name.clone());
            return Err(Error::NoRoomToSwapOff(name, pages, elsewhere + in_ram));
        }
        Ok(())
    }

    fn is_on(&self, device: &Device, slot: Slot) -> bool {
        self.devices.device_of(slot).id() == device.id()
    }

    /// Everything mapped, in pieces that are looked at in one passage of the gate.
    fn look_ranges(&self) -> Vec<PageRange> {
        let whole = PageRange { first: 0, count: self.arena.pages() };
        let regions = self.arena.allocated(whole);
        let pieces = regions.into_iter().flat_map(|region| {
            (region.first..region.end())
                .step_by(LOOK_PAGES as usize)
                .map(move |first| PageRange { first, count: LOOK_PAGES.min(region.end() - first) })
        });
        pieces.collect()
    }

    /// Sweeps over all pages until the device holds nothing any more.
    fn bring_back(
        &self,
        device: &Device,
        watch: &mut dyn FnMut(Progress) -> Proceed,
    ) -> Result<(), Error> {
        let mut scratch = Box::new(Scratch::new());
        let pages_total = u64::from(device.used());
        let mut waits = 0;
        loop {
            let before = device.used();
            for range in self.look_ranges() {
                self.bring_range(device, range, &mut scratch)?;
                let progress = Progress { pages_left: u64::from(device.used()), pages_total };
                if watch(progress) == Proceed::Cancel {
                    return Err(Error::SwapOffCancelled);
                }
            }
            // Slots whose pages have gone may wait in a buffer of some CPU.
            self.inside_gate(|| self.devices.drain());
            match device.used() {
                0 => return Ok(()),
                // A page in transition, an unfinished write: its owner is quick.
                left if left == before => {
                    waits += 1;
                    futex::wait_for(&self.freed, self.freed.load(Ordering::Acquire), WAIT_NS);
                }
                _ => waits = 0,
            }
            if waits > WAITS_MAX {
                return Err(Error::SwapOffStuck(u64::from(device.used())));
            }
        }
    }

    /// Brings back what a range of pages has on the device.
    fn bring_range(
        &self,
        device: &Device,
        range: PageRange,
        scratch: &mut Scratch,
    ) -> Result<(), Error> {
        let blocked = Blocked::new();
        self.gate.enter();
        let mut found: Vec<Found> = Vec::new();
        scratch.count = 0;
        for page in range.first..range.end() {
            match self.pages.state(page) {
                PageState::Swapped { slot } if self.is_on(device, slot) => {
                    found.push(Found { slot, page });
                }
                PageState::Resident { slot: Some(slot), .. } if self.is_on(device, slot) => {
                    self.forget_slot(page, slot);
                }
                PageState::Cached { slot: Some(slot), .. } if self.is_on(device, slot) => {
                    self.bring_cached(page, slot, scratch);
                }
                _ => {}
            }
        }
        self.place_elsewhere(scratch);
        self.gate.leave();
        drop(blocked);
        // In the order of the device: neighbours on it are read together, wherever their pages are.
        found.sort_unstable_by_key(|found| found.slot);
        let mut from = 0;
        while from < found.len() {
            let run = run_length(&found[from..]);
            from += self.bring_run(&found[from..from + run], scratch)?;
        }
        Ok(())
    }

    /// A page in RAM gives its copy on the device up.
    fn forget_slot(&self, page: PageIndex, slot: Slot) {
        let seen = self.pages.load(page);
        if let PageState::Resident { slot: Some(held), pins, node } = seen.state()
            && held == slot
            && self.pages.claim(page, seen, PageState::Resident { slot: None, pins, node })
        {
            self.free_slot(slot);
        }
    }

    /// A page on its second chance: its frame is at hand, nothing has to be read.
    fn bring_cached(&self, page: PageIndex, slot: Slot, scratch: &mut Scratch) {
        let seen: Word = self.pages.load(page);
        let PageState::Cached { frame, slot: Some(held), .. } = seen.state() else { return };
        if held != slot || !self.uncache(page, seen, (frame, PageState::Filling { slot: None })) {
            return;
        }
        let node = self.node_of_frame(frame);
        let of_other = |victim: &Victim| !node.owns(victim.frame);
        if scratch.is_full() || scratch.victims().first().is_some_and(of_other) {
            self.place_elsewhere(scratch);
        }
        let checksum = self.devices.checksum(slot);
        scratch.add_held(Victim { page, slot: Some(slot), frame, checksum });
    }

    /// Reads one run of slots and finds each page a place; returns how many entries are done.
    fn bring_run(&self, run: &[Found], scratch: &mut Scratch) -> Result<usize, Error> {
        for _ in 0..WAITS_MAX {
            let _blocked = Blocked::new();
            self.gate.enter();
            let node = self.roomiest_node();
            let mut frames = FrameSet::new();
            self.fill_set(node, &mut frames, run.len() as u32, Asker::Readahead);
            if frames.pages() > 0 {
                let done = self.bring_into(node, run, frames, scratch);
                self.gate.leave();
                return Ok(done);
            }
            self.gate.leave();
            self.wake_reclaim(node);
            futex::wait_for(&self.freed, self.freed.load(Ordering::Acquire), WAIT_NS);
        }
        Err(Error::NoRoomInRam)
    }

    fn roomiest_node(&self) -> &Node {
        let roomiest = self.nodes.iter().max_by_key(|node| room_in_ram(node));
        roomiest.expect("an engine has a node")
    }

    fn bring_into(
        &self,
        node: &Node,
        run: &[Found],
        mut frames: FrameSet,
        scratch: &mut Scratch,
    ) -> usize {
        let most = (frames.pages() as usize).min(run.len());
        let claims = |found: &&Found| {
            let from = PageState::Swapped { slot: found.slot };
            self.pages.change(found.page, from, PageState::Filling { slot: Some(found.slot) })
        };
        let claimed = run[..most].iter().take_while(claims).count();
        self.put_rest(node, &mut frames, claimed as u32);
        // The page at which the run broke has changed: the next sweep sees what became of it.
        let done = if claimed < most { claimed + 1 } else { claimed };
        if claimed == 0 {
            return done;
        }
        let run = &run[..claimed];
        let mut pieces = Pieces::default();
        for part in frames.runs() {
            let (address, bytes) =
                (self.frame_address(part.first), part.count as usize * PAGE_BYTES);
            assert!(pieces.push(address, bytes), "a set has fewer runs than a request has pieces");
        }
        let first = run[0].slot;
        let read = self.devices.transfer(Direction::Read, first, &pieces, node.id).is_ok();
        crate::counters::count(&self.counters.pswpin, claimed as u64);
        scratch.count = 0;
        for (place, found) in run.iter().enumerate() {
            let frame = frames.run_at(place as u32, 1).first;
            if self.is_good_in(found.slot, frame, read) {
                let checksum = self.devices.checksum(found.slot);
                let (page, slot) = (found.page, Some(found.slot));
                scratch.add_held(Victim { page, slot, frame, checksum });
            } else {
                self.lose_in(found.page, found.slot, frame);
            }
        }
        self.place_elsewhere(scratch);
        done
    }

    fn put_rest(&self, node: &Node, frames: &mut FrameSet, used: u32) {
        if used < frames.pages() {
            let rest = frames.split_off(used);
            let mut state = node.lock();
            rest.runs().iter().for_each(|run| state.put_free(*run));
        }
    }

    /// Pages of one node, owned in Filling with their content in held frames: mapped while the node has room
    /// to spare, written to another device else. What no device takes is mapped. Then their old slots are
    /// free.
    fn place_elsewhere(&self, scratch: &mut Scratch) {
        let Some(first) = scratch.victims().first() else { return };
        let node = self.node_of_frame(first.frame);
        if room_in_ram(node) > 0 || self.devices.room().0 <= 0 {
            self.map_held(node, scratch.victims());
        } else {
            self.write_at_once(node, scratch);
        }
        scratch
            .victims()
            .iter()
            .filter_map(|victim| victim.slot)
            .for_each(|slot| self.free_slot(slot));
        scratch.count = 0;
    }

    /// Maps pages in runs, where both pages and frames follow each other.
    fn map_held(&self, node: &Node, victims: &[Victim]) {
        let follows =
            |one: &Victim, next: &Victim| next.page == one.page + 1 && next.frame == one.frame + 1;
        for run in victims.chunk_by(follows) {
            let range = PageRange { first: run[0].page, count: run.len() as u32 };
            self.map_in(node, range, FrameRun { first: run[0].frame, count: range.count });
            self.publish_resident(node, range, Arrival::Read, |_| None);
        }
    }

    /// The device is empty: behind the closed gate nobody can be looking at it.
    fn let_go(&self, device: &Device) {
        let _blocked = Blocked::new();
        self.gate.close();
        let file = self.devices.swap_off_done(device);
        self.gate.open();
        self.nodes.iter().for_each(|node| self.wake_reclaim(node));
        // A queue may keep the file open a moment longer, but it is not ours any more.
        if let Some(file) = &file {
            let _ = rustix::fs::flock(file, rustix::fs::FlockOperation::Unlock);
        }
        drop(file);
    }
}

/// Pages that a node can map without falling below its high watermark: what is cached gives way, but only
/// if it is on a device.
fn room_in_ram(node: &Node) -> u64 {
    let state = node.lock();
    u64::from((state.pool.free() + state.spare).saturating_sub(state.watermarks.high))
}

/// How many entries are consecutive slots, up to a batch.
fn run_length(found: &[Found]) -> usize {
    let follows = |pair: &&[Found]| number_of(pair[1].slot) == number_of(pair[0].slot) + 1;
    (1 + found.windows(2).take_while(follows).count()).min(BATCH)
}

impl crate::device::Devices {
    /// Takes a device off the lists.
    fn swap_off_begin(&self, device: &Device) -> Result<(), Error> {
        let mut store = device.store().lock();
        let begun = self.table().swap_off_begin(device.id());
        if begun.is_err() {
            return Err(Error::DevicesChanging);
        }
        if store.state == DeviceState::On {
            let (pages, used) = (i64::from(store.slots.pages()), i64::from(store.slots.used()));
            self.account(used - pages, -pages);
        }
        store.state = DeviceState::Leaving;
        drop(store);
        // No slot of the device can come into a buffer any more; what is in them goes back.
        self.bar_buffers();
        Ok(())
    }

    /// Puts a device back whose pages could not all be brought back.
    pub(crate) fn swap_off_failed(&self, device: &Device) {
        let mut store = device.store().lock();
        let mut table = self.table();
        table.swap_off_failed(device.id());
        if store.slots.is_full() {
            table.on_full(device.id());
        } else {
            table.on_not_full(device.id());
        }
        drop(table);
        store.state = DeviceState::On;
        let (pages, used) = (i64::from(store.slots.pages()), i64::from(store.slots.used()));
        self.account(pages - used, pages);
        drop(store);
        self.allow_buffers();
    }

    /// Forgets a device without pages; its file is closed by the caller.
    fn swap_off_done(&self, device: &Device) -> Option<std::fs::File> {
        let id: DeviceId = device.id();
        assert_eq!(device.used(), 0, "a device that is let go of holds no page");
        self.table().swap_off_done(id);
        let file = device.remove();
        if self.list().next().is_some() {
            self.allow_buffers();
        }
        self.changes.fetch_add(1, Ordering::Release);
        file
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{SlotSpan, slot_of};

    #[test]
    fn runs_end_where_slots_do_not_follow_and_at_a_batch() {
        let found = |numbers: &[u32]| -> Vec<Found> {
            let entry = |number| Found { slot: slot_of(DeviceId(1), number), page: 0 };
            numbers.iter().map(|number| entry(*number)).collect()
        };
        assert_eq!(run_length(&found(&[4])), 1);
        assert_eq!(run_length(&found(&[4, 5, 7, 8])), 2);
        assert_eq!(run_length(&found(&(1..600).collect::<Vec<_>>())), BATCH);
        let span = SlotSpan { first: slot_of(DeviceId(1), 4), count: 2 };
        assert_eq!(span.slots().map(number_of).collect::<Vec<_>>(), [4, 5]);
    }
}
