//! Relocated data of libraries is mapped from a file, once there is an engine: the kernel can drop it then.
//!
//! What the dynamic linker has filled in (tables of functions, C++ classes) and then protected against writing (PT_GNU_RELRO)
//! is private memory without a file, 5 to 13 MiB of it with LLVM, a browser or ClickHouse, in each of their processes.
//! It is written once to an unlinked file beside the swap, past the page cache, and mapped from there, at its place: what of it is used
//! comes back as the program's code does. Android's loader does the same for the libraries of its browser
//! (ANDROID_DLEXT_WRITE_RELRO).
//!
//! A thread of ours does it, as the linker's list of objects has to be locked so that none is unmapped, and who has that lock may wait
//! for those of the program's threads. No fork is under way meanwhile, or its child would have that lock for ever.
use crate::abi::raw;
use crate::abi::symbols::{self, Object, each_object};
use crate::calls::filters;
use crate::memory::relocated_file::{Copied, copy_of};
use crate::state::areas::Area;
use crate::state::own_threads;
use crate::state::process::{self, GlibcHeap, Process};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use userswap::internals::lock::Lock;
use userswap::internals::maps::Maps;
use userswap::internals::signal::Blocked;
use userswap::internals::{Core, PAGE_BYTES};
use userswap::internals::{clock, futex};

/// Less is not worth a mapping.
const LEAST_BYTES: usize = 128 << 10;
const STACK_BYTES: usize = 512 << 10;
/// Between two tries where something was in the way, and how many there are.
const AGAIN_NS: u64 = 100_000_000;
const TRIES: u32 = 20;

/// There is the thread, or will be.
static RUNS: AtomicBool = AtomicBool::new(false);
/// How often something may have been loaded since the thread was made.
static ASKED: AtomicU32 = AtomicU32::new(0);
/// Objects that had been loaded when all were last looked at.
static SEEN: AtomicU64 = AtomicU64::new(0);
/// Held while the list of objects is locked or waited for, and across fork.
static WALK: Lock<()> = Lock::new(());
/// Whether its holder has the list. Who has that may wait for this fork.
static HAS_LIST: AtomicBool = AtomicBool::new(false);
/// A fork has the lock.
static IS_HELD: AtomicBool = AtomicBool::new(false);
/// How long a fork waits for who waits for the list, and between two looks.
const PATIENCE_NS: u64 = 100_000_000;
const LOOK_NS: u64 = 200_000;
/// Data is being replaced, some milliseconds; calls under way that change protections outside the arena.
static IS_REPLACING: AtomicBool = AtomicBool::new(false);
static PROTECTING: AtomicU32 = AtomicU32::new(0);

/// The engine has started.
pub fn start() {
    RUNS.store(true, Ordering::Relaxed);
    // The thread inherits it.
    let _blocked = Blocked::new();
    if let Err(error) = own_threads::spawn("userswap-data", STACK_BYTES, run) {
        raw::say(&format!("no thread for the relocated data of libraries, which stays: {error}"));
    }
}

/// Whether there is the thread, or will be.
pub fn runs() -> bool {
    RUNS.load(Ordering::Relaxed)
}

/// Has the thread look whether it is to end.
pub fn wake() {
    ASKED.fetch_add(1, Ordering::Release);
    futex::wake_one(&ASKED);
}

/// This thread may have loaded something.
pub fn look_again() {
    if process::current().is_some_and(|process| process.engine().is_some())
        && !filters::is_filtered()
    {
        wake();
    }
}

/// Before a fork: waits until the list is not locked.
pub fn hold() {
    let until = clock::now_ns() + PATIENCE_NS;
    loop {
        if let Some(walk) = WALK.try_lock() {
            std::mem::forget(walk);
            return IS_HELD.store(true, Ordering::Relaxed);
        }
        let now = clock::now_ns();
        if now > until && !HAS_LIST.load(Ordering::Acquire) {
            return;
        }
        clock::sleep_until(now + LOOK_NS);
    }
}

/// After it, on both sides.
pub fn release() {
    if IS_HELD.swap(false, Ordering::Relaxed) {
        WALK.release();
    }
}

/// In the child of a fork, which has none of the threads whose calls were under way.
pub fn renew() {
    RUNS.store(false, Ordering::Relaxed);
    PROTECTING.store(0, Ordering::SeqCst);
    HAS_LIST.store(false, Ordering::Relaxed);
    // Of one that this fork did not wait for to the end.
    if !IS_HELD.load(Ordering::Relaxed) && WALK.try_lock().is_none() {
        WALK.release();
    }
}

/// Changes protections outside the arena, but not of what is being replaced.
pub fn protect<R>(change: impl FnOnce() -> R) -> R {
    loop {
        PROTECTING.fetch_add(1, Ordering::SeqCst);
        // Of this and the same in `replace` one sees the other.
        if !IS_REPLACING.load(Ordering::SeqCst) {
            break;
        }
        PROTECTING.fetch_sub(1, Ordering::SeqCst);
        userswap::internals::process::yield_now();
    }
    let outcome = change();
    // In a child of a fork in the middle of this there is none under way.
    let _ =
        PROTECTING.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |calls| calls.checked_sub(1));
    outcome
}

/// In a thread of ours, which has nothing else to do from here on.
pub fn run() {
    RUNS.store(true, Ordering::Relaxed);
    process::current().into_iter().for_each(watch);
    RUNS.store(own_threads::are_leaving(), Ordering::Relaxed);
}

fn watch(process: &Process) {
    let mut asked = 0;
    loop {
        for _ in 0..TRIES {
            asked = ASKED.load(Ordering::Acquire);
            if own_threads::are_leaving() {
                return;
            }
            match pass(process) {
                Pass::Whole => break,
                Pass::Never => return,
                Pass::Part => futex::wait_for(&ASKED, asked, AGAIN_NS),
            }
        }
        futex::wait(&ASKED, asked);
    }
}

/// How far a look at all objects got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pass {
    Whole,
    /// Something was in the way that may not be later.
    Part,
    /// Not in this program.
    Never,
}

fn pass(process: &Process) -> Pass {
    let Some(core) = process.engine().map(|engine| engine.core()) else { return Pass::Whole };
    let has_locked = || !process.areas.lock().select(Area::is_locked).is_empty();
    // With memory locked a program means not to wait for a disk.
    if filters::is_filtered() || has_locked() {
        return Pass::Whole;
    }
    let Some(_walk) = WALK.try_lock() else { return Pass::Part };
    // A walk of the program's own need not lock the list.
    if !symbols::is_libcs(c"dl_iterate_phdr") {
        return Pass::Never;
    }
    let outcome = Maps::open().map_or(Pass::Whole, |maps| look_at_all(core, maps));
    HAS_LIST.store(false, Ordering::Release);
    outcome
}

fn look_at_all(core: &Core, mut maps: Maps) -> Pass {
    let (mut outcome, mut loads) = (Pass::Whole, 0);
    each_object(|object| {
        HAS_LIST.store(true, Ordering::Release);
        loads = object.loads();
        if SEEN.load(Ordering::Relaxed) == loads {
            return Some(());
        }
        if parts(object).any(|(data, code)| take(core, &mut maps, &data, code) == Pass::Part) {
            outcome = Pass::Part;
        }
        None
    });
    if outcome == Pass::Whole {
        SEEN.store(loads, Ordering::Relaxed);
    }
    outcome
}

/// The data of an object, of which there is enough, and an address of its code.
fn parts(object: &Object) -> impl Iterator<Item = (Range<usize>, usize)> {
    let code = object.text().map_or(0, |text| text.start);
    object.relocated().filter(|data| data.len() >= LEAST_BYTES).map(move |data| (data, code))
}

/// Moves some data, if it is private memory for reading only of the object's own file.
fn take(core: &Core, maps: &mut Maps, data: &Range<usize>, code: usize) -> Pass {
    match standing(maps, data, code) {
        Some(Standing::Relocated) => {}
        Some(Standing::Writable) => return Pass::Part,
        None => return Pass::Whole,
    }
    let copy = {
        let _route = GlibcHeap::new();
        core.file_for_data(data.len() / PAGE_BYTES)
    };
    // Without a file now there will be none for the others.
    let Some(copy) = copy.and_then(|file| copy_of(data, file)) else { return Pass::Whole };
    let outcome = replace(maps, data, code, copy);
    if outcome == Pass::Whole {
        core.note_data_in_file(data.len() / PAGE_BYTES);
    }
    outcome
}

/// Puts the copy in the place of the data, if that is still the same: for other threads at once.
fn replace(maps: &mut Maps, data: &Range<usize>, code: usize, copy: Copied) -> Pass {
    IS_REPLACING.store(true, Ordering::SeqCst);
    // Who changes it makes it writable first: nobody does from here on.
    let is_as_it_was = PROTECTING.load(Ordering::SeqCst) == 0
        && standing(maps, data, code) == Some(Standing::Relocated)
        && copy.is_equal();
    let is_replaced = is_as_it_was && copy.replace().is_ok();
    if is_as_it_was && !is_replaced && maps.read().is_some() && maps.at(data.start).is_none() {
        raw::stop("there was no memory for mapping a library's data again\n");
    }
    IS_REPLACING.store(false, Ordering::SeqCst);
    if is_replaced { Pass::Whole } else { Pass::Part }
}

/// What some data of an object is that is of the object's own file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    /// The linker is not done with it, or the program changes it.
    Writable,
    Relocated,
}

fn standing(maps: &mut Maps, data: &Range<usize>, code: usize) -> Option<Standing> {
    maps.read()?;
    let (at, code) = (maps.at(data.start)?, maps.at(code)?);
    if at.addresses.end < data.end || at.file != code.file || !at.has_file() {
        return None;
    }
    match at.protection {
        b"r--p" => Some(Standing::Relocated),
        b"rw-p" => Some(Standing::Writable),
        _ => None,
    }
}
