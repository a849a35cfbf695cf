//! Files that commands and programs will write: what keeps them from it is said before the work, not after.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use userswap::internals::whole_file;

use crate::failure::Failure;

/// Whether a name survives being handed on as a line of text.
pub fn is_plain(path: &Path) -> bool {
    path.to_str().is_some_and(|name| !name.contains(char::is_control))
}

/// Makes sure that `file` can be written, without creating it; one that is there gets new content.
///
/// # Errors
/// It cannot; the text names the option.
pub fn check(option: &str, file: &Path) -> Result<(), Failure> {
    let target = target(option, file)?;
    let changed = if target.exists() { &target } else { directory_of(&target) };
    writable(changed).map_err(|reason| refusal(option, file, &reason))
}

/// The same for a file that is removed or gives its name to a new one, which the directory decides.
///
/// # Errors
/// As for [`check`].
pub fn check_replaced(option: &str, file: &Path) -> Result<PathBuf, Failure> {
    let target = target(option, file)?;
    let there = if target.exists() { writable(&target) } else { Ok(()) };
    there
        .and_then(|()| writable(directory_of(&target)))
        .map_err(|reason| refusal(option, file, &reason))?;
    Ok(file.to_owned())
}

/// Makes sure that what is drawn from a record does not take the place of one.
///
/// # Errors
/// A record or trace is there.
pub fn keep_record(option: &str, file: &Path) -> Result<(), Failure> {
    match userswap_report::is_trace(file) {
        false => Ok(()),
        true => Err(Failure::usage(format!(
            "{option} {}: is a record, which would be lost: name another file",
            file.display()
        ))),
    }
}

/// Removes an older trace, so that one that is there at the end is of this run: a program that fits its budget writes none.
///
/// # Errors
/// It is something else, or cannot be removed.
pub fn remove_older(option: &str, trace: &Path) -> Result<(), Failure> {
    let removed = match fs::symlink_metadata(trace) {
        Err(_) => Ok(()),
        Ok(there) if !there.is_file() => Err(whole_file::NOT_PLAIN.to_owned()),
        Ok(there) if there.len() > 0 && !userswap_report::is_trace(trace) => {
            Err("holds something else than a trace or record".to_owned())
        }
        Ok(_) => fs::remove_file(trace).map_err(|error| error.to_string()),
    };
    removed.map_err(|reason| {
        let file = trace.display();
        Failure::usage(format!("{option} {file}: {reason}; name a new file"))
    })
}

/// What will be written, in a directory that exists.
fn target(option: &str, file: &Path) -> Result<PathBuf, Failure> {
    let refuse = |reason: &str| Err(refusal(option, file, reason));
    if !is_plain(file) {
        return refuse("has a name that cannot be passed on to the program");
    }
    if file.is_dir() {
        return refuse("is a directory");
    }
    let target = whole_file::target(file).or_else(|error| refuse(&error.to_string()))?;
    if is_standard_output(&target) {
        return refuse("is where the program's own output goes, and would take its place");
    }
    match directory_of(&target).is_dir() {
        true => Ok(target),
        false => refuse("its directory does not exist"),
    }
}

/// Whether standard output or error is a file with this name.
fn is_standard_output(file: &Path) -> bool {
    let open = ["/proc/self/fd/1", "/proc/self/fd/2"].map(Path::new).map(Identity::of);
    open.contains(&Identity::of(file))
}

/// What tells a file from others whatever its names are: one that is there by its number, else its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// Device and number.
    There(u64, u64),
    /// The name in its directory, without links.
    New(PathBuf),
}

impl Identity {
    /// Of the file with a name, if links can be followed so far.
    pub fn of(file: &Path) -> Self {
        if let Ok(there) = fs::metadata(file) {
            return Self::There(there.dev(), there.ino());
        }
        let directory = fs::canonicalize(directory_of(file));
        let name = file.file_name().unwrap_or_default();
        Self::New(directory.map_or_else(|_| file.to_owned(), |directory| directory.join(name)))
    }
}

fn directory_of(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new("/"))
}

fn writable(path: &Path) -> Result<(), String> {
    access(path, Access::WRITE_OK).map_err(|error| io::Error::from(error).to_string())
}

fn refusal(option: &str, file: &Path, reason: &str) -> Failure {
    let file = file.display();
    Failure::usage(format!("{option} {file}: {reason}; name a file in a writable directory"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statistics_file_needs_a_writable_directory() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("stats.json");
        assert_eq!(check_replaced("--stats", &file), Ok(file.clone()));
        assert!(!file.exists());
        let other = directory.path().join("./stats.json");
        assert_eq!(Identity::of(&file), Identity::of(&other));
        assert_ne!(Identity::of(&file), Identity::of(directory.path()));
        fs::write(&file, "").unwrap();
        let linked = directory.path().join("linked");
        fs::hard_link(&file, &linked).unwrap();
        assert_eq!(Identity::of(&file), Identity::of(&linked));
        fs::write(&file, "a list").unwrap();
        let failure = remove_older("--trace", &file).unwrap_err();
        assert!(failure.message.contains("something else"), "{}", failure.message);
        assert_eq!(fs::read(&file).unwrap(), b"a list");
        for bad in [directory.path().to_owned(), directory.path().join("no/stats.json")] {
            let failure = check_replaced("--stats", &bad).unwrap_err();
            assert!(failure.message.contains(&bad.display().to_string()), "{}", failure.message);
        }
    }
}
