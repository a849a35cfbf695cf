//! The shared object that this binary carries, put where the dynamic linker can find it.
//!
//! It is written to a directory that only this user can change, under a name made of its content: two
//! versions do not disturb each other, and a program keeps the one it started with. The directory
//! must allow execution, or the dynamic linker would go on without the library after a warning.

use std::env;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, statvfs};

use crate::failure::Failure;

/// The shared object.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libuserswap_preload.so"));

/// Its file name.
const LIBRARY_NAME: &str = concat!("libuserswap-", env!("USERSWAP_PRELOAD_HASH"), ".so");

/// Puts the shared object in place, unless it is there already, and returns its path.
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
/// None of the usual places will do.
pub fn private_directory() -> Result<PathBuf, Failure> {
    let mut reasons = Vec::new();
    for candidate in candidates() {
        match make_private(&candidate) {
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

fn candidates() -> Vec<PathBuf> {
    let of_user = format!("userswap-{}", rustix::process::geteuid().as_raw());
    let set = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let temporary = set("TMPDIR").unwrap_or_else(|| "/tmp".into());
    set("XDG_RUNTIME_DIR")
        .map(|directory| directory.join("userswap"))
        .into_iter()
        .chain([Path::new("/run").join(&of_user), temporary.join(&of_user)])
        .chain([Path::new("/var/tmp").join(&of_user)])
        .collect()
}

fn make_private(directory: &Path) -> Result<(), String> {
    // Both separate the names in LD_PRELOAD.
    if directory.to_string_lossy().contains([' ', ':']) {
        return Err("its name contains a space or a colon".to_owned());
    }
    match DirBuilder::new().mode(0o700).create(directory) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error.to_string()),
    }
    let found = fs::symlink_metadata(directory).map_err(|error| error.to_string())?;
    if !found.is_dir() {
        return Err("is not a directory".to_owned());
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err("belongs to somebody else".to_owned());
    }
    if found.mode() & 0o077 != 0 {
        return Err(format!("is open to others (mode {:04o})", found.mode() & 0o777));
    }
    let mount = statvfs(directory).map_err(|error| error.to_string())?;
    if mount.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return Err("is on a file system that forbids execution".to_owned());
    }
    Ok(())
}

/// Writes beside the final name and renames, so that nobody ever loads half a library.
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
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_directory_is_made_private_and_one_that_is_not_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let mine = parent.path().join("mine");
        assert_eq!(make_private(&mine), Ok(()));
        assert_eq!(fs::metadata(&mine).unwrap().mode() & 0o777, 0o700);
        assert_eq!(make_private(&mine), Ok(()), "and used again");
        fs::set_permissions(&mine, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(make_private(&mine).unwrap_err().contains("open to others"));
        let link = parent.path().join("link");
        symlink(parent.path(), &link).unwrap();
        assert!(make_private(&link).unwrap_err().contains("not a directory"));
        assert!(make_private(&parent.path().join("a b")).unwrap_err().contains("space"));
        assert!(make_private(&parent.path().join("no/such")).is_err());
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
