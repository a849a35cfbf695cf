//! What /proc says of the calling thread that could forbid a call, and of memory that devices hold for long.
use super::kept_file::KeptFile;
use super::process;
use std::cell::Cell;
use std::io;
use std::os::fd::RawFd;

/// Enough for the lines that are looked at, with some hundred groups before them.
const TEXT_BYTES: usize = 4096;

/// Of the thread that made it: as long as they hold, what was permitted then is permitted still, and the kernel counts no
/// page of the process as pinned or locked.
pub struct Conditions {
    file: KeptFile,
    /// The filters of system calls (seccomp) at the beginning: one more might kill the process for a call.
    filters: Option<u64>,
    /// Pages were pinned once: nothing tells when a device writes to one that is about to be.
    pinned: Cell<bool>,
}

impl Conditions {
    /// Of the calling thread, to be asked by nobody else.
    ///
    /// # Errors
    /// Without /proc.
    pub fn new() -> io::Result<Self> {
        let file = KeptFile::open("/proc/thread-self/status")?;
        let mut conditions = Self { file, filters: None, pinned: Cell::new(false) };
        conditions.filters = conditions.with_text(filters).flatten();
        Ok(conditions)
    }

    /// Its descriptor.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.file.descriptor().ok()
    }

    /// Whether that is so for certain.
    pub fn hold(&self) -> bool {
        let is_known = self.filters.is_some() && !self.pinned.get() && !process::merges_memory();
        is_known && self.with_text(|text| self.hold_by(text)).unwrap_or(false)
    }

    fn hold_by(&self, text: &[u8]) -> bool {
        self.pinned.set(value_of(text, b"VmPin:") != Some(0));
        !self.pinned.get() && value_of(text, b"VmLck:") == Some(0) && filters(text) == self.filters
    }

    fn with_text<T>(&self, look: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let mut text = [0u8; TEXT_BYTES];
        let bytes = process::read_some(self.file.descriptor().ok()?, &mut text)?;
        Some(look(&text[..bytes]))
    }
}

/// The filters of system calls; None when that is not said.
fn filters(text: &[u8]) -> Option<u64> {
    match value_of(text, b"Seccomp:")? {
        0 => Some(0),
        // Since Linux 5.9; without it a second one would not be seen.
        _ => value_of(text, b"Seccomp_filters:"),
    }
}

/// The number that a line begins with, after its name.
fn value_of(text: &[u8], name: &[u8]) -> Option<u64> {
    let line = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name))?;
    let digits = line.trim_ascii_start().split(|byte| byte.is_ascii_whitespace()).next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::PAGE_BYTES;
    use super::super::mapping::{Access, Mapping};
    use super::*;

    const TEXT: &[u8] = b"VmLck:\t       0 kB\nVmPin:\t 12 kB\nSeccomp:\t2\nSeccomp_filters:\t3\n";

    #[test]
    fn lines_are_read_as_the_kernel_writes_them() {
        assert_eq!(value_of(TEXT, b"VmLck:"), Some(0));
        assert_eq!(value_of(TEXT, b"VmPin:"), Some(12));
        assert_eq!(value_of(TEXT, b"VmHWM:"), None);
        assert_eq!(filters(TEXT), Some(3));
        assert_eq!(filters(b"Seccomp:\t0\n"), Some(0));
        assert_eq!(filters(b"Seccomp:\t2\n"), None);
        assert_eq!(filters(b""), None);
    }

    #[test]
    fn what_was_pinned_once_is_not_trusted_again_and_another_filter_is_seen() {
        let all =
            |filters| Conditions { file: KeptFile::none(), filters, pinned: Cell::new(false) };
        let clean = |filters: u8| {
            format!("VmLck:\t0 kB\nVmPin:\t0 kB\nSeccomp:\t2\nSeccomp_filters:\t{filters}\n")
        };
        let conditions = all(Some(1));
        assert!(conditions.hold_by(clean(1).as_bytes()));
        assert!(!conditions.hold_by(clean(2).as_bytes()));
        assert!(!conditions.hold_by(TEXT) && conditions.pinned.get());
        assert!(!conditions.hold() && !all(None).hold());
    }

    #[test]
    fn locked_memory_is_seen() {
        let conditions = Conditions::new().unwrap();
        let memory = Mapping::new(PAGE_BYTES, Access::ReadWrite).unwrap();
        // SAFETY: changes only where the page may be.
        assert_eq!(unsafe { libc::mlock(memory.address() as *const _, PAGE_BYTES) }, 0);
        assert!(conditions.descriptor().is_some() && !conditions.hold());
    }
}
