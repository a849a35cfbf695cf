//! Calls that lend pages to the kernel: what they lent would change under its reader.
//!
//! vmsplice and MSG_ZEROCOPY keep a reference to the program's pages instead of their bytes. The kernel's
//! own swap leaves such a page alone as long as the reference lasts; UFFDIO_MOVE refuses pinned pages only,
//! so a page that has been lent leaves, its frame serves another page, and the reader would get that one's
//! bytes. Bytes are copied here instead, which both calls allow: they promise speed, not identity. The entry
//! points are as safe as the functions that they stand in for.
//!
//! io_uring's SEND_ZC cannot be seen: once the program has a ring, the engine does not fill a frame again that
//! held one of its pages.
use super::held::values;
use super::reading::Reader;
use super::{arguments, descriptors, in_flight};
use crate::abi::next::next_functions;
use crate::abi::raw::set_errno;
use crate::abi::symbols::{Definition, Symbol};
use crate::state::process;
use libc::{c_int, c_uint, c_void, iovec, size_t, socklen_t, ssize_t};
use std::sync::atomic::{AtomicBool, Ordering};
use userswap::internals::{Core, PAGE_BYTES};

next_functions! {
    fn vmsplice(fd: c_int, parts: *const iovec, count: size_t, flags: c_uint) -> ssize_t;
    fn setsockopt(
        fd: c_int, level: c_int, name: c_int, value: *const c_void, bytes: socklen_t
    ) -> c_int;
}

/// The program has an io_uring.
static LENDS: AtomicBool = AtomicBool::new(false);

/// The program makes an io_uring: SEND_ZC lends pages without pinning them.
pub fn note() {
    // SeqCst, with the load in `prepare`: either the engagement sees it, or this waits for the engine.
    if !LENDS.swap(true, Ordering::SeqCst)
        && let Some(process) = process::current()
        && let Some(engine) = process.engine().or_else(|| in_flight::await_engine(process))
    {
        engine.core().note_lending();
    }
}

/// While engaging, after [`in_flight::read`]; rings of the program's are among its descriptors.
pub fn prepare(core: &Core) {
    if LENDS.load(Ordering::SeqCst) || descriptors::has_ring() {
        core.note_lending();
    }
}

/// liburing's ways to make a ring, which are system calls in its own code.
macro_rules! rings {
    ($($name:ident)+) => { $(
        mod $name {
            use super::*;
            static NEXT: Symbol = Symbol::new($crate::abi::next::name!($name), Definition::AfterOurs);

            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(a: usize, b: usize, c: usize, d: usize) -> c_int {
                type Function = unsafe extern "C" fn(usize, usize, usize, usize) -> c_int;
                note();
                let address = NEXT.address();
                // SAFETY: integers and pointers travel alike, and no such function has more than four.
                let next = unsafe { std::mem::transmute::<*mut c_void, Function>(address) };
                // SAFETY: called as the program called ours.
                unsafe { next(a, b, c, d) }
            }
        }
    )+ };
}

rings! { io_uring_queue_init io_uring_queue_init_params io_uring_queue_init_mem io_uring_setup }

/// The first part that is not empty.
fn first_part(parts: &[iovec]) -> Option<&iovec> {
    parts.iter().find(|part| part.iov_len > 0)
}

fn is_any_managed(parts: &[iovec]) -> bool {
    parts.iter().any(|part| process::is_managed(part.iov_base as usize))
}

fn has_room(fd: c_int) -> bool {
    let mut entry = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one entry, no wait.
    unsafe { libc::poll(&mut entry, 1, 0) > 0 }
}

mod exported {
    use super::*;

    /// vmsplice: copies, the first part only, as a short count allows.
    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn vmsplice(
        fd: c_int,
        parts: *const iovec,
        count: size_t,
        flags: c_uint,
    ) -> ssize_t {
        if count == 0 || !Reader::default().can_read(values(parts, count)) {
            return super::vmsplice(fd, parts, count, flags);
        }
        // SAFETY: the program passes a list of that length, which can be read.
        let list = unsafe { std::slice::from_raw_parts(parts, count) };
        if !is_any_managed(list) {
            return super::vmsplice(fd, parts, count, flags);
        }
        let Some(part) = first_part(list) else { return 0 };
        // SAFETY: asks for the descriptor's flags.
        let access = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        if access < 0 {
            return -1;
        }
        if access & libc::O_ACCMODE == libc::O_RDONLY {
            // SAFETY: the part is memory of the program's.
            return unsafe { libc::read(fd, part.iov_base, part.iov_len) };
        }
        let mut bytes = part.iov_len;
        if flags & libc::SPLICE_F_NONBLOCK != 0 {
            if !has_room(fd) {
                set_errno(libc::EAGAIN);
                return -1;
            }
            // As much as a pipe that has room takes without waiting (PIPE_BUF).
            bytes = bytes.min(PAGE_BYTES);
        }
        // SAFETY: the part is memory of the program's.
        unsafe { libc::write(fd, part.iov_base, bytes) }
    }

    /// setsockopt: SO_ZEROCOPY is not to be had, as on kernels without it; programs then send by copying.
    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn setsockopt(
        fd: c_int,
        level: c_int,
        name: c_int,
        value: *const c_void,
        bytes: socklen_t,
    ) -> c_int {
        if level == libc::SOL_SOCKET && name == libc::SO_ZEROCOPY {
            set_errno(libc::ENOPROTOOPT);
            return -1;
        }
        let named = arguments::of([
            fd as usize,
            level as usize,
            name as usize,
            value as usize,
            bytes as usize,
        ]);
        let _held = arguments::hold_if_needed(libc::SYS_setsockopt, &named);
        super::setsockopt(fd, level, name, value, bytes)
    }
}
