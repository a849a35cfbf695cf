//! Functions of the C library that start a shell by themselves, with the environment as it is: it is not given back what it lacks.
use super::children;
use super::exec::environment;
use super::held::{Held, is_needed, text};
use crate::abi::next::next_functions;
use libc::{c_char, c_int};

next_functions! {
    fn system(command: *const c_char) -> c_int;
}

/// Tells of what a shell is about to start, if it will not be managed.
pub fn tell() {
    children::tell_of_shell(environment());
}

mod exported {
    use super::*;

    /// Without a command it only says whether there is a shell. As safe as the C library's; a thread may be cancelled in it.
    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn system(command: *const c_char) -> c_int {
        if !command.is_null() {
            tell();
        }
        let _held = is_needed().then(|| Held::new(&[text(command)]));
        super::system(command)
    }
}
