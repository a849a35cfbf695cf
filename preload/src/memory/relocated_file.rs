//! A copy of memory in a file, and the file's pages in the place of the memory.
use crate::abi::raw::{self, Errno, MapRequest, RemapRequest, Span};
use crate::abi::system_call;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use userswap::internals::mapping::Mapping;
use userswap::internals::own_fd::Own;
use userswap::internals::{PAGE_BYTES, pages};

/// A copy that a file has.
pub struct Copied {
    file: Own<File>,
    data: Range<usize>,
    /// What the device gives back.
    read: Mapping,
    /// Where the file is mapped until it has its place.
    mapped: Option<Span>,
}

/// Writes memory that is there, in whole pages, to an empty file past the page cache.
pub fn copy_of(data: &Range<usize>, file: Own<File>) -> Option<Copied> {
    let read = Mapping::undumped(data.len()).ok()?;
    let mut copied = Copied { file, data: data.clone(), read, mapped: None };
    for (call, memory) in
        [(libc::SYS_pwrite64, data.start), (libc::SYS_pread64, copied.read.address())]
    {
        let mut done = 0;
        while done < data.len() {
            done += copied.transfer(call, memory + done, data.len() - done, done)?;
        }
    }
    let (bytes, fd) = (data.len(), copied.file.as_raw_fd());
    let (protection, flags) = (libc::PROT_READ, libc::MAP_PRIVATE);
    let request = MapRequest { address: 0, bytes, protection, flags, fd, offset: 0 };
    copied.mapped = Some(Span { address: raw::map(request).ok()?, bytes });
    Some(copied)
}

impl Copied {
    /// Whether the device has given back what the memory holds now.
    pub fn is_equal(&self) -> bool {
        let bytes = self.data.len();
        pages::view(self.read.address(), bytes) == pages::view(self.data.start, bytes)
    }

    /// Puts the file's pages in the memory's place. What fails leaves the memory as it was, as a rule: the file is mapped before,
    /// so that the kernel needs nothing but memory of its own.
    pub fn replace(mut self) -> Result<usize, Errno> {
        let Some(Span { address, bytes }) = self.mapped.take() else { return Err(libc::EINVAL) };
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let new_address = self.data.start;
        raw::remap(RemapRequest { address, bytes, new_bytes: bytes, flags, new_address })
            .inspect_err(|_| {
                let _ = raw::unmap(Span { address, bytes });
            })
    }

    /// One request for some bytes of the file; how many it was for, in whole pages, None when it failed.
    fn transfer(
        &self,
        call: libc::c_long,
        address: usize,
        bytes: usize,
        offset: usize,
    ) -> Option<usize> {
        let passed = [self.file.as_raw_fd() as usize, address, bytes, offset, 0, 0];
        let outcome = system_call::make(call, passed).cast_signed();
        let bytes = usize::try_from(outcome).ok()?;
        // A part of a page would be no multiple of the device's blocks.
        (bytes > 0 && bytes.is_multiple_of(PAGE_BYTES)).then_some(bytes)
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        if let Some(span) = self.mapped {
            let _ = raw::unmap(span);
        }
    }
}
