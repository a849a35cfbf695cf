//! Memory that forked children share, and locks that end with the last process that holds them.
//!
//! A lock is of an open file description, which fork passes on: it is held from before the fork to the end of
//! the child without a gap, whichever way parent and child end. (A process's own locks would have to be taken
//! by the child, and nobody would hold one until it does.)
use super::PAGE_BYTES;
use super::fd;
use super::mapping::{Access, Mapping};
use super::own_fd::Own;
use super::own_table::Here;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words that a process and all its descendants by fork see; zero, and without memory, until they are touched.
#[derive(Debug)]
pub struct SharedWords {
    mapping: Mapping,
}

impl SharedWords {
    /// So many words.
    ///
    /// # Errors
    /// What mmap says.
    pub fn new(count: usize) -> io::Result<Self> {
        let bytes = (count * size_of::<u64>()).next_multiple_of(PAGE_BYTES);
        let mapping = Mapping::shared(bytes, Access::ReadWrite)?;
        mapping.advise(0, bytes, libc::MADV_DONTDUMP)?;
        Ok(Self { mapping })
    }

    /// One of them.
    pub fn at(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.mapping.bytes() / size_of::<u64>(), "no word {index}");
        let word = (self.mapping.address() as *const AtomicU64).wrapping_add(index);
        // SAFETY: the word lies within the mapping, which lives as long as `self`; zero is a valid value.
        unsafe { &*word }
    }

    /// Makes `count` words zero, and gives back their memory where they fill pages.
    pub fn clear(&self, first: usize, count: usize) {
        let word = size_of::<u64>();
        if self.mapping.advise(first * word, count * word, libc::MADV_REMOVE).is_err() {
            // Locked memory cannot be given back.
            (first..first + count).for_each(|index| self.at(index).store(0, Ordering::Release));
        }
    }
}

/// An open file description whose locks last until every process that inherited it has closed it, by ending or exec.
#[derive(Debug)]
pub struct ByteLocks {
    file: Own<File>,
}

impl ByteLocks {
    /// Of a new file, which is empty and stays so: its bytes only have numbers.
    ///
    /// # Errors
    /// No descriptor to be had.
    pub fn new() -> io::Result<Self> {
        Ok(Self { file: Own::raised(fd::memory_file()?) })
    }

    /// Another description of the same file, to which the locks of this one are taken.
    ///
    /// # Errors
    /// No descriptor to be had, or no /proc.
    pub fn another(&self) -> io::Result<Self> {
        let path = format!("/proc/thread-self/fd/{}", self.file.as_raw_fd());
        let file =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_CLOEXEC).open(path)?;
        Ok(Self { file: Own::raised(file) })
    }

    /// Its number.
    pub fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Locks a byte, unless another description has it locked.
    pub fn try_lock(&self, byte: u32) -> bool {
        self.change(byte, libc::F_WRLCK)
    }

    /// Unlocks a byte, for all that share the description.
    pub fn unlock(&self, byte: u32) {
        let done = self.change(byte, libc::F_UNLCK);
        assert!(done, "what is locked can be unlocked");
    }

    /// Goes on as another one, under the same descriptor.
    ///
    /// # Errors
    /// What dup3 says.
    pub fn become_another(&self, other: &Self) -> io::Result<()> {
        fd::replace(self.file.as_raw_fd(), other.file.as_raw_fd())
    }

    fn change(&self, byte: u32, kind: libc::c_int) -> bool {
        // Who has it elsewhere leaves it to the others.
        let Ok(Here::Same(number)) = Here::of(self.file.as_raw_fd()) else {
            return false;
        };
        let range = fd::byte_lock(kind, byte as usize..byte as usize + 1);
        // SAFETY: `range` is a whole struct flock; only the file's locks change.
        unsafe { libc::fcntl(number, libc::F_OFD_SETLK, &raw const range) == 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_is_locked_for_all_descriptions_but_its_own_until_the_last_copy_is_closed() {
        let owner = ByteLocks::new().unwrap();
        let borrower = owner.another().unwrap();
        assert!(borrower.try_lock(7) && borrower.try_lock(7));
        assert!(!owner.try_lock(7) && owner.try_lock(6));
        assert!(!owner.another().unwrap().try_lock(6));
        owner.unlock(6);
        assert!(borrower.try_lock(6));
        let inherited = borrower.file.try_clone().unwrap();
        drop(borrower);
        assert!(!owner.try_lock(7), "a copy holds it");
        drop(inherited);
        // A child that another test has just forked may have a copy for a moment.
        let is_free = |_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            owner.try_lock(7)
        };
        assert!((0..1000).any(is_free));
    }

    #[test]
    fn words_are_zero_at_first_and_after_being_cleared() {
        let words = SharedWords::new(1024).unwrap();
        words.at(600).store(5, Ordering::Relaxed);
        words.at(3).store(6, Ordering::Relaxed);
        words.clear(512, 512);
        let read = |index: usize| words.at(index).load(Ordering::Relaxed);
        assert_eq!((read(600), read(3), read(1023)), (0, 6, 0));
    }
}
