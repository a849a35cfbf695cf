//! A file for data of the process that will not change any more: from there the kernel can drop it, as it does code.
use crate::base::counters::count;
use crate::state::core::Core;
use crate::sys::PAGE_BYTES;
use crate::sys::file_limit;
use crate::sys::own_fd::Own;
use rustix::fs::{OFlags, fcntl_getfl};
use std::fs::File;

impl Core {
    /// An unlinked file with room for so many pages in the first directory that swap was put into. None where there is no such device,
    /// where what is written has to be encrypted or would stay in memory, where files may not be so large, and where the program
    /// has memory locked: it means not to wait for a disk.
    pub fn file_for_data(&self, pages: usize) -> Option<Own<File>> {
        let bytes = (pages * PAGE_BYTES) as u64;
        // Beyond the limit of a file's size a write raises SIGXFSZ.
        if self.devices.encrypts()
            || file_limit::forbids(bytes)
            || !self.clean_pages.is_all_movable()
        {
            return None;
        }
        let mut labels = self
            .devices
            .list()
            .filter(|device| device.is_own_and_on())
            .filter_map(|device| device.label());
        let file = labels.find_map(|label| label.file_beside(bytes))?.ok()?;
        let is_direct = fcntl_getfl(&file).is_ok_and(|flags| flags.contains(OFlags::DIRECT));
        is_direct.then(|| Own::raised(file))
    }

    /// So many pages are mapped from such a file from now on.
    pub fn note_data_in_file(&self, pages: usize) {
        count(&self.counters.relro_to_file, pages as u64);
    }
}
