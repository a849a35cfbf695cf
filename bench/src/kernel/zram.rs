//! A new zram device: swap in compressed memory, as the rival of devices in memory.
//!
//! Made with what the kernel's administrator gets by default, but for the algorithm, which can be that of the other side.

use super::{KernelError, c_path, swapfile};
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use userswap::internals::bench::cleaner::Removal;

/// The field of `mm_stat` that says how much memory the pages have taken at most.
const USED_MAX: usize = 4;

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

/// Gives the device at `path` its algorithm and size, and has the kernel swap to it before any other.
pub(super) fn create(path: &Path, bytes: u64, algorithm: Option<&str>) -> io::Result<()> {
    if let Some(algorithm) = algorithm {
        let file = attribute(path, "comp_algorithm");
        // A kernel without it refuses here, or compresses with another.
        let refused = fs::write(&file, algorithm).is_err();
        let has = fs::read_to_string(&file)?;
        if refused || !has.contains(&format!("[{algorithm}]")) {
            let why = lacks(algorithm, &has).to_string();
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
    }
    fs::write(attribute(path, "disksize"), swapfile::with_header_bytes(bytes).to_string())?;
    let device = File::options().read(true).write(true).open(path)?;
    swapfile::switch_on(&device, path, bytes)
}

fn lacks(algorithm: &str, has: &str) -> KernelError {
    let has = names(has).collect::<Vec<_>>().join(", ");
    KernelError::Algorithm { algorithm: algorithm.to_owned(), has }
}

/// The algorithms that a device lists; the one in brackets is in force.
fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split_whitespace().map(|name| name.trim_matches(['[', ']']))
}

/// Refuses an algorithm that the kernel does not have, as far as a device that is there tells; a new one is asked again.
pub(super) fn check(algorithm: Option<&str>) -> Result<(), KernelError> {
    let has = fs::read_to_string("/sys/block/zram0/comp_algorithm");
    algorithm.zip(has.ok()).map_or(Ok(()), |(algorithm, has)| check_among(algorithm, &has))
}

fn check_among(algorithm: &str, has: &str) -> Result<(), KernelError> {
    match names(has).any(|name| name == algorithm) {
        true => Ok(()),
        false => Err(lacks(algorithm, has)),
    }
}

/// The most memory that the pages on the device at `path` have taken.
pub(super) fn bytes_max(path: &Path) -> Result<u64, KernelError> {
    let file = attribute(path, "mm_stat");
    let failed = |source| KernelError::Zram { path: file.clone(), source };
    let text = fs::read_to_string(&file).map_err(failed)?;
    let field = text.split_whitespace().nth(USED_MAX).and_then(|field| field.parse().ok());
    field.ok_or_else(|| failed(io::Error::other(format!("\"{}\" has too few fields", text.trim()))))
}

fn attribute(path: &Path, name: &str) -> PathBuf {
    Path::new("/sys/block").join(path.file_name().expect("a device has a name")).join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_algorithm_that_the_kernel_has_not_is_refused_with_those_it_has() {
        let has = "[lzo-rle] lzo lz4 \n";
        for algorithm in ["lzo-rle", "lz4"] {
            assert!(check_among(algorithm, has).is_ok(), "{algorithm}");
        }
        let refusal = check_among("zstd", has).unwrap_err().to_string();
        assert!(refusal.contains("lzo-rle, lzo, lz4, not zstd"), "{refusal}");
    }
}
