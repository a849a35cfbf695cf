//! What a job has told its user already: a page of shared memory, in a file, that all its processes can map.
//!
//! It is a table of the hashes of what was said, and a counter; both only grow, so that a process may end at any
//! moment. Children may have become other users: every user can write to it, and gains by that only that
//! something is said twice, or not at all.
use super::PAGE_BYTES;
use super::mapping::{Access, Mapping};
use std::fs::{OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

const WORDS: usize = PAGE_BYTES / 8;

/// The page of this process's job.
static OURS: OnceLock<Told> = OnceLock::new();

/// The page, mapped for good.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    words: &'static [AtomicU64; WORDS],
}

impl Told {
    /// Makes the file, in the place of one that a process of the same number left.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(path: &Path) -> io::Result<()> {
        let _ = std::fs::remove_file(path);
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        file.set_permissions(Permissions::from_mode(0o666))?;
        file.set_len(PAGE_BYTES as u64)
    }

    /// Maps it.
    ///
    /// # Errors
    /// What the system says; a file that is too short.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        if file.metadata()?.len() < PAGE_BYTES as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Self::in_mapping(Mapping::of_file(&file, PAGE_BYTES)?))
    }

    /// A page of this process's and its forked children's own.
    ///
    /// # Errors
    /// No memory.
    pub fn alone() -> io::Result<Self> {
        Ok(Self::in_mapping(Mapping::shared(PAGE_BYTES, Access::ReadWrite)?))
    }

    fn in_mapping(page: Mapping) -> Self {
        let words = page.address() as *const [AtomicU64; WORDS];
        std::mem::forget(page);
        // SAFETY: the page stays mapped, and is used by atomic accesses alone.
        Self { words: unsafe { &*words } }
    }

    /// From now on it is the page of this process's job.
    pub fn keep(self) {
        let _ = OURS.set(self);
    }

    /// The page of this process's job; None in a program that no job's library is in.
    pub fn ours() -> Option<&'static Self> {
        OURS.get()
    }

    /// Whether a thing is told for the first time. A full table has told everything.
    pub fn is_first(&self, thing: u64) -> bool {
        let thing = thing.max(1);
        let table = &self.words[1..];
        for step in 0..table.len() {
            let word = &table[(thing as usize).wrapping_add(step) % table.len()];
            // Relaxed: nothing but the word itself is told by it.
            match word.compare_exchange(0, thing, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(found) if found == thing => return false,
                Err(_) => {}
            }
        }
        false
    }

    /// Counts a child that runs unmanaged.
    pub fn count_child(&self) {
        // Relaxed: a counter.
        self.words[0].fetch_add(1, Ordering::Relaxed);
    }

    /// Children counted so far.
    pub fn children(&self) -> u64 {
        self.words[0].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_is_told_once_by_all_who_map_the_page() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("told");
        Told::create(&path).unwrap();
        let (one, other) = (Told::open(&path).unwrap(), Told::open(&path).unwrap());
        assert!(one.is_first(7) && !other.is_first(7) && other.is_first(7 + WORDS as u64 - 1));
        other.count_child();
        assert_eq!((one.children(), Told::alone().unwrap().children()), (1, 0));
        let told = (1000..2000).filter(|thing| one.is_first(*thing)).count();
        assert_eq!(told, WORDS - 3, "a full table has told everything");
        std::fs::write(&path, "short").unwrap();
        assert!(Told::open(&path).is_err());
    }
}
