//! A file that is opened while the process may, and used when it may not any more.
//!
//! A program can become another user, change its root directory, or forbid others to look into it: from then on
//! its own files in /proc are closed to it, what it has opened is not.
use super::fd;
use super::own_fd::Own;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The file, if it could be opened.
#[derive(Debug)]
pub struct KeptFile {
    path: &'static str,
    to: To,
    file: Option<Own<File>>,
    /// Tells the file from any other that the program may open under its number; 0 when there is none.
    inode: AtomicU64,
    device: AtomicU64,
}

/// What it is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum To {
    Read,
    Write,
}

impl KeptFile {
    /// Opens it, out of the program's way.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(path: &'static str) -> io::Result<Self> {
        Self::open_to(path, To::Read)
    }

    /// As [`KeptFile::open`], for writing only.
    ///
    /// # Errors
    /// What the system says.
    pub fn open_to_write(path: &'static str) -> io::Result<Self> {
        Self::open_to(path, To::Write)
    }

    fn open_to(path: &'static str, to: To) -> io::Result<Self> {
        let kept = Self { file: Some(open_raised(path, to)?), ..Self::none() };
        kept.remember()?;
        Ok(Self { path, to, ..kept })
    }

    /// Without the file.
    pub fn none() -> Self {
        Self {
            path: "",
            to: To::Read,
            file: None,
            inode: AtomicU64::new(0),
            device: AtomicU64::new(0),
        }
    }

    /// After fork, in the child: a file about the parent is replaced, or never used again.
    ///
    /// # Errors
    /// As [`KeptFile::open`].
    pub fn renew(&self) -> io::Result<()> {
        self.inode.store(0, Ordering::Relaxed);
        let Some(file) = &self.file else { return Ok(()) };
        fd::replace(file.as_raw_fd(), open_raised(self.path, self.to)?.as_raw_fd())?;
        self.remember()
    }

    /// As [`KeptFile::renew`]; where that fails, the parent's file at least is not held open any longer.
    pub fn renew_or_let_go(&self) {
        if self.renew().is_err()
            && let (Some(file), Ok(other)) = (&self.file, fd::Event::new())
        {
            // What is left then is the number of another file: `descriptor` does not give it out.
            let _ = fd::replace(file.as_raw_fd(), other.as_raw_fd());
        }
    }

    /// Its number.
    ///
    /// # Errors
    /// ENOENT without the file, EBADF when the program has closed it, or has another one there.
    pub fn descriptor(&self) -> Result<RawFd, i32> {
        let Some(file) = &self.file else { return Err(libc::ENOENT) };
        let inode = self.inode.load(Ordering::Relaxed);
        if inode == 0 {
            return Err(libc::ENOENT);
        }
        let found = file.metadata().map_err(|error| error.raw_os_error().unwrap_or(libc::EBADF))?;
        let is_same = found.ino() == inode && found.dev() == self.device.load(Ordering::Relaxed);
        if is_same { Ok(file.as_raw_fd()) } else { Err(libc::EBADF) }
    }

    fn remember(&self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let metadata = file.metadata()?;
        self.device.store(metadata.dev(), Ordering::Relaxed);
        self.inode.store(metadata.ino(), Ordering::Relaxed);
        Ok(())
    }
}

fn open_raised(path: &str, to: To) -> io::Result<Own<File>> {
    let mut options = OpenOptions::new();
    options.read(to == To::Read).write(to == To::Write);
    options.open(path).map(Own::raised)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_file_under_its_number_is_not_taken_for_it() {
        let kept = KeptFile::open("/proc/thread-self/statm").unwrap();
        let number = kept.descriptor().unwrap();
        fd::replace(number, File::open("/proc/self/exe").unwrap().as_raw_fd()).unwrap();
        assert_eq!(kept.descriptor(), Err(libc::EBADF));
        kept.renew().unwrap();
        assert_eq!(kept.descriptor(), Ok(number));
        assert_eq!(KeptFile::none().descriptor(), Err(libc::ENOENT));
    }

    #[test]
    fn a_file_that_cannot_be_opened_again_is_let_go_of() {
        let kept = KeptFile { path: "/nowhere", ..KeptFile::open_to_write("/dev/null").unwrap() };
        let number = kept.descriptor().unwrap();
        kept.renew_or_let_go();
        assert_eq!(kept.descriptor(), Err(libc::ENOENT));
        let there = std::fs::read_link(format!("/proc/self/fd/{number}")).unwrap();
        assert_eq!(there.to_str(), Some("anon_inode:[eventfd]"));
    }
}
