//! Whether the kernel counts memory of the process that is pinned for devices, or locked: /proc/self/status.
//!
//! Nothing tells which pages those are. RDMA and registered buffers of io_uring are counted as pinned, VFIO as locked;
//! transfers that end by themselves (O_DIRECT) are not counted. What is locked by us is no device's.
use super::kept_file::KeptFile;
use super::{PAGE_BYTES, own_locks, process};

/// Enough for the lines before them, with some hundred groups.
const TEXT_BYTES: usize = 2048;

/// The file, if it could be opened.
pub struct DevicePins(KeptFile);

impl DevicePins {
    /// Opens it.
    pub fn open() -> Self {
        Self(KeptFile::open("/proc/self/status").unwrap_or_else(|_| KeptFile::none()))
    }

    /// After fork, in the child: the file is about the parent, and is replaced or never used again.
    pub fn renew(&self) {
        // What is asked of it has no answer then.
        let _ = self.0.renew();
    }

    /// Whether there are none for certain. Allocates nothing; the text is not to be on the stack of callers that run in
    /// a signal handler, where there are no clean pages.
    #[inline(never)]
    pub fn are_none(&self) -> bool {
        own_locks::with_count(|own| self.none_but(own))
    }

    fn none_but(&self, own: usize) -> bool {
        let mut text = [0u8; TEXT_BYTES];
        let Ok(file) = self.0.descriptor() else { return false };
        let Some(bytes) = process::read_some(file, &mut text) else { return false };
        says(&text[..bytes], b"VmPin:", NONE) && locked_by_us_only(&text[..bytes], own)
    }
}

/// Whether a status says that no memory is locked but so many pages of ours.
pub(super) fn locked_by_us_only(status: &[u8], own: usize) -> bool {
    kib(status, b"VmLck:") == Some(own * PAGE_BYTES / 1024)
}

/// The value of a line of a status in KiB.
pub(super) fn kib(status: &[u8], name: &[u8]) -> Option<usize> {
    str::from_utf8(value(status, name)?.strip_suffix(b" kB")?).ok()?.parse().ok()
}

/// How /proc says that there is no memory of a kind.
pub(super) const NONE: &[u8] = b"0 kB";

/// Whether a line of a status begins with `name`, and goes on with `value`.
pub(super) fn says(status: &[u8], name: &[u8], value: &[u8]) -> bool {
    self::value(status, name) == Some(value)
}

/// The value of a line of a status.
pub(crate) fn value<'a>(status: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let found = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name));
    found.map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use super::super::PAGE_BYTES;
    use super::super::mapping::{Access, Mapping};
    use super::*;

    #[test]
    fn memory_that_is_locked_is_seen() {
        let (pins, memory) =
            (DevicePins::open(), Mapping::new(PAGE_BYTES, Access::ReadWrite).unwrap());
        let address = memory.address() as *const libc::c_void;
        // Other tests of this process lock memory, too: only what this one does is certain.
        // SAFETY: changes only where the page may be.
        assert_eq!(unsafe { libc::mlock(address, PAGE_BYTES) }, 0);
        assert!(!pins.are_none() && !DevicePins(KeptFile::none()).are_none());
    }
}
