//! How large a file can become: the file system's free space and the process's file size limit.

use std::fs::File;
use std::path::Path;

use rustix::fs::{FsWord, fstatfs, fstatvfs};

use super::{OpenError, SizeWanted};
use crate::base::limits::DEVICE_MIN_BYTES;
use crate::sys::file_limit;

/// File systems that keep their files in memory.
const MEMORY_FILE_SYSTEMS: [FsWord; 2] =
    [0x0102_1994 /* tmpfs */, 0x8584_58f6 /* ramfs */];

/// A default size leaves this part of the free space alone, for the file system's own records of a
/// file that fills it.
const RESERVE_DIVISOR: u64 = 64;

/// Bytes that a file can have, and what sets the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) bytes: u64,
    pub(super) limit: &'static str,
}

impl Room {
    /// The room on the file system that holds `file`.
    pub(super) fn around(file: &File, path: &Path) -> Result<Room, OpenError> {
        let space = fstatvfs(file)
            .map_err(|error| OpenError::io(path, "read the free space around", error))?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        // Growing a file beyond the limit would raise SIGXFSZ.
        match file_limit::in_force() {
            allowed if allowed < free => {
                Ok(Room { bytes: allowed, limit: "allowed by the file size limit (ulimit -f)" })
            }
            _ => Ok(Room { bytes: free, limit: "free" }),
        }
    }

    /// The size asked for, refused when there is no room; else the default, made to fit.
    pub(super) fn fit(self, path: &Path, wanted: SizeWanted) -> Result<u64, OpenError> {
        match wanted.asked {
            None if self.bytes < DEVICE_MIN_BYTES => {
                let (room, limit) = (self.bytes, self.limit);
                Err(OpenError::NoRoom { path: path.to_owned(), room, limit })
            }
            None => Ok(wanted.default_bytes.min(self.bytes - self.bytes / RESERVE_DIVISOR)),
            Some(asked) if asked <= self.bytes => Ok(asked),
            Some(asked) => Err(OpenError::TooLarge {
                path: path.to_owned(),
                asked,
                room: self.bytes,
                limit: self.limit,
                other: "directory",
            }),
        }
    }
}

/// Whether the content of `file` lives in memory, where swapping to it gains nothing.
pub(super) fn is_memory(file: &File) -> bool {
    // Of a device only the name is in its file system, which is always one in memory.
    let has_content = file.metadata().is_ok_and(|found| found.is_file() || found.is_dir());
    has_content && fstatfs(file).is_ok_and(|system| MEMORY_FILE_SYSTEMS.contains(&system.f_type))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explicit_size_must_fit_and_a_default_is_made_to_fit() {
        let room = Room { bytes: 64 << 20, limit: "free" };
        let path = Path::new("/d");
        let fit = |asked, default_bytes| room.fit(path, SizeWanted { asked, default_bytes });
        assert_eq!(fit(Some(64 << 20), 1).unwrap(), 64 << 20);
        assert_eq!(fit(None, 1 << 20).unwrap(), 1 << 20);
        assert_eq!(fit(None, 1 << 40).unwrap(), 63 << 20);
        assert_eq!(
            fit(Some(1 << 30), 1).unwrap_err().to_string(),
            "/d: 1G asked for, 64M free; name a smaller SIZE or another directory"
        );
        let room = Room { bytes: 36 << 10, limit: "free" };
        assert_eq!(
            room.fit(path, SizeWanted { asked: None, default_bytes: 1 << 40 })
                .unwrap_err()
                .to_string(),
            "/d: 36K free, which is too small for swap: at least 40K is needed; name another directory"
        );
    }

    #[test]
    fn a_device_is_not_in_memory_although_its_name_is() {
        assert!(!is_memory(&File::open("/dev/null").unwrap()));
        assert!(is_memory(&File::open("/dev/shm").unwrap()));
    }
}
