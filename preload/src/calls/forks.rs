//! fork with what a clone asks for: namespaces, another signal at the end, a descriptor of the child.
//!
//! The engine of a child takes memory and makes threads, for which the C library's locks must be free: only its own fork
//! leaves a child like that. So that is called, and the call by which it makes the child is exchanged: for that moment
//! syscall user dispatch catches whatever this thread calls, the C library's code included. What the kernel would write
//! to the program's memory is written here instead: it may be missing while the engine stands still.
use super::reading::Reader;
use super::{brackets, by_number, descriptors, held, raw_signals, signal_stacks, signals, trap};
use crate::abi::context::Context;
use crate::abi::next::next_functions;
use crate::abi::raw::{self, Errno, Span};
use crate::abi::system_call::{error, instruction, make, return_from_signal, use_instruction_in};
use crate::abi::{callers, next};
use crate::state::notices;
use crate::state::process::{self, Process};
use libc::{
    CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID, CLONE_FILES, CLONE_NEWUSER, CLONE_PARENT_SETTID,
};
use libc::{CLONE_PIDFD, CLONE_SETTLS, CLONE_THREAD, CLONE_VFORK, CLONE_VM, SIGCHLD};
use libc::{c_int, c_long, c_void};
use std::cell::Cell;
use std::io::{ErrorKind, PipeReader, Read};
use std::os::fd::OwnedFd;
use userswap::internals::PageRange;
use userswap::internals::lock::Lock;
use userswap::internals::own_fd::Own;
use userswap::internals::signal::Blocked;

next_functions! {
    fn clone(
        start: usize, stack: usize, flags: c_int, argument: usize, parent: usize, locals: usize, child: usize
    ) -> c_int;
}

/// Of clone3 alone; libc has it for no narrower type.
const CLONE_CLEAR_SIGHAND: u64 = 1 << 32;
/// A clone's flags end with the signal.
const SIGNAL: u64 = 0xff;
/// What a clone3 of Linux 5.5 takes, and what one may take that knows no more than that.
const BYTES: std::ops::RangeInclusive<usize> = 64..=size_of::<Wanted>();
/// Namespaces within namespaces, as many as the kernel has.
const LEVELS_MAX: usize = 32;
/// Of a signal stack, as much as a caught call takes: the kernel's frame, with all registers, and the handler.
const FRAME_BYTES: usize = 64 << 10;
/// Tells this matter from others in what the job has told.
const MATTER: u64 = 4;

/// What is asked for, in the kernel's own form (clone_args).
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Wanted {
    flags: u64,
    pidfd: u64,
    child: u64,
    parent: u64,
    signal: u64,
    stack: u64,
    stack_bytes: u64,
    locals: u64,
    pids: u64,
    pids_count: u64,
    cgroup: u64,
}

impl Wanted {
    /// A clone's arguments.
    pub fn of(&[flags, stack, parent, child, locals, _]: &[usize; 6]) -> Self {
        let [flags, stack, parent, child, locals] =
            [flags & u32::MAX as usize, stack, parent, child, locals].map(|word| word as u64);
        let (flags, signal) = (flags & !SIGNAL, flags & SIGNAL);
        Self { flags, pidfd: parent, child, parent, signal, stack, locals, ..Self::default() }
    }

    /// A clone3's arguments.
    ///
    /// # Errors
    /// They are more than is known here, which callers take as a kernel that knows no more.
    pub fn of_3(&[address, bytes, ..]: &[usize; 6]) -> Result<Self, Errno> {
        match bytes {
            _ if address == 0 => return Err(libc::EFAULT),
            bytes if bytes < *BYTES.start() => return Err(libc::EINVAL),
            bytes if bytes > *BYTES.end() => return Err(libc::E2BIG),
            _ => {}
        }
        if !Reader::default().can_read(Span { address, bytes }) {
            return Err(libc::EFAULT);
        }
        let mut wanted = Self::default();
        // SAFETY: as many bytes can be read; the type consists of integers.
        unsafe {
            std::ptr::copy_nonoverlapping(address as *const u8, (&raw mut wanted).cast(), bytes);
        }
        Ok(wanted)
    }

    pub fn has(&self, flag: c_int) -> bool {
        self.flags & u64::from(flag as u32) != 0
    }

    /// Whether the child shares its parent's memory.
    pub fn is_shared(&self) -> bool {
        self.has(CLONE_VM) || self.has(CLONE_THREAD)
    }

    /// The upper end of the stack that the child is given; a clone names just that.
    pub fn stack_end(&self) -> Option<usize> {
        (self.stack != 0).then_some((self.stack + self.stack_bytes) as usize)
    }

    /// The word that tells the end of the child.
    pub fn end_word(&self) -> Option<usize> {
        self.has(CLONE_CHILD_CLEARTID).then_some(self.child as usize)
    }

    fn is_plain(&self) -> bool {
        self.flags == 0 && self.signal == SIGCHLD as u64 && self.pids_count == 0
    }

    /// As the kernel gets it: `child` is where the C library keeps the number of a thread.
    fn for_kernel(&self, child: usize, pidfd: &mut c_int, pids: &[c_int; LEVELS_MAX]) -> Self {
        let here =
            [CLONE_PARENT_SETTID, CLONE_VFORK, CLONE_FILES].map(|flag| u64::from(flag as u32));
        let here = here.iter().fold(CLONE_CLEAR_SIGHAND, |flags, flag| flags | flag);
        let by_libc = (CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID) as u64;
        Self {
            flags: self.flags & !here | by_libc,
            pidfd: std::ptr::from_mut(pidfd) as u64,
            child: child as u64,
            parent: 0,
            stack: 0,
            stack_bytes: 0,
            pids: if self.pids_count == 0 { 0 } else { pids.as_ptr() as u64 },
            ..*self
        }
    }
}

/// By which call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Clone,
    Clone3,
}

/// A fork of this thread's whose clone is to be exchanged.
struct Exchange {
    wanted: Wanted,
    call: Call,
    pids: [c_int; LEVELS_MAX],
    pidfd: c_int,
    /// From when the child is made, if its parent is to be suspended (CLONE_VFORK); or why there is to be no child.
    suspended: Result<Option<Suspended>, Errno>,
}

thread_local! {
    static EXCHANGE: Cell<*mut Exchange> = const { Cell::new(std::ptr::null_mut()) };
    /// All calls of this thread are caught.
    static IS_OPEN: Cell<bool> = const { Cell::new(false) };
}

/// What the kernel would return, in the parent and in the child, which is on the same stack.
pub fn fork(wanted: &Wanted, call: Call) -> usize {
    if wanted.is_plain() {
        return answer(brackets::fork());
    }
    if wanted.has(CLONE_SETTLS) || wanted.pids_count as usize > LEVELS_MAX {
        return error(libc::EINVAL);
    }
    if !can_exchange() {
        let line = "a clone with flags has no memory of userswap's to share on this kernel, and fails; it needs Linux 5.11";
        notices::tell_once(MATTER, b"kernel", format_args!("{line}"));
        return error(libc::ENOSYS);
    }
    if wanted.has(CLONE_NEWUSER) {
        by_number::gather_rights();
    }
    let mut exchange = Exchange::new(*wanted, call);
    EXCHANGE.set(&raw mut exchange);
    let child = brackets::fork();
    EXCHANGE.set(std::ptr::null_mut());
    match child {
        0 => exchange.finish_child(),
        1.. => exchange.finish_parent(child),
        _ => {}
    }
    answer(child)
}

fn answer(child: c_int) -> usize {
    if child < 0 { error(raw::errno()) } else { child as usize }
}

/// What is caught gets here.
static IS_TAKEN: Lock<bool> = Lock::new(false);
/// A thread forks: no other child may have the end of a pipe that keeps this one's parent suspended. Only taken when the
/// program's handlers have run, which may wait for each other.
static FORKING: Lock<()> = Lock::new(());

/// The fork of this thread whose clone is to be exchanged.
fn exchange<'a>() -> Option<&'a mut Exchange> {
    // SAFETY: it is on the stack of this thread's `fork`, which waits, and nobody keeps what this returns.
    unsafe { EXCHANGE.get().as_mut() }
}

/// Before a fork: no other thread is in between.
pub fn hold() {
    FORKING.hold();
    exchange().into_iter().for_each(Exchange::suspend);
    IS_TAKEN.hold();
}

/// After it, on both sides: a fork by one of the program's handlers, which come now, is another one.
pub fn release() {
    IS_TAKEN.release();
    drop(exchange().and_then(Exchange::take_going_on));
    EXCHANGE.set(std::ptr::null_mut());
    FORKING.release();
}

/// Whether this kernel catches calls, and what is caught gets here.
fn can_exchange() -> bool {
    if trap::is_armed() {
        return true;
    }
    let _blocked = Blocked::new();
    let mut is_taken = IS_TAKEN.lock();
    if !*is_taken && trap::stop_catching() {
        *is_taken = use_instruction_in(callers::system_text());
        if *is_taken {
            signals::take_sigsys(trap::on_signal);
        }
    }
    *is_taken
}

impl Exchange {
    /// The numbers that are wanted are read here: the kernel reads them while the engine stands still.
    fn new(wanted: Wanted, call: Call) -> Self {
        let mut pids: [c_int; LEVELS_MAX] = [0; LEVELS_MAX];
        let (from, to) = (wanted.pids as *const u8, pids.as_mut_ptr().cast());
        let bytes = wanted.pids_count as usize * size_of::<c_int>();
        // SAFETY: the program passes as many, and there is room for the most.
        unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
        Self { wanted, call, pids, pidfd: -1, suspended: Ok(None) }
    }

    /// The parent will be suspended, if that is wanted.
    fn suspend(&mut self) {
        self.suspended = self.wanted.has(CLONE_VFORK).then(Suspended::new).transpose();
    }

    /// What keeps the parent suspended, as long as the child is made.
    fn take_going_on(&mut self) -> Option<Own<OwnedFd>> {
        self.suspended.as_mut().ok()?.as_mut()?.going_on.take()
    }

    /// Makes the child, in place of the C library's call; what the kernel returns.
    fn make_child(&mut self, child: usize) -> usize {
        if let Err(number) = self.suspended {
            return error(number);
        }
        let wanted = self.wanted.for_kernel(child, &mut self.pidfd, &self.pids);
        match self.call {
            Call::Clone3 => {
                let arguments = (&raw const wanted).addr();
                make(libc::SYS_clone3, [arguments, size_of::<Wanted>(), 0, 0, 0, 0])
            }
            Call::Clone => {
                let flags = (wanted.flags | wanted.signal) as usize;
                make(libc::SYS_clone, [flags, 0, wanted.pidfd as usize, child, 0, 0])
            }
        }
    }

    fn finish_parent(self, child: c_int) {
        let Wanted { parent, pidfd, .. } = self.wanted;
        let wanted = [(CLONE_PARENT_SETTID, parent, child), (CLONE_PIDFD, pidfd, self.pidfd)];
        for (_, address, number) in wanted.into_iter().filter(|(flag, ..)| self.wanted.has(*flag)) {
            // SAFETY: the program's, for this.
            unsafe { (address as *mut c_int).write_unaligned(number) };
        }
        self.suspended.into_iter().flatten().for_each(Suspended::wait);
    }

    fn finish_child(&self) {
        let address = self.wanted.child;
        if self.wanted.has(CLONE_CHILD_SETTID) {
            // SAFETY: has no conditions.
            let thread = unsafe { libc::gettid() };
            // SAFETY: the program's, for this.
            unsafe { (address as *mut c_int).write_unaligned(thread) };
        }
        if self.wanted.has(CLONE_CHILD_CLEARTID) {
            make(libc::SYS_set_tid_address, [address as usize, 0, 0, 0, 0, 0]);
        }
        if self.wanted.flags & CLONE_CLEAR_SIGHAND != 0 {
            signals::forget_handlers();
        }
    }
}

/// The end of a pipe that a child has until it calls exec or ends. Not at a number that the program could close.
static GOING_ON: Lock<Option<Own<OwnedFd>>> = Lock::new(None);

/// A parent that goes on when its child has called exec or has ended (CLONE_VFORK). The kernel's own way would keep it
/// from letting its other threads go on.
struct Suspended {
    end: Own<PipeReader>,
    /// As long as the child is being made: it keeps it then, and the parent does not.
    going_on: Option<Own<OwnedFd>>,
}

impl Suspended {
    fn new() -> Result<Self, Errno> {
        let _raised = descriptors::Raised::new();
        let (end, going_on) =
            std::io::pipe().map_err(|error| error.raw_os_error().unwrap_or(libc::EMFILE))?;
        Ok(Self { end: Own::raised(end), going_on: Some(Own::raised(going_on.into())) })
    }

    /// Signals do not end it, as they do not end the kernel's.
    fn wait(mut self) {
        let is_interrupted = |error: std::io::Error| error.kind() == ErrorKind::Interrupted;
        while self.end.read(&mut [0]).is_err_and(is_interrupted) {}
    }
}

/// Where the kernel puts the frame of a caught call; it may be in managed memory.
pub fn pin_signal_stack(process: &Process) -> Option<PageRange> {
    if EXCHANGE.get().is_null() {
        return None;
    }
    let mut stack = std::mem::MaybeUninit::<libc::stack_t>::zeroed();
    make(libc::SYS_sigaltstack, [0, stack.as_mut_ptr().addr(), 0, 0, 0, 0]);
    // SAFETY: an all-zero stack is valid.
    let stack = unsafe { stack.assume_init() };
    let bytes = stack.ss_size.min(FRAME_BYTES);
    let address = (stack.ss_sp as usize + stack.ss_size).wrapping_sub(bytes);
    held::hold_for_fork(process, Span { address, bytes })
}

/// The last of what is done before a fork: signals are blocked, and the engine stands still.
pub fn open() {
    if EXCHANGE.get().is_null() {
        return;
    }
    signals::unblock_reserved();
    IS_OPEN.set(true);
    let [option, instruction] = [trap::PR_SET_SYSCALL_USER_DISPATCH as usize, instruction()];
    // The program counter is after the instruction by then.
    if make(libc::SYS_prctl, [option, trap::ON, instruction, 3, 0, 0]) != 0 {
        raw::stop("the kernel no longer catches system calls\n");
    }
    trap::note_pause();
}

/// The first of what is done after it, in the parent.
pub fn close() {
    // Still open if the C library has not come to its clone.
    if IS_OPEN.get() {
        stop_catching();
    }
}

/// In the child: what was caught is not there.
pub fn forget() {
    IS_OPEN.set(false);
    // A child of the child's keeps no grandparent waiting.
    if let Some(mut going_on) = GOING_ON.try_lock() {
        *going_on = exchange().and_then(Exchange::take_going_on);
    }
}

fn stop_catching() {
    IS_OPEN.set(false);
    trap::stop_catching();
}

/// Whether what was caught is the C library's fork.
pub fn is_open() -> bool {
    IS_OPEN.get()
}

/// A call of the C library's on its way to a child.
pub fn serve(context: &mut Context, frame: *mut c_void) {
    let (number, arguments) = (context.number(), context.arguments());
    if let (libc::SYS_clone, Some(exchange)) = (number, exchange()) {
        // From here on nothing is caught, so that this handler can return as any does.
        stop_catching();
        let [_, _, _, child, ..] = arguments;
        return context.set_result(exchange.make_child(child));
    }
    let result = match number {
        libc::SYS_rt_sigprocmask => raw_signals::change_mask(context, &arguments),
        _ => make(number, arguments),
    };
    context.set_result(result);
    return_from_signal(frame.addr(), signals::reserved());
}

/// A clone by number, or one that was caught: by the kernel's numbers.
pub fn serve_number(number: c_long, arguments: &[usize; 6]) -> Option<usize> {
    let (wanted, call) = match number {
        libc::SYS_clone => (Ok(Wanted::of(arguments)), Call::Clone),
        libc::SYS_clone3 => (Wanted::of_3(arguments), Call::Clone3),
        _ => return None,
    };
    match wanted {
        Ok(wanted) if wanted.is_shared() => {
            signal_stacks::keep_shared(&wanted);
            None
        }
        // It would return on a stack on which nothing is that it could return to.
        Ok(wanted) if wanted.stack != 0 => Some(error(libc::EINVAL)),
        Ok(wanted) => Some(fork(&wanted, call)),
        Err(number) => Some(error(number)),
    }
}

mod exported {
    use super::*;

    /// The arguments after the fourth are there if the flags ask for them.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn clone(
        start: usize,
        stack: usize,
        flags: c_int,
        argument: usize,
        parent: usize,
        locals: usize,
        child: usize,
    ) -> c_int {
        let wanted = Wanted::of(&[flags as usize, stack, parent, child, locals, 0]);
        if wanted.is_shared() {
            signal_stacks::keep_shared(&wanted);
        }
        if wanted.is_shared() || process::current().is_none() || start == 0 || stack == 0 {
            return super::clone(start, stack, flags, argument, parent, locals, child);
        }
        let result = fork(&wanted, Call::Clone);
        if result == 0 {
            // SAFETY: the program passes the upper end of a stack, and a function for it.
            unsafe { run_on(stack, start, argument) }
        }
        crate::abi::system_call::to_c(result) as c_int
    }
}

/// Calls a function on another stack, and ends the process with what it returns.
#[unsafe(naked)]
unsafe extern "C" fn run_on(stack: usize, start: usize, argument: usize) -> ! {
    std::arch::naked_asm!(
        "mov rsp, rdi",
        "and rsp, -16",
        "xor ebp, ebp",
        "mov rdi, rdx",
        "call rsi",
        "mov edi, eax",
        "call {end}",
        "ud2",
        end = sym end,
    )
}

/// Without handlers, as the C library's clone does; threads of the engine's end too.
extern "C" fn end(status: c_int) {
    next::_exit(status);
}
