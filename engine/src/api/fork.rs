//! fork, for a program that calls it itself and for the preload library.
use crate::api::engine::Engine;
use crate::base::error::Error;
use crate::process::fork::ForkTicket;
use crate::sys::signal::Blocked;

impl Engine {
    /// Before fork, with signals blocked: stops the engine and hands its slots over.
    ///
    /// Until [`Engine::fork_parent`] or [`Engine::fork_child`] every fault on swapped memory waits. For
    /// pthread_atfork, whose other two handlers call those. In a process that was itself forked without them there is nothing to
    /// stop, and its child has none of the memory either.
    pub fn fork_prepare(&self) -> ForkTicket {
        if !self.core().own_process.is_here() {
            return ForkTicket::EMPTY;
        }
        // Before locks are held that mapping memory may want.
        self.keep_rings_to_process();
        self.running.heaps.hold();
        self.core().stop_for_fork()
    }

    /// Before a fork, if locks are taken before [`Self::fork_prepare`] without which no memory is mapped: does what it begins with.
    pub fn keep_rings_to_process(&self) {
        if !self.core().own_process.is_here() {
            return;
        }
        let _blocked = Blocked::new();
        self.core().threads.keep_rings_to_process();
    }

    /// After fork, in the parent, also when fork failed: goes on.
    pub fn fork_parent(&self, ticket: ForkTicket) {
        if ticket.is_empty() {
            return;
        }
        self.core().go_on_in_parent(ticket);
        self.running.heaps.release();
    }

    /// After fork, in the child: goes on with descriptors and threads of its own.
    ///
    /// # Errors
    /// The slots could not be handed over, or there is no device, userfaultfd or thread for the child: its memory is not complete
    /// then, and it must end.
    pub fn fork_child(&self, ticket: ForkTicket) -> Result<(), Error> {
        if ticket.is_empty() {
            return Ok(());
        }
        self.core().renew(ticket)?;
        self.renew_threads()?;
        self.core().gate.open();
        self.running.heaps.release();
        Ok(())
    }
}
