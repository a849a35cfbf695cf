//! The functions that ours stand in front of: the next ones of the same name in the order of the linker.
//!
//! All are looked up by the constructor, so that none has to be in a signal handler or after fork.
use super::symbols;
use super::system_call::Arguments;
use libc::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// One function that the linker finds after ours; entry points in assembly read the address.
#[repr(C)]
pub struct Next {
    address: AtomicPtr<c_void>,
    name: &'static std::ffi::CStr,
}

impl Next {
    /// A function by name, not yet looked up.
    pub const fn new(name: &'static std::ffi::CStr) -> Self {
        Self { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Its address; null when the C library has no such function.
    #[inline]
    pub fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if known.is_null() { self.look_up() } else { known }
    }

    /// A dlsym that finds nothing has the program's malloc keep its message, and its free take that back, which in a constructor
    /// neither may be ready for: it is only asked for what is there, and says in which version.
    #[cold]
    pub fn look_up(&self) -> *mut c_void {
        let found = if symbols::is_after_ours(self.name) {
            // SAFETY: the name is a C string.
            unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr().cast::<c_char>()) }
        } else {
            std::ptr::null_mut()
        };
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

type Function = unsafe extern "C-unwind" fn(usize, usize, usize, usize, usize, usize) -> usize;

/// Calls the function at an address, whatever integers and pointers it takes: they travel alike.
pub unsafe fn call_at(function: *const c_void, arguments: &Arguments) -> usize {
    // SAFETY: the caller's promise.
    let function = unsafe { std::mem::transmute::<*const c_void, Function>(function) };
    let [a, b, c, d, e, f] = *arguments;
    // SAFETY: as above.
    unsafe { function(a, b, c, d, e, f) }
}

/// An identifier as a C string.
macro_rules! name {
    ($name:ident) => {
        const {
            const NAME: &str = concat!(stringify!($name), "\0");
            match std::ffi::CStr::from_bytes_with_nul(NAME.as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("an identifier has no zero byte"),
            }
        }
    };
}
pub(crate) use name;

/// Declares the next functions of these names, each with a caller of the right type; a thread that is cancelled in one
/// unwinds.
macro_rules! next_functions {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty;)+) => {
        /// Looks all of them up.
        pub fn look_up() {
            $($name::NEXT.look_up();)+
        }
        $(
            #[allow(non_snake_case, reason = "named as the C function")]
            mod $name {
                pub static NEXT: $crate::abi::next::Next =
                    $crate::abi::next::Next::new($crate::abi::next::name!($name));
            }
            $(#[$doc])*
            #[inline]
            #[allow(clippy::too_many_arguments, reason = "as many as the C function has")]
            #[allow(non_snake_case, reason = "named as the C function")]
            pub fn $name($($argument: $type),*) -> $result {
                type Function = unsafe extern "C-unwind" fn($($type),*) -> $result;
                let address = $name::NEXT.address();
                assert!(!address.is_null(), concat!("the C library has ", stringify!($name)));
                // SAFETY: the function of this name has this type.
                let function = unsafe { std::mem::transmute::<*mut libc::c_void, Function>(address) };
                // SAFETY: called as the program called ours.
                unsafe { function($($argument),*) }
            }
        )+
    };
}

pub(crate) use next_functions;

/// A handler of pthread_atfork.
type AtFork = unsafe extern "C" fn();

next_functions! {
    /// Ends the process without handlers.
    fn _exit(status: c_int) -> ();
    /// Ends the process with the handlers of at_quick_exit.
    fn quick_exit(status: c_int) -> ();
    /// Forks with the handlers of pthread_atfork.
    fn fork() -> libc::pid_t;
    /// Forks without handlers.
    fn _Fork() -> libc::pid_t;
    /// Forks with handlers, and gives the child a terminal.
    fn forkpty(
        terminal: *mut c_int, name: *mut c_char, settings: *const libc::termios, size: *const libc::winsize
    ) -> libc::pid_t;
    /// pthread_atfork, for the library that is named or for good.
    fn __register_atfork(prepare: AtFork, parent: AtFork, child: AtFork, library: usize) -> c_int;
    fn dup2(from: c_int, to: c_int) -> c_int;
    fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int;
    fn close(fd: c_int) -> c_int;
    fn shmdt(address: *const c_void) -> c_int;
    fn brk(address: *mut c_void) -> c_int;
    fn sbrk(bytes: isize) -> *mut c_void;
    fn shmat(id: c_int, address: *const c_void, flags: c_int) -> *mut c_void;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_leaves_no_message() {
        // SAFETY: has no conditions.
        let message = || unsafe { libc::dlerror() };
        message();
        assert!(Next::new(c"userswap_knows_no_such_function").address().is_null());
        assert!(message().is_null());
        assert_eq!(Next::new(c"getppid").address(), libc::getppid as *mut c_void);
    }
}
