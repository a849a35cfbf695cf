//! This process's memory as a file, /proc/self/mem.
//!
//! Reading it asks no protection, and fails with EIO on a page that is missing, where every other way to read would
//! wait for a fault to be served: the kernel takes the page without the right to retry, and userfaultfd refuses that.
use super::kept_file::KeptFile;
use super::process;
use std::io;
use std::os::fd::RawFd;

/// The file, if there is one.
#[derive(Debug)]
pub struct OwnMemory(KeptFile);

impl OwnMemory {
    /// Opens it, out of the program's way.
    ///
    /// # Errors
    /// There is no /proc, or the process may not read itself.
    pub fn open() -> io::Result<Self> {
        KeptFile::open("/proc/thread-self/mem").map(Self)
    }

    /// Without the file: nothing can be read.
    pub fn none() -> Self {
        Self(KeptFile::none())
    }

    /// After fork, in the child: the file is still the parent's memory, and is replaced or never used again.
    ///
    /// # Errors
    /// As [`OwnMemory::open`].
    pub fn renew(&self) -> io::Result<()> {
        self.0.renew()
    }

    /// Reads all of `bytes` bytes at `from` into held frames at `to`.
    ///
    /// # Errors
    /// EIO where something is missing or may not be read, ENOENT without the file, EBADF when the program has closed
    /// it.
    pub fn read(&self, from: usize, to: usize, bytes: usize) -> Result<(), i32> {
        self.reader()?.read(from, to, bytes)
    }

    /// For many reads in a row: looks only once whether the file is still its own.
    ///
    /// # Errors
    /// ENOENT without the file, EBADF when the program has closed it.
    pub fn reader(&self) -> Result<Reader, i32> {
        self.0.descriptor().map(Reader)
    }
}

/// The file, for the moment.
#[derive(Clone, Copy, Debug)]
pub struct Reader(RawFd);

impl Reader {
    /// As [`OwnMemory::read`].
    ///
    /// # Errors
    /// EIO where something is missing or may not be read.
    pub fn read(self, from: usize, to: usize, bytes: usize) -> Result<(), i32> {
        process::read_at(self.0, from, to, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::mapping::{Access, Mapping};
    use super::super::{PAGE_BYTES, fd, pages};
    use super::*;
    use crate::sys::uffd::{Rights, Uffd, feature};
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn registered(features: u64) -> (Uffd, Mapping, Mapping) {
        let rights = if features == 0 { Rights::Kernel } else { Rights::UserOnly };
        let uffd = Uffd::open(features, 0, rights).unwrap();
        let memory = Mapping::new(8 * PAGE_BYTES, Access::ReadWrite).unwrap();
        let frames = Mapping::new(8 * PAGE_BYTES, Access::ReadWrite).unwrap();
        pages::view_mut(memory.address(), memory.bytes()).fill(7);
        pages::view_mut(frames.address(), frames.bytes()).fill(1);
        uffd.register(memory.address(), memory.bytes()).unwrap();
        (uffd, memory, frames)
    }

    #[test]
    fn a_missing_page_is_an_error_and_no_fault_in_either_mode() {
        for features in [0, feature::SIGBUS] {
            let (_uffd, memory, frames) = registered(features);
            let own = OwnMemory::open().unwrap();
            let read = |page: usize, count: usize| {
                let from = memory.address() + page * PAGE_BYTES;
                own.read(from, frames.address(), count * PAGE_BYTES)
            };
            assert_eq!(read(0, 8), Ok(()));
            assert_eq!(pages::view(frames.address(), 1), [7]);
            memory.advise(3 * PAGE_BYTES, PAGE_BYTES, libc::MADV_DONTNEED).unwrap();
            assert_eq!((read(0, 8), read(3, 1)), (Err(libc::EIO), Err(libc::EIO)));
            assert_eq!((read(0, 3), read(4, 4)), (Ok(()), Ok(())));
        }
    }

    #[test]
    fn a_page_that_another_thread_drops_meanwhile_is_whole_or_missing() {
        let (uffd, memory, frames) = registered(0);
        let zeros = Mapping::new(8 * PAGE_BYTES, Access::ReadWrite).unwrap();
        let (own, ends) = (OwnMemory::open().unwrap(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    memory.advise(0, memory.bytes(), libc::MADV_DONTNEED).unwrap();
                    uffd.copy(memory.address(), zeros.address(), memory.bytes()).unwrap();
                }
            });
            for _ in 0..2000 {
                let outcome = own.read(memory.address(), frames.address(), memory.bytes());
                assert!(matches!(outcome, Ok(()) | Err(libc::EIO)), "{outcome:?}");
            }
            ends.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn another_file_under_its_number_is_not_read() {
        let (_uffd, memory, frames) = registered(0);
        let own = OwnMemory::open().unwrap();
        let other = File::open("/proc/self/exe").unwrap();
        let number = own.0.descriptor().unwrap();
        fd::replace(number, other.as_raw_fd()).unwrap();
        let outcome = own.read(memory.address(), frames.address(), PAGE_BYTES);
        assert_eq!((outcome, pages::view(frames.address(), 1)), (Err(libc::EBADF), &[1][..]));
        own.renew().unwrap();
        assert_eq!(own.read(memory.address(), frames.address(), PAGE_BYTES), Ok(()));
        assert_eq!(
            OwnMemory::none().read(memory.address(), frames.address(), 1),
            Err(libc::ENOENT)
        );
    }
}
