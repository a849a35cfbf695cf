//! System calls on memory that is not there, where the kernel's own accesses are not served.
//!
//! With faults by signal, or without the right to have the kernel's faults served, a system call fails with
//! EFAULT on a missing page. The functions here bring the memory that a call will touch in, and keep it
//! there until the call is done: beforehand, because a call that has begun may have taken a message off
//! a socket that it then cannot deliver. What has a length of its own is in `transfers`.
//!
//! Where the kernel's faults are served, each costs one predictable branch.
use crate::abi::next::behind;
use crate::abi::raw::{self, PAGE_BYTES};
use crate::state::areas::Area;
use crate::state::process::{self, Process};
use libc::{
    c_char, c_int, c_long, c_uint, c_void, mode_t, nfds_t, pid_t, size_t, socklen_t, ssize_t,
};
use std::sync::atomic::{AtomicBool, Ordering};
use userswap::Engine;
use userswap::arena::PageRange;
use userswap::options::{FaultMode, Options};
use userswap::sys::signal::Blocked;

static NEEDED: AtomicBool = AtomicBool::new(false);

/// Regions one call can name.
const REGIONS_MAX: usize = 6;
/// Bytes that may be pinned for one call: a tenth of the smallest budget.
pub const PIECE_BYTES: usize = 1 << 20;
/// How often a call is repeated whose memory could not be kept.
const REPEATS: u32 = 100;

/// Once the engine runs: finds out whether any of this is needed.
pub fn prepare(engine: &Engine, options: &Options) {
    let is_served = userswap::probe().is_ok_and(|support| support.kernel_faults);
    // Where pages are copied, a page that a device writes to (O_DIRECT) must be kept from leaving: unlike
    // MOVE, a copy does not notice.
    let is_copied = engine.core().path == userswap::core::Path::Copy;
    let needed = options.fault == FaultMode::Signal || !is_served || is_copied;
    NEEDED.store(needed, Ordering::Release);
}

/// Looks up the functions behind all of these.
pub fn look_up_all() {
    look_up();
    control::look_up();
    execution::look_up();
}

/// Whether system calls fail on missing pages, or must keep pages from leaving.
#[inline]
pub fn is_needed() -> bool {
    NEEDED.load(Ordering::Relaxed)
}

/// Address and length of memory that a call will touch.
pub type Bytes = (usize, usize);

/// Memory kept in RAM until dropped.
pub struct Held {
    ranges: [Option<PageRange>; REGIONS_MAX],
}

impl Held {
    /// Brings memory in, as far as it is managed and small enough, and keeps it.
    pub fn new(regions: &[Bytes]) -> Self {
        let mut held = Self { ranges: [None; REGIONS_MAX] };
        let Some(process) = process::current() else { return held };
        for (place, region) in held.ranges.iter_mut().zip(regions) {
            *place = hold(process, *region);
        }
        held
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(engine) = process::current().and_then(Process::engine) else { return };
        let errno = raw::errno();
        for range in self.ranges.iter().flatten() {
            let _blocked = Blocked::new();
            engine.core().unpin_range(*range);
        }
        raw::set_errno(errno);
    }
}

fn hold(process: &Process, (address, bytes): Bytes) -> Option<PageRange> {
    if bytes == 0 || !process::is_managed(address) {
        return None;
    }
    let engine = process.engine()?;
    let (start, end) = process.within_arena(address, bytes.min(PIECE_BYTES))?;
    let first = process.arena.page_of(start);
    let range = PageRange { first, count: process.arena.page_of(end - 1) - first + 1 };
    let _blocked = Blocked::new();
    // What the program itself could not touch is the kernel's to refuse.
    let parts = process.books.lock().within(range);
    let covered: u32 =
        parts.iter().filter(|(_, area)| is_readable(*area)).map(|(part, _)| part.count).sum();
    if covered != range.count {
        return None;
    }
    engine.core().pin_range(range).ok().map(|()| range)
}

fn is_readable(area: Area) -> bool {
    match area {
        Area::Memory(memory) => memory.protection & libc::PROT_READ != 0,
        Area::Heap => true,
        Area::Foreign => false,
    }
}

/// The memory of a C string.
pub fn text(text: *const c_char) -> Bytes {
    if text.is_null() || !process::is_managed(text as usize) {
        return (0, 0);
    }
    // SAFETY: the program passes a C string.
    (text as usize, unsafe { libc::strlen(text) } + 1)
}

/// The memory behind a pointer to some values.
pub fn values<T>(place: *const T, count: usize) -> Bytes {
    (place as usize, count.saturating_mul(size_of::<T>()))
}

/// The memory that a call of unknown reach may touch behind a pointer.
fn around(place: usize) -> Bytes {
    let rest_of_page = PAGE_BYTES - place % PAGE_BYTES;
    (place, rest_of_page)
}

/// Declares entry points that keep the memory of their arguments while the real function runs.
macro_rules! keeping {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty { $($region:expr),* })+) => {
        behind! { $(
            /// The real one.
            fn $name($($argument: $type),*) -> $result;
        )+ }
        /// The entry points.
        mod exported {
            use super::*;
            $(
                /// The function of this name, on memory that is kept in RAM meanwhile.
                ///
                /// # Safety
                /// As the function of the C library.
                #[unsafe(no_mangle)]
                pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
                    if !is_needed() {
                        return super::$name($($argument),*);
                    }
                    let _held = Held::new(&[$($region),*]);
                    super::$name($($argument),*)
                }
            )+
        }
    };
}

keeping! {
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int { text(path) }
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int { text(path) }
    fn openat(fd: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int { text(path) }
    fn openat64(fd: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int { text(path) }
    fn creat(path: *const c_char, mode: mode_t) -> c_int { text(path) }
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut c_void { text(path) }
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut c_void { text(path) }
    fn opendir(path: *const c_char) -> *mut c_void { text(path) }
    fn stat(path: *const c_char, status: *mut libc::stat) -> c_int { text(path), values(status, 1) }
    fn stat64(path: *const c_char, status: *mut libc::stat) -> c_int { text(path), values(status, 1) }
    fn lstat(path: *const c_char, status: *mut libc::stat) -> c_int { text(path), values(status, 1) }
    fn lstat64(path: *const c_char, status: *mut libc::stat) -> c_int { text(path), values(status, 1) }
    fn fstat(fd: c_int, status: *mut libc::stat) -> c_int { values(status, 1) }
    fn fstat64(fd: c_int, status: *mut libc::stat) -> c_int { values(status, 1) }
    fn fstatat(fd: c_int, path: *const c_char, status: *mut libc::stat, flags: c_int) -> c_int {
        text(path), values(status, 1)
    }
    fn fstatat64(fd: c_int, path: *const c_char, status: *mut libc::stat, flags: c_int) -> c_int {
        text(path), values(status, 1)
    }
    fn statx(fd: c_int, path: *const c_char, flags: c_int, mask: c_uint, status: *mut libc::statx) -> c_int {
        text(path), values(status, 1)
    }
    fn access(path: *const c_char, mode: c_int) -> c_int { text(path) }
    fn faccessat(fd: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int { text(path) }
    fn chdir(path: *const c_char) -> c_int { text(path) }
    fn mkdir(path: *const c_char, mode: mode_t) -> c_int { text(path) }
    fn mkdirat(fd: c_int, path: *const c_char, mode: mode_t) -> c_int { text(path) }
    fn rmdir(path: *const c_char) -> c_int { text(path) }
    fn unlink(path: *const c_char) -> c_int { text(path) }
    fn unlinkat(fd: c_int, path: *const c_char, flags: c_int) -> c_int { text(path) }
    fn rename(from: *const c_char, to: *const c_char) -> c_int { text(from), text(to) }
    fn renameat(from_fd: c_int, from: *const c_char, to_fd: c_int, to: *const c_char) -> c_int {
        text(from), text(to)
    }
    fn link(from: *const c_char, to: *const c_char) -> c_int { text(from), text(to) }
    fn symlink(from: *const c_char, to: *const c_char) -> c_int { text(from), text(to) }
    fn readlink(path: *const c_char, buffer: *mut c_char, bytes: size_t) -> ssize_t {
        text(path), values(buffer, bytes)
    }
    fn readlinkat(fd: c_int, path: *const c_char, buffer: *mut c_char, bytes: size_t) -> ssize_t {
        text(path), values(buffer, bytes)
    }
    fn getcwd(buffer: *mut c_char, bytes: size_t) -> *mut c_char { values(buffer, bytes) }
    fn chmod(path: *const c_char, mode: mode_t) -> c_int { text(path) }
    fn chown(path: *const c_char, user: c_uint, group: c_uint) -> c_int { text(path) }
    fn truncate(path: *const c_char, bytes: libc::off_t) -> c_int { text(path) }
    fn utimensat(fd: c_int, path: *const c_char, times: *const libc::timespec, flags: c_int) -> c_int {
        text(path), values(times, 2)
    }
    fn pipe(fds: *mut c_int) -> c_int { values(fds, 2) }
    fn pipe2(fds: *mut c_int, flags: c_int) -> c_int { values(fds, 2) }
    fn socketpair(family: c_int, kind: c_int, protocol: c_int, fds: *mut c_int) -> c_int { values(fds, 2) }
    fn bind(fd: c_int, address: *const c_void, bytes: socklen_t) -> c_int {
        values(address.cast::<u8>(), bytes as usize)
    }
    fn connect(fd: c_int, address: *const c_void, bytes: socklen_t) -> c_int {
        values(address.cast::<u8>(), bytes as usize)
    }
    fn accept(fd: c_int, address: *mut c_void, bytes: *mut socklen_t) -> c_int {
        around(address as usize), values(bytes, 1)
    }
    fn accept4(fd: c_int, address: *mut c_void, bytes: *mut socklen_t, flags: c_int) -> c_int {
        around(address as usize), values(bytes, 1)
    }
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, bytes: *mut socklen_t) -> c_int {
        around(value as usize), values(bytes, 1)
    }
    fn poll(entries: *mut libc::pollfd, count: nfds_t, timeout: c_int) -> c_int {
        values(entries, count as usize)
    }
    fn ppoll(
        entries: *mut libc::pollfd, count: nfds_t, timeout: *const libc::timespec, mask: *const libc::sigset_t
    ) -> c_int { values(entries, count as usize), values(timeout, 1), values(mask, 1) }
    fn select(
        count: c_int, read: *mut libc::fd_set, write: *mut libc::fd_set, except: *mut libc::fd_set,
        timeout: *mut libc::timeval
    ) -> c_int { values(read, 1), values(write, 1), values(except, 1), values(timeout, 1) }
    fn epoll_wait(fd: c_int, events: *mut libc::epoll_event, count: c_int, timeout: c_int) -> c_int {
        values(events, count.max(0) as usize)
    }
    fn epoll_ctl(fd: c_int, action: c_int, target: c_int, event: *mut libc::epoll_event) -> c_int {
        values(event, 1)
    }
    fn nanosleep(wanted: *const libc::timespec, left: *mut libc::timespec) -> c_int {
        values(wanted, 1), values(left, 1)
    }
    fn getrandom(buffer: *mut c_void, bytes: size_t, flags: c_uint) -> ssize_t {
        values(buffer.cast::<u8>(), bytes)
    }
    fn waitpid(pid: pid_t, status: *mut c_int, options: c_int) -> pid_t { values(status, 1) }
    fn wait4(pid: pid_t, status: *mut c_int, options: c_int, usage: *mut libc::rusage) -> pid_t {
        values(status, 1), values(usage, 1)
    }
    fn system(command: *const c_char) -> c_int { text(command) }
    fn popen(command: *const c_char, mode: *const c_char) -> *mut c_void { text(command) }
    fn getdents64(fd: c_int, buffer: *mut c_void, bytes: size_t) -> ssize_t {
        values(buffer.cast::<u8>(), bytes)
    }
    fn sendfile(to: c_int, from: c_int, offset: *mut libc::off_t, bytes: size_t) -> ssize_t {
        values(offset, 1)
    }
    fn splice(
        from: c_int, from_offset: *mut i64, to: c_int, to_offset: *mut i64, bytes: size_t, flags: c_uint
    ) -> ssize_t { values(from_offset, 1), values(to_offset, 1) }
}

/// ioctl, whose argument's length only the kernel knows.
mod control {
    use super::*;

    behind! {
        /// The real one.
        fn ioctl(fd: c_int, request: c_long, argument: usize) -> c_int;
    }

    pub(super) mod exported {
        use super::*;

        /// ioctl: repeated with what is around its argument in RAM.
        ///
        /// # Safety
        /// As the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn ioctl(fd: c_int, request: c_long, argument: usize) -> c_int {
            if !is_needed() || !process::is_managed(argument) {
                return super::ioctl(fd, request, argument);
            }
            let _held = Held::new(&[around(argument), (argument + 256, 1)]);
            super::ioctl(fd, request, argument)
        }
    }
}

/// execve and its relatives: nothing may be left pinned in a parent that lent its memory by vfork, so the
/// strings are only touched, and the call is repeated if one of them has left again meanwhile.
mod execution {
    use super::*;

    type Texts = *const *const c_char;

    behind! {
        /// The real one.
        fn execve(path: *const c_char, arguments: Texts, environment: Texts) -> c_int;
        /// The real one.
        fn execvpe(path: *const c_char, arguments: Texts, environment: Texts) -> c_int;
        /// The real one.
        fn posix_spawn(
            pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void,
            arguments: Texts, environment: Texts,
        ) -> c_int;
        /// The real one.
        fn posix_spawnp(
            pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void,
            arguments: Texts, environment: Texts,
        ) -> c_int;
    }

    fn touch_all(path: *const c_char, lists: [Texts; 2]) {
        // SAFETY: the program passes a C string.
        let length = unsafe { libc::strlen(path) };
        // Unused lengths would not be measured.
        std::hint::black_box(length);
        for list in lists.into_iter().filter(|list| !list.is_null()) {
            let mut entry = list;
            // SAFETY: the list ends with a null pointer, which has not been met yet.
            while let Some(text) = unsafe { entry.as_ref() }.filter(|text| !text.is_null()) {
                // SAFETY: an entry is a C string.
                std::hint::black_box(unsafe { libc::strlen(*text) });
                // SAFETY: this was not the last entry.
                entry = unsafe { entry.add(1) };
            }
        }
    }

    fn environment() -> Texts {
        unsafe extern "C" {
            static environ: Texts;
        }
        // SAFETY: the C library's variable; programs change it before they start another.
        unsafe { environ }
    }

    /// Calls until the kernel could read everything; `fault` is how the call says that it could not.
    fn repeat(path: *const c_char, lists: [Texts; 2], call: impl Fn() -> c_int) -> c_int {
        let is_fault =
            |result: c_int| result == libc::EFAULT || result == -1 && raw::errno() == libc::EFAULT;
        let mut result = -1;
        for _ in 0..REPEATS {
            touch_all(path, lists);
            result = call();
            if !is_fault(result) {
                break;
            }
        }
        result
    }

    pub(super) mod exported {
        use super::*;

        /// execve.
        ///
        /// # Safety
        /// As the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn execve(
            path: *const c_char,
            arguments: Texts,
            environment: Texts,
        ) -> c_int {
            if !is_needed() {
                return super::execve(path, arguments, environment);
            }
            repeat(path, [arguments, environment], || super::execve(path, arguments, environment))
        }

        /// execv.
        ///
        /// # Safety
        /// As the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn execv(path: *const c_char, arguments: Texts) -> c_int {
            // SAFETY: the same, with the environment that there is.
            unsafe { execve(path, arguments, environment()) }
        }

        /// execvpe.
        ///
        /// # Safety
        /// As the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn execvpe(
            path: *const c_char,
            arguments: Texts,
            environment: Texts,
        ) -> c_int {
            if !is_needed() {
                return super::execvpe(path, arguments, environment);
            }
            repeat(path, [arguments, environment], || super::execvpe(path, arguments, environment))
        }

        /// execvp.
        ///
        /// # Safety
        /// As the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn execvp(path: *const c_char, arguments: Texts) -> c_int {
            // SAFETY: the same, with the environment that there is.
            unsafe { execvpe(path, arguments, environment()) }
        }

        /// posix_spawn.
        ///
        /// # Safety
        /// As the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn posix_spawn(
            pid: *mut pid_t,
            path: *const c_char,
            actions: *const c_void,
            attributes: *const c_void,
            arguments: Texts,
            environment: Texts,
        ) -> c_int {
            let call =
                || super::posix_spawn(pid, path, actions, attributes, arguments, environment);
            if is_needed() { repeat(path, [arguments, environment], call) } else { call() }
        }

        /// posix_spawnp.
        ///
        /// # Safety
        /// As the function of the C library.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn posix_spawnp(
            pid: *mut pid_t,
            path: *const c_char,
            actions: *const c_void,
            attributes: *const c_void,
            arguments: Texts,
            environment: Texts,
        ) -> c_int {
            let call =
                || super::posix_spawnp(pid, path, actions, attributes, arguments, environment);
            if is_needed() { repeat(path, [arguments, environment], call) } else { call() }
        }
    }
}
