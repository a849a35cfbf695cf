//! A file without a name: it vanishes with the last process that has it open.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::OpenError;

/// Names already taken are passed over this often; only leftovers of a crash can be in the way.
const NAME_ATTEMPTS: u32 = 100;

/// Makes an unlinked file in `directory` that only this process can reach.
pub(super) fn create(directory: &Path) -> Result<File, OpenError> {
    // O_EXCL keeps the file from ever being given a name.
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
    match rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(File::from(file)),
        // What file systems without O_TMPFILE answer, depending on kernel and file system.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOSYS) => {
            create_and_unlink(directory)
        }
        Err(error) => Err(io::Error::from(error)),
    }
    .map_err(|error| OpenError::io(directory, "make a swap file in", error))
}

fn create_and_unlink(directory: &Path) -> io::Result<File> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for _ in 0..NAME_ATTEMPTS {
        // Relaxed: only that numbers differ matters.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!(".userswap-{}-{number}", std::process::id()));
        match OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => return fs::remove_file(&path).map(|()| file),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn either_way_the_file_has_no_name_and_is_private() {
        let directory = tempfile::tempdir().unwrap();
        for file in
            [create(directory.path()).unwrap(), create_and_unlink(directory.path()).unwrap()]
        {
            let metadata = file.metadata().unwrap();
            assert_eq!((metadata.nlink(), metadata.mode() & 0o777), (0, 0o600));
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        }
    }
}
