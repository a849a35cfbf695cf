//! Streams on memory that the kernel cannot fault in by itself.
//!
//! The C library transfers large parts straight from and to the program's buffer, by system calls of its
//! own; the buffer is therefore kept in RAM piece by piece around the whole function. Parts as small as a line are
//! copied by way of the stack instead, where the program's own access brings them in. The entry points are as safe as
//! the functions that they stand in for.
use super::held::is_concerned;
use super::transfers::{Next, Piece, Way, by_copy, check, in_pieces};
use crate::abi::next::next_functions;
use crate::abi::raw::Span;
use libc::{c_int, c_void, size_t, ssize_t};

next_functions! {
    fn fread(buffer: *mut c_void, each: size_t, count: size_t, stream: *mut c_void) -> size_t;
    fn fwrite(buffer: *const c_void, each: size_t, count: size_t, stream: *mut c_void) -> size_t;
    fn fread_unlocked(buffer: *mut c_void, each: size_t, count: size_t, stream: *mut c_void) -> size_t;
    fn fwrite_unlocked(buffer: *const c_void, each: size_t, count: size_t, stream: *mut c_void) -> size_t;
    fn puts(text: *const libc::c_char) -> c_int;
    fn setvbuf(stream: *mut c_void, buffer: *mut libc::c_char, mode: c_int, bytes: size_t) -> c_int;
}

/// Most bytes that are copied by way of the stack.
const COPIED_MAX: usize = 512;

unsafe extern "C-unwind" {
    static stdout: *mut c_void;
    fn flockfile(stream: *mut c_void);
    fn funlockfile(stream: *mut c_void);
    fn putc_unlocked(byte: c_int, stream: *mut c_void) -> c_int;
}

/// A stream that is this thread's until dropped.
struct Locked(*mut c_void);

impl Locked {
    fn output() -> Self {
        // SAFETY: the C library's variable, which programs change before they use it.
        Self::new(unsafe { stdout })
    }

    fn new(stream: *mut c_void) -> Self {
        // SAFETY: a stream.
        unsafe { flockfile(stream) };
        Self(stream)
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: locked by this thread.
        unsafe { funlockfile(self.0) };
    }
}

mod exported {
    use super::*;

    // What goes in pieces is one transfer to other threads.
    macro_rules! stream {
        ($name:ident, $pointer:ty, $way:expr $(, $locked:expr)?) => {
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(
                buffer: $pointer,
                each: size_t,
                count: size_t,
                stream: *mut c_void,
            ) -> size_t {
                if !is_concerned(buffer as *const c_void) {
                    return super::$name(buffer, each, count, stream);
                }
                let Some(bytes) = each.checked_mul(count).filter(|bytes| *bytes > 0) else {
                    return 0;
                };
                $( let _locked = $locked(stream); )?
                let transfer =
                    |piece: Piece| super::$name(piece.address, 1, piece.bytes, stream) as ssize_t;
                let whole = Piece { address: buffer as *mut c_void, bytes, offset: 0 };
                let copied = match bytes <= COPIED_MAX {
                    true => by_copy::<COPIED_MAX>(&whole, $way, transfer),
                    false => None,
                };
                let moved = copied.map_or_else(
                    || in_pieces(Span::of(buffer, bytes), (Next::Always, $way), transfer),
                    |(_, moved)| moved,
                );
                moved as size_t / each
            }
        };
    }
    stream!(fread, *mut c_void, Way::Read, Locked::new);
    stream!(fwrite, *const c_void, Way::Write, Locked::new);
    stream!(fread_unlocked, *mut c_void, Way::Read);
    stream!(fwrite_unlocked, *const c_void, Way::Write);

    macro_rules! text {
        ($name:ident, $write:ident) => {
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(
                text: *const libc::c_char,
                stream: *mut c_void,
            ) -> c_int {
                // SAFETY: the program passes a C string.
                let bytes = unsafe { libc::strlen(text) };
                // SAFETY: the string has that many bytes.
                let written = unsafe { $write(text.cast(), 1, bytes, stream) };
                if written == bytes { 1 } else { libc::EOF }
            }
        };
    }
    text!(fputs, fwrite);
    text!(fputs_unlocked, fwrite_unlocked);

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn puts(text: *const libc::c_char) -> c_int {
        if !is_concerned(text.cast()) {
            return super::puts(text);
        }
        let output = Locked::output();
        // SAFETY: a C string, and a stream that this thread has.
        let written = unsafe { fputs_unlocked(text, output.0) };
        // SAFETY: as above; a line's end is nowhere that could be missing.
        let ended = unsafe { putc_unlocked(c_int::from(b'\n'), output.0) };
        if written < 0 || ended < 0 { libc::EOF } else { 1 }
    }

    /// What the C library reads into and writes from is its own buffer then, which it may use as well.
    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn setvbuf(
        stream: *mut c_void,
        buffer: *mut libc::c_char,
        mode: c_int,
        bytes: size_t,
    ) -> c_int {
        match is_concerned(buffer.cast()) {
            true => super::setvbuf(stream, std::ptr::null_mut(), mode, 0),
            false => super::setvbuf(stream, buffer, mode, bytes),
        }
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn setbuffer(
        stream: *mut c_void,
        buffer: *mut libc::c_char,
        bytes: size_t,
    ) {
        let mode = if buffer.is_null() { libc::_IONBF } else { libc::_IOFBF };
        // SAFETY: the same.
        unsafe { setvbuf(stream, buffer, mode, bytes) };
    }

    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn setbuf(stream: *mut c_void, buffer: *mut libc::c_char) {
        // SAFETY: the same.
        unsafe { setbuffer(stream, buffer, libc::BUFSIZ as size_t) };
    }

    /// The same where the compiler knows the room that there is.
    macro_rules! checked {
        ($name:ident, $plain:ident) => {
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(
                buffer: *mut c_void,
                room: size_t,
                each: size_t,
                count: size_t,
                stream: *mut c_void,
            ) -> size_t {
                check(each.saturating_mul(count), room);
                // SAFETY: the same.
                unsafe { $plain(buffer, each, count, stream) }
            }
        };
    }
    checked!(__fread_chk, fread);
    checked!(__fread_unlocked_chk, fread_unlocked);
}
