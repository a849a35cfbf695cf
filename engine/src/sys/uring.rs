//! Requests in flight on an io_uring.
use super::own_fd::{self, Own, raised_copy};
use super::request::{Direction, Pieces, Request};
use io_uring::squeue::Flags;
use io_uring::{IoUring, opcode, types};
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};

/// The token of a timeout that a throttled request waits for: its completion is nobody's.
const WAITED: u64 = u64::MAX;

/// The token of a look at a descriptor, see [`Ring::watch`].
const WATCHED: u64 = u64::MAX - 1;

/// A ring with room for `entries` requests.
pub struct Ring {
    ring: Own<IoUring>,
    /// A look at a descriptor is under way.
    is_watching: bool,
    /// What is started waits for others, with which it is handed to the kernel.
    /// Requests of which the kernel is told at once.
    together: usize,
}

impl Ring {
    /// A new ring.
    ///
    /// # Errors
    /// EPERM or ENOSYS where io_uring is forbidden, ENOMEM.
    pub fn new(entries: u32) -> io::Result<Self> {
        // One thread submits and reaps, and it enters the kernel anyway: completions need no interrupt.
        let ring = IoUring::builder()
            .setup_coop_taskrun()
            .build(2 * entries)
            .or_else(|_| IoUring::new(2 * entries))?;
        let Some(high) = raised_copy(&ring) else {
            return Ok(Self::of(ring));
        };
        let number = high.into_raw_fd();
        // SAFETY: the same ring under another number, with its own parameters.
        let raised = unsafe { IoUring::from_fd(number, ring.params().clone()) };
        // Closed again where it could not be mapped.
        let raised = raised.inspect_err(|_| own_fd::forget(number))?;
        Ok(Self::of(raised))
    }

    fn of(ring: IoUring) -> Self {
        Self { ring: Own::new(ring), is_watching: false, together: 1 }
    }

    /// From here on requests wait for others, until there are so many together, or [`Ring::end_groups`] or a wait hands them to
    /// the kernel.
    pub fn begin_groups(&mut self, together: usize) {
        self.together = together;
    }

    /// Hands the kernel what has been started since.
    pub fn end_groups(&mut self) {
        self.together = 1;
        self.submit();
    }

    /// Lets the ring keep the devices open. When the process ends, their last reference goes with the ring,
    /// in the kernel's own time: freeing the blocks of an unlinked swap file (0.3 s for 1.5 GiB on a disk
    /// with discard) does not hold the process up.
    pub fn keep_open(&self, files: &[RawFd]) {
        // An error here only says that there were none before.
        let _ = self.ring.submitter().unregister_files();
        // Where the limit on registered files is too low, the process waits for its files as always.
        let _ = self.ring.submitter().register_files(files);
    }

    /// Starts a request; `pieces` must stay in place until its completion is reaped.
    pub fn start(&mut self, request: Request, pieces: &Pieces, token: u64) {
        let Request { fd, direction, offset, not_before_ns, .. } = request;
        let until = types::Timespec::new()
            .sec(not_before_ns / 1_000_000_000)
            .nsec((not_before_ns % 1_000_000_000) as u32);
        if not_before_ns > 0 {
            // The transfer begins when the timeout before it has passed.
            let flags = types::TimeoutFlags::ABS | types::TimeoutFlags::ETIME_SUCCESS;
            let wait = opcode::Timeout::new(&until).flags(flags).build();
            // SAFETY: the kernel copies the time when the entry is submitted, below.
            unsafe { self.ring.submission().push(&wait.flags(Flags::IO_LINK).user_data(WAITED)) }
                .expect("a ring has two entries for each request");
        }
        let (iov, count) = (pieces.as_ptr(), pieces.count() as u32);
        let entry = match direction {
            // What fails on purpose still completes as everything does.
            _ if count == 0 => opcode::Nop::new().build(),
            Direction::Read => opcode::Readv::new(types::Fd(fd), iov, count).offset(offset).build(),
            Direction::Write => {
                opcode::Writev::new(types::Fd(fd), iov, count).offset(offset).build()
            }
        }
        .user_data(token);
        // SAFETY: the pieces and the memory they name are held until the completion is reaped.
        unsafe { self.ring.submission().push(&entry) }
            .expect("the queue never starts more than its entries");
        let is_full = self.ring.submission().len() >= self.together;
        if is_full || not_before_ns > 0 {
            self.submit();
        }
    }

    /// Has something finished that the kernel is not asked for.
    pub fn complete(&mut self, token: u64) {
        let nothing = opcode::Nop::new().build().user_data(token);
        // SAFETY: the entry names no memory.
        unsafe { self.ring.submission().push(&nothing) }
            .expect("the queue never starts more than its entries");
        self.submit();
    }

    /// Ends the next wait as soon as `fd` is readable; for one descriptor, and once.
    pub fn watch(&mut self, fd: RawFd) {
        if self.is_watching {
            return;
        }
        let look = opcode::PollAdd::new(types::Fd(fd), libc::POLLIN as u32).build();
        // SAFETY: the entry names no memory.
        unsafe { self.ring.submission().push(&look.user_data(WATCHED)) }
            .expect("there is room for an entry beside two of each request");
        self.is_watching = true;
        self.submit();
    }

    /// Takes a finished request: its token and the bytes or error number it ended with.
    pub fn reap(&mut self) -> Option<(u64, i32)> {
        loop {
            let entry = self.ring.completion().next()?;
            match entry.user_data() {
                WAITED => {}
                WATCHED => self.is_watching = false,
                token => return Some((token, entry.result())),
            }
        }
    }

    /// Waits until a request has finished.
    pub fn wait(&mut self) {
        self.enter(1);
    }

    /// Hands the kernel all entries: it may take some only, and leave the others until it is asked again.
    fn submit(&mut self) {
        while !self.ring.submission().is_empty() {
            self.enter(0);
        }
    }

    /// Without its ring, closed by the program for instance, the engine could not keep any promise. EBUSY, that
    /// completions must be reaped first, cannot be: there is room for those of all requests that a queue starts.
    fn enter(&mut self, wait_for: usize) {
        loop {
            let Err(error) = self.ring.submit_and_wait(wait_for) else { return };
            match error.raw_os_error() {
                // Interrupted, or memory is short for a moment.
                Some(libc::EINTR | libc::EAGAIN) => {}
                code => super::process::die("userswap: io_uring failed", code.unwrap_or(0)),
            }
        }
    }
}

impl AsRawFd for Ring {
    fn as_raw_fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::mapping::{Access, Mapping};
    use crate::sys::{PAGE_BYTES, fd};

    #[test]
    fn a_group_is_handed_over_as_a_whole_once_it_is_full() {
        let file = fd::memory_file().unwrap();
        let memory = Mapping::new(PAGE_BYTES, Access::ReadWrite).unwrap();
        let mut ring = Ring::new(8).unwrap();
        let pieces = Pieces::one(memory.address(), PAGE_BYTES);
        let write = Request::new(file.as_raw_fd(), Direction::Write, 0);
        ring.begin_groups(3);
        let waiting = |token| {
            ring.start(write, &pieces, token);
            ring.ring.submission().len()
        };
        assert_eq!((1..=7).map(waiting).collect::<Vec<_>>(), [1, 2, 0, 1, 2, 0, 1]);
        let mut done = Vec::new();
        while done.len() < 7 {
            match ring.reap() {
                Some((token, _)) => done.push(token),
                None => ring.wait(),
            }
        }
        done.sort_unstable();
        assert_eq!(done, [1, 2, 3, 4, 5, 6, 7], "the last by a wait");
    }

    #[test]
    fn a_group_that_is_not_full_is_handed_over_at_its_end_or_by_a_wait() {
        let file = fd::memory_file().unwrap();
        let memory = Mapping::new(PAGE_BYTES, Access::ReadWrite).unwrap();
        let mut ring = Ring::new(4).unwrap();
        let pieces = Pieces::one(memory.address(), PAGE_BYTES);
        let write = Request::new(file.as_raw_fd(), Direction::Write, 0);
        for ends_by_wait in [false, true] {
            ring.begin_groups(4);
            (1..=3).for_each(|token| ring.start(write, &pieces, token));
            assert_eq!(ring.ring.submission().len(), 3, "they wait for each other");
            let late = Request { not_before_ns: 1, ..write };
            match ends_by_wait {
                // Its moment is on a stack that will be gone.
                false => ring.start(late, &pieces, 4),
                true => ring.wait(),
            }
            assert!(ring.ring.submission().is_empty());
            ring.start(write, &pieces, 5);
            ring.end_groups();
            assert!(ring.ring.submission().is_empty());
            let mut done = Vec::new();
            while done.len() < if ends_by_wait { 4 } else { 5 } {
                match ring.reap() {
                    Some((token, _)) => done.push(token),
                    None => ring.wait(),
                }
            }
            done.sort_unstable();
            assert_eq!(done, if ends_by_wait { vec![1, 2, 3, 5] } else { vec![1, 2, 3, 4, 5] });
            ring.start(write, &pieces, 6);
            assert!(ring.ring.submission().is_empty(), "a group has ended");
            while ring.reap().is_none() {
                ring.wait();
            }
        }
    }

    #[test]
    fn an_entry_that_the_kernel_leaves_is_handed_to_it_again() {
        let file = fd::memory_file().unwrap();
        let memory = Mapping::new(PAGE_BYTES, Access::ReadWrite).unwrap();
        let mut ring = Ring::new(4).unwrap();
        // The kernel stops at an entry it does not know, and has taken only that one.
        let unknown = opcode::Readv::new(types::Fd(file.as_raw_fd()), std::ptr::null(), u32::MAX);
        let unknown = unknown.build().user_data(WAITED);
        // SAFETY: the kernel refuses so many pieces before it looks at any.
        unsafe { ring.ring.submission().push(&unknown) }.unwrap();
        let pieces = Pieces::one(memory.address(), PAGE_BYTES);
        let write = Request::new(file.as_raw_fd(), Direction::Write, 0);
        ring.start(write, &pieces, 7);
        assert!(ring.ring.submission().is_empty(), "nothing is left behind");
        let done = loop {
            match ring.reap() {
                Some(done) => break done,
                None => ring.wait(),
            }
        };
        assert_eq!(done, (7, PAGE_BYTES as i32));
    }
}
