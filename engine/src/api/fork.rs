//! fork, as the preload library and users of the library call it.
use crate::api::engine::Engine;
use crate::base::error::Error;
use std::fs::File;

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
        crate::fault::sigbus::forget_readers();
        core.forget_changes();
        core.shrinkers.forget_scans();
        core.devices.replace_files(ticket.copies?).map_err(Error::Tables)?;
        core.renew_descriptors()?;
        core.arena.advise(libc::MADV_DONTFORK).map_err(Error::Tables)?;
        core.arena.release();
        self.renew_threads()?;
        core.gate.open();
        Ok(())
    }
}
