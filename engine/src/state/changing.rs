//! Who changes the set of devices: one thread at a time, and others are told so.
use crate::base::error::Error;
use crate::state::core::Core;
use std::sync::atomic::Ordering;

/// The right to change the set of devices; there is one at a time.
pub(crate) struct Changing<'a>(&'a Core);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.changing_devices.store(false, Ordering::Release);
    }
}

impl Core {
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
