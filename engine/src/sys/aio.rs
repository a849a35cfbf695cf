//! A read whose end is looked for in memory (Linux AIO): the thread need not sleep, and no CPU has to be woken from a halt.
//!
//! The kernel notes completions in a ring that the process can read, in the interrupt of the device. io_uring leaves that to the
//! thread that submitted, which needs a ring for each; here a context serves whoever holds it.
use super::request::{Direction, Pieces, transfer};
use super::{clock, filters};
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// `IOCB_CMD_PREADV`.
const PREADV: u16 = 7;

/// What the ring begins with where its layout is the one that is known here (`AIO_RING_MAGIC`).
const MAGIC: u32 = 0xa10a_10a1;

/// `struct iocb`.
#[repr(C)]
#[derive(Default)]
struct Iocb {
    data: u64,
    key: u32,
    flags: i32,
    opcode: u16,
    priority: i16,
    fd: u32,
    address: u64,
    count: u64,
    offset: i64,
    reserved: u64,
    options: u32,
    event_fd: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    object: u64,
    result: i64,
    result2: i64,
}

/// `struct aio_ring`, before its events.
#[repr(C)]
struct Head {
    id: AtomicU32,
    events: AtomicU32,
    head: AtomicU32,
    tail: AtomicU32,
    magic: AtomicU32,
    compatible: AtomicU32,
    incompatible: AtomicU32,
    header_bytes: AtomicU32,
}

const _: () = assert!(size_of::<Iocb>() == 64 && size_of::<Head>() == 32);

/// How a read was waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// It ended while it was looked for.
    Looking,
    /// It took longer, and the thread slept.
    Sleeping,
}

/// A context for one read at a time.
pub struct Reader {
    context: usize,
    /// What is mapped of it: its ring.
    bytes: usize,
}

impl Reader {
    /// A new one, of this process: the child of a fork has no use for it.
    ///
    /// # Errors
    /// What the kernel says: EAGAIN beyond `fs.aio-max-nr`, ENOSYS without AIO, EPERM behind a filter; EINVAL where its ring
    /// looks different.
    pub fn new() -> io::Result<Self> {
        let mut context = 0usize;
        // SAFETY: writes the number of a new context.
        if unsafe { libc::syscall(libc::SYS_io_setup, 1, &raw mut context) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut reader = Self { context, bytes: size_of::<Head>() };
        let head = reader.head();
        let events = head.events.load(Ordering::Relaxed) as usize;
        let is_known = head.magic.load(Ordering::Relaxed) == MAGIC
            && head.incompatible.load(Ordering::Relaxed) == 0
            && head.header_bytes.load(Ordering::Relaxed) as usize == size_of::<Head>();
        if !is_known {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        reader.bytes += events * size_of::<Event>();
        Ok(reader)
    }

    /// Reads all of `pieces` at `offset`, and looks for the end until a moment of the monotonic clock before it sleeps.
    ///
    /// # Errors
    /// As [`transfer`].
    pub fn read(
        &self,
        (fd, offset): (RawFd, u64),
        pieces: &Pieces,
        until_ns: u64,
    ) -> (Seen, io::Result<()>) {
        let at_once =
            |pieces: &Pieces, done: u64| transfer(fd, Direction::Read, offset + done, pieces);
        let mut request = Iocb {
            opcode: PREADV,
            fd: fd as u32,
            address: pieces.as_ptr() as u64,
            count: pieces.count() as u64,
            offset: offset as i64,
            ..Iocb::default()
        };
        let mut list = [&raw mut request];
        // SAFETY: the request and its pieces are read now; the memory that they name is the caller's until the end, below.
        let taken =
            unsafe { libc::syscall(libc::SYS_io_submit, self.context, 1, list.as_mut_ptr()) };
        if taken != 1 {
            // Refused, or none to be had: nothing was begun.
            return (Seen::Sleeping, at_once(pieces, 0));
        }
        let (seen, result) = self.end(until_ns);
        if result == -i64::from(libc::EIO) {
            // The device has taken its time to say so.
            return (seen, Err(io::Error::from_raw_os_error(libc::EIO)));
        }
        // What else is wrong, and what is left, the other way finds and says.
        let done = result.max(0) as usize;
        if done == pieces.bytes() {
            return (seen, Ok(()));
        }
        let mut left = *pieces;
        left.skip(done);
        (seen, at_once(&left, done as u64))
    }

    /// Waits for the end of the request; how, and what the kernel says of it.
    fn end(&self, until_ns: u64) -> (Seen, i64) {
        while clock::now_ns() < until_ns {
            if let Some(result) = self.take() {
                return (Seen::Looking, result);
            }
            std::hint::spin_loop();
        }
        (Seen::Sleeping, self.sleep())
    }

    /// Sleeps until the end of the request; what the kernel says of it.
    fn sleep(&self) -> i64 {
        let mut event = Event::default();
        // A filter may be in force by now that does not know the call.
        while !filters::are_expected() {
            let nothing = std::ptr::null_mut::<libc::timespec>();
            // SAFETY: writes one event.
            let got = unsafe {
                let event = &raw mut event;
                libc::syscall(libc::SYS_io_getevents, self.context, 1, 1, event, nothing)
            };
            match got {
                1 => return event.result,
                _ if got < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted => {
                    break;
                }
                _ => {}
            }
        }
        // The device may still write to the memory. Its end is noted here whoever may ask for it, and looking takes no call.
        loop {
            if let Some(result) = self.take() {
                return result;
            }
            std::hint::spin_loop();
        }
    }

    /// The result of the request, if it has ended.
    fn take(&self) -> Option<i64> {
        let ring = self.head();
        let head = ring.head.load(Ordering::Relaxed);
        // Acquire pairs with the kernel's barrier between an event and the tail.
        if ring.tail.load(Ordering::Acquire) == head {
            return None;
        }
        let place = self.context + size_of::<Head>() + head as usize * size_of::<Event>();
        // SAFETY: the kernel has written this event, and writes it again only once there was another request.
        let event = unsafe { (place as *const Event).read_volatile() };
        let next = (head + 1) % ring.events.load(Ordering::Relaxed);
        // Release: the event has been read.
        ring.head.store(next, Ordering::Release);
        Some(event.result)
    }

    /// In the child of a fork: there the context is none, and what was mapped of it is only in the way.
    pub fn leave_to_parent(self) {
        // SAFETY: the ring's own pages, which nothing but this reader refers to; where a kernel passed them on to no child, the
        // only thread that there is has mapped nothing else there yet.
        unsafe { libc::syscall(libc::SYS_munmap, self.context, self.bytes) };
        std::mem::forget(self);
    }

    fn head(&self) -> &Head {
        // SAFETY: a context's number is where its ring is mapped, which lives as long as this.
        unsafe { &*(self.context as *const Head) }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // SAFETY: no request is under way. In the child of a fork there is no such context, which is said and changes nothing.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

#[cfg(test)]
mod tests {
    use super::super::PAGE_BYTES;
    use super::super::mapping::{Access, Mapping};
    use super::super::pages;
    use super::*;
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsRawFd;

    /// A file of so many pages, each of bytes that tell which.
    fn file_of(count: u8) -> File {
        let mut file = tempfile::tempfile_in("/var/tmp").unwrap();
        (1..=count).for_each(|page| file.write_all(&[page; PAGE_BYTES]).unwrap());
        file
    }

    const NEVER: u64 = u64::MAX;

    #[test]
    fn what_is_looked_for_and_what_is_slept_for_is_read_to_its_pieces() {
        let (file, reader) = (file_of(9), Reader::new().unwrap());
        let memory = Mapping::new(4 * PAGE_BYTES, Access::ReadWrite).unwrap();
        // More often than the ring has events, and both ways in turns.
        for round in 0..1000 {
            let mut pieces = Pieces::default();
            for page in [0, 2, 3] {
                assert!(pieces.push_page(memory.address() + page * PAGE_BYTES));
            }
            let page = round % 7;
            let until = if round % 2 == 0 { NEVER } else { 0 };
            let place = (file.as_raw_fd(), page * PAGE_BYTES as u64);
            let (seen, outcome) = reader.read(place, &pieces, until);
            outcome.unwrap();
            assert_eq!(seen, if until == 0 { Seen::Sleeping } else { Seen::Looking });
            let all = pages::view_mut(memory.address(), memory.bytes());
            let firsts: Vec<u8> = all.chunks(PAGE_BYTES).map(|page| page[PAGE_BYTES - 1]).collect();
            assert_eq!(firsts, [page as u8 + 1, 0, page as u8 + 2, page as u8 + 3]);
        }
    }

    #[test]
    fn what_ends_too_soon_and_what_fails_is_said_as_it_is_of_other_reads() {
        let (file, reader) = (file_of(2), Reader::new().unwrap());
        let memory = Mapping::new(2 * PAGE_BYTES, Access::ReadWrite).unwrap();
        let pieces = Pieces::one(memory.address(), 2 * PAGE_BYTES);
        for until in [0, NEVER] {
            let read = |fd, page| reader.read((fd, page * PAGE_BYTES as u64), &pieces, until).1;
            let short = read(file.as_raw_fd(), 1).unwrap_err();
            assert_eq!(short.kind(), io::ErrorKind::UnexpectedEof);
            assert_eq!(pages::view_mut(memory.address(), 1)[0], 2, "what there is has come");
            assert_eq!(read(-1, 0).unwrap_err().raw_os_error(), Some(libc::EBADF));
            let bad = Pieces::one(PAGE_BYTES, PAGE_BYTES);
            let nowhere = reader.read((file.as_raw_fd(), 0), &bad, until).1;
            assert_eq!(nowhere.unwrap_err().raw_os_error(), Some(libc::EFAULT));
            read(file.as_raw_fd(), 0).unwrap();
        }
    }
}
