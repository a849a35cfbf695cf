//! fork: the child sees its memory exactly as it was.
//!
//! Before fork the gate is closed: no page is in transition and nothing is in flight, so the child's copy
//! of the tables is a snapshot. Swapped pages the child reads from the parent's slots, which it borrows
//! (`device::inherit`). In the child the same tables go on over new descriptors: a new userfaultfd and new events
//! are put under the old numbers. Its resident pages are the kernel's copy-on-write.
//!
//! The arena is MADV_DONTFORK all the rest of the time: a child made past these functions has no such
//! memory at all, and cannot read zeros where there was content.
use crate::base::counters::count;
use crate::base::error::Error;
use crate::base::log;
use crate::device::inherit::Estate;
use crate::device::record::{Device, DeviceState};
use crate::fault::sigbus;
use crate::job::member::Member;
use crate::state::core::{Core, Path};
use crate::state::page::PageState;
use crate::sys::fd;
use crate::sys::fd::Event;
use crate::sys::{own_stack, own_table};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

/// What a fork needs in the parent and in the child.
#[must_use = "the engine stands still until the fork is finished"]
pub struct ForkTicket {
    /// None where the process was itself forked without the engine.
    estate: Option<Result<Estate, Error>>,
}

impl ForkTicket {
    /// For a process without the engine.
    pub(crate) const EMPTY: Self = Self { estate: None };

    /// Whether there is nothing to be handed over.
    pub(crate) fn is_empty(&self) -> bool {
        self.estate.is_none()
    }
}

impl Core {
    /// Closes the gate, hands the slots in use over, and lets the child have the arena.
    pub(crate) fn stop_for_fork(&self) -> ForkTicket {
        self.gate.close();
        self.assert_quiet();
        self.member().into_iter().for_each(Member::hold);
        self.arena.hold();
        let estate = self.hand_over_devices();
        self.arena.advise(libc::MADV_DOFORK).expect("the arena is one range of ours");
        // Last: all of this needs them.
        self.arena.hold_foreign();
        self.threads.hold();
        ForkTicket { estate: Some(estate) }
    }

    fn hand_over_devices(&self) -> Result<Estate, Error> {
        // What waits in buffers is no page's.
        self.devices.drain();
        // Unless another thread is looking at devices outside the gate, or they are not this thread's to close.
        if !own_table::is_apart()
            && let Ok(_changing) = self.change_devices()
        {
            self.devices.let_go_of_empty()?;
        }
        let estate = self.devices.hand_over()?;
        count(&self.counters.fork_slots_copied, estate.copied);
        Ok(estate)
    }

    /// In the parent: takes back what [`Self::stop_for_fork`] did.
    pub(crate) fn go_on_in_parent(&self, ticket: ForkTicket) {
        self.threads.release();
        self.arena.release_foreign();
        drop(ticket);
        count(&self.counters.forks, 1);
        self.member().into_iter().for_each(Member::release);
        self.arena.advise(libc::MADV_DONTFORK).expect("the arena is one range of ours");
        self.arena.release();
        self.gate.open();
    }

    /// In the child: new files and descriptors. The gate stays closed until there are threads.
    ///
    /// # Errors
    /// Slots had to be copied and could not be, or there is no room for a device or descriptor.
    pub(crate) fn renew(&self, ticket: ForkTicket) -> Result<(), Error> {
        self.threads.release();
        self.arena.release_foreign();
        let estate = ticket.estate.expect("the parent had something to hand over");
        own_stack::renew();
        own_table::renew();
        sigbus::forget_readers();
        self.forget_changes();
        self.shrinkers.forget_scan();
        self.waits.forget();
        self.polling.renew();
        self.readers.renew();
        self.devices.take_over(estate?)?;
        self.shortage.devices_full.store(false, Ordering::Relaxed);
        self.renew_descriptors()?;
        if let Some(member) = self.member() {
            self.share_in_child(member);
        }
        self.arena.advise(libc::MADV_DONTFORK).map_err(Error::Tables)?;
        self.arena.release();
        self.distrust_all();
        self.own_process.adopt();
        Ok(())
    }

    /// The kernel does not pass write protections on to a child: its pages may be written to without a fault, and are
    /// clean no longer. The gate is closed, and there is one thread.
    fn distrust_all(&self) {
        if !self.clean_pages.is_any() {
            return;
        }
        for page in self.look_ranges().into_iter().flat_map(|range| range.first..range.end()) {
            let seen = self.pages.load(page);
            if let PageState::Clean { .. } = seen.state() {
                assert!(self.pages.distrust(page, seen), "no other thread changes page {page}");
            }
        }
        self.clean_pages.forget();
    }

    /// The thread that was adding or removing a device does so in the parent; here the device stays.
    fn forget_changes(&self) {
        self.changing_devices.store(false, Ordering::Release);
        self.devices.allowance.forget_bound();
        let leaving = |device: &&Device| device.store().lock().state == DeviceState::Leaving;
        self.devices.list().filter(leaving).for_each(|device| self.devices.swapoff_failed(device));
    }

    fn renew_descriptors(&self) -> Result<(), Error> {
        // A ring keeps the parent's devices open: their space would be taken for as long as the child runs.
        for fd in self.threads.take_inherited() {
            fd::close_inherited(fd);
        }
        std::mem::forget(std::mem::take(&mut *self.threads.rings.lock()));
        let events = self.nodes.iter().map(|node| &node.reclaim_wanted);
        let helpers = self.threads.helpers.iter().map(|helper| &helper.wanted);
        for event in events.chain(helpers).chain([&self.threads.server_wanted]) {
            let new = Event::new().map_err(Error::Tables)?;
            fd::replace(event.as_raw_fd(), new.as_raw_fd()).map_err(Error::Tables)?;
        }
        let before = self.uffd.rights();
        if self.uffd.renew().map_err(Error::Userfaultfd)? != before {
            log::user_faults_only();
            self.clean_pages.forbid();
        }
        self.clean_pages.renew();
        match self.own_memory.renew() {
            Err(error) if self.path == Path::Copy => return Err(Error::OwnMemory(error)),
            _ => {}
        }
        self.register().map_err(Error::Userfaultfd)?;
        self.drop_strangers();
        Ok(())
    }
}
