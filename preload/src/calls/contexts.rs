//! setcontext and swapcontext: of the context that comes, the C library passes the mask to the kernel before it looks at anything
//! itself. It is brought in before, where the kernel cannot do so.
//!
//! What a coroutine ends in (uc_link) is the C library's own call. The entry points jump on, with all registers as they were.
use super::held::{Held, NEEDED, is_concerned};
use crate::abi::next::Next;
use crate::abi::raw::Span;
use std::ffi::c_void;

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

extern "C" fn bring_in(context: usize) {
    let address = context.wrapping_add(MASK);
    if is_concerned(address as *const c_void) {
        drop(Held::new(&[Span { address, bytes: MASK_BYTES }]));
    }
}

/// Declares an entry point whose context is in this register.
macro_rules! entry {
    ($name:ident, $context:literal, $next:ident) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                "cmp byte ptr [rip + {needed}], 0",
                "je 2f",
                "push rdi",
                "push rsi",
                "sub rsp, 8",
                concat!("mov rdi, ", $context),
                "call {bring_in}",
                "add rsp, 8",
                "pop rsi",
                "pop rdi",
                "2: jmp [rip + {next}]",
                needed = sym NEEDED,
                bring_in = sym bring_in,
                next = sym $next,
            );
        }
    };
}

entry!(setcontext, "rdi", SETCONTEXT);
entry!(swapcontext, "rsi", SWAPCONTEXT);
