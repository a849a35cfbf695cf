//! System calls by number, past everything that is interposed.
use super::raw::set_errno;
use libc::c_long;

/// The kernel's answer below which lies an error number.
const ERRORS_FROM: usize = -4095isize as usize;

/// The call itself; what the kernel returns, errors as negative numbers.
#[unsafe(naked)]
pub unsafe extern "C" fn enter(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> usize {
    std::arch::naked_asm!(
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "syscall",
        "ret"
    )
}

/// What the kernel returned, as C sees it.
pub fn to_c(returned: usize) -> usize {
    if returned < ERRORS_FROM {
        return returned;
    }
    set_errno(returned.wrapping_neg() as i32);
    usize::MAX
}

/// What this library and what is linked into it mean by `syscall` (build.rs): the program's is another.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> usize {
    // SAFETY: the caller's promise.
    to_c(unsafe { enter(number, a, b, c, d, e, f) })
}
