//! Signals: blocking them around locks, and SIGBUS as the delivery of faults.
use super::clock;
use super::lock::Lock;
use super::own_stack;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

unsafe extern "C" {
    fn pthread_setcancelstate(state: i32, before: *mut i32) -> i32;
}

unsafe extern "C-unwind" {
    fn pthread_setcanceltype(kind: i32, before: *mut i32) -> i32;
}

/// This thread cannot be cancelled (pthread_cancel) until dropped: to read and to write are points at which a thread
/// ends, and a page that it owns would never be published.
pub struct Uncancelled {
    before: i32,
}

impl Uncancelled {
    /// Until it is dropped.
    pub fn new() -> Self {
        const DISABLE: i32 = 1;
        let mut before = 0;
        // SAFETY: the state is one of the two, and `before` takes the old one.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        Self { before }
    }
}

/// Of a thread's cancellation (pthread_setcanceltype).
const DEFERRED: i32 = 0;
const ASYNCHRONOUS: i32 = 1;

impl Uncancelled {
    /// In a handler of faults, which would be unwound where it is to end: a thread that may be cancelled at any moment is
    /// not before [`Asynchronous::go_on`].
    fn end_in_handler(self) -> Option<Asynchronous> {
        let mut kind = DEFERRED;
        // SAFETY: the type is one of the two, and `kind` takes the old one.
        unsafe { pthread_setcanceltype(DEFERRED, &raw mut kind) };
        (kind == ASYNCHRONOUS).then_some(Asynchronous)
    }
}

/// A thread that may be cancelled at any moment, but for now.
struct Asynchronous;

impl Asynchronous {
    /// The thread may end here. What it does then, its cleanup functions among it, is the program's: with the mask that the thread had.
    fn go_on(self, context: *const libc::c_void) {
        // SAFETY: the kernel passes the description of the thread that it has interrupted.
        let mask = unsafe { &raw const (*context.cast::<libc::ucontext_t>()).uc_sigmask };
        // SAFETY: the mask is the one that was in force.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) };
        let mut deferred = DEFERRED;
        // SAFETY: the type is the one that was in force.
        unsafe { pthread_setcanceltype(ASYNCHRONOUS, &raw mut deferred) };
    }
}

impl Default for Uncancelled {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        let mut disabled = 0;
        // SAFETY: the state is the one that was in force.
        unsafe { pthread_setcancelstate(self.before, &raw mut disabled) };
    }
}

/// Has a program call a function before its `main`, and before the runtime.
#[doc(hidden)]
#[macro_export]
macro_rules! before_main {
    ($function:path) => {
        #[used]
        #[unsafe(link_section = ".init_array")]
        static BEFORE_MAIN: extern "C" fn() = $function;
    };
}

/// Whether SIGPIPE was ignored when the program started.
static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);

/// Notes whether the program was started with SIGPIPE ignored, as systemd starts services: before `main`, as the runtime
/// ignores it, whatever it was.
pub extern "C" fn note_whether_pipe_is_ignored() {
    let mut found = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: asks for how a signal is handled; `found` is a buffer for the answer.
    unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), found.as_mut_ptr()) };
    // SAFETY: all of it was zeroed, which is a value of it, and the call has filled it in.
    let found = unsafe { found.assume_init() };
    // Relaxed: there are no other threads yet.
    PIPE_IGNORED.store(found.sa_sigaction == libc::SIG_IGN, Ordering::Relaxed);
}

/// Passes an ignored SIGPIPE on to a program: the standard library starts all with the default.
pub fn keep_pipe_ignored(command: &mut Command) -> &mut Command {
    if PIPE_IGNORED.load(Ordering::Relaxed) {
        // SAFETY: the closure makes a single call that is safe after a fork, and allocates nothing.
        unsafe { command.pre_exec(ignore_pipe) };
    }
    command
}

fn ignore_pipe() -> std::io::Result<()> {
    // SAFETY: no handler is set.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    Ok(())
}

/// Signals that a thread's own access or call raises: the kernel ends a program that has the one blocked.
const SYNCHRONOUS: [i32; 5] =
    [libc::SIGBUS, libc::SIGSEGV, libc::SIGFPE, libc::SIGILL, libc::SIGSYS];

/// All signals blocked on this thread until dropped, but for those that a thread's own access raises: a
/// blocked one would end the program, and SIGBUS may be how its fault is served.
///
/// Whoever holds an engine lock on a program's thread has this: a signal handler of the program that ran
/// meanwhile could fault and wait for that very lock.
pub struct Blocked {
    before: libc::sigset_t,
    _uncancelled: Uncancelled,
}

impl Blocked {
    /// Blocks all signals.
    pub fn new() -> Self {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: `all` is a buffer for a set.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        for synchronous in SYNCHRONOUS {
            // SAFETY: `all` was filled in above.
            unsafe { libc::sigdelset(all.as_mut_ptr(), synchronous) };
        }
        // SAFETY: `all` is complete, `before` is a buffer for a set.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
        // SAFETY: pthread_sigmask with valid arguments cannot fail and has written the old mask.
        let before = unsafe { before.assume_init() };
        Self { before, _uncancelled: Uncancelled::new() }
    }
}

impl Default for Blocked {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the mask is the one that was in force.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

/// What a fault handler made of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The access can be tried again.
    Served,
    /// Not ours: the handler that was there before gets it.
    Foreign,
}

/// Called with the faulting address, on the faulting thread, with all signals blocked.
pub type FaultHandler = fn(usize) -> Verdict;

static HANDLER: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
/// What the program wants done; taken with signals blocked only.
static PREVIOUS: Lock<Option<libc::sigaction>> = Lock::new(None);

/// The C library's own signal by which it cancels threads, which it leaves out of sets: a handler of faults is no place to be unwound.
const CANCELLING: u64 = 1 << (32 - 1);

/// Installs `handler` for SIGBUS, before whatever handled it so far; the first call wins.
pub fn install_sigbus(handler: FaultHandler) {
    // Release pairs with the acquire in `on_sigbus`.
    let first = HANDLER
        .compare_exchange(
            std::ptr::null_mut(),
            handler as *mut (),
            Ordering::Release,
            Ordering::Relaxed,
        )
        .is_ok();
    if !first {
        return;
    }
    own_stack::provide_for_faults();
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: an all-zero sigaction is valid.
    let action = unsafe { action.assume_init_mut() };
    action.sa_sigaction = on_sigbus as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: the mask is part of `action`.
    unsafe { libc::sigfillset(&mut action.sa_mask) };
    // SAFETY: as above; a call of ours may be one that is trapped.
    unsafe { libc::sigdelset(&mut action.sa_mask, libc::SIGSYS) };
    // SAFETY: the set's first word has the first 64 signals.
    let first = unsafe { &mut *(&raw mut action.sa_mask).cast::<u64>() };
    *first |= CANCELLING;
    let _blocked = Blocked::new();
    let mut guard = PREVIOUS.lock();
    let mut previous = MaybeUninit::uninit();
    // SAFETY: `action` is complete, `previous` a buffer for the old one.
    unsafe { libc::sigaction(libc::SIGBUS, action, previous.as_mut_ptr()) };
    // SAFETY: sigaction with a valid signal and action has written the old one.
    *guard = Some(unsafe { previous.assume_init() });
}

/// What the program wants done for a SIGBUS that is not ours; returns what it wanted before.
///
/// For an interposed `sigaction`: the program sees its own handlers, the engine stays in front.
pub fn replace_chained(new: Option<&libc::sigaction>) -> libc::sigaction {
    let _blocked = Blocked::new();
    let mut previous = PREVIOUS.lock();
    let old = previous.expect("asked for only once SIGBUS is ours");
    if let Some(new) = new {
        *previous = Some(*new);
    }
    old
}

/// Before fork: the child could not take a lock that another thread had.
pub fn hold_chained() {
    PREVIOUS.hold();
}

/// After fork, on both sides.
pub fn release_chained() {
    PREVIOUS.release();
}

/// Whether faults of this process are delivered by SIGBUS.
pub fn is_installed() -> bool {
    !HANDLER.load(Ordering::Acquire).is_null()
}

thread_local! {
    static IS_HANDLING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is in a handler of faults, on whatever stack it has for that.
pub fn is_handling() -> bool {
    IS_HANDLING.get()
}

/// From its being made until it is dropped this thread is; faults of handlers are nobody's.
pub struct Handling(());

impl Handling {
    /// In a handler.
    pub fn new() -> Self {
        IS_HANDLING.set(true);
        Self(())
    }
}

impl Default for Handling {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Handling {
    fn drop(&mut self) {
        IS_HANDLING.set(false);
    }
}

/// Room for a fault, with direct reclaim: up to five kilobytes were seen. Signal stacks of eight kilobytes lack that where the kernel's
/// frame has AVX-512's registers.
const FAULT_BYTES: usize = 16 << 10;

extern "C-unwind" fn on_sigbus(
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let errno = errno();
    let uncancelled = Uncancelled::new();
    let verdict = if is_by_access(signal, info) { serve(info, context) } else { Verdict::Foreign };
    let asynchronous = uncancelled.end_in_handler();
    // The interrupted code must not see an errno of ours, and neither must the program's handler.
    set_errno(errno);
    if verdict == Verdict::Foreign {
        pass_on(take_action(&PREVIOUS), signal, info, context);
    }
    if let Some(thread) = asynchronous {
        thread.go_on(context);
    }
}

/// Whether an access of this thread's raised a signal: it is made again when the handler returns. Others were sent, or tell
/// of memory that failed while nobody used it.
fn is_by_access(signal: i32, info: *const libc::siginfo_t) -> bool {
    // SAFETY: the kernel passes a valid siginfo.
    let code = unsafe { (*info).si_code };
    signal == libc::SIGBUS && code > 0 && code != libc::BUS_MCEERR_AO
}

fn serve(info: *const libc::siginfo_t, context: *const libc::c_void) -> Verdict {
    let _handling = Handling::new();
    let handler = HANDLER.load(Ordering::Acquire);
    // SAFETY: the pointer was made from a `FaultHandler` in `install_sigbus`.
    let handler = unsafe { std::mem::transmute::<*mut (), FaultHandler>(handler) };
    // SAFETY: the kernel passes a valid siginfo.
    let details = unsafe { &*info };
    // SAFETY: for an access it carries the address.
    let address = unsafe { details.si_addr() } as usize;
    if is_narrow(context) { own_stack::in_fault(|| handler(address)) } else { handler(address) }
}

/// Whether this thread's signal stack has too little left, as in a fault of a handler that runs there.
fn is_narrow(context: *const libc::c_void) -> bool {
    // SAFETY: the kernel passes the description of the thread that it has interrupted.
    let stack = unsafe { (*context.cast::<libc::ucontext_t>()).uc_stack };
    let room = (&raw const stack).addr().wrapping_sub(stack.ss_sp.addr());
    stack.ss_flags & libc::SS_DISABLE == 0 && room < stack.ss_size.min(FAULT_BYTES)
}

fn errno_pointer() -> *mut i32 {
    // SAFETY: errno is this thread's own, in static thread-local storage.
    unsafe { libc::__errno_location() }
}

fn errno() -> i32 {
    let pointer = errno_pointer();
    // SAFETY: the pointer is valid for as long as the thread lives.
    unsafe { *pointer }
}

fn set_errno(errno: i32) {
    let pointer = errno_pointer();
    // SAFETY: as above.
    unsafe { *pointer = errno };
}

/// What the program wants done for a signal that is there, which may be the last time that it does.
pub fn take_action(kept: &Lock<Option<libc::sigaction>>) -> libc::sigaction {
    let mut kept = kept.lock();
    let kept = kept.as_mut().expect("filled in before our handler could run");
    let action = *kept;
    if action.sa_flags & libc::SA_RESETHAND != 0 && action.sa_sigaction != libc::SIG_IGN {
        kept.sa_sigaction = libc::SIG_DFL;
    }
    action
}

/// Does what `action` says: another's, for a signal that was not for us. The last act of our handler, as a handler of the
/// program's may leave by a jump.
pub fn pass_on(
    action: libc::sigaction,
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    match action.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN if is_by_access(signal, info) => {
            // The access is repeated and then ends the process as it would have without us.
            reset_to_default(signal);
        }
        libc::SIG_IGN if signal == libc::SIGBUS || is_sent(info) => {}
        libc::SIG_DFL | libc::SIG_IGN => follow_default(signal),
        handler if action.sa_flags & libc::SA_SIGINFO != 0 => {
            block_as_asked(&action, context);
            // SAFETY: the program installed a three-argument handler.
            let handler = unsafe {
                std::mem::transmute::<
                    usize,
                    extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void),
                >(handler)
            };
            handler(signal, info, context);
        }
        handler => {
            block_as_asked(&action, context);
            // SAFETY: the program installed a one-argument handler.
            let handler = unsafe { std::mem::transmute::<usize, extern "C" fn(i32)>(handler) };
            handler(signal);
        }
    }
}

/// Whether a process sent it: what the kernel raises because of a call cannot be ignored.
fn is_sent(info: *const libc::siginfo_t) -> bool {
    // SAFETY: the kernel passes a valid siginfo.
    unsafe { (*info).si_code <= 0 }
}

/// The mask that a handler of the program's runs with: what was blocked before and what it asks for, as without us, but
/// for SIGBUS where that serves faults: the handler may have some. Our handler's return undoes it.
fn block_as_asked(action: &libc::sigaction, context: *const libc::c_void) {
    // SAFETY: the kernel passes the description of the thread that it has interrupted.
    let before = unsafe { &raw const (*context.cast::<libc::ucontext_t>()).uc_sigmask };
    let mut mask = action.sa_mask;
    // SAFETY: the kernel's set is the first word of the C library's, and all that it has put there.
    let before = unsafe { before.cast::<u64>().read() };
    // SAFETY: the same of a complete set.
    unsafe { *(&raw mut mask).cast::<u64>() |= before };
    if is_installed() {
        // SAFETY: `mask` is a set.
        unsafe { libc::sigdelset(&mut mask, libc::SIGBUS) };
    }
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut()) };
}

/// Returns the action that was in force.
fn reset_to_default(signal: i32) -> libc::sigaction {
    // SAFETY: an all-zero sigaction is SIG_DFL without flags.
    let action = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
    let mut before = action;
    // SAFETY: sets a default action, and takes the old one.
    unsafe { libc::sigaction(signal, &action, &mut before) };
    before
}

/// No access is repeated: the signal comes once more, and ends any process but the first one of a container, which goes on.
fn follow_default(signal: i32) {
    let before = reset_to_default(signal);
    let mut only = MaybeUninit::uninit();
    // SAFETY: `only` is a buffer for a set.
    unsafe { libc::sigemptyset(only.as_mut_ptr()) };
    // SAFETY: the set was made above.
    unsafe { libc::sigaddset(only.as_mut_ptr(), signal) };
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, only.as_ptr(), std::ptr::null_mut()) };
    send(clock::thread_id(), signal);
    // SAFETY: the action is the one that was in force.
    unsafe { libc::sigaction(signal, &before, std::ptr::null_mut()) };
}

/// Sends a synchronous-looking fatal signal to a thread of this process.
pub fn send(thread: i32, signal: i32) {
    // SAFETY: signals a thread of this process.
    unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), thread, signal) };
}

/// Ends the process at once, as the out-of-memory killer would.
pub fn kill_self() {
    // SAFETY: this process asks for its own end.
    unsafe { libc::kill(std::process::id() as i32, libc::SIGKILL) };
}
