//! Memory that processes share through a file, and locks on that file's bytes by which they know of each other.
//!
//! A lock is a POSIX record lock: it is a process's, a fork does not inherit it, and the kernel releases it when the
//! process ends, however that happens, or becomes another program (descriptors close at exec). Closing any descriptor of
//! the file releases all of the process's locks on it, so a process opens the file once. A program that may not open it
//! is given a descriptor by the one that executes it.
use super::mapping::Mapping;
use super::own_fd::{HIGH, Own, is_own};
use super::{directory, fd, file_limit};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

const WORDS: usize = 16;
/// In which the kernel counts what a file takes.
const BLOCK_BYTES: u64 = 512;
const ROW_BYTES: usize = size_of::<[AtomicU32; WORDS]>();

/// Rows of sixteen words in a file, mapped as long as this lives; children of a fork inherit them.
#[derive(Debug)]
pub struct SharedRows {
    mapping: Mapping,
    rows: usize,
    file: Own<File>,
    /// Whether programs that this process executes inherit the file. Relaxed, as below: a hint, two descriptors do no harm.
    is_handed_on: AtomicBool,
    /// The last child by vfork that has one for what it executes.
    handed_on_by: AtomicU64,
}

/// Whose descriptors a process has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Table {
    /// Its own, and this memory is its own, too.
    Own,
    /// Its own, but its memory is that of the process that had it by vfork.
    OfChild,
}

impl SharedRows {
    /// The rows of a file, which is made long enough; new ones are zero.
    ///
    /// # Errors
    /// The file cannot be made that long, or mapped.
    pub fn new(file: File, rows: usize) -> io::Result<Self> {
        let file = Own::raised(file);
        let bytes = rows * ROW_BYTES;
        file_limit::set_len(&file, bytes as u64)?;
        let mapping = Mapping::of_file(&file, bytes)?;
        let (is_handed_on, handed_on_by) = (AtomicBool::new(false), AtomicU64::new(0));
        Ok(Self { mapping, rows, file, is_handed_on, handed_on_by })
    }

    /// The file of that name among what this process has inherited, by [`SharedRows::hand_on`]; called before it has threads. There
    /// may be several descriptors: the others are closed, as the program might close them later, and its locks would go.
    pub fn inherited(path: &Path) -> Option<File> {
        let is_it = |number: &RawFd| {
            let link = || std::fs::read_link(format!("/proc/self/fd/{number}"));
            // What this process has opened is not inherited.
            *number >= HIGH && !is_own(*number) && link().is_ok_and(|it| it == path)
        };
        let names = directory::names(Path::new("/proc/self/fd"), usize::MAX).ok()?;
        let numbers = names.iter().filter_map(|name| name.to_str()?.parse().ok()).filter(is_it);
        // SAFETY: they were left open for us alone by the program before, which has ended, and nobody else knows them.
        let files: Vec<File> = numbers.map(|number| unsafe { File::from_raw_fd(number) }).collect();
        let file = files.into_iter().next()?;
        fcntl_setfd(&file, FdFlags::CLOEXEC).ok()?;
        Some(file)
    }

    /// Has programs that this process executes inherit the file, if it may not be opened by its name as who this process is
    /// now. Safe in a child by vfork.
    ///
    /// # Errors
    /// No descriptor is to be had.
    pub fn hand_on(&self, path: &Path, table: Table) -> io::Result<()> {
        let own = u64::from(std::process::id());
        let is_done = match table {
            Table::Own => self.is_handed_on.load(Ordering::Relaxed),
            // A search for the program makes several calls.
            Table::OfChild => self.handed_on_by.load(Ordering::Relaxed) == own,
        };
        if is_done || self.can_be_opened(path)? {
            return Ok(());
        }
        let copy = fcntl_dupfd_cloexec(&*self.file, HIGH)?;
        fcntl_setfd(&copy, FdFlags::empty())?;
        match table {
            // It stays, also if another thread has made one meanwhile: to close it would release the locks.
            Table::Own => {
                std::mem::forget(Own::new(copy));
                self.is_handed_on.store(true, Ordering::Relaxed);
            }
            Table::OfChild => {
                std::mem::forget(copy);
                self.handed_on_by.store(own, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Has the file system keep room for all rows: where it is full, the first store to one without would end the process.
    ///
    /// # Errors
    /// ENOSPC without room.
    pub fn allocate(&self) -> io::Result<()> {
        let bytes = (self.rows * ROW_BYTES) as u64;
        if self.file.metadata()?.blocks() * BLOCK_BYTES >= bytes {
            return Ok(());
        }
        loop {
            match fd::allocate(self.descriptor(), 0, bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Where it cannot be asked for, as on some file systems of the network.
                Err(error) if is_unknown(&error) => return Ok(()),
                outcome => return outcome,
            }
        }
    }

    /// Whether a program that is executed now can open it; rights of a user who is not root end there.
    fn can_be_opened(&self, path: &Path) -> io::Result<bool> {
        let user = rustix::process::geteuid();
        let both = Access::READ_OK | Access::WRITE_OK;
        let is_theirs = user.is_root() || user.as_raw() == self.file.metadata()?.uid();
        Ok(is_theirs && accessat(CWD, path, both, AtFlags::EACCESS).is_ok())
    }

    /// The file's.
    pub fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Locks one byte of the file for this process; false if another has it.
    pub fn try_lock(&self, byte: usize) -> bool {
        self.record_lock(libc::F_SETLK, libc::F_WRLCK, byte..byte + 1).is_some()
    }

    /// Gives a lock of this process back.
    pub fn unlock(&self, byte: usize) {
        // It fails only for want of memory in the kernel: the lock is then kept until the process ends.
        let _ = self.record_lock(libc::F_SETLK, libc::F_UNLCK, byte..byte + 1);
    }

    /// Whether another process has one of these bytes locked.
    pub fn has_lock(&self, bytes: Range<usize>) -> bool {
        let found = self.record_lock(libc::F_GETLK, libc::F_WRLCK, bytes);
        found.is_some_and(|lock| i32::from(lock.l_type) != libc::F_UNLCK)
    }

    /// Whether this file is the one of that name; who may not look there goes by whether it has a name at all.
    pub fn is_at(&self, path: &Path) -> bool {
        let place = |it: &Metadata| (it.dev(), it.ino());
        let Ok(own) = self.file.metadata() else { return false };
        match std::fs::metadata(path) {
            Ok(found) => place(&own) == place(&found),
            Err(error) => error.kind() == io::ErrorKind::PermissionDenied && own.nlink() > 0,
        }
    }

    fn record_lock(&self, command: i32, kind: i32, bytes: Range<usize>) -> Option<libc::flock> {
        let mut lock = fd::byte_lock(kind, bytes);
        // SAFETY: `lock` is a valid structure, which the call may change; it has no other effect on memory.
        let done = unsafe { libc::fcntl(self.descriptor(), command, &raw mut lock) };
        (done == 0).then_some(lock)
    }
}

fn is_unknown(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS))
}

impl std::ops::Deref for SharedRows {
    type Target = [[AtomicU32; WORDS]];
    fn deref(&self) -> &Self::Target {
        // SAFETY: the mapping holds so many rows, page aligned, until `self` is dropped; other processes change them as
        // atomics too.
        unsafe {
            std::slice::from_raw_parts(
                self.mapping.address() as *const [AtomicU32; WORDS],
                self.rows,
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_hand_it_on_at_once_keep_its_locks() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rows");
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        let inode = file.metadata().unwrap().ino();
        let rows = SharedRows::new(file, 4).unwrap();
        assert!(rows.try_lock(1));
        let is_locked = || {
            let locks = std::fs::read_to_string("/proc/locks").unwrap();
            locks.lines().any(|line| line.contains(&format!(":{inode} 1 1")))
        };
        assert!(is_locked());
        // No name that could be opened.
        let elsewhere = directory.path().join("nothing");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| rows.hand_on(&elsewhere, Table::Own).unwrap());
            }
        });
        assert!(is_locked(), "a descriptor of it was closed");
        assert!(rows.is_handed_on.load(Ordering::Relaxed));
    }
}
