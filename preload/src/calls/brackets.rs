//! Programs that run the handlers of fork around clones that they make themselves, as Firefox and its kin do for processes
//! in namespaces of their own.
//!
//! Such a clone is a fork of the C library's here, which runs the same handlers: each would wait for a lock that its own
//! thread has taken. So the program's are ended before that, and begun again after it, on both sides, for what the program
//! does next. They have no standard name; these are Mozilla's (mozglue's interposer of `__register_atfork`).
use crate::abi::{raw, symbols};
use std::cell::Cell;
use std::ffi::CStr;
use std::sync::OnceLock;

const BEGIN: &CStr = c"_Z39run_moz_pthread_atfork_handlers_preforkv";
const END: &CStr = c"_Z47run_moz_pthread_atfork_handlers_postfork_parentv";

/// What runs all handlers of the program's.
struct Handlers {
    begin: unsafe extern "C" fn(),
    end: unsafe extern "C" fn(),
}

static HANDLERS: OnceLock<Handlers> = OnceLock::new();

thread_local! {
    /// This thread is between them.
    static IS_WITHIN: Cell<bool> = const { Cell::new(false) };
}

extern "C" fn on_begin() {
    IS_WITHIN.set(true);
}

extern "C" fn on_end() {
    IS_WITHIN.set(false);
}

/// In the constructor: notices when a program runs its handlers, ours among them.
pub fn install() {
    if let (Some(begin), Some(end)) = (look_up(BEGIN), look_up(END))
        && HANDLERS.set(Handlers { begin, end }).is_ok()
    {
        // SAFETY: the handlers live as long as the process.
        unsafe { libc::pthread_atfork(Some(on_begin), Some(on_end), Some(on_end)) };
    }
}

fn look_up(name: &CStr) -> Option<unsafe extern "C" fn()> {
    // SAFETY: a function that takes and returns nothing, as its mangled name says.
    symbols::first(name).map(|address| unsafe { std::mem::transmute(address) })
}

/// Forks outside of the program's handlers.
pub fn fork() -> libc::pid_t {
    let within = HANDLERS.get().filter(|_| IS_WITHIN.get());
    // SAFETY: this thread has begun them.
    within.iter().for_each(|handlers| unsafe { (handlers.end)() });
    // SAFETY: the program asks for it.
    let child = unsafe { libc::fork() };
    let errno = raw::errno();
    // SAFETY: the program ends them, on both sides.
    within.iter().for_each(|handlers| unsafe { (handlers.begin)() });
    raw::set_errno(errno);
    child
}
