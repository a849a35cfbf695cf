//! Tables of descriptors: all threads of a process have one, until one of several asks for its own (`unshare(CLONE_FILES)`).
//!
//! What is opened later has no number there, or that of a file of the program's, which must neither be written to nor taken for
//! a device. So such a thread borrows what a thread of ours has at the number, for the moment of a request.
use super::clock::thread_id;
use super::filters;
use super::own_fd;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

/// `enum kcmp_type`: two descriptors, and two tables of them.
const KCMP_FILE: i32 = 0;
const KCMP_FILES: i32 = 2;
/// A thread, not the process that it belongs to (Linux 6.9).
const PIDFD_THREAD: i32 = libc::O_EXCL;

/// Whether a thread may have one of its own.
static ARE_SEVERAL: AtomicBool = AtomicBool::new(false);
/// A thread of ours, which has the table that ours are in; 0 for none.
static OURS: AtomicI32 = AtomicI32::new(0);
/// How many forks lie between this process and the first.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// From now on a thread of the program may have a table of its own.
pub fn may_be_several() {
    ARE_SEVERAL.store(true, Ordering::Release);
}

/// After fork, in the child: one thread has one table, and the parent's threads are none of its own.
pub fn renew() {
    ARE_SEVERAL.store(false, Ordering::Release);
    OURS.store(0, Ordering::Release);
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// The calling thread is one of ours, and has their table.
pub fn is_of_ours() {
    OURS.store(thread_id(), Ordering::Release);
}

/// A descriptor of ours, by its number in the calling thread's table.
#[derive(Debug)]
pub enum Here {
    /// The same number.
    Same(RawFd),
    /// One that is closed again.
    Borrowed(Borrowed),
}

/// A descriptor for a moment.
#[derive(Debug)]
pub struct Borrowed(RawFd);

impl Drop for Borrowed {
    fn drop(&mut self) {
        // SAFETY: nobody else has it. The raw system call passes by an interposed one.
        unsafe { libc::syscall(libc::SYS_close, self.0) };
    }
}

impl Here {
    /// Safe in a signal handler; a number below zero is none, and stays what it is.
    ///
    /// # Errors
    /// EAGAIN where this table has something else at that number, or nothing, and none can be borrowed for now: beyond the limit on
    /// open files, and before Linux 6.9.
    pub fn of(number: RawFd) -> io::Result<Self> {
        match is_elsewhere(number) {
            false => Ok(Self::Same(number)),
            true => {
                let lent = borrow(OURS.load(Ordering::Acquire), number).ok().flatten();
                lent.map(Self::Borrowed).ok_or_else(|| io::Error::from_raw_os_error(libc::EAGAIN))
            }
        }
    }

    /// The number.
    pub fn number(&self) -> RawFd {
        match self {
            Self::Same(number) => *number,
            Self::Borrowed(fd) => fd.0,
        }
    }
}

/// Whether a number of ours is nothing in the calling thread's table, or something of the program's, as far as the kernel tells.
pub fn is_elsewhere(number: RawFd) -> bool {
    differs(KCMP_FILE, number)
}

/// Whether a number means a descriptor of ours in the calling thread's table.
pub fn is_ours_here(number: RawFd) -> bool {
    own_fd::is_own(number) && !is_elsewhere(number)
}

/// Whether what the calling thread opens has no number in the table of ours.
pub fn is_apart() -> bool {
    differs(KCMP_FILES, 0)
}

/// A thread with a table of its own, which has opened something there.
#[derive(Clone, Copy, Debug)]
pub struct Apart {
    thread: i32,
    forks: u32,
}

impl Apart {
    /// The calling thread, where it is one.
    pub fn now() -> Option<Self> {
        let forks = FORKS.load(Ordering::Relaxed);
        is_apart().then(|| Self { thread: thread_id(), forks })
    }
}

/// Whether what was opened is at its number in the calling thread's table, by whom it was: None where that was in the table of
/// ours. A child of a thread with its own has one table, in which all is.
pub fn is_here(number: RawFd, opened_by: Option<Apart>) -> bool {
    match opened_by {
        Some(apart) if apart.forks == FORKS.load(Ordering::Relaxed) => apart.thread == thread_id(),
        _ => !is_elsewhere(number),
    }
}

/// What the calling thread's table lacks of ours, there for as long as this is.
#[derive(Debug)]
pub struct Brought(Vec<Borrowed>);

/// Why a number cannot mean here what it means in the table of ours.
#[derive(Debug)]
pub enum NotBrought {
    /// Another file has this number here.
    Taken(RawFd),
    /// What the kernel says.
    Refused(io::Error),
}

impl From<io::Error> for NotBrought {
    fn from(error: io::Error) -> Self {
        Self::Refused(error)
    }
}

impl Brought {
    /// What of ours came later, at its numbers: for a child, which begins with a copy of this table.
    ///
    /// # Errors
    /// A number is another file's here, or a descriptor cannot be had.
    pub fn of(numbers: impl Iterator<Item = RawFd>) -> Result<Self, NotBrought> {
        let mut brought = Vec::new();
        if !is_apart() {
            return Ok(Self(brought));
        }
        for number in numbers.filter(|number| is_elsewhere(*number)) {
            // One that is closed meanwhile is nothing there.
            let Some(lent) = borrow(OURS.load(Ordering::Acquire), number)? else { continue };
            brought.push(at_number(lent, number)?);
        }
        Ok(Self(brought))
    }

    /// In the child, whose they are.
    pub fn keep(self) {
        self.0.into_iter().for_each(std::mem::forget);
    }
}

/// The same at a number that nothing else here has.
fn at_number(lent: Borrowed, number: RawFd) -> Result<Borrowed, NotBrought> {
    if lent.0 == number {
        return Ok(lent);
    }
    // SAFETY: duplicates a descriptor, at the number or one above it.
    let fd = unsafe { libc::syscall(libc::SYS_fcntl, lent.0, libc::F_DUPFD_CLOEXEC, number) };
    match borrowed(fd)? {
        there if there.0 == number => Ok(there),
        _ => Err(NotBrought::Taken(number)),
    }
}

/// A filter of the program's may end it at a call that it does not know.
fn differs(kind: i32, number: RawFd) -> bool {
    number >= 0
        && ARE_SEVERAL.load(Ordering::Acquire)
        && !filters::are_expected()
        && compare(OURS.load(Ordering::Acquire), kind, number) == Compared::Another
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Compared {
    Same,
    Another,
    /// There is no such thread just now, or the kernel does not say.
    Unknown,
}

fn compare(ours: i32, kind: i32, number: RawFd) -> Compared {
    // SAFETY: sends nothing: tells whether it is a thread of this process.
    if unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), ours, 0) } != 0 {
        return Compared::Unknown;
    }
    let here = thread_id();
    // SAFETY: compares, and changes nothing.
    let compared = unsafe { libc::syscall(libc::SYS_kcmp, ours, here, kind, number, number) };
    match compared {
        0 => Compared::Same,
        -1 if io::Error::last_os_error().raw_os_error() != Some(libc::EBADF) => Compared::Unknown,
        // 1 to 3, or the number is open in one of both at most.
        _ => Compared::Another,
    }
}

/// None where that thread has nothing at the number.
fn borrow(ours: i32, number: RawFd) -> io::Result<Option<Borrowed>> {
    // SAFETY: opens a descriptor.
    let thread = unsafe { libc::syscall(libc::SYS_pidfd_open, ours, PIDFD_THREAD) };
    let thread = borrowed(thread)?;
    // SAFETY: duplicates a descriptor into this table.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_getfd, thread.0, number, 0) };
    match borrowed(fd) {
        Err(error) if error.raw_os_error() == Some(libc::EBADF) => Ok(None),
        lent => lent.map(Some),
    }
}

fn borrowed(result: libc::c_long) -> io::Result<Borrowed> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        fd => Ok(Borrowed(fd as RawFd)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;
    use std::thread;

    /// The file that a number means in the calling thread's table.
    fn inode_of(number: RawFd) -> Option<u64> {
        Some(std::fs::metadata(format!("/proc/thread-self/fd/{number}")).ok()?.ino())
    }

    /// Has the number mean a file in the calling thread's table, or nothing.
    fn put(path: Option<&str>, number: RawFd) {
        let Some(path) = path else {
            // SAFETY: this thread's table is its own.
            assert_eq!(unsafe { libc::close(number) }, 0);
            return;
        };
        let file = File::open(path).unwrap();
        // SAFETY: this thread's table is its own.
        assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), number) }, number);
    }

    #[test]
    fn a_thread_with_a_table_of_its_own_borrows_what_came_later() {
        let ours = thread_id();
        let early = File::open("/etc/passwd").unwrap();
        let number = early.as_raw_fd();
        thread::scope(|scope| {
            scope.spawn(move || {
                assert_eq!(compare(ours, KCMP_FILES, 0), Compared::Same);
                // SAFETY: this thread opens and closes nothing of others.
                assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0);
                assert_eq!(compare(ours, KCMP_FILES, 0), Compared::Another);
                assert_eq!(compare(ours, KCMP_FILE, number), Compared::Same);
                // What is at the number here is another file now than there; then nothing.
                for at_it in [Some("/etc/group"), None] {
                    put(at_it, number);
                    let own = inode_of(number);
                    assert_eq!(own.is_some(), at_it.is_some());
                    assert_eq!(compare(ours, KCMP_FILE, number), Compared::Another);
                    let lent = borrow(ours, number).unwrap().unwrap();
                    assert_ne!(lent.0, number);
                    let right = Some(std::fs::metadata("/etc/passwd").unwrap().ino());
                    assert_eq!(inode_of(lent.0), right);
                    let was = lent.0;
                    drop(lent);
                    assert_eq!((inode_of(was), inode_of(number)), (None, own));
                    let lent = borrow(ours, number).unwrap().unwrap();
                    let there = at_number(lent, number);
                    match own {
                        Some(_) => assert!(
                            matches!(there, Err(NotBrought::Taken(taken)) if taken == number)
                        ),
                        None => assert_eq!(inode_of(there.unwrap().0), right),
                    }
                    assert_eq!(inode_of(number), own, "what was there, or nothing");
                }
                assert!(borrow(ours, 1 << 19).unwrap().is_none(), "nobody has it");
            });
        });
        assert_eq!(inode_of(number), Some(early.metadata().unwrap().ino()));
        assert_eq!(compare(i32::MAX, KCMP_FILES, 0), Compared::Unknown, "there is no such thread");
    }

    #[test]
    fn what_a_thread_opened_in_a_table_of_its_own_is_there_for_it_and_in_its_child() {
        let forks = FORKS.load(Ordering::Relaxed);
        let number = File::open("/etc/passwd").unwrap();
        let is_here = |thread, forks| is_here(number.as_raw_fd(), Some(Apart { thread, forks }));
        assert!(is_here(thread_id(), forks));
        assert!(!is_here(thread_id() + 1, forks));
        assert!(is_here(thread_id() + 1, forks.wrapping_sub(1)));
    }

    #[test]
    fn no_number_and_numbers_of_the_one_table_stay_what_they_are() {
        assert!(matches!(Here::of(-1), Ok(Here::Same(-1))));
        let file = File::open("/etc/passwd").unwrap();
        assert_eq!(Here::of(file.as_raw_fd()).unwrap().number(), file.as_raw_fd());
    }
}
