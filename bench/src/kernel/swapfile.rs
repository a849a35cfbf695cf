//! A fresh swap file: made, filled with real blocks, signed and switched on.

use super::{KernelError, c_path, open_directory};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use userswap::internals::PAGE_BYTES;
use userswap::internals::bench::swap;

/// Where mkswap(8) puts version, last page and number of bad pages: after the boot block.
const HEADER_OFFSET: usize = 1024;
/// The signature in the last bytes of the first page.
const SIGNATURE: &[u8] = b"SWAPSPACE2";
/// One write of zeros where the file system cannot reserve blocks.
const FILL_BYTES: usize = 1 << 20;
/// The largest priority that swapon takes.
const PRIORITY_MAX: u16 = 0x7fff;

/// Refuses a directory that does not exist or is in RAM.
pub(super) fn check_directory(path: &Path) -> Result<(), KernelError> {
    let unusable = |source| KernelError::Directory { path: path.to_owned(), source };
    let directory = open_directory(path).map_err(unusable)?;
    if swap::lives_in_ram(&directory).map_err(unusable)? {
        return Err(KernelError::InRam(path.to_owned()));
    }
    Ok(())
}

/// Where in `directory` the file `name` is going to be.
pub(super) fn path(directory: &Path, name: &str) -> Result<PathBuf, KernelError> {
    let unusable = |source| KernelError::Directory { path: directory.to_owned(), source };
    Ok(directory.canonicalize().map_err(unusable)?.join(format!("{name}.swap")))
}

/// Makes the file at `path` and has the kernel swap to it before any other. The caller's cleaner
/// removes what is there when this fails.
pub(super) fn create(path: &Path, bytes: u64) -> io::Result<()> {
    let file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)?;
    fill(&file, with_header_bytes(bytes))?;
    switch_on(&file, path, bytes)
}

/// What a swap file or device for so many bytes has in all: the first page is the header's.
pub(super) fn with_header_bytes(bytes: u64) -> u64 {
    let page = PAGE_BYTES as u64;
    (bytes.div_ceil(page) + 1) * page
}

/// Signs what is open as `file` for `bytes`, and has the kernel swap to it before any other.
pub(super) fn switch_on(file: &File, path: &Path, bytes: u64) -> io::Result<()> {
    let last_page = u32::try_from(with_header_bytes(bytes) / PAGE_BYTES as u64 - 1)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "more than 2^32 pages"))?;
    file.write_all_at(&header(last_page), 0)?;
    file.sync_all()?;
    let swaps = fs::read_to_string("/proc/swaps")?;
    swap::swapon(&c_path(path), priority_above(&swaps))
}

/// Gives the file blocks, which swapon demands of every byte.
fn fill(file: &File, bytes: u64) -> io::Result<()> {
    match swap::reserve(file, bytes) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
        other => return other,
    }
    let zeros = vec![0; FILL_BYTES];
    let mut offset = 0;
    while offset < bytes {
        let length = zeros.len().min(usize::try_from(bytes - offset).unwrap_or(usize::MAX));
        file.write_all_at(&zeros[..length], offset)?;
        offset += length as u64;
    }
    Ok(())
}

/// What mkswap(8) would write, without label and UUID.
fn header(last_page: u32) -> [u8; PAGE_BYTES] {
    let mut header = [0; PAGE_BYTES];
    header[HEADER_OFFSET..][..4].copy_from_slice(&1u32.to_ne_bytes());
    header[HEADER_OFFSET + 4..][..4].copy_from_slice(&last_page.to_ne_bytes());
    let signature = header.len() - SIGNATURE.len();
    header[signature..].copy_from_slice(SIGNATURE);
    header
}

/// A priority above those of a `/proc/swaps`.
fn priority_above(swaps: &str) -> u16 {
    let priorities = swaps.lines().skip(1).filter_map(|line| line.rsplit_once('\t'));
    let highest = priorities.filter_map(|(_, priority)| priority.trim().parse::<i32>().ok()).max();
    let above = highest.unwrap_or(0).saturating_add(1).max(1);
    u16::try_from(above).unwrap_or(PRIORITY_MAX).min(PRIORITY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_that_of_mkswap() {
        let header = header(99);
        assert_eq!(header.len(), 4096);
        assert_eq!(&header[4086..], b"SWAPSPACE2");
        assert_eq!(header[1024..1028], 1u32.to_ne_bytes());
        assert_eq!(header[1028..1032], 99u32.to_ne_bytes());
    }

    #[test]
    fn the_priority_is_above_all_others() {
        let head = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
        assert_eq!(priority_above(head), 1);
        let line = "/swap file                  \tfile\t\t1024\t\t0\t\t-2\n";
        assert_eq!(priority_above(&format!("{head}{line}")), 1);
        let line = "/dev/sda2                   partition\t1024\t\t0\t\t100\n";
        assert_eq!(priority_above(&format!("{head}{line}")), 101);
        let line = "/dev/sda2                   partition\t1024\t\t0\t\t32767\n";
        assert_eq!(priority_above(&format!("{head}{line}")), 32767);
    }

    #[test]
    fn a_directory_in_ram_or_none_at_all_is_refused_by_name() {
        let missing = check_directory(Path::new("/nonexistent/swap")).unwrap_err();
        assert!(missing.to_string().contains("/nonexistent/swap"), "{missing}");
        let file = check_directory(Path::new("/proc/self/status")).unwrap_err();
        assert!(matches!(file, KernelError::Directory { .. }), "{file}");
        let ram = check_directory(Path::new("/dev/shm"));
        assert!(matches!(ram, Err(KernelError::InRam(_))), "{ram:?}");
    }
}
