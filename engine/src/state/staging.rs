//! Where a page of memory that may be executed stops over on its way out.
//!
//! MOVE goes between mappings of the same protection only, and frames cannot be executed. A copy from where a page lies
//! could miss what a device is writing into it: only MOVE tells. So such a page is moved here, which the kernel refuses
//! while anything holds it, and copied from here.
use crate::sys::lock::{Guard, Lock};
use crate::sys::mapping::{self, Access, Mapping};
use crate::sys::uffd::Uffd;
use crate::sys::{PAGE_BYTES, filters};
use std::io;

enum Place {
    /// Nobody has asked yet.
    Unknown,
    /// One page, registered and missing but while somebody uses it.
    Page(Mapping),
    /// The process may have no memory that can be executed, as its own were made before that was forbidden.
    Impossible,
}

/// The place, for one thread at a time.
pub struct Staging(Lock<Place>);

/// It is the holder's; the page has to be missing again when it is dropped.
pub struct Stage<'a> {
    _guard: Guard<'a, Place>,
    pub address: usize,
}

impl Stage<'_> {
    /// A raw mlockall has locked it, perhaps, which MOVE refuses as well.
    pub fn unlock(&self) {
        mapping::unlock(self.address, PAGE_BYTES);
    }
}

impl Staging {
    /// None is made before it is needed.
    pub const fn new() -> Self {
        Self(Lock::new(Place::Unknown))
    }

    /// Waits for whoever is using it; None where there is none, or none for now.
    pub fn enter(&self, uffd: &Uffd) -> Option<Stage<'_>> {
        let mut place = self.0.lock();
        // A filter of the program's may end it for memory that can be executed.
        if matches!(*place, Place::Unknown) && !filters::are_expected() {
            *place = match Self::open(uffd) {
                Ok(mapping) => Place::Page(mapping),
                Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => Place::Unknown,
                Err(_) => Place::Impossible,
            };
        }
        let Place::Page(mapping) = &*place else { return None };
        let address = mapping.address();
        Some(Stage { _guard: place, address })
    }

    fn open(uffd: &Uffd) -> io::Result<Mapping> {
        let mapping = Mapping::new(PAGE_BYTES, Access::Executable)?;
        mapping.advise(0, PAGE_BYTES, libc::MADV_DONTDUMP)?;
        uffd.register(mapping.address(), mapping.bytes())?;
        Ok(mapping)
    }

    /// In a forked child, whose userfaultfd is a new one.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn register(&self, uffd: &Uffd) -> io::Result<()> {
        match &*self.0.lock() {
            Place::Page(mapping) => {
                uffd.register(mapping.address(), mapping.bytes())?;
                // What a reader from outside has had the kernel put there.
                mapping.advise(0, mapping.bytes(), libc::MADV_DONTNEED)
            }
            Place::Unknown | Place::Impossible => Ok(()),
        }
    }
}
