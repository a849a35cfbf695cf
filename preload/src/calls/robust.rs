//! Robust mutexes in managed memory that a thread still has as it ends.
//!
//! The kernel tells who waits for one that its owner has died, but does so for a thread that is ending already
//! (`exit_robust_list` in kernel/futex/core.c): userfaultfd serves no fault of such a thread, so that one whose page is
//! missing would be held for ever. Here the same is done by the same rules, as the last of the thread's own acts.
use super::held::Held;
use super::reading::Reader;
use super::{arguments, filters, locks};
use crate::abi::raw::Span;
use crate::abi::system_call::make;
use crate::abi::thread_key::ThreadKey;
use libc::{FUTEX_OWNER_DIED, FUTEX_TID_MASK, FUTEX_WAITERS, c_void};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use userswap::internals::signal::Blocked;

/// Its value is the round of a thread's destructors that comes next.
static KEY: ThreadKey = ThreadKey::none();
/// The last round (PTHREAD_DESTRUCTOR_ITERATIONS): what the program does in its own, it does before. A thread that takes its first
/// such mutex in one of them leaves it to the kernel.
const ROUNDS: usize = 4;
/// As many entries as the kernel looks at (ROBUST_LIST_LIMIT).
const LENGTH_MAX: usize = 2048;
/// Of an entry's address: a mutex that passes its waiters' priority on to its owner. The kernel wakes them by other ways.
const INHERITING: usize = 1;

thread_local! {
    static IS_NOTED: Cell<bool> = const { Cell::new(false) };
}

/// A thread's list, as it has told the kernel (`robust_list_head`).
#[repr(C)]
struct Head {
    first: usize,
    /// From an entry to its word, in bytes.
    distance: usize,
    pending: usize,
}

/// Called once, by the constructor.
pub fn start() {
    KEY.make(end);
}

/// This thread is about to have such a mutex.
pub fn note() {
    if !IS_NOTED.replace(true) {
        await_round(1);
    }
}

fn await_round(round: usize) {
    // A failure leaves the mutexes to the kernel.
    KEY.set(round as *const c_void);
}

unsafe extern "C" fn end(round: *mut c_void) {
    match round as usize {
        ROUNDS => give_up(),
        round => await_round(round + 1),
    }
}

/// One mutex of a list.
struct Entry {
    address: usize,
    word: usize,
    is_inheriting: bool,
}

/// What this thread has told the kernel of, and the mutexes that it has.
fn own() -> Option<(&'static mut Head, Vec<Entry>)> {
    let (mut head, mut bytes) = (std::ptr::null_mut::<Head>(), 0usize);
    let asked = [0, (&raw mut head).addr(), (&raw mut bytes).addr(), 0, 0, 0];
    if make(libc::SYS_get_robust_list, asked) != 0 || bytes != size_of::<Head>() {
        return None;
    }
    // SAFETY: this thread's, which lives as long as it, and is changed by its own calls only.
    let list = unsafe { head.as_mut() }?;
    let (mut reader, mut had) = (Reader::default(), Vec::new());
    let mut entry = list.first;
    while had.len() < LENGTH_MAX && entry & !INHERITING != head.addr() {
        let address = entry & !INHERITING;
        let word = address.wrapping_add(list.distance);
        let Some(next) = reader.value(address) else { break };
        if reader.can_read(Span { address: word, bytes: size_of::<u32>() }) {
            had.push(Entry { address, word, is_inheriting: entry & INHERITING != 0 });
        }
        entry = next;
    }
    Some((list, had))
}

/// Keeps all that this thread has in RAM: where it ends with its process, or becomes another program, the kernel looks at them.
pub fn keep() -> Option<Held> {
    if !IS_NOTED.get() {
        return None;
    }
    let _blocked = Blocked::new();
    let (_, had) = own()?;
    let mut held = Held::none();
    for Entry { address, word, .. } in had {
        held.add(Span { address, bytes: size_of::<usize>() });
        held.add(Span { address: word, bytes: size_of::<u32>() });
    }
    Some(held)
}

/// Gives on all that this thread has, and leaves the kernel none.
fn give_up() {
    // There might be no leave to ask what it has.
    if filters::is_filtered() {
        return;
    }
    let _blocked = Blocked::new();
    let Some((list, had)) = own() else { return };
    had.iter().for_each(|entry| give_on(entry.word, entry.is_inheriting));
    list.first = std::ptr::from_mut(list).addr();
}

/// As the kernel's `handle_futex_death`.
fn give_on(word: usize, is_inheriting: bool) {
    // SAFETY: has no conditions.
    let thread = unsafe { libc::gettid() } as u32;
    // SAFETY: a mutex of the program's, which this thread has: its word is in memory that can be read and written.
    let mutex = unsafe { AtomicU32::from_ptr(word as *mut u32) };
    let given = mutex.fetch_update(Ordering::Release, Ordering::Relaxed, |value| {
        (value & FUTEX_TID_MASK == thread).then_some(value & FUTEX_WAITERS | FUTEX_OWNER_DIED)
    });
    // Never by the private way: who waits for such a mutex is told of by the kernel, which does not know of that.
    if given.is_ok_and(|before| before & FUTEX_WAITERS != 0) && !is_inheriting {
        locks::futex(&arguments::of([word, libc::FUTEX_WAKE as usize, 1]));
    }
}
