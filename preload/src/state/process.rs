//! What this library knows about its process, and the two phases of its life.
//!
//! *Native*: the arena is plain memory of the kernel's. *Engaged*: the engine has it. Changes of mappings
//! in the native phase exclude each other and the engagement, so that the engine never adopts a page
//! which a thread is just giving back; afterwards the page words order everything.
use crate::abi::allocator;
use crate::abi::raw::Span;
use crate::state::areas::{Area, Areas};
use crate::state::insistence::Insistence;
use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use userswap::Engine;
use userswap::internals::Member;
use userswap::internals::PAGE_BYTES;
use userswap::internals::lock::{Guard, Lock};
use userswap::internals::{Arena, PageRange};
use userswap::internals::{Gathered, Options};
use userswap::internals::{clock, futex};

static PROCESS: AtomicPtr<Process> = AtomicPtr::new(std::ptr::null_mut());
/// Where managed memory can be, for the checks that every `free` makes.
static MANAGED_START: AtomicUsize = AtomicUsize::new(0);
static MANAGED_END: AtomicUsize = AtomicUsize::new(0);
/// Below it nothing is managed unless the program asks for it there: a number that a call takes is no address there.
const NUMBERS_END: usize = 2 << 30;
/// Reasons to serve malloc from glibc; the first is that the constructor has not run.
static ROUTED_TO_GLIBC: AtomicI32 = AtomicI32::new(1);
/// Those of them that pass: each a [`GlibcHeap`].
static PASSING: AtomicU32 = AtomicU32::new(0);
/// Since when there is one.
static PASSING_SINCE_NS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Those of them that are this thread's.
    static PASSING_HERE: Cell<u32> = const { Cell::new(0) };
}

/// For how long large blocks wait for managed memory: longer than an engine takes to start.
const PASSING_NS: u64 = 10_000_000_000;

/// The one process this library is in.
pub struct Process {
    /// What `userswap run` was asked for.
    pub options: Options,
    /// Where all managed memory is.
    pub arena: Arc<Arena>,
    /// What the arena is used for. What is allocated in the arena is changed only with this held.
    pub areas: Lock<Areas>,
    /// Held for every change of mappings in the native phase, while engaging, across fork, and in both
    /// phases while what is foreign in the arena changes.
    pub native: Lock<()>,
    /// Pages that mimalloc has committed.
    pub heap_pages: AtomicU64,
    /// Of these, as many as were found not to be filled, of a small heap (`memory/engagement.rs`).
    pub untouched_pages: AtomicU64,
    /// What becomes of the program's hints.
    pub insistence: Insistence,
    /// Bytes of private anonymous mappings that were left to the kernel, of all that the process ever made.
    pub unmanaged_bytes: AtomicU64,
    /// What the engine will need rights for, once the process may lose them; changed in the native phase only.
    pub gathered: Lock<Option<Gathered>>,
    /// This process in its job; without it the budget is the process's own.
    pub member: Option<Arc<Member>>,
    engine: AtomicPtr<Engine>,
}

/// The phase, for as long as it is held.
pub enum Phase<'a> {
    /// The kernel has the arena; no thread engages meanwhile.
    Native(Guard<'a, ()>),
    /// The engine has the arena, until the process ends.
    Engaged(&'a Engine),
}

impl Process {
    /// In the native phase, with nothing of the program's in use.
    pub fn new(options: Options, arena: Arena, member: Option<Arc<Member>>) -> Self {
        let mut areas = Areas::new();
        let whole = PageRange { first: 0, count: arena.pages() };
        arena.foreign_within(whole).into_iter().for_each(|gap| areas.set(gap, Area::Foreign));
        Self {
            options,
            arena: Arc::new(arena),
            areas: Lock::new(areas),
            native: Lock::new(()),
            heap_pages: AtomicU64::new(0),
            untouched_pages: AtomicU64::new(0),
            insistence: Insistence::default(),
            unmanaged_bytes: AtomicU64::new(0),
            gathered: Lock::new(None),
            member,
            engine: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Makes this the process, for good, and sends malloc to managed memory.
    pub fn publish(self) -> &'static Process {
        let process = Box::leak(Box::new(self));
        let (address, bytes) = (process.arena.address(), process.arena.bytes());
        MANAGED_START.store(process.arena.start().max(NUMBERS_END), Ordering::Relaxed);
        MANAGED_END.store(address + bytes, Ordering::Relaxed);
        // Release pairs with the acquire in `current`.
        PROCESS.store(process, Ordering::Release);
        process
    }

    /// A range is about to be given to the program.
    pub fn will_manage(&self, range: PageRange) {
        let start = self.arena.address_of(range.first);
        // Relaxed: who is told of the range's address is told of this as well.
        if start < MANAGED_START.load(Ordering::Relaxed) {
            MANAGED_START.fetch_min(start, Ordering::Relaxed);
        }
    }

    /// The engine, once engaged.
    pub fn engine(&self) -> Option<&Engine> {
        let engine = self.engine.load(Ordering::Acquire);
        // SAFETY: set once from a leaked box.
        unsafe { engine.as_ref() }
    }

    /// Protects managed memory, by a call that is made again where the engine may have undone it.
    pub fn change_protection<R>(&self, mut change: impl FnMut() -> R) -> R {
        match self.engine() {
            Some(engine) => engine.core().put_backs.protect(change),
            None => change(),
        }
    }

    /// From here on the engine has the arena. Called with the phase held.
    pub fn set_engine(&self, engine: Engine) {
        // Release pairs with the acquire in `engine`.
        self.engine.store(Box::leak(Box::new(engine)), Ordering::Release);
    }

    /// The phase, held; signals must be blocked.
    pub fn phase(&self) -> Phase<'_> {
        if let Some(engine) = self.engine() {
            return Phase::Engaged(engine);
        }
        let guard = self.native.lock();
        match self.engine() {
            Some(engine) => Phase::Engaged(engine),
            None => Phase::Native(guard),
        }
    }

    /// Keeps forks, the engagement and others like it out until dropped; `phase` keeps out the same, and
    /// more, while it is native.
    pub fn alone(&self, phase: &Phase<'_>) -> Option<Guard<'_, ()>> {
        match phase {
            Phase::Native(_) => None,
            Phase::Engaged(_) => Some(self.native.lock()),
        }
    }

    /// Pages that the program can have filled; signals must be blocked.
    pub fn accessible_pages(&self) -> u64 {
        self.areas.lock().opened_pages() + self.heap_pages.load(Ordering::Relaxed)
    }

    /// What a range of the arena is used for, in order; gaps are free. Signals must be blocked.
    pub fn areas_within(&self, range: PageRange) -> Vec<(PageRange, Area)> {
        self.areas.lock().within(range)
    }

    /// The pages that some bytes of the arena lie in.
    pub fn pages_between(&self, bytes: Range<usize>) -> PageRange {
        let count = bytes.end.div_ceil(PAGE_BYTES) - bytes.start / PAGE_BYTES;
        PageRange { first: self.arena.page_of(bytes.start), count: count as u32 }
    }

    /// The bytes of a range of pages.
    pub fn span_of(&self, range: PageRange) -> Span {
        Span {
            address: self.arena.address_of(range.first),
            bytes: range.count as usize * PAGE_BYTES,
        }
    }

    /// The part of some bytes that lies in the arena; None when there is none.
    pub fn within_arena(&self, span: Span) -> Option<Range<usize>> {
        let start = span.address.max(self.arena.address());
        let end = span.address.saturating_add(span.bytes);
        let end = end.min(self.arena.address() + self.arena.bytes());
        (start < end).then_some(start..end)
    }
}

/// The whole pages that a call is about, where the arena has a part of them.
pub struct Request {
    pub process: &'static Process,
    /// From the address given to the end of the last page.
    pub asked: Range<usize>,
    /// The part in the arena.
    pub inside: Range<usize>,
}

impl Request {
    /// None when the arena has no part in it: the kernel answers such calls.
    pub fn new(span: Span) -> Option<Self> {
        let process = current()?;
        let bytes = span.bytes.checked_next_multiple_of(PAGE_BYTES)?;
        let inside = process.within_arena(Span { bytes, ..span })?;
        let asked = span.address..span.address.saturating_add(bytes);
        Some(Self { process, asked, inside })
    }

    /// Whether the call names a page's first byte, as most have to.
    pub fn is_aligned(&self) -> bool {
        self.asked.start.is_multiple_of(PAGE_BYTES)
    }

    pub fn is_whole(&self) -> bool {
        self.asked == self.inside
    }

    /// The pages in the arena.
    pub fn pages(&self) -> PageRange {
        self.process.pages_between(self.inside.clone())
    }
}

/// The process, once the constructor has run and managed memory was asked for.
#[inline]
pub fn current() -> Option<&'static Process> {
    let process = PROCESS.load(Ordering::Acquire);
    // SAFETY: set once from a leaked box.
    unsafe { process.as_ref() }
}

/// Whether an address lies in the part of the arena that was ever in use.
#[inline]
pub fn is_managed(address: usize) -> bool {
    // Relaxed: see `will_manage`.
    address >= MANAGED_START.load(Ordering::Relaxed)
        && address < MANAGED_END.load(Ordering::Relaxed)
}

/// Whether malloc has to ask glibc now.
#[inline]
pub fn routes_to_glibc() -> bool {
    ROUTED_TO_GLIBC.load(Ordering::Relaxed) != 0
}

/// The same for a block that is large: as glibc's it would be beside the budget for good. So it waits until an engine has
/// started or a fork is over, unless the thread itself is at that. All blocks together wait no longer than a while: what that
/// needs may be locked by whoever asks, and in a child that was made past our fork it never ends. By a system call that cancels
/// no thread: malloc is none of those.
#[cold]
pub fn routes_large_to_glibc() -> bool {
    while !allocator::is_foreign() && PASSING_HERE.get() == 0 {
        let passing = PASSING.load(Ordering::Acquire);
        let waited = clock::now_ns().saturating_sub(PASSING_SINCE_NS.load(Ordering::Acquire));
        if passing == 0 || waited >= PASSING_NS {
            break;
        }
        futex::wait_for(&PASSING, passing, PASSING_NS - waited);
    }
    routes_to_glibc()
}

/// Sends malloc to managed memory: the constructor is done.
pub fn open_heap() {
    ROUTED_TO_GLIBC.fetch_sub(1, Ordering::Release);
}

/// In the child of a fork, whose one thread has a [`GlibcHeap`]: those of other threads are the parent's.
pub fn forget_routes() {
    // Relaxed: the child has one thread. A program with an allocator has its first reason for ever.
    ROUTED_TO_GLIBC.store(1 + i32::from(allocator::is_foreign()), Ordering::Relaxed);
    PASSING.store(1, Ordering::Relaxed);
}

/// Sends every thread's malloc to glibc until dropped; large blocks of other threads wait.
pub struct GlibcHeap;

impl GlibcHeap {
    pub fn new() -> Self {
        PASSING_HERE.set(PASSING_HERE.get() + 1);
        if PASSING.load(Ordering::Acquire) == 0 {
            PASSING_SINCE_NS.store(clock::now_ns(), Ordering::Release);
        }
        PASSING.fetch_add(1, Ordering::AcqRel);
        ROUTED_TO_GLIBC.fetch_add(1, Ordering::AcqRel);
        Self
    }
}

impl Drop for GlibcHeap {
    fn drop(&mut self) {
        ROUTED_TO_GLIBC.fetch_sub(1, Ordering::AcqRel);
        PASSING.fetch_sub(1, Ordering::AcqRel);
        futex::wake_all(&PASSING);
        PASSING_HERE.set(PASSING_HERE.get() - 1);
    }
}
