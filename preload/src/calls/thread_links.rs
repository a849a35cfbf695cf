//! The directory of this process's threads as stat(2) shows it: it has as many links as there are threads, and two, and ours are left out.
//!
//! There a program looks whether it has one thread only: Chromium's sandbox ends its process where it has more.
use super::arguments::Memory::{Fixed, Text};
use super::arguments::{self, Arguments, Memory};
use super::held::is_needed;
use super::kept::pass_on;
use super::table::Row;
use crate::abi::next::{Next, name};
use crate::abi::raw::{errno, set_errno};
use crate::abi::thread_locals;
use crate::state::own_threads::{self, TASKS};
use crate::state::process::GlibcHeap;
use libc::{AT_FDCWD, c_char, c_int, stat as Stat};

/// What the links of such a directory are more than its threads.
const LINKS: u64 = 2;
const STAT: Memory = Fixed(size_of::<Stat>());
/// How its name ends.
const NAME: &[u8] = b"/task";

/// Declares entry points: where the path is among the arguments, before the result.
macro_rules! showing_directories {
    ($($name:ident ($($before:ident: $type:ty),*; $path:ident, $result:ident; $($after:ident: $more:ty),*) at $at:expr;)+) => {
        /// Looks all of them up.
        pub fn look_up() {
            $( $name::NEXT.look_up(); )+
        }
        $(
            mod $name {
                use super::*;

                pub static NEXT: Next = Next::new(name!($name));
                const ROW: Row = &[($at, Text), ($at + 1, STAT)];

                #[unsafe(no_mangle)]
                unsafe extern "C-unwind" fn $name(
                    $($before: $type,)* $path: *const c_char, $result: *mut Stat $(, $after: $more)*
                ) -> c_int {
                    let arguments = arguments::of(
                        [$($before as usize,)* $path as usize, $result as usize $(, $after as usize)*]
                    );
                    shown(&NEXT, ROW, &arguments, $path, $result)
                }
            }
        )+
    };
}

showing_directories! {
    stat (; path, result;) at 0;
    stat64 (; path, result;) at 0;
    fstatat (directory: c_int; path, result; flags: c_int) at 1;
    fstatat64 (directory: c_int; path, result; flags: c_int) at 1;
    // What programs built before glibc 2.33 call, after a version.
    __xstat (version: c_int; path, result;) at 1;
    __xstat64 (version: c_int; path, result;) at 1;
    __fxstatat (version: c_int, directory: c_int; path, result; flags: c_int) at 2;
    __fxstatat64 (version: c_int, directory: c_int; path, result; flags: c_int) at 2;
}

fn shown(
    next: &Next,
    row: Row,
    arguments: &Arguments,
    path: *const c_char,
    result: *mut Stat,
) -> c_int {
    if !thread_locals::are_here() {
        return pass_on(next, arguments) as c_int;
    }
    let _held = is_needed().then(|| arguments::hold_row(row, arguments));
    let status = pass_on(next, arguments) as c_int;
    // Without a path it is about a descriptor (AT_EMPTY_PATH).
    if status == 0 && !path.is_null() {
        // SAFETY: the kernel has read the path.
        let path = unsafe { std::ffi::CStr::from_ptr(path) };
        // SAFETY: the kernel has written the result.
        let result = unsafe { &mut *result };
        if is_like_ours(path.to_bytes(), result) {
            leave_ours_out(result);
        }
    }
    status
}

/// Most directories are told from it by their names, without a call.
fn is_like_ours(path: &[u8], result: &Stat) -> bool {
    result.st_mode & libc::S_IFMT == libc::S_IFDIR
        && result.st_nlink > LINKS + 1
        && path.strip_suffix(b"/").unwrap_or(path).ends_with(NAME)
}

fn leave_ours_out(result: &mut Stat) {
    let _route = GlibcHeap::new();
    let before = errno();
    // SAFETY: zeros are such a number of bytes, and the call overwrites them.
    let mut own: Stat = unsafe { std::mem::zeroed() };
    let arguments =
        arguments::of([AT_FDCWD as usize, TASKS.as_ptr() as usize, &raw mut own as usize]);
    let is_own = pass_on(&fstatat::NEXT, &arguments) as c_int == 0
        && (own.st_dev, own.st_ino) == (result.st_dev, result.st_ino);
    if is_own {
        result.st_nlink =
            result.st_nlink.saturating_sub(own_threads::count().ours as u64).max(LINKS + 1);
    }
    set_errno(before);
}
