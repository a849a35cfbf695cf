//! clone and vfork in a program's own code.
//!
//! Such a call is caught in a signal handler, and two threads would return from it. A child with memory of its own can:
//! its copy of the stack is its own as well. Any other goes on past the handler, with the registers of the caller: on the
//! stack that it was given, or, where it borrows its parent's (vfork), on that, with a signal stack of its own, as the
//! handler's frame is on its parent's.
use super::forks::{self, Call, Wanted};
use super::{signal_stacks, trap};
use crate::abi::context::Context;
use crate::abi::raw::{self, Span};
use crate::abi::system_call::{enter, error, make};
use libc::{CLONE_VFORK, CLONE_VM, SIGCHLD};
use libc::{REG_EFL, REG_RDI, REG_RDX, REG_RIP, REG_RSI, REG_RSP};
use libc::{REG_R8, REG_R9, REG_R10, REG_R12, REG_R13, REG_R14, REG_R15, REG_RBP, REG_RBX};

/// For the handlers of a child that borrows its parent's stack, in bytes; exec needs most.
const SCRATCH_BYTES: usize = 128 << 10;

/// What a child begins with; `begin` knows the order.
#[repr(C)]
struct Begin {
    /// Where the C library's `ret` takes it.
    entry: usize,
    registers: [usize; 12],
    flags: usize,
    address: usize,
    stack: usize,
    mask: u64,
    signal_stack: Option<libc::stack_t>,
}

impl Begin {
    fn of(context: &Context, stack: usize) -> Self {
        let registers = [
            REG_RBX, REG_RBP, REG_R12, REG_R13, REG_R14, REG_R15, REG_RDI, REG_RSI, REG_RDX,
            REG_R10, REG_R8, REG_R9,
        ];
        Self {
            entry: begin as *const () as usize,
            registers: registers.map(|register| context.register(register)),
            flags: context.register(REG_EFL),
            address: context.register(REG_RIP),
            stack,
            mask: context.mask(),
            signal_stack: None,
        }
    }

    /// Lies just below `end`, and ends where the stack may begin.
    fn put(self, end: usize) -> usize {
        let address = (end - size_of::<Self>()) & !15;
        // SAFETY: the upper end of a stack that is to be the child's, and not in use.
        unsafe { (address as *mut Self).write(self) };
        address
    }
}

/// What the kernel would return.
pub fn clone(context: &mut Context) -> usize {
    let arguments = match context.number() {
        libc::SYS_vfork => [(CLONE_VM | CLONE_VFORK | SIGCHLD) as usize, 0, 0, 0, 0, 0],
        _ => context.arguments(),
    };
    let ([flags, stack, ..], wanted) = (arguments, Wanted::of(&arguments));
    match stack {
        _ if !wanted.is_shared() => fork(context, &wanted, Call::Clone),
        0 if flags & CLONE_VFORK as usize == 0 => error(libc::EINVAL),
        0 => borrow(context, flags),
        // Its thread-locals need not be the C library's: it is not caught again.
        stack => {
            signal_stacks::keep_shared(&wanted);
            start(context, flags, Begin::of(context, stack).put(stack))
        }
    }
}

/// The same for clone3. Callers that want to share memory fall back on clone.
pub fn clone3(context: &mut Context) -> usize {
    match Wanted::of_3(&context.arguments()) {
        Ok(wanted) if wanted.is_shared() => error(libc::ENOSYS),
        Ok(wanted) => fork(context, &wanted, Call::Clone3),
        Err(number) => error(number),
    }
}

/// A child with memory of its own. It returns from this handler to the stack that it was given.
fn fork(context: &mut Context, wanted: &Wanted, call: Call) -> usize {
    let result = forks::fork(wanted, call);
    if let (0, Some(stack)) = (result, wanted.stack_end()) {
        context.set_stack_pointer(stack);
    }
    result
}

/// A child on its parent's stack, until it calls exec or ends.
fn borrow(context: &Context, flags: usize) -> usize {
    let Ok(address) = raw::map_stack(SCRATCH_BYTES) else { return error(libc::ENOMEM) };
    let signal_stack = libc::stack_t {
        ss_sp: address as *mut libc::c_void,
        ss_flags: 0,
        ss_size: SCRATCH_BYTES / 2,
    };
    let stack = context.register(REG_RSP);
    let begin = Begin { signal_stack: Some(signal_stack), ..Begin::of(context, stack) };
    let child = start(context, flags, begin.put(address + SCRATCH_BYTES));
    // The child does not use it any more; a failure is a leak.
    let _ = raw::unmap(Span { address, bytes: SCRATCH_BYTES });
    child
}

/// No signal of the program's comes before the child has its own signal stack.
fn start(context: &Context, flags: usize, begin: usize) -> usize {
    set_mask(u64::MAX);
    let [_, _, parent, child, locals, _] = context.arguments();
    // SAFETY: the program asks for it; the child returns to `begin`.
    let result = unsafe { enter(libc::SYS_clone, flags, begin, parent, child, locals, 0) };
    set_mask(context.mask());
    result
}

/// Signals that a thread's own access or call raises stay.
fn set_mask(mask: u64) {
    let kept = [libc::SIGBUS, libc::SIGSEGV, libc::SIGFPE, libc::SIGILL, libc::SIGSYS];
    let all = mask == u64::MAX;
    let mask = kept.iter().filter(|_| all).fold(mask, |mask, signal| mask & !(1 << (signal - 1)));
    let (how, mask, bytes) =
        (libc::SIG_SETMASK as usize, (&raw const mask).addr(), size_of::<u64>());
    make(libc::SYS_rt_sigprocmask, [how, mask, 0, bytes, 0, 0]);
}

/// In the child, on the stack that it has been given; thread-locals may be nobody's.
extern "C" fn settle(begin: &Begin) {
    if let Some(stack) = &begin.signal_stack {
        let stack = std::ptr::from_ref(stack).addr();
        make(libc::SYS_sigaltstack, [stack, 0, 0, 0, 0, 0]);
        trap::arm_clone();
    }
    set_mask(begin.mask);
}

/// The child's first instructions: the stack is at what follows `Begin::entry`.
#[unsafe(naked)]
unsafe extern "C" fn begin() {
    std::arch::naked_asm!(
        "lea rbx, [rsp - 8]",
        "mov rdi, rbx",
        "and rsp, -16",
        "call {settle}",
        "mov rax, rbx",
        "push [rax + 8 * 13]",
        "popfq",
        "mov rbx, [rax + 8 * 1]",
        "mov rbp, [rax + 8 * 2]",
        "mov r12, [rax + 8 * 3]",
        "mov r13, [rax + 8 * 4]",
        "mov r14, [rax + 8 * 5]",
        "mov r15, [rax + 8 * 6]",
        "mov rdi, [rax + 8 * 7]",
        "mov rsi, [rax + 8 * 8]",
        "mov rdx, [rax + 8 * 9]",
        "mov r10, [rax + 8 * 10]",
        "mov r8, [rax + 8 * 11]",
        "mov r9, [rax + 8 * 12]",
        "mov r11, [rax + 8 * 13]",
        // As a system call leaves it.
        "mov rcx, [rax + 8 * 14]",
        "mov rsp, [rax + 8 * 15]",
        "mov eax, 0",
        "jmp rcx",
        settle = sym settle,
    )
}
