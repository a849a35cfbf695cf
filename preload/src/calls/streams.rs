//! Streams on memory that the kernel cannot fault in by itself.
//!
//! The C library transfers large parts straight from and to the program's buffer, by system calls of its
//! own; the buffer is therefore kept in RAM piece by piece around the whole function.
use crate::abi::next::behind;
use crate::calls::kept::{Bytes, Held, PIECE_BYTES};
use crate::calls::transfers::{check, is_concerned};
use libc::{c_int, c_void, size_t};

behind! {
    /// The real one.
    fn fread(buffer: *mut c_void, each: size_t, count: size_t, stream: *mut c_void) -> size_t;
    /// The real one.
    fn fwrite(buffer: *const c_void, each: size_t, count: size_t, stream: *mut c_void) -> size_t;
    /// The real one.
    fn fread_unlocked(buffer: *mut c_void, each: size_t, count: size_t, stream: *mut c_void) -> size_t;
    /// The real one.
    fn fwrite_unlocked(buffer: *const c_void, each: size_t, count: size_t, stream: *mut c_void) -> size_t;
}

/// Runs a transfer piece by piece; `transfer` gets each and returns the bytes that it moved.
fn stream_pieces(
    (address, each): Bytes,
    count: usize,
    transfer: impl Fn(usize, usize) -> usize,
) -> usize {
    let Some(bytes) = each.checked_mul(count).filter(|bytes| *bytes > 0) else { return 0 };
    let mut done = 0;
    while done < bytes {
        let piece = (bytes - done).min(PIECE_BYTES);
        let held = Held::new(&[(address + done, piece)]);
        let moved = transfer(address + done, piece);
        drop(held);
        done += moved;
        if moved < piece {
            break;
        }
    }
    done / each
}

mod exported {
    use super::*;

    macro_rules! stream {
        ($name:ident, $pointer:ty) => {
            /// The function of this name.
            ///
            /// # Safety
            /// As the function of the C library.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
                buffer: $pointer,
                each: size_t,
                count: size_t,
                stream: *mut c_void,
            ) -> size_t {
                if !is_concerned(buffer as *const c_void) {
                    return super::$name(buffer, each, count, stream);
                }
                stream_pieces((buffer as usize, each), count, |at, piece| {
                    super::$name(at as $pointer, 1, piece, stream)
                })
            }
        };
    }
    stream!(fread, *mut c_void);
    stream!(fwrite, *const c_void);
    stream!(fread_unlocked, *mut c_void);
    stream!(fwrite_unlocked, *const c_void);

    /// fputs.
    ///
    /// # Safety
    /// As the function of the C library.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn fputs(text: *const libc::c_char, stream: *mut c_void) -> c_int {
        // SAFETY: the program passes a C string.
        let bytes = unsafe { libc::strlen(text) };
        // SAFETY: the string has that many bytes.
        let written = unsafe { fwrite(text.cast(), 1, bytes, stream) };
        if written == bytes { 1 } else { libc::EOF }
    }

    /// fread, as checked by the compiler.
    ///
    /// # Safety
    /// As the function of the C library.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn __fread_chk(
        buffer: *mut c_void,
        room: size_t,
        each: size_t,
        count: size_t,
        stream: *mut c_void,
    ) -> size_t {
        check(each.saturating_mul(count), room);
        // SAFETY: the same.
        unsafe { fread(buffer, each, count, stream) }
    }
}
