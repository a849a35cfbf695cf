//! Reads and writes of any length, on memory that the kernel cannot fault in by itself.
//!
//! A buffer is kept in RAM piece by piece. A transfer goes on with its next piece as long as the last one
//! was filled and going on cannot make it wait: files always, everything else only when writing, where the
//! kernel would wait for the rest as well.
use crate::abi::next::behind;
use crate::calls::kept::{Bytes, Held, PIECE_BYTES, is_needed, values};
use crate::state::process;
use libc::{c_int, c_void, iovec, msghdr, off_t, size_t, socklen_t, ssize_t};
use std::mem::MaybeUninit;

behind! {
    /// The real one.
    fn read(fd: c_int, buffer: *mut c_void, bytes: size_t) -> ssize_t;
    /// The real one.
    fn write(fd: c_int, buffer: *const c_void, bytes: size_t) -> ssize_t;
    /// The real one.
    fn pread(fd: c_int, buffer: *mut c_void, bytes: size_t, offset: off_t) -> ssize_t;
    /// The real one.
    fn pwrite(fd: c_int, buffer: *const c_void, bytes: size_t, offset: off_t) -> ssize_t;
    /// The real one.
    fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    /// The real one.
    fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    /// The real one.
    fn recvfrom(
        fd: c_int, buffer: *mut c_void, bytes: size_t, flags: c_int,
        address: *mut c_void, address_bytes: *mut socklen_t,
    ) -> ssize_t;
    /// The real one.
    fn sendto(
        fd: c_int, buffer: *const c_void, bytes: size_t, flags: c_int,
        address: *const c_void, address_bytes: socklen_t,
    ) -> ssize_t;
    /// The real one.
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    /// The real one.
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
}

/// Whether a buffer may be missing when the kernel wants it.
#[inline]
pub fn is_concerned(buffer: *const c_void) -> bool {
    is_needed() && process::is_managed(buffer as usize)
}

fn is_file(fd: c_int) -> bool {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `status` is a place for a stat.
    if unsafe { libc::fstat(fd, status.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: fstat succeeded and filled it in.
    unsafe { status.assume_init() }.st_mode & libc::S_IFMT == libc::S_IFREG
}

/// Runs a transfer piece by piece; `transfer` gets each piece and its distance from the start.
fn in_pieces(
    (address, bytes): Bytes,
    goes_on: impl Fn() -> bool,
    transfer: impl Fn(usize, usize, usize) -> ssize_t,
) -> ssize_t {
    let mut done = 0;
    loop {
        let piece = (bytes - done).min(PIECE_BYTES);
        let held = Held::new(&[(address + done, piece)]);
        let moved = transfer(address + done, piece, done);
        drop(held);
        let Ok(moved) = usize::try_from(moved) else {
            // What went before counts; the error comes back with the next call.
            return if done > 0 { done as ssize_t } else { moved };
        };
        done += moved;
        if moved < piece || done == bytes || !goes_on() {
            return done as ssize_t;
        }
    }
}

fn read_pieces(fd: c_int, buffer: *mut c_void, bytes: usize) -> ssize_t {
    in_pieces(
        (buffer as usize, bytes),
        || is_file(fd),
        |at, piece, _| read(fd, at as *mut c_void, piece),
    )
}

fn pread_pieces(fd: c_int, buffer: *mut c_void, bytes: usize, offset: off_t) -> ssize_t {
    in_pieces(
        (buffer as usize, bytes),
        || is_file(fd),
        |at, piece, done| pread(fd, at as *mut c_void, piece, offset + done as off_t),
    )
}

/// Buffers that one scattered transfer can name; more are left to the next call, as the kernel may.
const PARTS_MAX: usize = 5;

/// The first parts of a list, as much as is kept at once, in a list of its own.
struct Parts {
    list: [iovec; PARTS_MAX],
    count: usize,
}

impl Parts {
    /// From a list of the program's.
    fn first(parts: *const iovec, count: usize) -> Self {
        let empty = iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut chosen = Self { list: [empty; PARTS_MAX], count: 0 };
        let mut room = PIECE_BYTES;
        for place in 0..count.min(PARTS_MAX) {
            // SAFETY: the program's list has that many entries.
            let entry = unsafe { parts.add(place) };
            // SAFETY: as above.
            let mut part = unsafe { entry.read() };
            part.iov_len = part.iov_len.min(room);
            chosen.list[chosen.count] = part;
            chosen.count += 1;
            room -= part.iov_len;
            if room == 0 {
                break;
            }
        }
        chosen
    }

    fn hold(&self) -> Held {
        let regions = self.list.map(|part| (part.iov_base as usize, part.iov_len));
        Held::new(&regions[..self.count])
    }
}

/// The buffers of a message must all stay: it is taken or sent as a whole.
fn hold_message(message: *const msghdr) -> [Option<Held>; 4] {
    let mut held = [const { None }; 4];
    // SAFETY: null, or a message of the program's.
    let Some(message) = (unsafe { message.as_ref() }) else { return held };
    held[0] = Some(Held::new(&[
        values(message, 1),
        values(message.msg_name.cast::<u8>(), message.msg_namelen as usize),
        values(message.msg_control.cast::<u8>(), message.msg_controllen),
        values(message.msg_iov, message.msg_iovlen),
    ]));
    let mut next = 0;
    for place in held.iter_mut().skip(1) {
        let left = message.msg_iovlen.saturating_sub(next);
        if left == 0 {
            break;
        }
        // SAFETY: the list has `left` more entries from there.
        let parts = Parts::first(unsafe { message.msg_iov.add(next) }, left);
        next += parts.count;
        *place = Some(parts.hold());
    }
    held
}

/// What the compiler's check of a buffer's length ends in.
pub fn check(bytes: size_t, room: size_t) {
    if bytes > room {
        crate::abi::raw::say("buffer overflow detected: stopping the program");
        // SAFETY: ends the process, as the C library does.
        unsafe { libc::abort() };
    }
}

mod exported {
    use super::*;

    /// read.
    ///
    /// # Safety
    /// As the function of the C library.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn read(fd: c_int, buffer: *mut c_void, bytes: size_t) -> ssize_t {
        if is_concerned(buffer) {
            read_pieces(fd, buffer, bytes)
        } else {
            super::read(fd, buffer, bytes)
        }
    }

    /// read, as checked by the compiler.
    ///
    /// # Safety
    /// As the function of the C library.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn __read_chk(
        fd: c_int,
        buffer: *mut c_void,
        bytes: size_t,
        room: size_t,
    ) -> ssize_t {
        check(bytes, room);
        // SAFETY: the same.
        unsafe { read(fd, buffer, bytes) }
    }

    /// write.
    ///
    /// # Safety
    /// As the function of the C library.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn write(fd: c_int, buffer: *const c_void, bytes: size_t) -> ssize_t {
        if !is_concerned(buffer) {
            return super::write(fd, buffer, bytes);
        }
        let region = (buffer as usize, bytes);
        in_pieces(region, || true, |at, piece, _| super::write(fd, at as *const c_void, piece))
    }

    /// pread.
    ///
    /// # Safety
    /// As the function of the C library.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn pread(
        fd: c_int,
        buffer: *mut c_void,
        bytes: size_t,
        offset: off_t,
    ) -> ssize_t {
        if is_concerned(buffer) {
            return pread_pieces(fd, buffer, bytes, offset);
        }
        super::pread(fd, buffer, bytes, offset)
    }

    /// pread64.
    ///
    /// # Safety
    /// As the function of the C library.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn pread64(
        fd: c_int,
        buffer: *mut c_void,
        bytes: size_t,
        offset: off_t,
    ) -> ssize_t {
        // SAFETY: the same.
        unsafe { pread(fd, buffer, bytes, offset) }
    }

    /// pwrite.
    ///
    /// # Safety
    /// As the function of the C library.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn pwrite(
        fd: c_int,
        buffer: *const c_void,
        bytes: size_t,
        offset: off_t,
    ) -> ssize_t {
        if !is_concerned(buffer) {
            return super::pwrite(fd, buffer, bytes, offset);
        }
        let region = (buffer as usize, bytes);
        let one =
            |at, piece, done| super::pwrite(fd, at as *const c_void, piece, offset + done as off_t);
        in_pieces(region, || true, one)
    }

    /// pwrite64.
    ///
    /// # Safety
    /// As the function of the C library.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn pwrite64(
        fd: c_int,
        buffer: *const c_void,
        bytes: size_t,
        offset: off_t,
    ) -> ssize_t {
        // SAFETY: the same.
        unsafe { pwrite(fd, buffer, bytes, offset) }
    }

    /// readv.
    ///
    /// # Safety
    /// As the function of the C library.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
        if !is_needed() || count <= 0 {
            return super::readv(fd, parts, count);
        }
        let first = Parts::first(parts, count as usize);
        let _held = first.hold();
        super::readv(fd, first.list.as_ptr(), first.count as c_int)
    }

    /// writev.
    ///
    /// # Safety
    /// As the function of the C library.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
        if !is_needed() || count <= 0 {
            return super::writev(fd, parts, count);
        }
        let first = Parts::first(parts, count as usize);
        let _held = first.hold();
        super::writev(fd, first.list.as_ptr(), first.count as c_int)
    }

    /// recvfrom.
    ///
    /// # Safety
    /// As the function of the C library.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn recvfrom(
        fd: c_int,
        buffer: *mut c_void,
        bytes: size_t,
        flags: c_int,
        address: *mut c_void,
        address_bytes: *mut socklen_t,
    ) -> ssize_t {
        if !is_needed() {
            return super::recvfrom(fd, buffer, bytes, flags, address, address_bytes);
        }
        let _held = Held::new(&[
            values(buffer.cast::<u8>(), bytes),
            values(address.cast::<libc::sockaddr_storage>(), 1),
            values(address_bytes, 1),
        ]);
        super::recvfrom(fd, buffer, bytes.min(PIECE_BYTES), flags, address, address_bytes)
    }

    /// recv.
    ///
    /// # Safety
    /// As the function of the C library.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn recv(
        fd: c_int,
        buffer: *mut c_void,
        bytes: size_t,
        flags: c_int,
    ) -> ssize_t {
        let nowhere = std::ptr::null_mut();
        // SAFETY: the same, from anybody.
        unsafe { recvfrom(fd, buffer, bytes, flags, nowhere, std::ptr::null_mut()) }
    }

    /// sendto.
    ///
    /// # Safety
    /// As the function of the C library.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn sendto(
        fd: c_int,
        buffer: *const c_void,
        bytes: size_t,
        flags: c_int,
        address: *const c_void,
        address_bytes: socklen_t,
    ) -> ssize_t {
        let send =
            |at: *const c_void, piece| super::sendto(fd, at, piece, flags, address, address_bytes);
        if !is_needed() {
            return send(buffer, bytes);
        }
        let _to = Held::new(&[values(address.cast::<u8>(), address_bytes as usize)]);
        in_pieces(
            (buffer as usize, bytes),
            || true,
            |at, piece, _| send(at as *const c_void, piece),
        )
    }

    /// send.
    ///
    /// # Safety
    /// As the function of the C library.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn send(
        fd: c_int,
        buffer: *const c_void,
        bytes: size_t,
        flags: c_int,
    ) -> ssize_t {
        // SAFETY: the same, to the peer.
        unsafe { sendto(fd, buffer, bytes, flags, std::ptr::null(), 0) }
    }

    /// recvmsg.
    ///
    /// # Safety
    /// As the function of the C library.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
        let _held = is_needed().then(|| hold_message(message));
        super::recvmsg(fd, message, flags)
    }

    /// sendmsg.
    ///
    /// # Safety
    /// As the function of the C library.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
        let _held = is_needed().then(|| hold_message(message));
        super::sendmsg(fd, message, flags)
    }

    /// recv, as checked by the compiler.
    ///
    /// # Safety
    /// As the function of the C library.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn __recv_chk(
        fd: c_int,
        buffer: *mut c_void,
        bytes: size_t,
        room: size_t,
        flags: c_int,
    ) -> ssize_t {
        check(bytes, room);
        // SAFETY: the same.
        unsafe { recv(fd, buffer, bytes, flags) }
    }

    /// pread, as checked by the compiler.
    ///
    /// # Safety
    /// As the function of the C library.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn __pread64_chk(
        fd: c_int,
        buffer: *mut c_void,
        bytes: size_t,
        offset: off_t,
        room: size_t,
    ) -> ssize_t {
        check(bytes, room);
        // SAFETY: the same.
        unsafe { pread(fd, buffer, bytes, offset) }
    }
}
