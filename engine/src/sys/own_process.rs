//! Whether this is still the process in which something was made: a page that the kernel hands to a forked child as zeros.
//!
//! What counts is the address space: threads and children of vfork share it, and are here. It costs a load, where asking for the
//! number of the process would cost a system call, and a child of vfork has another one.
use super::PAGE_BYTES;
use super::mapping::Mapping;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

/// See the top of the file.
#[derive(Debug)]
pub struct OwnProcess {
    page: Mapping,
}

impl OwnProcess {
    /// This one.
    ///
    /// # Errors
    /// What mmap and madvise say.
    pub fn new() -> io::Result<Self> {
        let page = Mapping::undumped(PAGE_BYTES)?;
        page.advise(0, PAGE_BYTES, libc::MADV_WIPEONFORK)?;
        let own = Self { page };
        own.adopt();
        Ok(own)
    }

    /// In a forked child that goes on with what its parent had: from here on it is the child's own.
    pub fn adopt(&self) {
        // Relaxed: the child has one thread, and starts the others afterwards.
        self.word().store(1, Ordering::Relaxed);
    }

    /// Whether the process that asks is the one.
    pub fn is_here(&self) -> bool {
        self.word().load(Ordering::Relaxed) != 0
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: the word lies at the start of the mapping, which lives as long as `self`; zero is a valid value.
        unsafe { &*(self.page.address() as *const AtomicU32) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::bench::process::{self, Fork};

    /// What a child of fork ends with that looks whether it is here.
    fn looked(own: &OwnProcess, adopts: impl FnOnce()) -> Option<i32> {
        match process::fork().unwrap() {
            Fork::Child => {
                adopts();
                process::end(i32::from(own.is_here()))
            }
            Fork::Parent { child } => process::wait(child).unwrap().status.code(),
        }
    }

    #[test]
    fn a_forked_child_is_elsewhere_until_it_goes_on_with_what_there_is() {
        let own = OwnProcess::new().unwrap();
        assert!(own.is_here());
        assert_eq!(looked(&own, || ()), Some(0));
        assert_eq!(looked(&own, || own.adopt()), Some(1));
        assert!(own.is_here());
    }
}
