//! fork: the engine stands still meanwhile, and the child gets an engine of its own.
//!
//! The handlers are registered before the program's: `prepare` runs after all others, and the two after the fork
//! run before all others, so that only the C library's own fork runs in between, on memory that is never
//! managed. All locks of ours are held across, so that the child finds the tables whole.
use crate::abi::next;
use crate::abi::raw;
use crate::calls::{
    aio, brackets, descriptors, detached, forks, held, in_flight, kept_stacks, libc_memory,
    signal_stacks, stdio_buffers, timers, trap,
};
use crate::heap::{exact, fork_gate, huge, mimalloc};
use crate::lifecycle::{confined, last_thread, stats};
use crate::memory::{
    engagement, guard, locking, own_stack, program_break, relocated, segments, starter, unmanaged,
};
use crate::state::own_threads;
use crate::state::process::{self, GlibcHeap, Process};
use libc::{c_char, c_int};
use userswap::internals::lock::Lock;
use userswap::internals::own_table;
use userswap::internals::signal::Blocked;
use userswap::internals::{PageIndex, PageRange};
use userswap::{Engine, ForkTicket};

/// What is under way between `prepare` and the other two.
struct Pass {
    /// Only the holder of the native phase's lock forks, and it is held to the end.
    ticket: Option<ForkTicket>,
    stack: Option<PageRange>,
    /// What the C library needs.
    pinned: Vec<PageRange>,
    _route: GlibcHeap,
    /// After it: a handler that waits may fork.
    _blocked: Blocked,
}

static PASS: Lock<Option<Pass>> = Lock::new(None);

/// Pages of the stack that fork may touch on both sides of the current frame.
const STACK_PAGES: u32 = 16;

/// Registers the handlers with the C library, for good: not with a pthread_atfork of the program's (`calls/brackets.rs`).
pub fn install() {
    if next::__register_atfork(prepare, in_parent, in_child, 0) != 0 {
        raw::stop("the C library has no memory for what forks need\n");
    }
    brackets::install();
}

unsafe extern "C" fn prepare() {
    let Some(process) = process::current() else { return };
    unmanaged::look();
    engagement::engage_if_gathered(process);
    process.engine().into_iter().for_each(Engine::keep_rings_to_process);
    let blocked = Blocked::new();
    // First: another fork may wait for the list of streams while it has this.
    forks::hold();
    // While an engine serves faults, which who has the list may wait for; fork takes it again. Also without one: it may
    // start while this waits for the other locks.
    libc_memory::hold_streams();
    // Faults are served until all locks are held.
    relocated::hold();
    let route = GlibcHeap::new();
    stdio_buffers::hold();
    detached::hold();
    aio::hold();
    exact::hold();
    mimalloc::GROWTH.hold();
    fork_gate::close();
    huge::BLOCKS.hold();
    program_break::BREAK.hold();
    process.native.hold();
    segments::ATTACHED.hold();
    process.gathered.hold();
    // After it: no engine starts from here on, and the threads of one that did have had the tables.
    let mut pinned = libc_memory::pin(process);
    pinned.extend(forks::pin_signal_stack(process));
    libc_memory::hold();
    locking::hold_changes();
    kept_stacks::hold();
    signal_stacks::hold();
    timers::hold();
    let stack = pin_stack(process);
    process.areas.hold();
    held::set_forking(true);
    // What is caught is told on a signal stack, which may be managed, and nobody serves faults from here on.
    trap::pause();
    let ticket = process.engine().map(|engine| {
        // What is brought into a table of this thread's own has high numbers.
        let _raised = own_table::is_apart().then(descriptors::Raised::new);
        engine.fork_prepare()
    });
    if ticket.is_none() {
        process.member.iter().for_each(|member| member.hold());
    }
    *PASS.lock() = Some(Pass { ticket, stack, pinned, _blocked: blocked, _route: route });
    forks::open();
}

/// A stack of the program's own making may be managed: it must stay while no fault is served.
pub(super) fn pin_stack(process: &Process) -> Option<PageRange> {
    let engine = process.engine()?;
    let here = 0u8;
    let address = &raw const here as usize;
    if !process.arena.contains(address) {
        return None;
    }
    let page = process.arena.page_of(address);
    let region = process.arena.region_of(page)?;
    let first = page.saturating_sub(STACK_PAGES).max(region.first);
    let end = (page + STACK_PAGES).min(region.end());
    let range = readable_around(process, page, PageRange { first, count: end - first })?;
    engine.core().pin_beyond(range);
    Some(range)
}

/// As much of a range on both sides of a page as the program can read: up to the guards of its stack.
fn readable_around(process: &Process, page: PageIndex, range: PageRange) -> Option<PageRange> {
    let parts = process.areas_within(range);
    let mut run = PageRange { first: range.first, count: 0 };
    for (part, _) in parts.into_iter().filter(|(_, area)| area.is_readable()) {
        if part.first == run.end() {
            run.count += part.count;
        } else if !run.contains(page) {
            run = part;
        }
    }
    run.contains(page).then_some(run)
}

unsafe extern "C" fn in_parent() {
    forks::close();
    let Some(process) = process::current() else { return };
    let Some(pass) = PASS.lock().take() else { return trap::resume() };
    // First: threads of the engine that are about to start want it.
    libc_memory::release();
    stdio_buffers::release();
    detached::release();
    aio::release();
    if let (Some(engine), Some(ticket)) = (process.engine(), pass.ticket) {
        engine.fork_parent(ticket);
        pass.stack.iter().chain(&pass.pinned).for_each(|range| engine.core().unpin_range(*range));
    } else if let Some(member) = &process.member {
        member.release();
    }
    libc_memory::release_streams();
    release(process);
    trap::resume();
    guard::start_if_large(process);
}

unsafe extern "C" fn in_child() {
    let Some(process) = process::current() else { return };
    forks::forget();
    let Some(pass) = PASS.lock().take() else { return trap::renew() };
    process::forget_routes();
    own_threads::renew();
    // First: threads of the engine that are about to start want it.
    own_stack::renew();
    relocated::renew();
    libc_memory::free_streams();
    libc_memory::release();
    libc_memory::keep_blocks();
    stdio_buffers::release();
    detached::renew();
    if let (Some(engine), Some(ticket)) = (process.engine(), pass.ticket) {
        let _raised = descriptors::Raised::new();
        // Making its threads takes more than a small stack may have left.
        if let Err(error) = own_stack::on_large_stack(|| engine.fork_child(ticket)) {
            raw::say(&format!("the child of a fork cannot be served: {error}"));
            raw::exit_now(1);
        }
        in_flight::forget(Some(engine));
        held::prepare(process, engine.core());
        pass.stack.iter().chain(&pass.pinned).for_each(|range| engine.core().unpin_range(*range));
    } else {
        in_flight::forget(None);
    }
    aio::renew();
    stats::renew();
    confined::renew();
    last_thread::renew();
    release(process);
    exact::renew();
    signal_stacks::renew();
    kept_stacks::renew(process, signal_stacks::present());
    timers::renew();
    forget_pins(process);
    if let (Some(member), None) = (&process.member, process.engine()) {
        member.renew(engagement::pages_of(process), 0);
    }
    trap::renew();
    starter::start();
    guard::renew(process);
}

/// In the child: it has none of the locks that mlock made (mlock(2)), and none of the threads whose calls kept memory. A call
/// that this thread is in the middle of ends well only with its own, which nothing tells from theirs.
fn forget_pins(process: &Process) {
    locking::forget(process);
    if let (Some(engine), false) = (process.engine(), held::is_in_call()) {
        let for_good = [kept_stacks::all(), libc_memory::kept(process)].concat();
        let most = |page| for_good.iter().filter(|range| range.contains(page)).count() as u32;
        engine.core().limit_pins(most);
    }
}

fn release(process: &Process) {
    held::set_forking(false);
    process.areas.release();
    timers::release();
    signal_stacks::release();
    kept_stacks::release();
    locking::release_changes();
    process.gathered.release();
    segments::ATTACHED.release();
    process.native.release();
    program_break::BREAK.release();
    huge::BLOCKS.release();
    fork_gate::open();
    mimalloc::GROWTH.release();
    exact::release();
    relocated::release();
    forks::release();
}

/// What a child is to find already there is made before the C library asks whether the process has threads: if not, it leaves
/// the locks of its malloc alone, which our first threads may have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fork() -> libc::pid_t {
    process::current().into_iter().for_each(engagement::engage_if_gathered);
    next::fork()
}

/// The same, as the C library's own would not come by here; and its parent ends as by `_exit`, with its statistics written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daemon(keeps_directory: c_int, keeps_streams: c_int) -> c_int {
    // SAFETY: has no conditions.
    match unsafe { libc::fork() } {
        0 => {}
        // SAFETY: as above.
        child => unsafe { if child < 0 { return -1 } else { libc::_exit(0) } },
    }
    // SAFETY: as above.
    if unsafe { libc::setsid() } < 0 {
        return -1;
    }
    if keeps_directory == 0 {
        // As in the C library, a failure is none.
        // SAFETY: a C string.
        unsafe { libc::chdir(c"/".as_ptr()) };
    }
    if keeps_streams == 0 { streams_to_null() } else { 0 }
}

/// The first three descriptors become /dev/null's.
fn streams_to_null() -> c_int {
    // SAFETY: a C string.
    let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) };
    if null < 0 {
        return -1;
    }
    if !is_null_device(null) {
        // SAFETY: a descriptor that was just opened.
        unsafe { libc::close(null) };
        raw::set_errno(libc::ENODEV);
        return -1;
    }
    for stream in 0..=libc::STDERR_FILENO {
        // SAFETY: a descriptor that was just opened.
        unsafe { libc::dup2(null, stream) };
    }
    if null > libc::STDERR_FILENO {
        // SAFETY: as above; nobody knows of it.
        unsafe { libc::close(null) };
    }
    0
}

/// In a root directory of its own a program may find a plain file of that name.
fn is_null_device(fd: c_int) -> bool {
    let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: there is room for a stat.
    if unsafe { libc::fstat(fd, status.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: fstat has filled it in.
    let status = unsafe { status.assume_init() };
    status.st_mode & libc::S_IFMT == libc::S_IFCHR && status.st_rdev == libc::makedev(1, 3)
}

/// As fork; the kernel reads what the program passes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkpty(
    terminal: *mut c_int,
    name: *mut c_char,
    settings: *const libc::termios,
    size: *const libc::winsize,
) -> libc::pid_t {
    process::current().into_iter().for_each(engagement::engage_if_gathered);
    // SAFETY: null, or the program's.
    let settings = unsafe { settings.as_ref() }.copied();
    // SAFETY: as above.
    let size = unsafe { size.as_ref() }.copied();
    let settings = settings.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let size = size.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    next::forkpty(terminal, name, settings, size)
}

/// Runs no handlers but ours.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Fork() -> libc::pid_t {
    // SAFETY: our own handlers, in their order.
    unsafe { prepare() };
    let child = next::_Fork();
    if child == 0 {
        // SAFETY: as above.
        unsafe { in_child() };
    } else {
        // SAFETY: as above, also when fork failed.
        unsafe { in_parent() };
    }
    child
}
