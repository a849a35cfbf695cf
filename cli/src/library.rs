//! The shared object that this binary carries, put where the dynamic linker can find it.
//!
//! It is written to a directory that only this user can change, under a name made of its content: two
//! versions do not disturb each other, and a program keeps the one it started with. The directory
//! must allow execution, or the dynamic linker would go on without the library after a warning.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, statvfs};
use userswap::internals::directory;

use crate::failure::Failure;

/// The shared object, as `build.rs` has built it.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libuserswap_preload.so"));

/// Its file name, which changes with its content.
const LIBRARY_NAME: &str = concat!("libuserswap-", env!("USERSWAP_PRELOAD_HASH"), ".so");

/// Writes the shared object, unless it is there already, and returns its path.
///
/// # Errors
/// No directory is private, writable and executable.
pub fn install() -> Result<PathBuf, Failure> {
    let path = private_directory()?.join(LIBRARY_NAME);
    if fs::read(&path).is_ok_and(|found| found == LIBRARY) {
        return Ok(path);
    }
    write(&path, LIBRARY).map_err(|error| {
        let path = path.display();
        Failure::unavailable(format!("cannot write {path}: {error}; make room or set TMPDIR"))
    })?;
    Ok(path)
}

/// A directory that only this user can enter, on a file system that allows execution.
///
/// # Errors
/// None of the usual directories will do.
pub fn private_directory() -> Result<PathBuf, Failure> {
    let mut reasons = Vec::new();
    for candidate in directory::candidates_here() {
        match check(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(error) => reasons.push(format!("{}: {error}", candidate.display())),
        }
    }
    Err(Failure::unavailable(format!(
        "no private directory for the injected library ({}); set TMPDIR to a directory of yours that \
         allows execution",
        reasons.join("; ")
    )))
}

fn check(directory: &Path) -> Result<(), String> {
    // Both separate the names in LD_PRELOAD.
    if directory.to_string_lossy().contains([' ', ':']) {
        return Err("its name contains a space or a colon".to_owned());
    }
    directory::make_private(directory)?;
    let mount = statvfs(directory).map_err(|error| error.to_string())?;
    if mount.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return Err("is on a file system that forbids execution".to_owned());
    }
    Ok(())
}

/// Writes beside the final name and renames, so that no program ever loads half a library.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    // Left by a process of the same number that died; in a private directory it is ours.
    let _ = fs::remove_file(&temporary);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o700)
        .open(&temporary)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // The first error says more than a second one.
        let _ = fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_the_linker_cannot_be_told_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        assert_eq!(check(&parent.path().join("mine")), Ok(()));
        assert!(check(&parent.path().join("a b")).unwrap_err().contains("space"));
        assert!(!parent.path().join("a b").exists());
        assert!(check(&parent.path().join("no/such")).is_err());
    }

    #[test]
    fn a_library_is_replaced_as_a_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lib.so");
        write(&path, b"one").unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
