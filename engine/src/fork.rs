//! fork: the child sees its memory exactly as it was.
//!
//! Before fork the gate is closed: no page is in transition and nothing is in flight, so the child's copy
//! of the books is a snapshot. What is swapped the child finds in a copy of the slots, made before the
//! fork. In the child the same books go on over new descriptors: a new userfaultfd, copied devices and new
//! events are put under the old numbers. Its resident pages are the kernel's copy-on-write.
//!
//! The arena is MADV_DONTFORK all the rest of the time: a child made past these functions has no such
//! memory at all, and cannot read zeros where there was content.
use crate::core::Core;
use crate::device::record::{Device, DeviceState};
use crate::engine::Engine;
use crate::error::Error;
use crate::sys::fd::{self, Event};
use crate::sys::uffd::Uffd;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

/// What a fork needs in the parent and in the child.
#[must_use = "the engine stands still until the fork is finished"]
pub struct ForkTicket {
    copies: Result<Vec<File>, Error>,
}

impl Engine {
    /// Before fork, with signals blocked: stops the engine and copies what is swapped.
    pub fn fork_prepare(&self) -> ForkTicket {
        let core = self.core();
        core.gate.close();
        core.assert_quiet();
        core.arena.hold();
        let copies = core.devices.copy_files();
        core.arena.advise(libc::MADV_DOFORK).expect("the arena is one range of ours");
        ForkTicket { copies }
    }

    /// After fork, in the parent, also when fork failed: goes on.
    pub fn fork_parent(&self, ticket: ForkTicket) {
        let core = self.core();
        drop(ticket);
        core.arena.advise(libc::MADV_DONTFORK).expect("the arena is one range of ours");
        core.arena.release();
        core.gate.open();
    }

    /// After fork, in the child: goes on with descriptors and threads of its own.
    ///
    /// # Errors
    /// The slots could not be copied, or no userfaultfd or thread is to be had: the child's memory is not
    /// complete then, and it must end.
    pub fn fork_child(&self, ticket: ForkTicket) -> Result<(), Error> {
        let core = self.core();
        crate::delivery::forget_readers();
        core.forget_changes();
        core.shrinkers.forget_scans();
        core.devices.replace_files(ticket.copies?).map_err(Error::Books)?;
        core.renew_descriptors()?;
        core.arena.advise(libc::MADV_DONTFORK).map_err(Error::Books)?;
        core.arena.release();
        self.renew_threads()?;
        core.gate.open();
        Ok(())
    }
}

impl Core {
    /// Whoever was adding or removing a device does so in the parent; here the device stays.
    fn forget_changes(&self) {
        self.changing_devices.store(false, Ordering::Release);
        let leaving = |device: &&Device| device.store().lock().state == DeviceState::Leaving;
        self.devices.list().filter(leaving).for_each(|device| self.devices.swap_off_failed(device));
    }

    fn renew_descriptors(&self) -> Result<(), Error> {
        // A ring keeps the parent's devices open: their space would be taken for as long as the child runs.
        for fd in self.queue_fds.lock().drain(..) {
            fd::close_inherited(fd);
        }
        let events = self.nodes.iter().map(|node| &node.reclaim_wanted);
        for event in events.chain([&self.server_wanted]) {
            let new = Event::new().map_err(Error::Books)?;
            fd::replace(event.as_raw_fd(), new.as_raw_fd()).map_err(Error::Books)?;
        }
        let new: Uffd = self.uffd.another().map_err(Error::Userfaultfd)?;
        fd::replace(self.uffd.as_raw_fd(), new.as_raw_fd()).map_err(Error::Books)?;
        self.register().map_err(Error::Userfaultfd)
    }
}
