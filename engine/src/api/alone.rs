//! What the kernel permits only to a process of one thread, such as a user namespace of its own (unshare(2)).
use crate::api::engine::Engine;
use crate::base::error::Error;

impl Engine {
    /// Whether [`Engine::alone`] does anything: threads of a trace, of servers and of stores cannot end for a while.
    #[doc(hidden)]
    pub fn can_be_alone(&self) -> bool {
        self.core().own_process.is_here() && self.running.can_pause()
    }

    /// Ends the engine's threads in order, does something, and starts them again. None, and nothing is done, where
    /// [`Engine::can_be_alone`] says no.
    ///
    /// Meanwhile nobody serves faults by message: no other thread may touch managed memory, and `act` none that is not
    /// pinned. Signals are blocked.
    ///
    /// # Errors
    /// No threads are to be had afterwards: the memory is not served, and the process must end.
    #[doc(hidden)]
    pub fn alone<R>(&self, act: impl FnOnce() -> R) -> Result<Option<R>, Error> {
        if !self.can_be_alone() {
            return Ok(None);
        }
        self.running.pause();
        let outcome = act();
        self.running.resume()?;
        Ok(Some(outcome))
    }
}
