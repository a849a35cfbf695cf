//! A key in a page of its own: kept out of the kernel's swap and of core dumps, and wiped at the end.
use super::PAGE_BYTES;
use super::mapping::Mapping;
use super::own_locks::OwnLock;
use std::hint::black_box;
use std::io;
use std::marker::PhantomData;
use std::mem::needs_drop;
use std::ops::Deref;
use std::sync::atomic::{Ordering, compiler_fence};

/// Random bytes that a value is made from.
pub const SEED_BYTES: usize = 32;

/// Where they are in the page: at its end.
const SEED_AT: usize = PAGE_BYTES - SEED_BYTES;

/// Stack that making a value may have left copies on: a key with all its rounds is some 600 bytes, and is moved a few times.
const STACK_BYTES: usize = 3072;

/// A value made from random bytes, of which this process has no other copy. A forked child has one of its own.
pub struct Secret<T> {
    page: Mapping,
    locked: OwnLock,
    value: PhantomData<T>,
}

impl<T> Secret<T> {
    /// The value that `make` makes of random bytes.
    ///
    /// # Errors
    /// What getrandom and mmap say, and mlock: ENOMEM or EPERM where the limit of locked memory leaves no page.
    pub fn random(make: fn(&[u8; SEED_BYTES]) -> T) -> io::Result<Self> {
        const {
            assert!(!needs_drop::<T>(), "it is overwritten, never dropped");
            assert!(size_of::<T>() <= SEED_AT && align_of::<T>() <= PAGE_BYTES, "it fits its page");
        }
        let page = Mapping::undumped(PAGE_BYTES)?;
        let secret = Self { page, locked: OwnLock::new()?, value: PhantomData };
        secret.lock()?;
        secret.fill(make)?;
        overwrite_stack();
        Ok(secret)
    }

    /// Keeps the page in RAM. A child, whose pages are not locked by fork, has to ask for that again.
    ///
    /// # Errors
    /// What mlock says.
    pub fn lock(&self) -> io::Result<()> {
        // SAFETY: changes only where the page may be. The raw system call passes by an interposed mlock.
        match unsafe { libc::syscall(libc::SYS_mlock, self.page.address(), PAGE_BYTES) } {
            0 => {
                self.locked.held();
                Ok(())
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Not inlined: what it leaves on the stack is below its caller's part.
    #[inline(never)]
    fn fill(&self, make: fn(&[u8; SEED_BYTES]) -> T) -> io::Result<()> {
        let at = self.page.address() + SEED_AT;
        // SAFETY: the page is ours, and the bytes lie in it. So many come at once or none.
        let got = unsafe { libc::syscall(libc::SYS_getrandom, at, SEED_BYTES, 0) };
        if got != SEED_BYTES as i64 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: they have just been filled, and nobody changes them before this returns.
        let seed = unsafe { &*(at as *const [u8; SEED_BYTES]) };
        let value = make(seed);
        // SAFETY: the page is large enough and aligned for it, and nothing is there yet.
        unsafe { (self.page.address() as *mut T).write(value) };
        overwrite(at, SEED_BYTES);
        Ok(())
    }
}

impl<T> Deref for Secret<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: `random` has put a value there, which stays until `self` is dropped.
        unsafe { &*(self.page.address() as *const T) }
    }
}

impl<T> Drop for Secret<T> {
    fn drop(&mut self) {
        overwrite(self.page.address(), PAGE_BYTES);
        self.locked.released();
    }
}

/// Makes bytes of a page of ours zero, also if nobody looks at them any more.
fn overwrite(address: usize, bytes: usize) {
    for word in 0..bytes / size_of::<u64>() {
        // SAFETY: the caller owns the page; what is overwritten needs no drop.
        unsafe { ((address + word * size_of::<u64>()) as *mut u64).write_volatile(0) };
    }
    compiler_fence(Ordering::SeqCst);
}

/// Overwrites what was called from the caller just before.
#[inline(never)]
fn overwrite_stack() {
    black_box(&mut [0u64; STACK_BYTES / size_of::<u64>()]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The flags of the mapping that an address lies in.
    fn flags_at(address: usize) -> String {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let is_start = |line: &str| {
            let (range, _) = line.split_once(' ')?;
            let (start, end) = range.split_once('-')?;
            let number = |text| usize::from_str_radix(text, 16).ok();
            Some((number(start)?..number(end)?).contains(&address))
        };
        let mut lines = smaps.lines().skip_while(|line| is_start(line) != Some(true));
        lines.find_map(|line| line.strip_prefix("VmFlags:")).unwrap().to_owned()
    }

    #[test]
    fn a_secret_is_random_locked_and_in_no_core_dump() {
        let [one, two] =
            [Secret::random(|seed| *seed).unwrap(), Secret::random(|seed| *seed).unwrap()];
        assert_ne!(*one, *two);
        assert_ne!(*one, [0; SEED_BYTES]);
        for secret in [&one, &two] {
            let flags = flags_at(secret.page.address());
            assert!(flags.contains(" lo") && flags.contains(" dd"), "{flags}");
        }
    }

    #[test]
    fn what_a_secret_was_made_from_is_overwritten() {
        let secret = Secret::random(|seed| u64::from(seed[0])).unwrap();
        let page = super::super::pages::view(secret.page.address(), PAGE_BYTES);
        assert!(page[size_of::<u64>()..].iter().all(|byte| *byte == 0));
    }
}
