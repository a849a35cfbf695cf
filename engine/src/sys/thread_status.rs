//! What forbids a way out on which the kernel decides what nobody holds: see `alias`.
//!
//! Filters of system calls that were not tried (`filters`): they may kill a process for a call that it did not make before;
//! memory that is locked; and devices that let go of a page without marking it as written to. Those are registered buffers of io_uring, which the kernel
//! counts as pinned, and its sockets for cryptography (AF_ALG), which it does not count: as long as it has such sockets at all,
//! some may be the program's.
use super::device_pins::{NONE, locked_by_us_only, says};
use super::filters;
use super::kept_file::KeptFile;
use super::{own_locks, process};
use std::cell::Cell;
use std::io;
use std::os::fd::RawFd;

/// Enough for the lines that are looked at, with some hundred groups before them, and for all protocols.
const TEXT_BYTES: usize = 1 << 14;

/// What is known of the thread that made it, to be asked by nobody else.
pub struct Conditions {
    status: KeptFile,
    protocols: KeptFile,
    /// Filters of its system calls that do no harm.
    filters: u32,
    /// Pages were pinned once: nothing tells when a device writes to one that is about to be.
    pinned: Cell<bool>,
}

impl Conditions {
    /// Of the calling thread, to which so many filters do no harm.
    ///
    /// # Errors
    /// Without /proc.
    pub fn new(filters: u32) -> io::Result<Self> {
        let status = KeptFile::open("/proc/thread-self/status")?;
        let protocols = KeptFile::open("/proc/thread-self/net/protocols")?;
        Ok(Self { status, protocols, filters, pinned: Cell::new(false) })
    }

    /// Its descriptors.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        [&self.status, &self.protocols].into_iter().filter_map(|file| file.descriptor().ok())
    }

    /// Whether nothing forbids it for certain.
    pub fn hold(&self) -> bool {
        !self.pinned.get()
            && !process::merges_memory()
            && own_locks::with_count(|own| {
                is_so(&self.status, |text| self.status_permits(text, own))
            })
            && is_so(&self.protocols, marks_what_it_writes)
    }

    fn status_permits(&self, text: &[u8], own: usize) -> bool {
        self.pinned.set(!says(text, b"VmPin:", NONE));
        let is_harmless = |count| count == 0 || count == self.filters;
        !self.pinned.get()
            && locked_by_us_only(text, own)
            && filters::count_in(text).is_some_and(is_harmless)
    }
}

/// What `look` says of a file; false when it cannot be read to its end.
fn is_so(file: &KeptFile, look: impl FnOnce(&[u8]) -> bool) -> bool {
    let mut text = [0u8; TEXT_BYTES];
    let read = file.descriptor().ok().and_then(|fd| process::read_some(fd, &mut text));
    read.is_some_and(|bytes| bytes < TEXT_BYTES && look(&text[..bytes]))
}

/// Whether the kernel has no sockets of that kind.
fn marks_what_it_writes(protocols: &[u8]) -> bool {
    let mut names = protocols.split(|byte| *byte == b'\n').filter_map(first_word);
    names.next() == Some(b"protocol") && names.all(|name| name != b"ALG")
}

fn first_word(line: &[u8]) -> Option<&[u8]> {
    line.split(u8::is_ascii_whitespace).find(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::PAGE_BYTES;
    use super::super::mapping::{Access, Mapping};
    use super::*;

    fn status(locked: u8, pinned: u8, filters: u8) -> String {
        let mode = if filters > 0 { 2 } else { 0 };
        format!(
            "Groups:\t0 \nVmLck:\t  {locked} kB\nVmPin:\t{pinned} kB\nSeccomp:\t{mode}\nSeccomp_filters:\t{filters}\n"
        )
    }

    fn permits(conditions: &Conditions, text: &str) -> bool {
        conditions.status_permits(text.as_bytes(), 0)
    }

    #[test]
    fn what_was_pinned_once_is_not_trusted_again() {
        let conditions = Conditions::new(0).unwrap();
        assert!(permits(&conditions, &status(0, 0, 0)));
        assert!(!permits(&conditions, &status(4, 0, 0)) && permits(&conditions, &status(0, 0, 0)));
        assert!(!permits(&conditions, &status(0, 0, 2)) && permits(&conditions, &status(0, 0, 0)));
        assert!(conditions.status_permits(status(4, 0, 0).as_bytes(), 1));
        assert!(!conditions.status_permits(status(4, 0, 0).as_bytes(), 2));
        assert!(!permits(&conditions, &status(0, 4, 0)) && !conditions.hold());
        assert!(!permits(&conditions, "") && conditions.descriptors().count() == 2);
    }

    #[test]
    fn as_many_filters_as_were_tried_do_no_harm() {
        let permitted = |tried| {
            let conditions = Conditions::new(tried).unwrap();
            [0, 1, 2, 3].map(|filters| permits(&conditions, &status(0, 0, filters)))
        };
        assert_eq!(permitted(0), [true, false, false, false]);
        assert_eq!(permitted(2), [true, false, true, false]);
    }

    #[test]
    fn protocols_are_looked_through() {
        let head = "protocol  size sockets\nUDP 1 2\n";
        assert!(marks_what_it_writes(head.as_bytes()));
        assert!(!marks_what_it_writes(format!("{head}ALG 1024 0\n").as_bytes()));
        assert!(!marks_what_it_writes(b""));
    }

    #[test]
    fn locked_memory_is_seen() {
        let conditions = Conditions::new(0).unwrap();
        let memory = Mapping::new(PAGE_BYTES, Access::ReadWrite).unwrap();
        // SAFETY: changes only where the page may be.
        assert_eq!(unsafe { libc::mlock(memory.address() as *const _, PAGE_BYTES) }, 0);
        assert!(!conditions.hold());
    }
}
