//! dlopen and dlsym: what is loaded later is served as what was there at the start.
//!
//! With RTLD_DEEPBIND (PHP loads its extensions so) a library would find the C library's functions before ours: it would
//! free what our malloc gave out, and pass managed memory to calls that do not keep it. That flag is taken away.
//!
//! A library that makes system calls in its own code has made few before the thread that loads it asks for a function of
//! it, or makes a thread: it is looked through then, and its relocated data moved (`memory/relocated.rs`). The C library looks at its caller for where to search, so both
//! functions jump on, and nothing of ours comes after them.
use super::trap;
use crate::abi::next::{Next, name};
use crate::abi::symbols::{Definition, Symbol};
use crate::memory::relocated;
use std::cell::Cell;

static OPEN: Next = Next::new(name!(dlopen));
/// By which [`Next`] finds the others.
static FIND: Symbol = Symbol::new(c"dlsym", Definition::AfterOurs);

thread_local! {
    /// This thread has loaded something since it last looked.
    static HAS_LOADED: Cell<bool> = const { Cell::new(false) };
}

/// Looks the real functions up.
pub fn look_up() {
    OPEN.look_up();
    FIND.address();
}

/// Before this thread runs what it may have loaded.
#[inline]
pub fn look() {
    if HAS_LOADED.take() {
        trap::look_again();
        relocated::look_again();
    }
}

/// All other flags of a dlopen.
const KEPT: i32 = !libc::RTLD_DEEPBIND;

/// Jumps to the function whose address `prepare` returns, with the caller's two arguments.
macro_rules! jump {
    ($prepare:path, $change:literal $(, $name:ident = $value:expr)?) => {
        std::arch::naked_asm!(
            "push rdi",
            "push rsi",
            "sub rsp, 8",
            "call {prepare}",
            "add rsp, 8",
            "pop rsi",
            "pop rdi",
            $change,
            "jmp rax",
            prepare = sym $prepare,
            $($name = const $value)?
        )
    };
}

#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C-unwind" fn dlopen() {
    jump!(opens, "and esi, {kept}", kept = KEPT)
}

#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C-unwind" fn dlsym() {
    jump!(finds, "")
}

extern "C" fn opens() -> usize {
    HAS_LOADED.set(true);
    OPEN.address().addr()
}

extern "C" fn finds() -> usize {
    look();
    FIND.address().addr()
}
