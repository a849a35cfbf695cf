//! The thread that a signal has interrupted, as the kernel describes it to the handler: what stands there when the
//! handler returns is what the thread goes on with.
use libc::{c_int, c_long, c_void, stack_t, ucontext_t};

/// Registers, mask and signal stack of an interrupted thread.
pub struct Context<'a>(&'a mut ucontext_t);

impl Context<'_> {
    /// # Safety
    /// What the kernel passed to a handler with SA_SIGINFO, for as long as the handler runs.
    pub unsafe fn of(context: *mut c_void) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { &mut *context.cast::<ucontext_t>() })
    }

    pub fn register(&self, register: c_int) -> usize {
        self.0.uc_mcontext.gregs[register as usize] as usize
    }

    /// The number of the call that was about to be made.
    pub fn number(&self) -> c_long {
        self.register(libc::REG_RAX) as c_long
    }

    pub fn arguments(&self) -> [usize; 6] {
        use libc::{REG_R8, REG_R9, REG_R10, REG_RDI, REG_RDX, REG_RSI};
        [REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9].map(|register| self.register(register))
    }

    /// What the call returns.
    pub fn set_result(&mut self, result: usize) {
        self.0.uc_mcontext.gregs[libc::REG_RAX as usize] = result as i64;
    }

    /// The stack that the thread goes on with.
    pub fn set_stack_pointer(&mut self, stack: usize) {
        self.0.uc_mcontext.gregs[libc::REG_RSP as usize] = stack as i64;
    }

    /// A bit for each signal that is blocked.
    pub fn mask(&self) -> u64 {
        // SAFETY: the kernel's set is the first word of the C library's.
        unsafe { (&raw const self.0.uc_sigmask).cast::<u64>().read() }
    }

    pub fn set_mask(&mut self, mask: u64) {
        // SAFETY: as above.
        unsafe { (&raw mut self.0.uc_sigmask).cast::<u64>().write(mask) };
    }

    /// The thread's signal stack.
    pub fn stack(&self) -> stack_t {
        self.0.uc_stack
    }

    pub fn set_stack(&mut self, stack: stack_t) {
        self.0.uc_stack = stack;
    }

    /// Whether the thread was on its signal stack when it was interrupted.
    pub fn is_on_stack(&self) -> bool {
        let stack = &self.0.uc_stack;
        let offset = self.register(libc::REG_RSP).wrapping_sub(stack.ss_sp as usize);
        stack.ss_flags & libc::SS_DISABLE == 0 && offset.wrapping_sub(1) < stack.ss_size
    }
}
