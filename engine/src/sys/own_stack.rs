//! Calls on a stack of their own, from handlers of signals: what those run on is small.
//!
//! A thread has eight kilobytes for its handlers where nobody says otherwise (SIGSTKSZ; Rust's own threads too), of which
//! the kernel's frame takes three or more with AVX-512. A fault that compresses the page that leaves for it, or tells a
//! server to keep it, needs more.
use super::lock::Lock;
use super::mapping::Mapping;
use super::signal::is_handling;
use std::ffi::c_void;
use std::io;
use std::sync::OnceLock;

/// Sixteen times what zstd takes at any level, and four times what a fault does. Never more of it is memory than was used.
const BYTES: usize = 64 << 10;

/// Stacks that any thread may have for one call.
pub struct Shared {
    /// So many threads have one at a time; others get one of their own.
    count: usize,
    made: OnceLock<Stacks>,
}

struct Stacks {
    each: Vec<Lock<End>>,
    _memory: Mapping,
}

/// Where a stack of [`BYTES`] ends, which is where it begins to be used.
#[derive(Clone, Copy, Debug)]
struct End(usize);

/// More than serve faults at a time.
const FOR_FAULTS_COUNT: usize = 64;
const COUNT: usize = 16;

/// For what is called in handlers of faults.
static FOR_HANDLERS: Shared = Shared::new();

/// For faults of threads whose signal stack is small.
static FOR_FAULTS: Shared = Shared::of(FOR_FAULTS_COUNT);

/// Makes the stacks for [`in_handler`], if there are none: not in one.
pub fn provide() {
    FOR_HANDLERS.provide();
}

/// Makes the stacks for [`in_fault`], if there are none: before the first fault.
pub(super) fn provide_for_faults() {
    FOR_FAULTS.provide();
}

/// In a forked child: threads that had one of those above are not there.
pub fn renew() {
    FOR_HANDLERS.renew();
    FOR_FAULTS.renew();
}

/// Runs `work` on a stack of its own if this thread is in a handler of faults, and else where it is. It must not panic.
pub fn in_handler<R, W: FnOnce() -> R>(work: W) -> R {
    if is_handling() { FOR_HANDLERS.call(work) } else { work() }
}

/// Serves a fault on a stack of its own. It must not panic.
pub(super) fn in_fault<R, W: FnOnce() -> R>(work: W) -> R {
    FOR_FAULTS.call(work)
}

impl Shared {
    /// None, before [`Self::provide`].
    pub const fn new() -> Self {
        Self::of(COUNT)
    }

    const fn of(count: usize) -> Self {
        Self { count, made: OnceLock::new() }
    }

    /// Makes the stacks, if there are none. Without memory for them there are none after it, either.
    pub fn provide(&self) {
        if self.made.get().is_some() {
            return;
        }
        // What is left there of a page is in no core dump.
        let Ok(memory) = Mapping::undumped(self.count * BYTES) else { return };
        let end = |index: usize| Lock::new(End(memory.address() + (index + 1) * BYTES));
        let each = (0..self.count).map(end).collect();
        self.made.get_or_init(|| Stacks { each, _memory: memory });
    }

    /// Runs `work` on one of them, if there are any. It must not panic, nor want another of them; a signal that is handled there must
    /// find room.
    pub fn call<R, W: FnOnce() -> R>(&self, work: W) -> R {
        let stacks = self.stacks();
        if stacks.is_empty() {
            return work();
        }
        // Threads that call often each begin with another.
        let here = 0u8;
        let (before, after) = stacks.split_at((&raw const here).addr() / BYTES % stacks.len());
        if let Some(stack) = after.iter().chain(before).find_map(Lock::try_lock) {
            return stack.call(work);
        }
        match OwnStack::new() {
            Ok(mut stack) => stack.run(work),
            Err(_) => after[0].lock().call(work),
        }
    }

    /// In a forked child: threads that had one are not there.
    pub fn renew(&self) {
        for stack in self.stacks() {
            std::mem::forget(stack.try_lock());
            stack.release();
        }
    }

    fn stacks(&self) -> &[Lock<End>] {
        self.made.get().map_or(&[], |stacks| stacks.each.as_slice())
    }
}

impl Default for Shared {
    fn default() -> Self {
        Self::new()
    }
}

impl End {
    /// Its stack is the caller's alone.
    fn call<R, W: FnOnce() -> R>(self, work: W) -> R {
        let mut call = Call { work: Some(work), result: None };
        // SAFETY: nobody else has the stack meanwhile. The call lives until it returns.
        unsafe { call_on(self.0, run::<R, W>, (&raw mut call).cast()) };
        call.result.expect("it was run")
    }
}

/// A stack for one call at a time.
#[derive(Debug)]
pub struct OwnStack(Mapping);

/// A call that is on its way to the other stack, and what it returned.
struct Call<W, R> {
    work: Option<W>,
    result: Option<R>,
}

impl OwnStack {
    /// # Errors
    /// No memory.
    pub fn new() -> io::Result<Self> {
        Self::of(BYTES)
    }

    /// One of so many bytes, a multiple of the page size.
    ///
    /// # Errors
    /// No memory.
    pub fn of(bytes: usize) -> io::Result<Self> {
        // What is left there of a page is in no core dump.
        Mapping::undumped(bytes).map(Self)
    }

    /// Runs `work` there if this thread is in a handler of faults, and else where it is. It must not panic.
    pub fn call<R, W: FnOnce() -> R>(&mut self, work: W) -> R {
        if is_handling() { self.run(work) } else { work() }
    }

    /// Runs `work` there. It must not panic.
    pub fn run<R, W: FnOnce() -> R>(&mut self, work: W) -> R {
        self.end().call(work)
    }

    fn end(&self) -> End {
        End(self.0.address() + self.0.bytes())
    }
}

extern "C" fn run<R, W: FnOnce() -> R>(call: *mut c_void) {
    // SAFETY: `call` passes one of this type, which nobody else uses.
    let call = unsafe { &mut *call.cast::<Call<W, R>>() };
    call.result = call.work.take().map(|work| work());
}

/// Calls a function with its argument on the stack that ends there, which is aligned as any stack's end.
#[unsafe(naked)]
unsafe extern "C" fn call_on(end: usize, work: extern "C" fn(*mut c_void), call: *mut c_void) {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        "ret",
    );
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!(
        "stp x29, x30, [sp, #-16]!",
        "mov x29, sp",
        "mov sp, x0",
        "mov x0, x2",
        "blr x1",
        "mov sp, x29",
        "ldp x29, x30, [sp], #16",
        "ret",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::signal::Handling;
    use std::mem::MaybeUninit;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Where a call ran, in a handler and outside.
    static SEEN: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];

    fn look(stack: &mut OwnStack, which: usize) {
        let local = 7u8;
        let seen = stack.call(|| {
            let here = 0u8;
            SEEN[which].store((&raw const here).addr(), Ordering::Relaxed);
            local + 1
        });
        assert_eq!(seen, 8);
    }

    extern "C" fn on_signal(_: i32) {
        let _handling = Handling::new();
        let mut stack = OwnStack::new().unwrap();
        look(&mut stack, 1);
        look(&mut stack, 2);
        let inside = stack.0.address()..stack.0.address() + stack.0.bytes();
        let is_inside = |which: usize| inside.contains(&SEEN[which].load(Ordering::Relaxed));
        SEEN[0].store(usize::from(is_inside(1) && is_inside(2)), Ordering::Relaxed);
    }

    #[test]
    fn a_handler_on_a_signal_stack_calls_on_another_and_returns() {
        std::thread::spawn(|| {
            let mut action = MaybeUninit::<libc::sigaction>::zeroed();
            // SAFETY: an all-zero sigaction is valid.
            let action = unsafe { action.assume_init_mut() };
            action.sa_sigaction = on_signal as *const () as usize;
            action.sa_flags = libc::SA_ONSTACK;
            // SAFETY: no other test uses the signal; Rust gives its threads a signal stack.
            unsafe { libc::sigaction(libc::SIGURG, action, std::ptr::null_mut()) };
            let mut stack = OwnStack::new().unwrap();
            look(&mut stack, 1);
            let outside = SEEN[1].load(Ordering::Relaxed);
            assert!(outside.abs_diff((&raw const stack).addr()) < 1 << 20, "where it is");
            // SAFETY: handled by the function above.
            unsafe { libc::raise(libc::SIGURG) };
            assert_eq!(SEEN[0].load(Ordering::Relaxed), 1, "on a stack of its own");
        })
        .join()
        .unwrap();
    }
}
