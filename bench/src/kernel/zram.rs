//! A new zram device: swap in compressed memory, as the rival of devices in memory.
//!
//! Made with what the kernel's administrator gets by default: its compression, no write-back.

use super::{KernelError, c_path, swapfile};
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use userswap::internals::bench::cleaner::Removal;

/// Reading it makes a device and tells its number.
const ADD: &str = "/sys/class/zram-control/hot_add";
/// A number written to it removes that device.
const REMOVE: &str = "/sys/class/zram-control/hot_remove";

/// Makes a device that has no size yet: its path, and how it goes.
pub(super) fn add() -> Result<(PathBuf, Removal), KernelError> {
    let number =
        fs::read_to_string(ADD).map_err(|source| KernelError::Zram { path: ADD.into(), source })?;
    let number = number.trim();
    let removal = Removal::Write {
        file: c_path(Path::new(REMOVE)),
        number: CString::new(number).expect("a number has no NUL"),
    };
    Ok((PathBuf::from(format!("/dev/zram{number}")), removal))
}

/// Gives the device at `path` its size, and has the kernel swap to it before any other.
pub(super) fn create(path: &Path, bytes: u64) -> io::Result<()> {
    let name = path.file_name().expect("a device has a name");
    let size = Path::new("/sys/block").join(name).join("disksize");
    fs::write(size, swapfile::with_header_bytes(bytes).to_string())?;
    let device = File::options().read(true).write(true).open(path)?;
    swapfile::switch_on(&device, path, bytes)
}
