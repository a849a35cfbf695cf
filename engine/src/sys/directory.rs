//! The names in a directory, without opendir, which takes its buffer from the program's malloc.
//!
//! While the engine starts, and in the child of a fork, a thread may hold the locks of an allocator that the
//! program brings along.
use rustix::fs::{CWD, Mode, OFlags, RawDir};
use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// Bytes of entries read at a time.
const BUFFER_BYTES: usize = 4096;

/// Up to `most` names of what is in a directory.
///
/// # Errors
/// It cannot be opened or read.
pub fn names(path: &Path, most: usize) -> io::Result<Vec<OsString>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    let mut buffer = [const { MaybeUninit::uninit() }; BUFFER_BYTES];
    let mut entries = RawDir::new(&directory, &mut buffer);
    let mut names = Vec::new();
    while let Some(entry) = entries.next() {
        let name = entry?.file_name().to_bytes().to_vec();
        if names.len() == most {
            break;
        }
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name));
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_are_found_also_of_a_large_directory() {
        let directory = tempfile::tempdir().unwrap();
        let mut written: Vec<_> = (0..500).map(|number| format!("file-{number:03}")).collect();
        for name in &written {
            std::fs::write(directory.path().join(name), "").unwrap();
        }
        let mut found = names(directory.path(), usize::MAX).unwrap();
        found.sort();
        written.sort();
        let found: Vec<_> = found.into_iter().map(|name| name.into_string().unwrap()).collect();
        assert_eq!(found, written);
        assert_eq!(names(directory.path(), 7).unwrap().len(), 7);
        assert!(names(&directory.path().join("no/such"), 1).is_err());
    }
}
