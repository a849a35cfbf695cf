//! Functions of the C library that start a shell by themselves, with the environment as it is: it is not given back what it lacks.
use super::children;
use super::exec::{environment, hand_on, keep_environment};
use super::held::{Held, is_needed, text};
use crate::abi::next::next_functions;
use libc::{c_char, c_int, c_void};
use std::ffi::CStr;

next_functions! {
    fn system(command: *const c_char) -> c_int;
    fn wordexp(words: *const c_char, expanded: *mut c_void, flags: c_int) -> c_int;
}

/// Words may have no commands in them (WRDE_NOCMD).
const NO_COMMANDS: c_int = 4;

/// Before a shell is started: tells of what it is about to start, if that will not be managed, and keeps what it is given.
pub fn prepare(command: *const c_char) -> Option<Held> {
    children::tell_of_shell(environment());
    hand_on();
    keep(command)
}

fn keep(command: *const c_char) -> Option<Held> {
    is_needed().then(|| {
        let mut held = Held::new(&[text(command)]);
        keep_environment(&mut held);
        held
    })
}

/// Whether a shell is started for some of the words; arithmetic, in two parentheses, needs none.
fn has_command(words: *const c_char) -> bool {
    // SAFETY: the program passes a C string.
    let words = unsafe { CStr::from_ptr(words) }.to_bytes();
    let is_begun = |at: &[u8]| at.starts_with(b"$(") && !at.starts_with(b"$((");
    words.contains(&b'`') || (0..words.len()).any(|at| is_begun(&words[at..]))
}

mod exported {
    use super::*;

    /// Without a command it only says whether there is a shell. As safe as the C library's; a thread may be cancelled in it.
    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn system(command: *const c_char) -> c_int {
        let _held = (!command.is_null()).then(|| prepare(command));
        super::system(command)
    }

    /// There is a shell for each command in the words, between backquotes or in parentheses behind a dollar sign.
    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn wordexp(
        words: *const c_char,
        expanded: *mut c_void,
        flags: c_int,
    ) -> c_int {
        let _held = match flags & NO_COMMANDS == 0 && has_command(words) {
            true => prepare(words),
            false => keep(words),
        };
        super::wordexp(words, expanded, flags)
    }
}
