//! Transfers of several buffers at once.
//!
//! A list is cut to what is kept at once, and the caller goes on after a short count; a message is taken or
//! sent as a whole. The entry points are as safe as the functions that they stand in for.
use super::arguments::{Arguments, hold};
use super::held::{Held, PIECE_BYTES, is_needed};
use crate::abi::next::next_functions;
use crate::abi::raw::Span;
use libc::{c_int, iovec, msghdr, ssize_t};

next_functions! {
    fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
}

/// Buffers that one scattered transfer can name; more are left to the next call, as the kernel may.
const PARTS_MAX: usize = 5;

/// The first parts of a list, as much as is kept at once, in a list of its own.
struct Parts {
    list: [iovec; PARTS_MAX],
    count: usize,
}

impl Parts {
    fn first(parts: *const iovec, count: usize) -> Self {
        let empty = iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut chosen = Self { list: [empty; PARTS_MAX], count: 0 };
        let mut room = PIECE_BYTES;
        for index in 0..count.min(PARTS_MAX) {
            // SAFETY: the program's list has that many entries.
            let entry = unsafe { parts.add(index) };
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
        let spans = self.list.map(|part| Span::of(part.iov_base, part.iov_len));
        Held::new(&spans[..self.count])
    }
}

fn of_message(message: *const msghdr) -> Arguments {
    [0, message as usize, 0, 0, 0, 0]
}

/// Transfers as many of the parts as can be kept.
fn first_parts(
    parts: *const iovec,
    count: c_int,
    transfer: impl Fn(*const iovec, c_int) -> ssize_t,
) -> ssize_t {
    if !is_needed() || count <= 0 {
        return transfer(parts, count);
    }
    let first = Parts::first(parts, count as usize);
    let _held = first.hold();
    transfer(first.list.as_ptr(), first.count as c_int)
}

mod exported {
    use super::*;

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
        first_parts(parts, count, |parts, count| super::readv(fd, parts, count))
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn writev(
        fd: c_int,
        parts: *const iovec,
        count: c_int,
    ) -> ssize_t {
        first_parts(parts, count, |parts, count| super::writev(fd, parts, count))
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn recvmsg(
        fd: c_int,
        message: *mut msghdr,
        flags: c_int,
    ) -> ssize_t {
        let _held = is_needed().then(|| hold(libc::SYS_recvmsg, &of_message(message)));
        super::recvmsg(fd, message, flags)
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn sendmsg(
        fd: c_int,
        message: *const msghdr,
        flags: c_int,
    ) -> ssize_t {
        let _held = is_needed().then(|| hold(libc::SYS_sendmsg, &of_message(message)));
        super::sendmsg(fd, message, flags)
    }
}
