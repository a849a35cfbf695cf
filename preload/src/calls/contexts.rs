//! setcontext and swapcontext: of the context that comes, the C library passes the mask to the kernel before it looks at anything
//! itself. It is brought in before, where the kernel cannot do so, and the call repeated if it has left again: until then nothing
//! has changed.
//!
//! What a coroutine ends in (uc_link) is the C library's own call. A context that was saved comes back into the entry point.
use super::held::{Held, NEEDED, is_concerned};
use crate::abi::next::Next;
use crate::abi::raw::{Span, errno};
use std::ffi::c_void;
use std::hint::black_box;

/// Where a context has its mask, and the bytes of that (ucontext_t on x86-64).
const MASK: usize = 0x128;
const MASK_BYTES: usize = 8;

static SETCONTEXT: Next = Next::new(c"setcontext");
static SWAPCONTEXT: Next = Next::new(c"swapcontext");

/// Looks both up.
pub fn look_up() {
    SETCONTEXT.look_up();
    SWAPCONTEXT.look_up();
}

/// Where the mask of a context is, if it may have left, and the program could read it.
fn mask_of(context: usize) -> Option<*const u64> {
    let address = context.wrapping_add(MASK);
    let can_read = || Held::is_readable(Span { address, bytes: MASK_BYTES });
    (is_concerned(address as *const c_void) && can_read()).then_some(address as *const u64)
}

extern "C" fn bring_in(context: usize) {
    if let Some(mask) = mask_of(context) {
        // SAFETY: the program could read it.
        black_box(unsafe { mask.read_unaligned() });
    }
}

/// Whether a call that has returned this is to be repeated.
extern "C" fn has_left(result: i32, context: usize) -> bool {
    result == -1 && errno() == libc::EFAULT && mask_of(context).is_some()
}

/// Declares an entry point; the register has its context, once both arguments are in rbx and r12.
macro_rules! entry {
    ($name:ident, $context:literal, $next:ident) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                "cmp byte ptr [rip + {needed}], 0",
                "jne 2f",
                "jmp [rip + {next}]",
                "2: push rbx",
                "push r12",
                "sub rsp, 8",
                "mov rbx, rdi",
                "mov r12, rsi",
                "3:",
                concat!("mov rdi, ", $context),
                "call {bring_in}",
                "mov rdi, rbx",
                "mov rsi, r12",
                "call [rip + {next}]",
                "mov [rsp], rax",
                "mov edi, eax",
                concat!("mov rsi, ", $context),
                "call {has_left}",
                "test al, al",
                "jne 3b",
                "mov rax, [rsp]",
                "add rsp, 8",
                "pop r12",
                "pop rbx",
                "ret",
                needed = sym NEEDED,
                bring_in = sym bring_in,
                has_left = sym has_left,
                next = sym $next,
            );
        }
    };
}

entry!(setcontext, "rbx", SETCONTEXT);
entry!(swapcontext, "r12", SWAPCONTEXT);
