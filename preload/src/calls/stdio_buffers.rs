//! Buffers of streams and directories, where the program brings an allocator and calls fail on missing pages.
//!
//! The C library takes them from the program's malloc, so they are in managed memory, and has the kernel fill and empty
//! them by calls of its own. A stream is given a buffer of ours as it is opened; a directory's is kept in RAM while more
//! of it is read. What the C library opens for itself (name services) has its own. The entry points are as safe as the
//! functions that they stand in for.
use super::held::{Held, is_needed, text};
use super::shells;
use super::streams::setvbuf;
use crate::abi::allocator;
use crate::abi::next::next_functions;
use crate::abi::raw::{self, Span};
use crate::state::process;
use libc::{FILE, c_char, c_int, c_void};
use std::collections::BTreeMap;
use userswap::internals::PAGE_BYTES;
use userswap::internals::lock::Lock;
use userswap::internals::signal::Blocked;

next_functions! {
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE;
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE;
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE;
    fn freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE;
    fn freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE;
    fn tmpfile() -> *mut FILE;
    fn tmpfile64() -> *mut FILE;
    fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE;
    fn fclose(stream: *mut FILE) -> c_int;
    fn pclose(stream: *mut FILE) -> c_int;
    fn readdir(directory: *mut c_void) -> *mut libc::dirent;
    fn readdir64(directory: *mut c_void) -> *mut libc::dirent64;
    fn readdir_r(
        directory: *mut c_void, entry: *mut libc::dirent, read: *mut *mut libc::dirent,
    ) -> c_int;
    fn readdir64_r(
        directory: *mut c_void, entry: *mut libc::dirent64, read: *mut *mut libc::dirent64,
    ) -> c_int;
}

/// By stream.
static BUFFERS: Lock<BTreeMap<usize, Box<[u8; PAGE_BYTES]>>> = Lock::new(BTreeMap::new());

/// In the constructor, before the program has used them: the streams that are open from the start.
pub fn start() {
    unsafe extern "C" {
        static stdin: *mut FILE;
        static stdout: *mut FILE;
    }
    if is_needed() && allocator::is_foreign() {
        // SAFETY: the C library's own, which nobody changes yet.
        let input = unsafe { stdin };
        // SAFETY: as above. The third has no buffer.
        let output = unsafe { stdout };
        [input, output].into_iter().for_each(give);
    }
}

fn give(stream: *mut FILE) {
    let errno = raw::errno();
    let blocked = Blocked::new();
    let mut buffers = BUFFERS.lock();
    let buffer = buffers.entry(stream.addr()).or_insert_with(|| Box::new([0; PAGE_BYTES]));
    let address = buffer.as_mut_ptr().cast();
    drop(buffers);
    // SAFETY: a stream that was opened a moment ago, so that nobody else has it.
    let fd = unsafe { libc::fileno(stream) };
    // SAFETY: only asks.
    let is_terminal = unsafe { libc::isatty(fd) } == 1;
    let mode = if is_terminal { libc::_IOLBF } else { libc::_IOFBF };
    setvbuf(stream.cast(), address, mode, PAGE_BYTES);
    drop(blocked);
    raw::set_errno(errno);
}

/// A stream that has just been opened, if it was. The process may lose the right that its calls do without.
fn opened(stream: *mut FILE) -> *mut FILE {
    if allocator::is_foreign() && !stream.is_null() {
        give(stream);
    }
    stream
}

/// Closes a stream, and then lets go of its buffer; another may have its address by then.
fn close(stream: *mut FILE, call: impl FnOnce() -> c_int) -> c_int {
    if !allocator::is_foreign() {
        return call();
    }
    let blocked = Blocked::new();
    let buffer = BUFFERS.lock().remove(&stream.addr());
    drop(blocked);
    let result = call();
    let errno = raw::errno();
    let _blocked = Blocked::new();
    drop(buffer);
    raw::set_errno(errno);
    result
}

/// Before fork: no other thread has the list then.
pub fn hold() {
    BUFFERS.hold();
}

/// After fork, on both sides.
pub fn release() {
    BUFFERS.release();
}

/// What the C library has of a directory, as far as it is looked at here.
#[repr(C)]
struct Directory {
    descriptor_and_lock: u64,
    room: usize,
    filled: usize,
    read: usize,
}

/// The whole of it, if the next entry is not there yet: the kernel is asked for more.
fn kept_of(directory: *mut c_void) -> Option<Held> {
    if !is_needed() || !allocator::is_foreign() || !process::is_managed(directory.addr()) {
        return None;
    }
    // SAFETY: the program passes what opendir returned, which begins so since glibc 2.1; others may be reading on.
    let Directory { room, filled, read, .. } =
        unsafe { directory.cast::<Directory>().read_volatile() };
    let bytes = room.saturating_add(2 * size_of::<Directory>());
    (read >= filled).then(|| Held::new(&[Span { address: directory.addr(), bytes }]))
}

mod exported {
    use super::*;

    fn kept(name: *const c_char) -> Option<Held> {
        is_needed().then(|| Held::new(&[text(name)]))
    }

    macro_rules! opening {
        ($($name:ident($first:ident: $type:ty $(, $other:ident: $other_type:ty)*);)+) => { $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($first: $type $(, $other: $other_type)*) -> *mut FILE {
                let _held = kept($first);
                super::opened(super::$name($first $(, $other)*))
            }
        )+ };
    }
    opening! {
        fopen(path: *const c_char, mode: *const c_char);
        fopen64(path: *const c_char, mode: *const c_char);
        freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE);
        freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE);
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn popen(
        command: *const c_char,
        mode: *const c_char,
    ) -> *mut FILE {
        let _held = shells::prepare(command);
        super::opened(super::popen(command, mode))
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
        super::opened(super::fdopen(fd, mode))
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn tmpfile() -> *mut FILE {
        super::opened(super::tmpfile())
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn tmpfile64() -> *mut FILE {
        super::opened(super::tmpfile64())
    }

    macro_rules! closing {
        ($($name:ident)+) => { $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(stream: *mut FILE) -> c_int {
                super::close(stream, || super::$name(stream))
            }
        )+ };
    }
    closing!(fclose pclose);

    /// readdir_r, of which the entry is the program's.
    macro_rules! reading_into {
        ($($name:ident -> $entry:ty;)+) => { $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(
                directory: *mut c_void,
                entry: *mut $entry,
                read: *mut *mut $entry,
            ) -> c_int {
                let _held = super::kept_of(directory);
                super::$name(directory, entry, read)
            }
        )+ };
    }
    reading_into! {
        readdir_r -> libc::dirent;
        readdir64_r -> libc::dirent64;
    }

    macro_rules! reading {
        ($($name:ident -> $entry:ty;)+) => { $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(directory: *mut c_void) -> *mut $entry {
                let _held = super::kept_of(directory);
                super::$name(directory)
            }
        )+ };
    }
    reading! {
        readdir -> libc::dirent;
        readdir64 -> libc::dirent64;
    }
}
