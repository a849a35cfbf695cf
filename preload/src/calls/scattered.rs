//! Transfers of several buffers at once.
//!
//! A list that can be kept in RAM whole is passed on as it is: what is small is written to a pipe in one piece, and
//! a datagram is one. A longer one goes piece by piece, as `transfers` do; so does a message of a stream, if all of it
//! is to be sent or received. The entry points are as safe as the functions that they stand in for.
use super::arguments::{Arguments, hold_if_needed};
use super::buffers::{LIST_MAX, List};
use super::held::{Held, PIECE_BYTES, is_needed, values};
use super::reading::Reader;
use super::transfers::{COPIED_BYTES, Next, Piece, Way, by_copy, repeat};
use crate::abi::next::next_functions;
use crate::abi::raw;
use libc::{c_int, iovec, msghdr, off_t, ssize_t};

next_functions! {
    fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    fn preadv(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    fn pwritev(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    fn preadv2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn pwritev2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
}

/// A message that goes piece by piece, and its parts: it is long, and a stream's.
fn long_of_stream(fd: c_int, message: *const msghdr) -> Option<(msghdr, List)> {
    if !is_needed() {
        return None;
    }
    let message: msghdr = Reader::default().value(message as usize)?;
    let list = List(message.msg_iov, message.msg_iovlen);
    (list.bytes() > PIECE_BYTES && !raw::has_messages(fd)).then_some((message, list))
}

/// Keeps what a message has beside its parts.
fn hold_beside(message: &msghdr) -> Held {
    Held::new(&[
        values(message.msg_name.cast::<u8>(), message.msg_namelen as usize),
        values(message.msg_control.cast::<u8>(), message.msg_controllen),
    ])
}

fn of_message(fd: c_int, message: *const msghdr) -> Arguments {
    [fd as usize, message as usize, 0, 0, 0, 0]
}

/// Transfers the parts with their memory kept in RAM; `transfer` is told what is done already.
fn in_parts(
    fd: c_int,
    (parts, count): (*const iovec, c_int),
    (next, way): (Next, Way),
    transfer: impl Fn(*const iovec, c_int, off_t) -> ssize_t,
) -> ssize_t {
    if !is_needed() || !(1..=LIST_MAX as c_int).contains(&count) {
        return transfer(parts, count, 0);
    }
    let list = List(parts, count as usize);
    let bytes = list.bytes();
    if bytes <= PIECE_BYTES || raw::has_messages(fd) {
        let held = hold_if_needed(libc::SYS_sendmsg, &of_message(fd, &list.message()));
        let is_short = held.as_ref().is_some_and(Held::is_short);
        if !is_short || bytes == 0 || !raw::is_of_bytes(fd) {
            return transfer(parts, count, 0);
        }
    }
    repeat(bytes, next, |done| {
        let piece = list.after(done, PIECE_BYTES);
        let held = piece.hold();
        if held.is_short() && piece.may_be_cut(way) {
            let iovec { iov_base: address, iov_len: bytes } = piece.list[0];
            let part = Piece { address, bytes, offset: done };
            let copied = by_copy::<COPIED_BYTES>(&part, way, |part| {
                let list = iovec { iov_base: part.address, iov_len: part.bytes };
                transfer(&raw const list, 1, done as off_t)
            });
            if let Some(copied) = copied {
                return copied;
            }
        }
        (piece.bytes(), transfer(piece.list.as_ptr(), piece.count as c_int, done as off_t))
    })
}

/// Where a piece of a transfer goes, which may be to the descriptor's own position (-1).
fn place(offset: off_t, done: off_t) -> off_t {
    if offset < 0 { offset } else { offset + done }
}

mod exported {
    use super::*;

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
        in_parts(fd, (parts, count), (Next::OfFile(fd), Way::Read), |parts, count, _| {
            super::readv(fd, parts, count)
        })
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn preadv(
        fd: c_int,
        parts: *const iovec,
        count: c_int,
        offset: off_t,
    ) -> ssize_t {
        in_parts(fd, (parts, count), (Next::OfFile(fd), Way::Read), |parts, count, done| {
            super::preadv(fd, parts, count, place(offset, done))
        })
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn preadv64(
        fd: c_int,
        parts: *const iovec,
        count: c_int,
        offset: off_t,
    ) -> ssize_t {
        // SAFETY: the same.
        unsafe { preadv(fd, parts, count, offset) }
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn preadv2(
        fd: c_int,
        parts: *const iovec,
        count: c_int,
        offset: off_t,
        flags: c_int,
    ) -> ssize_t {
        in_parts(fd, (parts, count), (Next::OfFile(fd), Way::Read), |parts, count, done| {
            super::preadv2(fd, parts, count, place(offset, done), flags)
        })
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn preadv64v2(
        fd: c_int,
        parts: *const iovec,
        count: c_int,
        offset: off_t,
        flags: c_int,
    ) -> ssize_t {
        // SAFETY: the same.
        unsafe { preadv2(fd, parts, count, offset, flags) }
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn writev(
        fd: c_int,
        parts: *const iovec,
        count: c_int,
    ) -> ssize_t {
        in_parts(fd, (parts, count), (Next::Always, Way::Write), |parts, count, _| {
            super::writev(fd, parts, count)
        })
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn pwritev(
        fd: c_int,
        parts: *const iovec,
        count: c_int,
        offset: off_t,
    ) -> ssize_t {
        in_parts(fd, (parts, count), (Next::Always, Way::Write), |parts, count, done| {
            super::pwritev(fd, parts, count, place(offset, done))
        })
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn pwritev64(
        fd: c_int,
        parts: *const iovec,
        count: c_int,
        offset: off_t,
    ) -> ssize_t {
        // SAFETY: the same.
        unsafe { pwritev(fd, parts, count, offset) }
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn pwritev2(
        fd: c_int,
        parts: *const iovec,
        count: c_int,
        offset: off_t,
        flags: c_int,
    ) -> ssize_t {
        in_parts(fd, (parts, count), (Next::Always, Way::Write), |parts, count, done| {
            super::pwritev2(fd, parts, count, place(offset, done), flags)
        })
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn pwritev64v2(
        fd: c_int,
        parts: *const iovec,
        count: c_int,
        offset: off_t,
        flags: c_int,
    ) -> ssize_t {
        // SAFETY: the same.
        unsafe { pwritev2(fd, parts, count, offset, flags) }
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn recvmsg(
        fd: c_int,
        message: *mut msghdr,
        flags: c_int,
    ) -> ssize_t {
        let long = match Next::received(flags) {
            Next::Always => long_of_stream(fd, message),
            Next::OfFile(_) | Next::Never => None,
        };
        let Some((whole, list)) = long else {
            let _held = hold_if_needed(libc::SYS_recvmsg, &of_message(fd, message));
            return super::recvmsg(fd, message, flags);
        };
        let _beside = hold_beside(&whole);
        repeat(list.bytes(), Next::Always, |done| {
            let mut piece = list.after(done, PIECE_BYTES);
            let _held = piece.hold();
            let mut part = piece.message(&whole);
            let moved = super::recvmsg(fd, &mut part, flags);
            if moved < 0 {
                return (0, moved);
            }
            let msghdr { msg_iov, msg_iovlen, .. } = whole;
            // SAFETY: the message is the program's, to be written to.
            unsafe { message.write(msghdr { msg_iov, msg_iovlen, ..part }) };
            // What comes beside bytes is not to be followed by what comes beside others.
            let asked = if part.msg_controllen > 0 { usize::MAX } else { piece.bytes() };
            (asked, moved)
        })
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn sendmsg(
        fd: c_int,
        message: *const msghdr,
        flags: c_int,
    ) -> ssize_t {
        let Some((whole, list)) = long_of_stream(fd, message) else {
            let _held = hold_if_needed(libc::SYS_sendmsg, &of_message(fd, message));
            return super::sendmsg(fd, message, flags);
        };
        let _beside = hold_beside(&whole);
        repeat(list.bytes(), Next::Always, |done| {
            let mut piece = list.after(done, PIECE_BYTES);
            let _held = piece.hold();
            let mut part = piece.message(&whole);
            if done > 0 {
                // It has gone with the first bytes.
                (part.msg_control, part.msg_controllen) = (std::ptr::null_mut(), 0);
            }
            (piece.bytes(), super::sendmsg(fd, &raw const part, flags))
        })
    }
}
