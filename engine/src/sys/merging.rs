//! Whether the kernel merges memory of the process with other memory of the same content (KSM): /proc/self/ksm_stat.
//!
//! A page that is merged has a new entry, without the write protection of the old one.
use super::device_pins::value;
use super::kept_file::KeptFile;
use super::process;
use std::io;

/// Longer than the file is.
const TEXT_BYTES: usize = 512;

/// The file; None in a kernel without KSM, or before Linux 6.1, where no pages are dropped that this is asked for.
pub struct Merging(Option<KeptFile>);

impl Merging {
    /// Opens it.
    pub fn open() -> Self {
        Self(match KeptFile::open("/proc/self/ksm_stat") {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(_) => Some(KeptFile::none()),
        })
    }

    /// After fork, in the child: the file is about the parent, and is replaced or never used again.
    pub fn renew(&self) {
        // What is asked of it has no answer then.
        let _ = self.0.as_ref().map(KeptFile::renew);
    }

    /// Whether it merges any, or may be about to.
    pub fn is_any(&self) -> bool {
        process::merges_memory() || self.0.as_ref().is_some_and(|file| !is_none(file))
    }
}

fn is_none(file: &KeptFile) -> bool {
    let mut text = [0u8; TEXT_BYTES];
    let bytes = file.descriptor().ok().and_then(|file| process::read_some(file, &mut text));
    bytes.is_some_and(|bytes| says_none(&text[..bytes]))
}

/// No page is looked at for others like it, and, where the kernel tells (Linux 6.16), no mapping is given for that.
fn says_none(text: &[u8]) -> bool {
    value(text, b"ksm_rmap_items") == Some(b"0") && value(text, b"ksm_mergeable:") != Some(b"yes")
}

#[cfg(test)]
mod tests {
    use super::super::PAGE_BYTES;
    use super::super::mapping::{Access, Mapping};
    use super::*;

    #[test]
    fn the_file_is_understood() {
        assert!(says_none(b"ksm_rmap_items 0\nksm_zero_pages 5\n"));
        assert!(says_none(b"ksm_rmap_items 0\nksm_merge_any: no\nksm_mergeable: no\n"));
        assert!(!says_none(b"ksm_rmap_items 0\nksm_merge_any: no\nksm_mergeable: yes\n"));
        assert!(!says_none(b"ksm_rmap_items 3\n"));
        assert!(!says_none(b""), "there is no telling");
    }

    #[test]
    fn memory_that_is_given_to_be_merged_is_seen() {
        let told = std::fs::read_to_string("/proc/self/ksm_stat").unwrap_or_default();
        let (merging, memory) =
            (Merging::open(), Mapping::new(PAGE_BYTES, Access::ReadWrite).unwrap());
        assert!(!merging.is_any());
        // Refused by a kernel without KSM.
        let _ = memory.advise(0, PAGE_BYTES, libc::MADV_MERGEABLE);
        assert_eq!(merging.is_any(), told.contains("ksm_mergeable:"));
        let _ = memory.advise(0, PAGE_BYTES, libc::MADV_UNMERGEABLE);
        assert!(Merging(Some(KeptFile::none())).is_any(), "there is no telling");
    }
}
