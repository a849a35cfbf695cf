//! getcwd where the C library is to find the memory for its answer: it takes that of the program's allocator, which may be
//! missing, and has the kernel write to it. Here the answer is copied to it.
use super::held::{Held, values};
use crate::abi::raw::{errno, set_errno};
use crate::heap::elsewhere;
use libc::c_char;

/// In memory of the program's allocator: as much as it asked for, or as is needed. `ask` is the C library's function.
/// Its third argument is for what the compiler knows of the room.
pub fn allocated(bytes: usize, ask: impl Fn([usize; 3]) -> usize) -> usize {
    let mut path = [0 as c_char; libc::PATH_MAX as usize];
    let room = path.len();
    let held = Held::new(&[values(path.as_ptr(), room)]);
    let found = ask([path.as_mut_ptr().addr(), room, room]);
    drop(held);
    if found == 0 {
        // One that long is put together by many calls.
        return if errno() == libc::ERANGE { ask([0, bytes, usize::MAX]) } else { 0 };
    }
    // SAFETY: a C string, in an array of this function's.
    let length = unsafe { libc::strlen(path.as_ptr()) } + 1;
    if bytes > 0 && length > bytes {
        set_errno(libc::ERANGE);
        return 0;
    }
    // SAFETY: has no conditions.
    let copy = unsafe { elsewhere::malloc(bytes.max(length)) }.cast::<c_char>();
    if !copy.is_null() {
        // SAFETY: there is room for as much.
        unsafe { copy.copy_from_nonoverlapping(path.as_ptr(), length) };
    }
    copy.addr()
}
