//! What this kernel, and the rights of this process, permit.
use crate::base::error::Error;
use crate::sys::uffd::{Rights, Uffd, feature};

/// What an engine of this process could use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Support {
    /// Faults that system calls take are served, with [`FaultMode::Thread`](crate::FaultMode); without it system calls
    /// on pages that are not in RAM fail with EFAULT.
    pub kernel_faults: bool,
    /// UFFDIO_MOVE (Linux 6.8): pages move instead of being copied.
    pub moving: bool,
    /// UFFDIO_POISON (Linux 6.6): touching a page whose content is lost is SIGBUS.
    pub poison: bool,
}

/// Asks the kernel what is permitted.
///
/// # Errors
/// [`Error::Userfaultfd`]: userfaultfd is not allowed at all, and no engine can be built.
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
