//! Memory of the C library's own that a fork needs, where the program brings an allocator.
//!
//! The C library takes streams, the locale and each thread's table of thread-locals from the program's malloc,
//! so they are in managed memory. A child resets its streams before any handler runs; its engine's threads get
//! stacks with tables that threads of the parent had, and look at the locale when they begin: all of that
//! while the child's engine does not serve faults yet. Such pages are kept in RAM across fork. And every thread looks
//! at the locale before its signals are unblocked: where faults come by signal, that has to stay.
use super::reading::Reader;
use super::{held, signals};
use crate::abi::next::next_functions;
use crate::abi::symbols::link_maps;
use crate::abi::{allocator, callers, raw::Span, thread_locals};
use crate::state::process::{self, Process};
use libc::{c_char, c_int, c_void};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use userswap::internals::lock::Lock;
use userswap::internals::signal::Blocked;
use userswap::internals::{PAGE_BYTES, PageRange};

next_functions! {
    fn setlocale(category: c_int, name: *const c_char) -> *mut c_char;
}

/// Pages with tables of threads, also of some that have ended: their stacks may be used again.
static TABLES: Lock<BTreeSet<usize>> = Lock::new(BTreeSet::new());

/// The pointers of threads that there are, or whose stacks the C library may have kept: never on stacks of the program's, whose
/// tables go with the thread.
static THREADS: Lock<BTreeSet<usize>> = Lock::new(BTreeSet::new());

/// Pages with the locales that there were.
static LOCALES: Lock<BTreeSet<usize>> = Lock::new(BTreeSet::new());

/// The longest of both: 16 bytes for each library, or 8 for each of a
/// locale's values.
const TABLE_BYTES: usize = 2048;
/// What the dynamic linker keeps of a library, where its thread-locals are: a new thread's table is made from that.
const LINK_MAP_BYTES: usize = 1536;
/// Of what a variable points to, as much as is kept.
const NAMED_BYTES: usize = 1024;
/// A stream with its lock and its wide part.
const STREAM_BYTES: usize = 1024;

/// The key whose destructor notes a thread's table again: it moves when a library is loaded for which it is too short.
static TABLE_KEY: AtomicU32 = AtomicU32::new(u32::MAX);

/// In the constructor.
pub fn start() {
    let mut key = 0;
    // SAFETY: the destructor lives as long as the process.
    if allocator::is_foreign() && unsafe { libc::pthread_key_create(&mut key, Some(on_end)) } == 0 {
        TABLE_KEY.store(key, Ordering::Relaxed);
    }
}

unsafe extern "C" fn on_end(_: *mut c_void) {
    note_table();
}

/// Whose stack a thread is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stack {
    /// The C library's, which may keep it for other threads, with the thread's table.
    Libc,
    Program,
}

/// On a new thread: its table is one that a fork may need.
pub fn note_thread(stack: Stack) {
    if !allocator::is_foreign() {
        return;
    }
    let blocked = Blocked::new();
    let (mut threads, pointer) = (THREADS.lock(), thread_locals::pointer());
    match stack {
        Stack::Libc => threads.insert(pointer),
        Stack::Program => threads.remove(&pointer),
    };
    drop((threads, blocked));
    note_table();
    let noted = std::ptr::dangling::<c_void>();
    // SAFETY: a key that does not exist is refused; the value only tells that there is one.
    unsafe { libc::pthread_setspecific(TABLE_KEY.load(Ordering::Relaxed), noted) };
}

fn note_table() {
    let _blocked = Blocked::new();
    TABLES.lock().extend(pages_of(thread_locals::table()));
}

/// The pages that a table is in; the second may not be there.
fn pages_of(address: usize) -> [usize; 2] {
    [address, address + TABLE_BYTES - 1].map(|address| address / PAGE_BYTES)
}

mod exported {
    use super::*;

    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn setlocale(category: c_int, name: *const c_char) -> *mut c_char {
        let result = super::setlocale(category, name);
        if !name.is_null() && allocator::is_foreign() && process::current().is_some() {
            note_locale();
        }
        result
    }
}

/// The process's locale (LC_GLOBAL_LOCALE).
const GLOBAL: libc::locale_t = usize::MAX as libc::locale_t;

/// The character types of the locale that new threads begin with.
fn note_locale() {
    // SAFETY: a copy of the process's locale, which shares what the original points to.
    let copy = unsafe { libc::duplocale(GLOBAL) };
    // SAFETY: null, or a locale, which begins with pointers to the values of each category (its layout is
    // public), those of LC_CTYPE first.
    if let Some(types) = unsafe { copy.cast::<usize>().as_ref() } {
        note_types(*types);
        // SAFETY: made above.
        unsafe { libc::freelocale(copy) };
    }
}

fn note_types(address: usize) {
    let _blocked = Blocked::new();
    let Some(process) = process::current() else { return };
    // An engine that is about to start finds it in the list.
    let _phase = process.phase();
    let mut locales = LOCALES.lock();
    for page in pages_of(address) {
        if locales.insert(page) && signals::is_by_signal() {
            // For good, once there is an engine: what was a locale is pinned as long as it is memory at all.
            let _ = held::hold(process, span_of(page));
        }
    }
}

/// What an engine keeps in RAM from its start, so that no thread can begin without it: an engine's own are made before
/// it has the arena, and can begin later.
pub fn kept(process: &Process) -> Vec<PageRange> {
    if !signals::is_by_signal() {
        return Vec::new();
    }
    let locales = LOCALES.lock();
    locales.iter().filter_map(|page| held::readable_pages(process, span_of(*page))).collect()
}

fn span_of(page: usize) -> Span {
    Span { address: page * PAGE_BYTES, bytes: PAGE_BYTES }
}

/// In the child of a fork: a thread that does not exist there may have held the tables.
pub fn hold() {
    TABLES.hold();
    THREADS.hold();
    LOCALES.hold();
}

/// After [`hold`], in the parent and in the child.
pub fn release() {
    LOCALES.release();
    THREADS.release();
    TABLES.release();
}

/// In the child of a fork, of which the caller is the only thread: the engine's threads get stacks that other threads had,
/// whose thread-locals in libraries that were loaded later the C library would free. The program's allocator is still held,
/// for its handlers come after ours: those blocks are left where they are.
pub fn keep_blocks() {
    if !allocator::is_foreign() {
        return;
    }
    let (tables, own) = (TABLES.lock(), thread_locals::pointer());
    let may_write = |table| pages_of(table).iter().all(|page| tables.contains(page));
    let threads = THREADS.lock();
    let others = threads.iter().filter(|thread| **thread != own);
    let others = others.filter_map(|thread| table_of(*thread));
    for table in others.filter(|table| may_write(*table)) {
        // SAFETY: other threads are not in the child, and `pin` has kept the pages of their tables.
        unsafe { thread_locals::keep_blocks(table, TABLE_BYTES) };
    }
}

/// The table of a thread, if there is one still.
fn table_of(thread: usize) -> Option<usize> {
    if process::is_managed(thread) {
        return None;
    }
    thread_locals::table_of(thread, Reader::default().value(thread)?)
}

/// Keeps in RAM what a fork needs; called while the engine still serves faults.
pub fn pin(process: &Process) -> Vec<PageRange> {
    if process.engine().is_none() || !allocator::is_foreign() {
        return Vec::new();
    }
    let mut tables = TABLES.lock();
    // One moves when a library is used for which it is too short.
    tables.extend(THREADS.lock().iter().filter_map(|thread| table_of(*thread)).flat_map(pages_of));
    let mut pages = tables.clone();
    drop(tables);
    pages.extend(LOCALES.lock().iter());
    let mut reader = Reader::default();
    let maps = link_maps(|address| reader.value(address));
    // What is gone is not there to be pinned.
    pages
        .into_iter()
        .map(span_of)
        .chain(streams())
        .chain(named())
        .chain(maps.into_iter().map(|address| Span { address, bytes: LINK_MAP_BYTES }))
        .filter_map(|span| held::hold_for_fork(process, span))
        .collect()
}

/// What variables of the C library and the dynamic linker point to: the configuration of name services, which fork copies
/// after all handlers, and whatever else there is.
fn named() -> Vec<Span> {
    let words = callers::system_variables().flat_map(|range| range.step_by(size_of::<usize>()));
    let mut found: Vec<usize> = words
        // SAFETY: a word of a segment that stays, which others may write to.
        .map(|address| unsafe { &*(address as *const AtomicUsize) }.load(Ordering::Relaxed))
        .filter(|value| process::is_managed(*value))
        .collect();
    found.sort_unstable();
    found.dedup();
    found.into_iter().map(|address| Span { address, bytes: NAMED_BYTES }).collect()
}

unsafe extern "C" {
    fn _IO_list_lock();
    fn _IO_list_unlock();
    fn _IO_list_resetlock();
    fn _IO_iter_begin() -> *mut c_void;
    fn _IO_iter_end() -> *mut c_void;
    fn _IO_iter_next(iterator: *mut c_void) -> *mut c_void;
    fn _IO_iter_file(iterator: *mut c_void) -> *mut c_void;
}

/// Takes the list of streams, which the thread that has it can take again.
pub fn hold_streams() {
    // SAFETY: the C library's own way, which has no conditions.
    unsafe { _IO_list_lock() };
}

/// After [`hold_streams`].
pub fn release_streams() {
    // SAFETY: the caller has it.
    unsafe { _IO_list_unlock() };
}

/// In a forked child, of which the caller is the only thread: nobody has the list. The C library's own fork does so only where there
/// were several threads.
pub fn free_streams() {
    // SAFETY: there is no other thread that could have it.
    unsafe { _IO_list_resetlock() };
}

/// All streams that are open. Fork, which asks, has the list.
fn streams() -> Vec<Span> {
    let mut found = Vec::new();
    // SAFETY: the C library's own way through its streams, which has no other conditions than its lock.
    let mut iterator = unsafe { _IO_iter_begin() };
    // SAFETY: as above.
    while iterator != unsafe { _IO_iter_end() } {
        // SAFETY: as above; this is not the end.
        found.push(Span::of(unsafe { _IO_iter_file(iterator) }, STREAM_BYTES));
        // SAFETY: as above.
        iterator = unsafe { _IO_iter_next(iterator) };
    }
    found
}
