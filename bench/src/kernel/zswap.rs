//! The kernel's compressed memory in front of a swap file: zswap, switched on for a run, and afterwards as it was.
//!
//! All else about it is as the administrator left it: algorithm, share of RAM, shrinker.

use super::KernelError;
use std::fs;
use std::io;

/// Whether it is on.
pub(super) const ENABLED: &str = "/sys/module/zswap/parameters/enabled";

/// What [`ENABLED`] says, to be written there again.
pub(super) fn before() -> Result<Vec<u8>, KernelError> {
    fs::read(ENABLED).map_err(failed)
}

/// Has what the kernel swaps from now on go there first.
pub(super) fn switch_on() -> Result<(), KernelError> {
    fs::write(ENABLED, "Y").map_err(failed)?;
    match before()?.as_slice() {
        // A kernel that cannot make its pool says so in its log only.
        [b'N', ..] => Err(failed(io::Error::other("it stays off"))),
        _ => Ok(()),
    }
}

fn failed(source: io::Error) -> KernelError {
    KernelError::Zswap { path: ENABLED.into(), source }
}
