//! What this kernel, and the rights of this process, permit.
use crate::base::error::Error;
use crate::sys::alias::Alias;
use crate::sys::filters;
use crate::sys::scattered;
use crate::sys::uffd::{Rights, Uffd, Way, feature};
use crate::sys::uring::Ring;
use std::io;

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

/// What an engine uses of the kernel, each as it would be used here, for those who ask why.
#[derive(Debug)]
pub struct Means {
    /// How a userfaultfd is had.
    pub way: io::Result<Way>,
    /// Write-protect faults (Linux 5.7).
    pub protecting: bool,
    /// SIGBUS instead of a message, for faults by signal.
    pub signalling: bool,
    /// Devices are driven by io_uring.
    pub uring: io::Result<()>,
    /// Scattered pages are dropped by one call (Linux 6.16).
    pub scattered: bool,
    /// Scattered pages leave by the block.
    pub blocks: io::Result<()>,
}

/// Tries each.
pub fn means() -> Means {
    let way = Uffd::way();
    let rights = match way {
        Ok(Way::Call | Way::Device) => Rights::Kernel,
        Ok(Way::UserOnly) | Err(_) => Rights::UserOnly,
    };
    let features = Uffd::features_of(rights).unwrap_or(0);
    Means {
        way,
        protecting: features & feature::WRITEPROTECT != 0,
        signalling: features & feature::SIGBUS != 0,
        uring: Ring::new(1).map(drop),
        scattered: scattered::is_supported(),
        blocks: Alias::new(filters::tried()).map(drop),
    }
}
