//! What this kernel and this process's rights permit.
use crate::base::error::Error;
use crate::sys::uffd::{Rights, Uffd, feature};

/// What can be had here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Support {
    /// System calls on swapped pages are served by the kernel's messages; without it the preload library
    /// repeats them.
    pub kernel_faults: bool,
    /// UFFDIO_MOVE (Linux 6.8).
    pub moving: bool,
    /// UFFDIO_POISON (Linux 6.6).
    pub poison: bool,
}

/// Asks the kernel.
///
/// # Errors
/// userfaultfd is not allowed at all.
pub fn probe() -> Result<Support, Error> {
    let kernel_faults = Uffd::features_of(Rights::Kernel).is_ok();
    let rights = if kernel_faults { Rights::Kernel } else { Rights::UserOnly };
    let features = Uffd::features_of(rights).map_err(Error::Userfaultfd)?;
    Ok(Support {
        kernel_faults,
        moving: features & feature::MOVE != 0,
        poison: features & feature::POISON != 0,
    })
}
