//! A program whose main thread ends by pthread_exit, or is cancelled, ends with its last thread.
//!
//! The C library counts threads, and ours would keep such a process alive for ever. Once the main thread has
//! ended, a thread of ours looks from time to time whether any of the program's is left, and does what the C
//! library does with the last one. The C library does not tell when a thread ends, so it has to look.
use super::confined::{self, Ending};
use crate::abi::next::{self, Next};
use crate::abi::raw;
use crate::abi::thread_key::ThreadKey;
use crate::calls::{by_number, filters};
use crate::state::own_threads::{self, OURS};
use crate::state::process;
use libc::{c_int, c_void};
use std::ffi::OsString;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use userswap::internals::directories;
use userswap::internals::signal::Blocked;

static PTHREAD_EXIT: Next = Next::new(c"pthread_exit");

/// Its destructor is called where the main thread ends and its process does not: also when it is cancelled (thrd_exit comes here
/// as well).
static MAIN: ThreadKey = ThreadKey::none();
/// There is a thread that looks, in this process.
static IS_WATCHED: AtomicBool = AtomicBool::new(false);

/// Between two looks: what such a program takes longer to end.
pub(super) const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
/// The program's code can run on it: handlers of atexit.
pub(super) const STACK_BYTES: usize = 2 << 20;

/// What threads that are not the program's are called: ours, and io_uring's.
const NOT_THE_PROGRAMS: [&str; 2] = [OURS, "iou-"];

mod exported {
    use super::*;

    /// pthread_exit unwinds the stack, so no frame of this library may be on it.
    #[unsafe(no_mangle)]
    #[unsafe(naked)]
    pub unsafe extern "C" fn pthread_exit(_: *mut c_void) -> ! {
        #[cfg(target_arch = "x86_64")]
        std::arch::naked_asm!("push rdi", "call {0}", "pop rdi", "jmp rax", sym before_exit);
        #[cfg(target_arch = "aarch64")]
        std::arch::naked_asm!(
            "stp x0, x30, [sp, #-16]!",
            "bl {0}",
            "mov x16, x0",
            "ldp x0, x30, [sp], #16",
            "br x16",
            sym before_exit
        );
    }
}

/// Returns the real pthread_exit.
extern "C" fn before_exit() -> *mut c_void {
    let is_done = filters::is_filtered() && confined::thread_ends(0) == Ending::Done;
    if !is_done {
        start_watching();
    }
    PTHREAD_EXIT.address()
}

/// As the main thread ends.
fn start_watching() {
    let is_ending = process::current().is_some() && is_main();
    if !is_ending || IS_WATCHED.swap(true, Ordering::Relaxed) {
        return;
    }
    let watcher = std::thread::Builder::new().name("userswap-last".into());
    if let Err(error) = watcher.stack_size(STACK_BYTES).spawn(watch) {
        raw::say(&format!("the process may not end with its last thread: {error}"));
    }
}

unsafe extern "C" fn on_main_end(_: *mut c_void) {
    if !filters::is_filtered() {
        start_watching();
    }
}

/// In the constructor: a thread can end by the kernel's call for it, and without one that is seen here.
pub fn start() {
    by_number::before_thread_ends(before_end);
    MAIN.make(on_main_end);
    note_main();
}

/// In a forked child, whose main thread is the one that forked.
pub fn renew() {
    IS_WATCHED.store(false, Ordering::Relaxed);
    note_main();
}

fn note_main() {
    MAIN.set((&raw const MAIN).cast());
}

/// A process whose only thread of the program's is the main thread ends with that.
fn before_end(status: c_int) {
    if filters::is_filtered() && confined::thread_ends(status) == Ending::Done {
        return;
    }
    if is_main() && is_any_left() == Some(false) {
        next::_exit(status);
    }
}

fn is_main() -> bool {
    // SAFETY: has no conditions.
    let thread = unsafe { libc::gettid() };
    u32::try_from(thread) == Ok(std::process::id())
}

fn watch() {
    let blocked = Blocked::new();
    loop {
        match is_any_left() {
            Some(false) => break,
            Some(true) => {}
            // It cannot be told here (no /proc). Without an engine there is no thread of ours but this one.
            None if process::current().is_none_or(|process| process.engine().is_none()) => return,
            None => {}
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    drop(blocked);
    // SAFETY: ends the process as the C library does after its last thread.
    unsafe { libc::exit(0) };
}

/// The name of the main thread in the directory of threads, by the numbers of that /proc, which may be another namespace's.
pub(super) fn main_thread() -> Option<OsString> {
    let this = fs::read_link("/proc/thread-self").ok()?;
    Some(this.components().next()?.as_os_str().to_owned())
}

/// Whether threads of the program's run; None where /proc does not tell.
pub(super) fn is_any_left() -> Option<bool> {
    let main = main_thread()?;
    let threads = directories::names(own_threads::directory(), usize::MAX).ok()?;
    Some(threads.iter().filter(|thread| **thread != main).any(|thread| {
        // One that has just ended may have made another after the list was read.
        own_threads::name_of(thread)
            .map_or(true, |name| !NOT_THE_PROGRAMS.iter().any(|prefix| name.starts_with(prefix)))
    }))
}

/// Looks the real function up.
pub fn look_up() {
    PTHREAD_EXIT.look_up();
}
