//! System calls in the program's own code, past every function: caught by syscall user dispatch, and served as
//! `syscall()` serves them.
//!
//! The kernel raises SIGSYS in place of a call that does not come from the C library's code. It does so for each thread
//! that has asked for it; threads of this library's have not, and neither has a thread that the program makes by such a
//! call, whose thread-locals need not be the C library's. The handler runs with the program's own mask, so what
//! it waits for is interrupted and begun again just as the call itself would have been. Everything that a handler's return
//! puts back, the mask and the signal stack, is changed in what it puts back.
use super::held::is_needed;
use super::{by_number, clones, filters, forks, given_stacks, raw_signals, signal_stacks, signals};
use crate::abi::context::Context;
use crate::abi::raw_code::{self, Look, Number};
use crate::abi::system_call::{error, make, return_from_signal, to_kernel, use_instruction_in};
use crate::abi::{callers, raw, symbols};
use libc::{c_int, c_void};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use userswap::RawCalls;
use userswap::internals::Options;
use userswap::internals::signal::Uncancelled;

/// Calls outside the C library are trapped, in every thread that runs the program's code.
static IS_ARMED: AtomicBool = AtomicBool::new(false);
/// Nothing does so yet, and what is loaded later may.
static IS_WATCHING: AtomicBool = AtomicBool::new(false);
/// It was, in this process: threads that were there before follow one by one.
static LATE_IN: AtomicU32 = AtomicU32::new(0);
static TRAPPED: AtomicU64 = AtomicU64::new(0);

pub const PR_SET_SYSCALL_USER_DISPATCH: c_int = 59;
const OFF: usize = 0;
pub const ON: usize = 1;
/// The reason that SIGSYS gives (si_code).
const SYS_USER_DISPATCH: c_int = 2;

thread_local! {
    /// This thread's are.
    static IS_ON: Cell<bool> = const { Cell::new(false) };
    /// They were, and are not while it forks.
    static IS_PAUSED: Cell<bool> = const { Cell::new(false) };
}

/// Before the program's code runs, and after it is known whether memory of calls has to be kept.
///
/// # Errors
/// What keeps a program from being served as it was asked for.
pub fn start(options: &Options) -> Result<(), &'static str> {
    match options.raw_calls {
        RawCalls::Pass => {}
        RawCalls::Trap => {
            if !start_catching() {
                return Err("raw_calls=trap needs Linux 5.11 or newer; use auto or pass");
            }
        }
        // A sanitizer's own calls map what it looks at all memory by: it is not to meet this library there.
        RawCalls::Auto if !symbols::is_libcs(c"mmap") => {}
        RawCalls::Auto => {
            let is_caught = raw_code::is_any_new(Look::AtStart, matters) && start_catching();
            IS_WATCHING.store(!is_caught, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// False if this kernel cannot.
fn start_catching() -> bool {
    if !stop_catching() || !use_instruction_in(callers::system_text()) {
        return false;
    }
    signals::take_sigsys(on_signal);
    if is_late() {
        signals::unblock_in_handlers();
    }
    IS_ARMED.store(true, Ordering::Release);
    arm_thread();
    true
}

/// Whether what is loaded from here on may have calls caught.
#[inline]
pub fn is_watching() -> bool {
    IS_WATCHING.load(Ordering::Relaxed)
}

/// In a thread of the program's that has loaded something: its calls are caught from here on, if it makes any that matter.
#[cold]
pub fn look_again() {
    let claims = || IS_WATCHING.swap(false, Ordering::Relaxed);
    if is_watching() && raw_code::is_any_new(Look::Later, matters) && claims() {
        LATE_IN.store(std::process::id(), Ordering::Release);
        start_catching();
    }
}

/// The program catches calls itself.
pub fn leave_to_program() -> bool {
    IS_WATCHING.store(false, Ordering::Relaxed);
    is_armed()
}

/// Whether a call that something loaded seems to make would miss what this library does for it.
fn matters(number: Number) -> bool {
    match number {
        // What the kernel could not bring in is not there for any call.
        _ if is_needed() => true,
        Number::Constant(number) => by_number::is_about_memory(number),
        Number::Variable => false,
    }
}

/// Whether raw calls are caught.
#[inline]
pub fn is_armed() -> bool {
    IS_ARMED.load(Ordering::Relaxed)
}

/// Calls that were caught, in this process and those that it was forked from.
pub fn trapped() -> u64 {
    TRAPPED.load(Ordering::Relaxed)
}

/// In each thread of the program, which does not inherit it.
pub fn arm_thread() {
    if !is_armed() {
        return;
    }
    IS_ON.set(true);
    if is_late() {
        signal_stacks::enlarge();
        signals::unblock_reserved();
    }
    arm();
}

/// In one that was there before calls were caught; it has called the C library.
#[inline]
pub fn follow() {
    if is_late() && !IS_ON.get() {
        try_to_follow();
    }
}

/// Not in a child that shares its parent's thread-locals (vfork), nor where a handler's return would undo half of it, nor where a filter
/// of the program's may refuse it.
#[cold]
fn try_to_follow() {
    let is_own = LATE_IN.load(Ordering::Relaxed) == std::process::id();
    if is_own
        && !filters::is_filtered()
        && !given_stacks::is_in_use()
        && !signals::blocks_reserved()
    {
        arm_thread();
    }
}

fn is_late() -> bool {
    LATE_IN.load(Ordering::Relaxed) != 0
}

/// In one that is about to fork: until [`resume`], or [`renew`] in the child. Not where a filter of the program's may refuse it.
pub fn pause() {
    if is_here() && !filters::is_filtered() {
        IS_PAUSED.set(stop_catching());
    }
}

/// The same where something else is caught until then.
pub fn note_pause() {
    IS_PAUSED.set(is_here());
}

/// In the parent.
pub fn resume() {
    if IS_PAUSED.take() {
        arm();
    }
}

/// In the child, which does not inherit it.
pub fn renew() {
    IS_PAUSED.set(false);
    if is_late() {
        LATE_IN.store(std::process::id(), Ordering::Relaxed);
    }
    if is_here() {
        arm();
    }
}

/// Whether this thread's calls are caught, unless it forks.
fn is_here() -> bool {
    is_armed() && (IS_ON.get() || !is_late())
}

/// Of this thread's calls none is caught any more.
pub fn stop_catching() -> bool {
    make(libc::SYS_prctl, [PR_SET_SYSCALL_USER_DISPATCH as usize, OFF, 0, 0, 0, 0]) == 0
}

/// In a thread that a caught call has made: thread-locals may be nobody's.
pub fn arm_clone() {
    if is_armed() {
        arm();
    }
}

fn arm() {
    let text = callers::system_text();
    let option = PR_SET_SYSCALL_USER_DISPATCH as usize;
    let is_on = make(libc::SYS_prctl, [option, ON, text.start, text.len(), 0, 0]) == 0;
    // A filter of the program's may refuse: what was not caught from the start can go on so.
    if !is_on && !is_late() {
        raw::stop("the kernel no longer catches system calls in the program's own code\n");
    }
}

/// The handler of SIGSYS.
pub extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, frame: *mut c_void) {
    // SAFETY: the kernel passes both.
    let code = unsafe { (*info).si_code };
    if code != SYS_USER_DISPATCH {
        return signals::chain_sigsys(signal, info, frame);
    }
    // SAFETY: as above.
    let mut context = unsafe { Context::of(frame) };
    if forks::is_open() {
        return forks::serve(&mut context, frame);
    }
    let number = context.number();
    if number == libc::SYS_rt_sigreturn {
        return_from_signal(context.register(libc::REG_RSP), signals::reserved());
    }
    TRAPPED.fetch_add(1, Ordering::Relaxed);
    if number == libc::SYS_arch_prctl {
        // Errno may be another thread's afterwards, or nowhere.
        let result = make(number, context.arguments());
        return context.set_result(result);
    }
    let errno = raw::errno();
    let uncancelled = Uncancelled::new();
    let result = serve(&mut context);
    drop(uncancelled);
    raw::set_errno(errno);
    context.set_result(result);
}

/// What the kernel would return.
fn serve(context: &mut Context) -> usize {
    let (number, arguments) = (context.number(), context.arguments());
    match number {
        libc::SYS_rt_sigprocmask => raw_signals::change_mask(context, &arguments),
        libc::SYS_sigaltstack => signal_stacks::change_stack(context, &arguments),
        _ if is_own(context.register(libc::REG_RIP)) => make(number, arguments),
        libc::SYS_clone | libc::SYS_vfork => clones::clone(context),
        libc::SYS_clone3 => clones::clone3(context),
        // SAFETY: the program asks for it.
        libc::SYS_exit_group => unsafe { libc::_exit(arguments[0] as c_int) },
        libc::SYS_prctl if arguments[0] as c_int == PR_SET_SYSCALL_USER_DISPATCH => {
            error(libc::EINVAL)
        }
        _ => to_kernel(by_number::serve(number, &arguments)),
    }
}

/// The dynamic linker's, and what a part of this library calls past the C library.
fn is_own(caller: usize) -> bool {
    callers::is_ours(caller) || callers::is_system(caller)
}
