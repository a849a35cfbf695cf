//! Reads and writes of any length, on memory that the kernel cannot fault in by itself.
//!
//! A buffer is kept in RAM piece by piece, or as a whole for what is written to a file, up to a limit. A transfer goes on with its next piece as long as the last one
//! was filled and going on cannot make it wait: files always, everything else only when writing, where the
//! kernel would wait for the rest as well, or who receives has asked for all (MSG_WAITALL). A datagram is one piece. The
//! entry points are as safe as the functions that they stand in for.
use super::buffers;
use super::held::{self, Held, MESSAGE_BYTES, PIECE_BYTES, is_concerned, is_needed, values};
use crate::abi::next::next_functions;
use crate::abi::raw::{self, Span};
use crate::state::process;
use libc::{c_int, c_void, off_t, size_t, socklen_t, ssize_t};

next_functions! {
    fn read(fd: c_int, buffer: *mut c_void, bytes: size_t) -> ssize_t;
    fn write(fd: c_int, buffer: *const c_void, bytes: size_t) -> ssize_t;
    fn pread(fd: c_int, buffer: *mut c_void, bytes: size_t, offset: off_t) -> ssize_t;
    fn pwrite(fd: c_int, buffer: *const c_void, bytes: size_t, offset: off_t) -> ssize_t;
    fn recvfrom(
        fd: c_int, buffer: *mut c_void, bytes: size_t, flags: c_int,
        address: *mut c_void, address_bytes: *mut socklen_t,
    ) -> ssize_t;
    fn sendto(
        fd: c_int, buffer: *const c_void, bytes: size_t, flags: c_int,
        address: *const c_void, address_bytes: socklen_t,
    ) -> ssize_t;
    fn arc4random_buf(buffer: *mut c_void, bytes: size_t) -> ();
}

/// A part of a buffer that is in RAM.
pub struct Piece {
    pub address: *mut c_void,
    pub bytes: usize,
    /// Bytes of the transfer before it.
    pub offset: usize,
}

impl Piece {
    fn of(Span { address, bytes }: Span) -> Self {
        Self { address: address as *mut c_void, bytes, offset: 0 }
    }
}

/// Which way bytes go.
#[derive(Clone, Copy)]
pub enum Way {
    /// To the program.
    Read,
    /// From it.
    Write,
}

/// What to do after a piece that was transferred whole.
#[derive(Clone, Copy)]
pub enum Next {
    /// Go on.
    Always,
    /// Go on if the descriptor is a file, or the like: anything else might make the caller wait.
    OfFile(c_int),
    /// Do not.
    Never,
}

impl Next {
    /// What is received from a stream: all of it only if so asked, and not what is only looked at.
    pub fn received(flags: c_int) -> Self {
        match flags & (libc::MSG_WAITALL | libc::MSG_PEEK) {
            libc::MSG_WAITALL => Self::Always,
            _ => Self::Never,
        }
    }
}

/// Runs a transfer by a descriptor: at once where the buffer is not managed or the bytes are a message, else piece by piece.
fn by_descriptor(
    fd: c_int,
    buffer: Span,
    (next, way): (Next, Way),
    transfer: impl Fn(Piece) -> ssize_t,
) -> ssize_t {
    let mut held = Held::none();
    if process::is_managed(buffer.address)
        && let Some(buffer @ Span { bytes, .. }) = buffers::taken(buffer)
    {
        // Nobody writes a message that long; a picture to a screen is.
        let is_too_long =
            || bytes > MESSAGE_BYTES && matches!(way, Way::Write) && raw::is_drivers_own(fd);
        if bytes <= PIECE_BYTES || !raw::has_messages(fd) || is_too_long() {
            if let Way::Write = way
                && let Some(moved) = at_once(fd, buffer, &transfer)
            {
                return moved;
            }
            return in_parts(buffer, (next, way), || raw::is_of_bytes(fd), transfer);
        }
        held.widen(MESSAGE_BYTES);
        held.add(buffer);
    }
    transfer(Piece::of(buffer))
}

/// What is longer than a piece is written to a file in one call where that many pages can be kept: others may write to its
/// end as well.
fn at_once(fd: c_int, buffer: Span, transfer: impl Fn(Piece) -> ssize_t) -> Option<ssize_t> {
    if buffer.bytes <= PIECE_BYTES || buffer.bytes > held::whole_max() || !raw::never_waits(fd) {
        return None;
    }
    let mut held = Held::none();
    held.widen(buffer.bytes);
    held.add(buffer);
    (!held.is_short()).then(|| transfer(Piece::of(buffer)))
}

/// The same at an offset, which only files have.
fn at_offset(buffer: Span, flow: (Next, Way), transfer: impl Fn(Piece) -> ssize_t) -> ssize_t {
    match buffers::taken(buffer) {
        Some(buffer) => in_pieces(buffer, flow, transfer),
        None => transfer(Piece::of(buffer)),
    }
}

/// Runs a transfer piece by piece; returns bytes, or what `transfer` returns when the first piece fails.
pub fn in_pieces(buffer: Span, flow: (Next, Way), transfer: impl Fn(Piece) -> ssize_t) -> ssize_t {
    in_parts(buffer, flow, || true, transfer)
}

/// The same of what may not be cut into pieces of any size.
fn in_parts(
    buffer: Span,
    (next, way): (Next, Way),
    may_be_cut: impl Fn() -> bool,
    transfer: impl Fn(Piece) -> ssize_t,
) -> ssize_t {
    repeat(buffer.bytes, next, |done| {
        let address = buffer.address + done;
        let bytes = (buffer.bytes - done).min(PIECE_BYTES);
        let span = Span { address, bytes };
        let held = Held::new(&[span]);
        let piece = Piece { address: address as *mut c_void, bytes, offset: done };
        // A call that waits would find it gone.
        let is_copied = held.is_short() && (bytes <= COPIED_BYTES || may_be_cut());
        let copied = if is_copied { by_copy::<COPIED_BYTES>(&piece, way, &transfer) } else { None };
        copied.unwrap_or_else(|| (bytes, transfer(piece)))
    })
}

/// Most bytes that go by way of the stack where pins have no room: what a pipe takes as a whole (PIPE_BUF).
pub const COPIED_BYTES: usize = 4096;

/// Where devices take them that are used past the page cache.
#[repr(align(512))]
struct Sectors<const BYTES: usize>([u8; BYTES]);

/// Runs a transfer of a piece's first `BYTES` bytes on a copy of them, which are brought in as the program's own access would; how many were
/// asked for, and what came of it. None where the stack is managed as well.
pub fn by_copy<const BYTES: usize>(
    piece: &Piece,
    way: Way,
    transfer: impl Fn(Piece) -> ssize_t,
) -> Option<(usize, ssize_t)> {
    let here = 0u8;
    let is_managed = process::is_managed((&raw const here).addr());
    (!is_managed).then(|| copied::<BYTES>(piece, way, transfer))
}

#[inline(never)]
fn copied<const BYTES: usize>(
    piece: &Piece,
    way: Way,
    transfer: impl Fn(Piece) -> ssize_t,
) -> (usize, ssize_t) {
    let mut copy = Sectors([0; BYTES]);
    let (program, bytes) = (piece.address.cast::<u8>(), piece.bytes.min(BYTES));
    if let Way::Write = way {
        // SAFETY: the program passes as many bytes.
        unsafe { program.copy_to_nonoverlapping(copy.0.as_mut_ptr(), bytes) };
    }
    let moved = transfer(Piece { address: copy.0.as_mut_ptr().cast(), bytes, ..*piece });
    if let (Way::Read, Ok(moved)) = (way, usize::try_from(moved)) {
        let errno = raw::errno();
        // SAFETY: the program passes room for as many bytes, and no more were read.
        unsafe { program.copy_from_nonoverlapping(copy.0.as_ptr(), moved.min(bytes)) };
        raw::set_errno(errno);
    }
    (bytes, moved)
}

/// Runs a transfer of so many bytes. `piece` is told how many are done, and tells how many it has asked for next, and
/// what came of it.
pub fn repeat(bytes: usize, next: Next, piece: impl Fn(usize) -> (usize, ssize_t)) -> ssize_t {
    let mut done = 0;
    loop {
        let (asked, moved) = piece(done);
        let Ok(moved) = usize::try_from(moved) else {
            // What went before counts; the error comes back with the next call.
            return if done > 0 { done as ssize_t } else { moved };
        };
        done += moved;
        let goes_on = match next {
            _ if moved < asked || done >= bytes => false,
            Next::Always => true,
            Next::Never => false,
            Next::OfFile(fd) => raw::never_waits(fd),
        };
        if !goes_on {
            return done as ssize_t;
        }
    }
}

/// Fills a piece with random bytes, or ends the program, as the C library does.
fn fill_at_random(piece: &Piece) -> ssize_t {
    let mut done = 0;
    while done < piece.bytes {
        let address = piece.address.wrapping_byte_add(done);
        // SAFETY: the rest of the piece, which the program gives to be written to.
        match usize::try_from(unsafe { libc::getrandom(address, piece.bytes - done, 0) }) {
            Ok(filled) => done += filled,
            Err(_) if raw::errno() == libc::EINTR => {}
            Err(_) => raw::stop("the kernel gives no random bytes\n"),
        }
    }
    done as ssize_t
}

/// What the compiler's check of a buffer's length ends in.
pub fn check(bytes: size_t, room: size_t) {
    if bytes > room {
        raw::say("buffer overflow detected: stopping the program");
        // SAFETY: ends the process, as the C library does.
        unsafe { libc::abort() };
    }
}

mod exported {
    use super::*;

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn read(fd: c_int, buffer: *mut c_void, bytes: size_t) -> ssize_t {
        if !is_concerned(buffer) {
            return super::read(fd, buffer, bytes);
        }
        by_descriptor(fd, Span::of(buffer, bytes), (Next::OfFile(fd), Way::Read), |piece| {
            super::read(fd, piece.address, piece.bytes)
        })
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn __read_chk(
        fd: c_int,
        buffer: *mut c_void,
        bytes: size_t,
        room: size_t,
    ) -> ssize_t {
        check(bytes, room);
        // SAFETY: the same.
        unsafe { read(fd, buffer, bytes) }
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn write(
        fd: c_int,
        buffer: *const c_void,
        bytes: size_t,
    ) -> ssize_t {
        if !is_concerned(buffer) {
            return super::write(fd, buffer, bytes);
        }
        by_descriptor(fd, Span::of(buffer, bytes), (Next::Always, Way::Write), |piece| {
            super::write(fd, piece.address, piece.bytes)
        })
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn pread(
        fd: c_int,
        buffer: *mut c_void,
        bytes: size_t,
        offset: off_t,
    ) -> ssize_t {
        if !is_concerned(buffer) {
            return super::pread(fd, buffer, bytes, offset);
        }
        at_offset(Span::of(buffer, bytes), (Next::OfFile(fd), Way::Read), |piece| {
            super::pread(fd, piece.address, piece.bytes, offset + piece.offset as off_t)
        })
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn pread64(
        fd: c_int,
        buffer: *mut c_void,
        bytes: size_t,
        offset: off_t,
    ) -> ssize_t {
        // SAFETY: the same.
        unsafe { pread(fd, buffer, bytes, offset) }
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn __pread_chk(
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

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn __pread64_chk(
        fd: c_int,
        buffer: *mut c_void,
        bytes: size_t,
        offset: off_t,
        room: size_t,
    ) -> ssize_t {
        // SAFETY: the same.
        unsafe { __pread_chk(fd, buffer, bytes, offset, room) }
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn pwrite(
        fd: c_int,
        buffer: *const c_void,
        bytes: size_t,
        offset: off_t,
    ) -> ssize_t {
        if !is_concerned(buffer) {
            return super::pwrite(fd, buffer, bytes, offset);
        }
        at_offset(Span::of(buffer, bytes), (Next::Always, Way::Write), |piece| {
            super::pwrite(fd, piece.address, piece.bytes, offset + piece.offset as off_t)
        })
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn pwrite64(
        fd: c_int,
        buffer: *const c_void,
        bytes: size_t,
        offset: off_t,
    ) -> ssize_t {
        // SAFETY: the same.
        unsafe { pwrite(fd, buffer, bytes, offset) }
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn recvfrom(
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
        let _from = Held::new(&[
            values(address.cast::<libc::sockaddr_storage>(), 1),
            values(address_bytes, 1),
        ]);
        by_descriptor(fd, Span::of(buffer, bytes), (Next::received(flags), Way::Read), |piece| {
            super::recvfrom(fd, piece.address, piece.bytes, flags, address, address_bytes)
        })
    }

    #[unsafe(no_mangle)]
    #[allow(clippy::too_many_arguments, reason = "as many as the C function has")]
    pub unsafe extern "C-unwind" fn __recvfrom_chk(
        fd: c_int,
        buffer: *mut c_void,
        bytes: size_t,
        room: size_t,
        flags: c_int,
        address: *mut c_void,
        address_bytes: *mut socklen_t,
    ) -> ssize_t {
        check(bytes, room);
        // SAFETY: the same.
        unsafe { recvfrom(fd, buffer, bytes, flags, address, address_bytes) }
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn recv(
        fd: c_int,
        buffer: *mut c_void,
        bytes: size_t,
        flags: c_int,
    ) -> ssize_t {
        let nowhere = std::ptr::null_mut();
        // SAFETY: the same, from any peer.
        unsafe { recvfrom(fd, buffer, bytes, flags, nowhere, std::ptr::null_mut()) }
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn __recv_chk(
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

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn sendto(
        fd: c_int,
        buffer: *const c_void,
        bytes: size_t,
        flags: c_int,
        address: *const c_void,
        address_bytes: socklen_t,
    ) -> ssize_t {
        if !is_needed() {
            return super::sendto(fd, buffer, bytes, flags, address, address_bytes);
        }
        let _to = Held::new(&[values(address.cast::<u8>(), address_bytes as usize)]);
        by_descriptor(fd, Span::of(buffer, bytes), (Next::Always, Way::Write), |piece| {
            super::sendto(fd, piece.address, piece.bytes, flags, address, address_bytes)
        })
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn send(
        fd: c_int,
        buffer: *const c_void,
        bytes: size_t,
        flags: c_int,
    ) -> ssize_t {
        // SAFETY: the same, to the peer.
        unsafe { sendto(fd, buffer, bytes, flags, std::ptr::null(), 0) }
    }

    /// arc4random_buf: where memory is managed by getrandom, as glibc has it; also where the C library has none, since
    /// programs ask for it by name.
    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn arc4random_buf(buffer: *mut c_void, bytes: size_t) {
        if !is_concerned(buffer) && !super::arc4random_buf::NEXT.address().is_null() {
            return super::arc4random_buf(buffer, bytes);
        }
        in_pieces(Span::of(buffer, bytes), (Next::Always, Way::Read), |piece| {
            fill_at_random(&piece)
        });
    }
}
