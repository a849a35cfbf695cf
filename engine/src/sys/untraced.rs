//! A thread's body that strace does not stop.
//!
//! A tracer that follows all threads of a program (`strace -f`) stops them, and then reads the program's memory: where a page has
//! left, the thread that would bring it in is among those that are stopped, and all wait for ever. Who traces a thread traces
//! what it makes, unless that is made with CLONE_UNTRACED (clone(2)), which the C library cannot be asked for. So its thread makes another
//! one for its body, and sleeps until that has ended.
//!
//! Both have the same thread-locals, so that the C library takes one for the other. The one that sleeps uses none: it is in a
//! system call, made by hand, and signals are blocked. A tracer that comes later, and takes all threads that there are
//! (`strace -p`), takes this one, too. Not under a debugger: at its breakpoints an untraced thread would end the program.
use super::device_pins::{says, value};
use super::filters;
use super::mapping::Mapping;
use super::signal::Blocked;
use std::ffi::c_void;
use std::sync::atomic::AtomicU32;

/// As a thread of the C library has it here, in bytes.
const STACK_BYTES: usize = 2 << 20;

/// A thread of this process, but for who traces it; the kernel writes its number, and 0 with a wake-up when it has ended.
const FLAGS: i32 = libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM
    | libc::CLONE_UNTRACED
    | libc::CLONE_PARENT_SETTID
    | libc::CLONE_CHILD_CLEARTID;

/// Runs `body`, for which the calling thread was made, where its tracer does not stop it. It must not panic.
pub fn run<F: FnOnce()>(body: F) {
    let mut body = Some(body);
    if is_traced() {
        apart(&mut body);
    }
    if let Some(body) = body.take() {
        body();
    }
}

/// Whether strace has the calling thread. Not where that has more filters than strace itself (in a container both have the
/// same): with `--seccomp-bpf` strace makes one, by which calls fail in a thread that nobody traces.
fn is_traced() -> bool {
    let status = filters::own_status();
    let tracer = value(&status, b"TracerPid:").and_then(|tracer| str::from_utf8(tracer).ok());
    tracer.filter(|tracer| *tracer != "0").is_some_and(|tracer| {
        let of_tracer = std::fs::read(format!("/proc/{tracer}/status")).unwrap_or_default();
        let filters = filters::count_in(&status);
        says(&of_tracer, b"Name:", b"strace")
            && filters.is_some()
            && filters == filters::count_in(&of_tracer)
    })
}

/// Leaves the body where it is if there can be no such thread.
fn apart<F: FnOnce()>(body: &mut Option<F>) {
    let Ok(stack) = Mapping::undumped(STACK_BYTES) else { return };
    let thread = AtomicU32::new(0);
    let end = stack.address() + stack.bytes();
    let _blocked = Blocked::new();
    leave_rseq();
    let body: *mut Option<F> = body;
    // SAFETY: the stack is the new thread's alone, and is there until that has ended, as is the word that tells it; until
    // then `body` is the new thread's, and `call` takes it to be of this type.
    unsafe { clone_and_wait(end, thread.as_ptr(), call::<F>, body.cast()) };
}

/// Has the kernel keep the number of this thread's CPU in its thread-locals no longer: it would be the sleeping one's. The C
/// library, and allocators, ask where there is none. Nothing happens before glibc 2.35.
fn leave_rseq() {
    /// What glibc registers: bytes, and the mark of code that is aborted to (rseq(2)).
    const REGISTERED: (u32, u32) = (32, 0x5305_3053);
    const UNREGISTER: i32 = 1;
    // SAFETY: looks a name up.
    let offset = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()) };
    if offset.is_null() {
        return;
    }
    // SAFETY: a constant of the C library's, of this type.
    let offset = unsafe { *offset.cast::<isize>() };
    // SAFETY: on x86-64 pthread_self is the thread pointer, from which the offset counts.
    let area = (unsafe { libc::pthread_self() } as usize).wrapping_add_signed(offset);
    // SAFETY: the kernel refuses another area than the one that is registered.
    unsafe { libc::syscall(libc::SYS_rseq, area, REGISTERED.0, UNREGISTER, REGISTERED.1) };
}

extern "C" fn call<F: FnOnce()>(body: *mut c_void) {
    // SAFETY: `apart` passes one of this type, which it does not use meanwhile.
    let body = unsafe { &mut *body.cast::<Option<F>>() };
    if let Some(body) = body.take() {
        body();
    }
}

/// Calls `work` in a new thread, on the stack that ends at `end`, and returns once that has ended, or if there can be none.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn clone_and_wait(
    end: usize,
    thread: *mut u32,
    work: extern "C" fn(*mut c_void),
    body: *mut c_void,
) {
    std::arch::naked_asm!(
        "push rbx; push r12; push r13",
        "mov rbx, rsi; mov r12, rdx; mov r13, rcx",
        "mov rsi, rdi; mov rdx, rbx; mov r10, rbx; xor r8d, r8d",
        "mov edi, {flags}; mov eax, {clone}; syscall",
        "test rax, rax",
        "jz 4f",
        "js 3f",
        // Sleeps as long as the number is there, without a word of the stack or of thread-locals.
        "2:",
        "mov edx, dword ptr [rbx]",
        "test edx, edx",
        "jz 3f",
        "mov rdi, rbx; mov esi, {wait}; xor r10d, r10d; mov eax, {futex}; syscall",
        "jmp 2b",
        "3:",
        "pop r13; pop r12; pop rbx",
        "ret",
        // The new thread.
        "4:",
        "xor ebp, ebp; mov rdi, r13",
        "call r12",
        "xor edi, edi; mov eax, {exit}; syscall",
        "ud2",
        flags = const FLAGS,
        clone = const libc::SYS_clone,
        futex = const libc::SYS_futex,
        wait = const libc::FUTEX_WAIT,
        exit = const libc::SYS_exit,
    )
}

/// Not written for this processor: the body runs in the thread that was made for it.
#[cfg(not(target_arch = "x86_64"))]
unsafe extern "C" fn clone_and_wait(
    _end: usize,
    _thread: *mut u32,
    _work: extern "C" fn(*mut c_void),
    _body: *mut c_void,
) {
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apart_returns<R>(work: impl FnOnce() -> R) -> R {
        let mut result = None;
        apart(&mut Some(|| result = Some(work())));
        result.expect("the body has run to its end")
    }

    fn number() -> libc::pid_t {
        // SAFETY: has no conditions.
        unsafe { libc::gettid() }
    }

    #[test]
    fn a_body_runs_once_in_a_thread_of_its_own_with_the_same_thread_locals() {
        thread_local!(static LOCAL: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });
        for round in 1..=200 {
            LOCAL.set(round);
            let (of_body, seen) = apart_returns(|| (number(), LOCAL.replace(round + 1000)));
            assert_ne!(of_body, number());
            assert_eq!((seen, LOCAL.get()), (round, round + 1000));
        }
    }

    #[test]
    fn a_body_knows_its_cpu() {
        let cpus = apart_returns(|| {
            crate::sys::numa::run_on(&[0]);
            // SAFETY: has no conditions.
            let first = unsafe { libc::sched_getcpu() };
            let last = crate::sys::clock::cpus() - 1;
            crate::sys::numa::run_on(&[last]);
            // SAFETY: has no conditions.
            (first, unsafe { libc::sched_getcpu() }, last as i32)
        });
        assert_eq!((cpus.0, cpus.1), (0, cpus.2));
    }

    #[test]
    fn a_body_has_the_stack_that_any_thread_has() {
        // The compiler must not do without the memory.
        let sum = apart_returns(|| {
            std::hint::black_box([1u8; 1 << 20]).iter().map(|one| u64::from(*one)).sum::<u64>()
        });
        assert_eq!(sum, 1 << 20);
    }

    #[test]
    fn a_body_stays_where_it_is_when_nobody_traces() {
        let (this, mut body_ran_in) = (number(), 0);
        run(|| body_ran_in = number());
        assert_eq!(body_ran_in, this);
    }
}
