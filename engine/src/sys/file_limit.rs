//! The process's limit of a file's size (RLIMIT_FSIZE), which a program may lower to nothing.
//!
//! It applies to each write beyond it, also within a file that is longer already: the write fails, and SIGXFSZ comes with
//! it, which ends the program. What is stored by way of a mapping it does not apply to, and neither does it to block devices. So
//! pages go to files that way then: as far as the slots are there, which no mapping can make.
use super::mapping::Mapping;
use super::own_table::Here;
use super::pages;
use super::process;
use super::request::Pieces;
use super::signal::Blocked;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// In bytes, as far as it is known here.
static LIMIT: AtomicU64 = AtomicU64::new(u64::MAX);

/// What it is now, in bytes; u64::MAX where there is none.
pub fn in_force() -> u64 {
    process::limit_in_force(libc::RLIMIT_FSIZE)
}

/// Whether there is one, now.
pub fn is_set() -> bool {
    in_force() != u64::MAX
}

/// It has changed.
pub fn note() {
    // Relaxed, here and below: a write that comes too early for it fails, and is repeated.
    LIMIT.store(in_force(), Ordering::Relaxed);
}

/// It is about to become so low.
pub fn lower(limit: u64) {
    LIMIT.fetch_min(limit, Ordering::Relaxed);
}

/// Whether a file may not be so long, now.
pub fn forbids(bytes: u64) -> bool {
    bytes > in_force()
}

/// The same as far as it is known here, which takes no system call: a filter of the program's may refuse that one.
pub fn is_beyond(bytes: u64) -> bool {
    let limit = LIMIT.load(Ordering::Relaxed);
    limit != u64::MAX && bytes > limit
}

/// Whether a write that ends there has to go by way of a mapping.
#[inline]
pub fn applies(fd: RawFd, end: u64) -> bool {
    end > LIMIT.load(Ordering::Relaxed) && Here::of(fd).is_ok_and(|here| is_regular(here.number()))
}

#[cold]
fn is_regular(fd: RawFd) -> bool {
    let mut found = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: `found` is a buffer for the answer.
    unsafe { libc::syscall(libc::SYS_fstat, fd, found.as_mut_ptr()) };
    // SAFETY: zeroes are valid, too.
    let found = unsafe { found.assume_init() };
    found.st_mode & libc::S_IFMT == libc::S_IFREG
}

/// A write has failed by it (EFBIG): another process has set it, or a call that was not noticed. The signal for it is taken
/// back, of which there is no other sign: this thread blocks it.
pub fn note_refused() {
    note();
    let (only, no_wait) = (1_u64 << (libc::SIGXFSZ - 1), [0_u64; 2]);
    let (set, found, limit) = (&raw const only, std::ptr::null_mut::<u8>(), no_wait.as_ptr());
    // SAFETY: a set and a time, and nothing to write to.
    unsafe { libc::syscall(libc::SYS_rt_sigtimedwait, set, found, limit, size_of::<u64>()) };
}

/// Has a line written that may go to a file, and returns what the system call returned. Where the limit refuses it the line is
/// lost, and the process goes on.
pub fn tell(write: impl FnOnce() -> libc::c_long) -> libc::c_long {
    if !is_beyond(u64::MAX) {
        return write();
    }
    let _blocked = Blocked::new();
    let written = write();
    if written == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::EFBIG) {
        note_refused();
    }
    written
}

/// As [`File::set_len`], and never with a signal.
///
/// # Errors
/// EFBIG where the limit forbids it, or what the system says.
pub fn set_len(file: &File, bytes: u64) -> io::Result<()> {
    if forbids(bytes) {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    file.set_len(bytes)
}

/// Writes all of `pieces` at `offset`, a multiple of a page, by way of a mapping. What was written is on the disk then, and
/// not in the page cache any more.
///
/// # Errors
/// ENOSPC on a full file system, or what the kernel says.
pub fn write(fd: RawFd, offset: u64, pieces: &Pieces) -> io::Result<()> {
    let bytes = pieces.bytes();
    if bytes == 0 {
        return Ok(());
    }
    let mapping = Mapping::of_part(fd, offset, bytes)?;
    // Where there is no room, a store would end the program.
    mapping.advise(0, bytes, libc::MADV_POPULATE_WRITE).map_err(|error| {
        match error.raw_os_error() {
            Some(libc::EFAULT) => io::Error::from_raw_os_error(libc::ENOSPC),
            // Before Linux 5.14.
            Some(libc::EINVAL) => io::Error::from_raw_os_error(libc::EFBIG),
            _ => error,
        }
    })?;
    let mut at = mapping.address();
    for piece in pieces.iter() {
        pages::view_mut(at, piece.bytes).copy_from_slice(pages::view(piece.address, piece.bytes));
        at += piece.bytes;
    }
    drop(mapping);
    settle(fd, offset, bytes)
}

fn settle(fd: RawFd, offset: u64, bytes: usize) -> io::Result<()> {
    let how = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: it takes numbers only.
    if unsafe { libc::syscall(libc::SYS_sync_file_range, fd, offset, bytes, how) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it takes numbers only. What stays in the cache is memory that the kernel can take.
    unsafe { libc::syscall(libc::SYS_fadvise64, fd, offset, bytes, libc::POSIX_FADV_DONTNEED) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::PAGE_BYTES;
    use super::super::mapping::Access;
    use super::super::request::{Direction, transfer};
    use super::*;
    use std::os::fd::AsRawFd;

    /// Set for the process that lowers its limit.
    const LOWERS: &str = "USERSWAP_TEST_FILE_LIMIT";

    #[test]
    fn a_line_that_a_file_may_not_have_is_lost_and_ends_nothing() {
        if std::env::var_os(LOWERS).is_some() {
            let nothing = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: takes numbers; the limit is of this process, which was made for it.
            unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const nothing) };
            note();
            super::super::process::say(&["a line\n"]);
            std::process::exit(3);
        }
        let name =
            "sys::file_limit::tests::a_line_that_a_file_may_not_have_is_lost_and_ends_nothing";
        let file = tempfile::tempfile_in("/var/tmp").unwrap();
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", name, "--nocapture"]).env(LOWERS, "1");
        let ended = again.stderr(file.try_clone().unwrap()).output().unwrap();
        assert_eq!(ended.status.code(), Some(3), "{ended:?}");
        assert_eq!(file.metadata().unwrap().len(), 0);
    }

    #[test]
    fn what_is_written_by_way_of_a_mapping_is_read_back() {
        let file = tempfile::tempfile_in("/var/tmp").unwrap();
        file.set_len(16 * PAGE_BYTES as u64).unwrap();
        let memory = Mapping::new(8 * PAGE_BYTES, Access::ReadWrite).unwrap();
        let mut pieces = Pieces::default();
        for (index, page) in [0, 2, 3, 6].into_iter().enumerate() {
            let address = memory.address() + page * PAGE_BYTES;
            pages::view_mut(address, PAGE_BYTES).fill(index as u8 + 1);
            assert!(pieces.push_page(address));
        }
        write(file.as_raw_fd(), 3 * PAGE_BYTES as u64, &pieces).unwrap();
        let back = Mapping::new(4 * PAGE_BYTES, Access::ReadWrite).unwrap();
        let read = Pieces::one(back.address(), back.bytes());
        transfer(file.as_raw_fd(), Direction::Read, 3 * PAGE_BYTES as u64, &read).unwrap();
        for index in 0..4 {
            let page = pages::view(back.address() + index * PAGE_BYTES, PAGE_BYTES);
            assert!(page.iter().all(|byte| *byte == index as u8 + 1), "{index}");
        }
        assert!(write(file.as_raw_fd(), 16 * PAGE_BYTES as u64, &pieces).is_err(), "not longer");
    }
}
