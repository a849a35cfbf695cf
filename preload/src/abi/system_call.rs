//! System calls by number, past everything that is interposed.
use super::raw::{Errno, errno, set_errno};
use libc::c_long;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The kernel's answer below which lies an error number.
const ERRORS_FROM: usize = -4095isize as usize;

/// `syscall; ret`, and whose it is: this library's, until calls outside the C library are trapped.
static INSTRUCTION: AtomicUsize = AtomicUsize::new(0);
const INSTRUCTION_CODE: [u8; 3] = [0x0f, 0x05, 0xc3];

/// From here on calls are made by the C library's own instruction, which is never trapped; false if it has none.
pub fn use_instruction_in(text: Range<usize>) -> bool {
    // SAFETY: the C library's code, which is mapped readable for as long as the process lives.
    let code = unsafe { std::slice::from_raw_parts(text.start as *const u8, text.len()) };
    let found = code.windows(INSTRUCTION_CODE.len()).position(|code| code == INSTRUCTION_CODE);
    // Relaxed: either one does, and as it is the same each time it may be found again.
    found.inspect(|at| INSTRUCTION.store(text.start + at, Ordering::Relaxed)).is_some()
}

/// Where that instruction is.
pub fn instruction() -> usize {
    INSTRUCTION.load(Ordering::Relaxed)
}

/// A call's arguments; those that it does not have are whatever is in their registers.
pub type Arguments = [usize; 6];

/// What the kernel returns with an error.
pub const fn error(number: Errno) -> usize {
    -(number as isize) as usize
}

/// A call that the program asks for; what the kernel returns, errors as negative numbers.
pub fn make(number: c_long, [a, b, c, d, e, f]: Arguments) -> usize {
    // SAFETY: the program's own call, by which it answers for its memory.
    unsafe { enter(number, a, b, c, d, e, f) }
}

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
        // The call clobbers it anyway.
        "mov rcx, [rip + {instruction}]",
        "test rcx, rcx",
        "jz 2f",
        "jmp rcx",
        "2:",
        "syscall",
        "ret",
        instruction = sym INSTRUCTION,
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

/// A call with one argument, made on another stack, whose upper end is given: the kernel looks where the stack is. Only
/// once the C library's instruction is used.
#[unsafe(naked)]
pub unsafe extern "C" fn enter_on(stack: usize, number: c_long, argument: usize) -> usize {
    std::arch::naked_asm!(
        "push rbx",
        "mov rbx, rsp",
        "mov rsp, rdi",
        "mov rax, rsi",
        "mov rdi, rdx",
        "xor esi, esi",
        "call [rip + {instruction}]",
        "mov rsp, rbx",
        "pop rbx",
        "ret",
        instruction = sym INSTRUCTION,
    )
}

/// What C saw, as the kernel returned it.
pub fn to_kernel(returned: usize) -> usize {
    if returned == usize::MAX { error(errno()) } else { returned }
}

/// Ends a handler of the program's by a call of its own (rt_sigreturn); no signal of `reserved` stays blocked.
pub fn return_from_signal(stack: usize, reserved: u64) -> ! {
    let frame = stack as *mut libc::ucontext_t;
    // SAFETY: the kernel put the frame of a signal there, which it is about to take off.
    let mask = unsafe { &raw mut (*frame).uc_sigmask }.cast::<u64>();
    // SAFETY: as above; the kernel's set is the first word of the C library's.
    unsafe { *mask &= !reserved };
    let instruction = INSTRUCTION.load(Ordering::Relaxed);
    // SAFETY: what runs on this stack is over: the call restores another.
    unsafe {
        std::arch::asm!(
            "mov rsp, {stack}",
            "jmp {instruction}",
            stack = in(reg) stack,
            instruction = in(reg) instruction,
            in("rax") libc::SYS_rt_sigreturn,
            options(noreturn),
        )
    }
}

/// The call with this library's own arguments, as C sees what it returns. Not by the name `syscall`: in this crate that may
/// be the program's.
macro_rules! call {
    ($number:expr $(, $argument:expr)*) => {
        $crate::abi::system_call::with($number, [$($argument as usize),*])
    };
}
pub(crate) use call;

/// What the macro stands for.
pub unsafe fn with<const COUNT: usize>(number: c_long, given: [usize; COUNT]) -> c_long {
    let argument = |index: usize| given.get(index).copied().unwrap_or(0);
    to_c(make(number, std::array::from_fn(argument))) as c_long
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
