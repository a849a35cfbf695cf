//! The shared object that this binary carries, put where the dynamic linker can find it.
//!
//! It is written to a directory that only this user can change and every user can read, as a program's children
//! may become others, under a name made of its content: two versions do not disturb each other, and a program
//! keeps the one it started with. The directory must allow execution, or the dynamic linker would go on without
//! the library after a warning.

use std::env;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{StatVfsMountFlags, statvfs};
use userswap::internals::directories::names;
use userswap::internals::directory;

use crate::failure::Failure;

/// The shared object, as `build.rs` has built it.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libuserswap_preload.so"));

/// What its name begins with, whatever the build.
const LIBRARY_PREFIX: &str = "libuserswap-";
/// Its file name, which changes with its content.
const LIBRARY_NAME: &str = concat!("libuserswap-", env!("USERSWAP_PRELOAD_HASH"), ".so");

/// Writes the shared object, unless it is there already, and returns its path.
///
/// # Errors
/// No directory is this user's, writable and executable.
pub fn install() -> Result<PathBuf, Failure> {
    let public = |directory: &Path| directory.with_file_name(public_name(directory));
    let candidates = match directory::user() {
        // Only root's children become others, and XDG_RUNTIME_DIR lets none of those in.
        0 => directory::candidates(0, |name| env::var_os(name).filter(|_| name == "TMPDIR")),
        _ => directory::candidates_here(),
    };
    let will_do = |directory: &Path| check(&public(directory), directory::make_public);
    let path = public(&first_that(candidates, will_do)?).join(LIBRARY_NAME);
    if is_content(&path, LIBRARY).unwrap_or(false) {
        // So that no other build takes it for one that is not wanted any more; where that fails it is as old as it is.
        let _ = fs::File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        return Ok(path);
    }
    write(&path, LIBRARY).map_err(|error| {
        let path = path.display();
        Failure::unavailable(format!("cannot write {path}: {error}; make room or set TMPDIR"))
    })?;
    remove_older(&path, KEPT_FOR);
    Ok(path)
}

/// A library of another build stays for so long, a month, and after that as long as a process has it.
const KEPT_FOR: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Removes older libraries beside a new one, and what killed processes have left of some, unless a process has one mapped or
/// would hand it to its children. An error means that another start was faster.
fn remove_older(new: &Path, kept_for: Duration) {
    let is_ours = |name: &str| name.starts_with(LIBRARY_PREFIX);
    let is_old = |path: &Path| {
        let changed = fs::symlink_metadata(path).and_then(|there| there.modified());
        changed.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > kept_for))
    };
    let beside = new.parent().and_then(|directory| names(directory, usize::MAX).ok());
    let paths = beside.into_iter().flatten().filter(|name| name.to_str().is_some_and(is_ours));
    let paths = paths.map(|name| new.with_file_name(name));
    let mut old: Vec<PathBuf> = paths.filter(|path| path != new && is_old(path)).collect();
    if old.is_empty() {
        return;
    }
    for process in names(Path::new("/proc"), usize::MAX).unwrap_or_default() {
        let process = Path::new("/proc").join(process);
        // Not a process, or one that lets nobody look: a month is for those.
        let told = ["maps", "environ"].map(|file| fs::read(process.join(file)).unwrap_or_default());
        old.retain(|path| !told.iter().any(|text| is_named(path, text)));
    }
    old.iter().for_each(|path| drop(fs::remove_file(path)));
}

/// By the last part of the name: links may lead to the directory.
fn is_named(path: &Path, text: &[u8]) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    text.windows(name.len()).any(|found| found == name)
}

/// A directory that only this user can enter, on a file system that allows execution.
///
/// # Errors
/// None of the usual directories will do.
pub fn private_directory() -> Result<PathBuf, Failure> {
    first_that(directory::candidates_here(), |directory| check(directory, directory::make_private))
}

/// The name of the directory beside a private one that others may read.
fn public_name(directory: &Path) -> OsString {
    let mut name = directory.file_name().unwrap_or_default().to_owned();
    name.push("-lib");
    name
}

fn first_that(
    candidates: Vec<PathBuf>,
    will_do: impl Fn(&Path) -> Result<(), String>,
) -> Result<PathBuf, Failure> {
    let mut reasons = Vec::new();
    for candidate in candidates {
        match will_do(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(error) => reasons.push(format!("{}: {error}", candidate.display())),
        }
    }
    Err(Failure::unavailable(format!(
        "no directory for the injected library ({}); set TMPDIR to a directory of yours that \
         allows execution",
        reasons.join("; ")
    )))
}

fn check(directory: &Path, make: fn(&Path) -> Result<(), String>) -> Result<(), String> {
    // Both separate the names in LD_PRELOAD.
    if directory.to_string_lossy().contains([' ', ':']) {
        return Err("its name contains a space or a colon".to_owned());
    }
    make(directory)?;
    let mount = statvfs(directory).map_err(|error| error.to_string())?;
    if mount.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return Err("is on a file system that forbids execution".to_owned());
    }
    Ok(())
}

/// Whether a file has these bytes and no others. Part by part: memory for all of it would take longer than to compare it.
fn is_content(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    const PART: usize = 64 << 10;
    let mut file = fs::File::open(path)?;
    if file.metadata()?.len() != bytes.len() as u64 {
        return Ok(false);
    }
    let mut part = vec![0; PART];
    for expected in bytes.chunks(PART) {
        let found = &mut part[..expected.len()];
        file.read_exact(found)?;
        if found != expected {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Writes beside the final name and renames, so that no program ever loads half a library.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    // Left by a process of the same number that died; in a private directory it is ours.
    let _ = fs::remove_file(&temporary);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&temporary)
        .and_then(|mut file| {
            // Whatever the umask is.
            file.set_permissions(fs::Permissions::from_mode(0o755))?;
            file.write_all(bytes)
        })
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
        let check = |name: &str| check(&parent.path().join(name), directory::make_public);
        assert_eq!(check("mine"), Ok(()));
        assert!(check("a b").unwrap_err().contains("space"));
        assert!(!parent.path().join("a b").exists());
        assert!(check("no/such").is_err());
    }

    #[test]
    fn an_older_library_goes_unless_a_process_may_want_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let [new, old, wanted, half, other] = [
            "libuserswap-1.so",
            "libuserswap-2.so",
            "libuserswap-3.so",
            "libuserswap-4.9.tmp",
            "x",
        ]
        .map(path);
        for file in [&new, &old, &wanted, &half, &other] {
            fs::write(file, "").unwrap();
        }
        remove_older(&new, KEPT_FOR);
        assert!(old.exists(), "it is of today");
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .env("LD_PRELOAD_OF_MINE", &wanted)
            .spawn()
            .unwrap();
        remove_older(&new, Duration::ZERO);
        let there = [&new, &old, &wanted, &half, &other].map(|file| file.exists());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(there, [true, false, true, false, true]);
        remove_older(&new, Duration::ZERO);
        assert!(!wanted.exists());
    }

    #[test]
    fn a_library_is_there_when_each_of_its_bytes_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lib.so");
        let library: Vec<u8> = (0..200_000_u32).map(|at| at as u8).collect();
        let is_there = || is_content(&path, &library).unwrap_or(false);
        assert!(!is_there(), "no file");
        for wrong in [0, 65_536, library.len() - 1] {
            let mut other = library.clone();
            other[wrong] ^= 1;
            fs::write(&path, other).unwrap();
            assert!(!is_there(), "byte {wrong} differs");
        }
        for other in [&library[1..], &[&library[..], &[0]].concat()] {
            fs::write(&path, other).unwrap();
            assert!(!is_there(), "{} bytes", other.len());
        }
        fs::write(&path, &library).unwrap();
        assert!(is_there());
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
