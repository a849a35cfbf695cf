//! dlopen: no library is bound to the C library's functions past those that stand in front of them.
//!
//! With RTLD_DEEPBIND (PHP loads its extensions so) a library would find the C library's functions before ours: it would
//! free what our malloc gave out, and pass managed memory to calls that do not keep it. The C library looks at its caller
//! for where to search, so this jumps on.
use crate::abi::next::{Next, call_at, name};

static NEXT: Next = Next::new(name!(dlopen));

/// Looks the real function up.
pub fn look_up() {
    NEXT.look_up();
}

/// All other flags of a dlopen.
const KEPT: i32 = !libc::RTLD_DEEPBIND;

#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C-unwind" fn dlopen() {
    std::arch::naked_asm!(
        "and esi, {kept}",
        "mov r11, [rip + {next}]",
        "test r11, r11",
        "je {open}",
        "jmp r11",
        kept = const KEPT,
        next = sym NEXT,
        open = sym open,
    );
}

/// Before our constructor, from that of another library.
extern "C-unwind" fn open(name: usize, flags: usize) -> usize {
    // SAFETY: the function of this name takes two arguments.
    unsafe { call_at(NEXT.address(), &[name, flags, 0, 0, 0, 0]) }
}
