//! Descriptors of ours: at high numbers, and known, so that `run` keeps the program from closing them.
use super::own_table::{self, Apart};
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut, RangeInclusive};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Ours live at or above this number when the limit allows: programs number theirs from zero, and many close everything up
/// to some small bound.
pub(super) const HIGH: RawFd = 900;
/// The most descriptors that a process can have unless fs.nr_open is raised; those beyond are not known.
const NUMBERS: usize = 1 << 20;

/// A bit for each number that is ours.
static OURS: [AtomicU64; NUMBERS / 64] = [const { AtomicU64::new(0) }; NUMBERS / 64];
/// How many words were ever used.
static USED: AtomicUsize = AtomicUsize::new(0);

fn word_of(number: RawFd) -> Option<(usize, u64)> {
    let number = usize::try_from(number).ok().filter(|number| *number < NUMBERS)?;
    Some((number / 64, 1 << (number % 64)))
}

/// Whether a descriptor is ours; safe in a signal handler.
pub fn is_own(number: RawFd) -> bool {
    word_of(number).is_some_and(|(word, bit)| OURS[word].load(Ordering::Relaxed) & bit != 0)
}

/// Those in a range, in order.
pub fn own_within(range: RangeInclusive<u32>) -> impl Iterator<Item = u32> {
    let words = OURS.iter().zip(0..).take(USED.load(Ordering::Relaxed));
    let bits = words.flat_map(|(word, index): (&AtomicU64, u32)| {
        let word = word.load(Ordering::Relaxed);
        (0..64).filter(move |bit| word & 1 << bit != 0).map(move |bit| index * 64 + bit)
    });
    bits.filter(move |number| range.contains(number))
}

/// Whether it was not known yet.
fn note(number: RawFd) -> bool {
    let Some((word, bit)) = word_of(number) else { return true };
    USED.fetch_max(word + 1, Ordering::Relaxed);
    OURS[word].fetch_or(bit, Ordering::Relaxed) & bit == 0
}

pub(super) fn forget(number: RawFd) {
    let Some((word, bit)) = word_of(number) else { return };
    OURS[word].fetch_and(!bit, Ordering::Relaxed);
}

/// What has a descriptor of ours, for as long as it has it.
pub struct Own<T: AsRawFd> {
    it: ManuallyDrop<T>,
    /// Where it was opened, if that is not the table of ours.
    apart: Option<Apart>,
}

impl<T: AsRawFd> Own<T> {
    /// At the number that it has.
    pub fn new(it: T) -> Self {
        note(it.as_raw_fd());
        Self { it: ManuallyDrop::new(it), apart: Apart::now() }
    }
}

impl<T: AsRawFd + From<OwnedFd> + Into<OwnedFd>> Own<T> {
    /// At a high number, if there is one.
    pub fn raised(it: T) -> Self {
        let fd = it.into();
        Self::new(raised_copy(&fd).unwrap_or(fd).into())
    }
}

/// The same at a high number, which is none of ours in another table of descriptors either (`own_table`), and is known.
pub(super) fn raised_copy(fd: &impl AsRawFd) -> Option<OwnedFd> {
    copy_from(fd, HIGH)
}

fn copy_from(fd: &impl AsRawFd, mut lowest: RawFd) -> Option<OwnedFd> {
    loop {
        // SAFETY: duplicates a descriptor that we own.
        let number = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, lowest) };
        if number < 0 {
            return None;
        }
        // SAFETY: the descriptor is new and ours.
        let high = unsafe { OwnedFd::from_raw_fd(number) };
        if note(number) {
            return Some(high);
        }
        lowest = number + 1;
    }
}

impl<T: AsRawFd> Deref for Own<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.it
    }
}

impl<T: AsRawFd> DerefMut for Own<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.it
    }
}

impl<T: AsRawFd + io::Write> io::Write for Own<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.it.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.it.flush()
    }
}

impl<T: AsRawFd> AsRawFd for Own<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.it.as_raw_fd()
    }
}

impl<T: AsRawFd + fmt::Debug> fmt::Debug for Own<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.it.fmt(f)
    }
}

impl<T: AsRawFd> Drop for Own<T> {
    fn drop(&mut self) {
        // Where another file may be at this number, ours stays open where it is.
        let number = self.it.as_raw_fd();
        if !own_table::is_here(number, self.apart) {
            return;
        }
        // First: the number may be the program's as soon as it is closed.
        forget(number);
        // SAFETY: it is not used again.
        unsafe { ManuallyDrop::drop(&mut self.it) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_descriptor_is_ours_from_when_it_is_raised_until_it_is_closed() {
        let low = File::open("/dev/null").unwrap();
        let before = low.as_raw_fd();
        assert!(!is_own(before));
        let own = Own::raised(low);
        let number = own.as_raw_fd();
        assert!(number >= HIGH && is_own(number) && !is_own(before));
        let found: Vec<u32> = own_within(0..=u32::MAX).collect();
        assert!(found.contains(&(number as u32)) && found.is_sorted());
        assert_eq!(own_within(number as u32 + 1..=number as u32).count(), 0);
    }

    #[test]
    fn a_number_is_given_back_with_its_descriptor() {
        let file = File::open("/dev/null").unwrap();
        // Above those that other tests are given meanwhile.
        // SAFETY: duplicates a descriptor of this test's.
        let number = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, HIGH + 100) };
        // SAFETY: the descriptor is new.
        let own = Own::new(unsafe { OwnedFd::from_raw_fd(number) });
        assert!(is_own(number));
        drop(own);
        assert!(!is_own(number));
    }

    #[test]
    fn a_number_of_ours_in_another_table_is_not_taken_in_this_one() {
        // Above those that other tests are given meanwhile; elsewhere as far as this table tells.
        let (low, taken) = (File::open("/dev/null").unwrap(), HIGH + 200);
        assert!(note(taken));
        let next = Own::new(copy_from(&low, taken).unwrap());
        assert_eq!(next.as_raw_fd(), taken + 1);
        assert!(is_own(taken) && is_own(taken + 1));
        forget(taken);
    }

    #[test]
    fn what_is_no_number_is_nobodys() {
        for number in [-1, RawFd::MIN, RawFd::MAX, NUMBERS as RawFd] {
            note(number);
            assert!(!is_own(number));
            forget(number);
        }
    }
}
