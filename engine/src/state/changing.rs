//! Who changes the set of devices: one thread at a time, and others are told so.
use crate::base::error::Error;
use crate::state::core::Core;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

/// The right to change the set of devices; there is one at a time.
pub(crate) struct Changing<'a>(&'a Core);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.changing_devices.store(false, Ordering::Release);
    }
}

/// How long somebody who asks for it waits for it: a fork, or a device that the engine adds for itself, is soon over.
const PATIENCE: Duration = Duration::from_millis(100);
/// Before the next look.
const PAUSE: Duration = Duration::from_millis(1);

impl Core {
    /// As [`Self::change_devices`], for who asks from outside: another's change that is soon over is waited for. Not inside the
    /// gate, where a fork would wait for it.
    ///
    /// # Errors
    /// The same.
    pub(crate) fn change_devices_patiently(&self) -> Result<Changing<'_>, Error> {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.change_devices() {
                Err(Error::DevicesChanging) if Instant::now() < until => thread::sleep(PAUSE),
                outcome => return outcome,
            }
        }
    }

    /// Takes the right to change the set of devices.
    ///
    /// # Errors
    /// Another thread has it, or this process has none of the devices.
    pub(crate) fn change_devices(&self) -> Result<Changing<'_>, Error> {
        self.check_here()?;
        match self.changing_devices.swap(true, Ordering::Acquire) {
            false => Ok(Changing(self)),
            true => Err(Error::DevicesChanging),
        }
    }
}
