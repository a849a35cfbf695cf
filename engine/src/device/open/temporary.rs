//! A file without a name: it vanishes with the last process that has it open.

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;

use super::OpenError;
use crate::sys::own_fd::Own;

/// Names already taken are passed over this often; only leftovers of a crash can be in the way.
const NAME_ATTEMPTS: u32 = 100;

/// Where files are made, found once: the process may change its root directory later.
pub(super) fn open_directory(path: &Path) -> Result<Own<OwnedFd>, OpenError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty())
        .map(Own::raised)
        .map_err(|error| OpenError::io(path, "make a swap file in", error))
}

/// Makes an unlinked file in `directory`, called `path`, that only this process can reach.
pub(super) fn create(directory: BorrowedFd, path: &Path) -> Result<File, OpenError> {
    // O_EXCL keeps the file from ever being given a name.
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
    match openat(directory, ".", flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(File::from(file)),
        // What file systems without O_TMPFILE answer, depending on kernel and file system.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOSYS) => {
            create_and_unlink(directory)
        }
        Err(error) => Err(io::Error::from(error)),
    }
    .map_err(|error| OpenError::io(path, "make a swap file in", error))
}

fn create_and_unlink(directory: BorrowedFd) -> io::Result<File> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    for _ in 0..NAME_ATTEMPTS {
        // Relaxed: only that numbers differ matters.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!(".userswap-{}-{number}", std::process::id());
        match openat(directory, &name, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => {
                unlinkat(directory, &name, AtFlags::empty())?;
                return Ok(File::from(file));
            }
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::EXIST.into())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn either_way_the_file_has_no_name_and_is_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let opened = open_directory(path).unwrap();
        let anonymous = create(opened.as_fd(), path).unwrap();
        for file in [anonymous, create_and_unlink(opened.as_fd()).unwrap()] {
            let metadata = file.metadata().unwrap();
            assert_eq!((metadata.nlink(), metadata.mode() & 0o777), (0, 0o600));
            assert_eq!(std::fs::read_dir(path).unwrap().count(), 0);
        }
    }
}
