//! The directory of this process's threads as stat(2) shows it: it has as many links as there are threads, and two, and ours are left out.
//!
//! There a program looks whether it has one thread only: Chromium's sandbox ends its process where it has more.
use super::arguments;
use super::held::is_needed;
use super::kept::pass_on;
use crate::abi::next::{Next, name};
use crate::abi::raw::{errno, set_errno};
use crate::abi::thread_locals;
use crate::state::own_threads::{self, TASKS};
use crate::state::process::GlibcHeap;
use libc::{AT_FDCWD, c_char, c_int, c_long, stat as Stat};

/// What the links of such a directory are more than its threads.
const LINKS: u64 = 2;
/// How its name ends.
const NAME: &[u8] = b"/task";

/// Declares entry points: what they are called, and where path and result are.
macro_rules! showing_directories {
    ($($name:ident by $call:ident ($($before:ident: $type:ty),*; $path:ident, $result:ident; $($after:ident: $more:ty),*);)+) => {
        /// Looks all of them up.
        pub fn look_up() {
            $( $name::NEXT.look_up(); )+
        }
        $(
            mod $name {
                use super::*;

                pub static NEXT: Next = Next::new(name!($name));

                #[unsafe(no_mangle)]
                unsafe extern "C-unwind" fn $name(
                    $($before: $type,)* $path: *const c_char, $result: *mut Stat $(, $after: $more)*
                ) -> c_int {
                    let given = [$($before as usize,)* $path as usize, $result as usize $(, $after as usize)*];
                    shown(&NEXT, libc::$call, &given, $path, $result)
                }
            }
        )+
    };
}

showing_directories! {
    stat by SYS_stat (; path, result;);
    stat64 by SYS_stat (; path, result;);
    fstatat by SYS_newfstatat (directory: c_int; path, result; flags: c_int);
    fstatat64 by SYS_newfstatat (directory: c_int; path, result; flags: c_int);
}

fn shown(
    next: &Next,
    call: c_long,
    given: &[usize],
    path: *const c_char,
    result: *mut Stat,
) -> c_int {
    let arguments = std::array::from_fn(|index| given.get(index).copied().unwrap_or(0));
    if !thread_locals::are_here() {
        return pass_on(next, &arguments) as c_int;
    }
    let _held = is_needed().then(|| arguments::hold(call, &arguments));
    let status = pass_on(next, &arguments) as c_int;
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
