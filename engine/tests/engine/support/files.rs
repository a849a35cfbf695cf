//! Files past the page cache whose content a test knows, and reads from them into pages.
use super::pages::{Pages, word};
use super::past::{answered, bytes};
use super::{PAGE, WORDS};
use io_uring::{IoUring, opcode, types};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

/// A file with the content of pages under a stamp, read without the page cache.
pub fn file_of(pages: Pages, stamp: u64) -> File {
    let mut bytes = Vec::with_capacity(pages.count * PAGE);
    for page in 0..pages.count {
        (0..WORDS).for_each(|index| bytes.extend(word(stamp, page, index).to_ne_bytes()));
    }
    let mut file = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
    file.write_all(&bytes).unwrap();
    file.as_file().sync_all().unwrap();
    let direct = File::options().read(true).custom_flags(libc::O_DIRECT).open(file.path());
    direct.expect("/var/tmp is on a disk")
}

/// Reads pages from a file, by a system call or by a ring of the program's own.
pub fn read_from(file: &File, pages: Pages, page: usize, ring: Option<&mut IoUring>) {
    let (to, offset) = (bytes(pages, page, 1), (page * PAGE) as u64);
    let Some(ring) = ring else {
        return assert_eq!(file.read_at(to, offset).unwrap(), PAGE);
    };
    let read = opcode::Read::new(types::Fd(file.as_raw_fd()), to.as_mut_ptr(), PAGE as u32);
    assert_eq!(answered(ring, &read.offset(offset).build()), PAGE as i32);
}
