//! Every reason to refuse a swap device, each a line that names the device and the way out.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::base::limits::DEVICE_MIN_BYTES;
use crate::base::memory_limit;
use crate::base::size::ByteSize;

/// Why a swap device is refused.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Neither the path nor the directory it would be made in exists.
    #[error(
        "{path}: no such directory; create it, or name an existing directory, file or block device",
        path = path.display()
    )]
    NoSuchDirectory {
        /// As the user named it.
        path: PathBuf,
    },
    /// A remote store that cannot be used.
    #[error("{path}: {reason}", path = path.display())]
    Remote {
        /// As the user named it.
        path: PathBuf,
        /// Why, and the way out.
        reason: String,
    },
    /// A symbolic link to something that would be written in place.
    #[error(
        "{path}: is a symbolic link; name what it points to, {target}",
        path = path.display(), target = target.display()
    )]
    Link {
        /// The link.
        path: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
    /// A pipe, character device or socket.
    #[error("{path}: is {found}; name a directory, a file or a block device", path = path.display())]
    WrongType {
        /// As the user named it.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// Content without a swap signature.
    #[error(
        "{path}: holds data that is not swap, left untouched; name a new file or a directory, or \
         run mkswap on it if its content may be lost",
        path = path.display()
    )]
    SomebodysData {
        /// As the user named it.
        path: PathBuf,
    },
    /// The kernel's own swap, listed in `/proc/swaps`.
    #[error(
        "{path}: the kernel swaps to it; run swapoff on it first, or name another device",
        path = path.display()
    )]
    KernelSwap {
        /// As the user named it.
        path: PathBuf,
    },
    /// Locked by another engine.
    #[error(
        "{path}: another userswap uses it; name another file, or a directory to share",
        path = path.display()
    )]
    Locked {
        /// As the user named it.
        path: PathBuf,
    },
    /// A block device that is mounted or part of something else.
    #[error(
        "{path}: is mounted or in use; unmount it first, or name another device",
        path = path.display()
    )]
    Busy {
        /// As the user named it.
        path: PathBuf,
    },
    /// A size beyond the free space, the device's end or the file size limit.
    #[error(
        "{path}: {asked} asked for, {room} {limit}; name a smaller SIZE or another {other}",
        path = path.display(), asked = ByteSize(*asked), room = ByteSize(*room).rounded()
    )]
    TooLarge {
        /// As the user named it.
        path: PathBuf,
        /// Bytes asked for.
        asked: u64,
        /// Bytes that could be had.
        room: u64,
        /// What sets the limit.
        limit: &'static str,
        /// What could be named instead.
        other: &'static str,
    },
    /// Fewer than ten pages, the least that mkswap(8) accepts.
    #[error(
        "{path}: {bytes} is too small for swap; at least {min} is needed",
        path = path.display(), bytes = ByteSize(*bytes), min = ByteSize(DEVICE_MIN_BYTES)
    )]
    TooSmall {
        /// As the user named it.
        path: PathBuf,
        /// Bytes found or asked for.
        bytes: u64,
    },
    /// The same, where no size was asked for.
    #[error(
        "{path}: {room} {limit}, which is too small for swap: at least {min} is needed; name another directory",
        path = path.display(), room = ByteSize(*room), min = ByteSize(DEVICE_MIN_BYTES)
    )]
    NoRoom {
        /// As the user named it.
        path: PathBuf,
        /// Bytes that could be had.
        room: u64,
        /// What sets the limit.
        limit: &'static str,
    },
    /// A page that was written did not read back.
    #[error("{path}: a page read back differs from the page written; name another device",
        path = path.display())]
    Unreliable {
        /// As the user named it.
        path: PathBuf,
    },
    /// The path was replaced between being examined and being opened.
    #[error("{path}: was replaced while it was opened; try again", path = path.display())]
    Replaced {
        /// As the user named it.
        path: PathBuf,
    },
    /// A system call failed for another reason.
    #[error(
        "{path}: cannot {action} it: {source}; {remedy}",
        path = path.display(), remedy = remedy(source)
    )]
    Io {
        /// As the user named it.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// What helps where a system call failed.
fn remedy(source: &io::Error) -> String {
    let known =
        more_descriptors(source).map(str::to_owned).or_else(|| memory_limit::remedy(source));
    known.unwrap_or_else(|| "name a directory or device that can be written to".to_owned())
}

/// Where a descriptor was refused because there are too many: what to do about it.
pub(super) fn more_descriptors(error: &io::Error) -> Option<&'static str> {
    match error.raw_os_error()? {
        libc::EMFILE => Some("raise the limit on descriptors (ulimit -n)"),
        libc::ENFILE => Some("raise fs.file-max"),
        _ => None,
    }
}

impl OpenError {
    /// [`OpenError::Io`], with `action` as in "cannot … it".
    pub(crate) fn io(path: &Path, action: &'static str, source: impl Into<io::Error>) -> OpenError {
        OpenError::Io { path: path.to_owned(), action, source: source.into() }
    }

    /// Whether the process may not, or cannot, reach the place, as after a change of its user or root directory.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            OpenError::NoSuchDirectory { .. } => true,
            OpenError::Io { source, .. } => {
                matches!(source.kind(), ErrorKind::PermissionDenied | ErrorKind::NotFound)
            }
            _ => false,
        }
    }
}
