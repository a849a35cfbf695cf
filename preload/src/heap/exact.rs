//! Blocks that are as large as what was asked for (`policy::sizes`), where mimalloc's classes would waste more than a 32nd: in
//! slabs of 1 MiB, each of blocks of one size. Nothing is kept in the blocks, so that giving one back touches none.
//!
//! A thread takes blocks from one of a few shards, and from the next one if it finds that in use. A slab that has run empty
//! beside another one with room is given back to the kernel, and serves any shard and size after that. A handler of a signal that
//! has come in the middle finds another shard, and forks without this one's lock.
use super::malloc::not_a_block;
use super::mimalloc::{give_back, largest_area};
use super::owned::{self, Owned, Owner};
use crate::abi::raw::{self, Span};
use crate::memory::commitment;
use crate::memory::own_stack::on_own_stack;
use crate::state::process::{self, Process};
use libc::c_void;
use std::cell::Cell;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use userswap::internals::lock::Lock;
use userswap::internals::mapping::ZeroedSlice;
use userswap::internals::signal::Blocked;
use userswap_policy::sizes::{CLASSES, Class, Frequent};
use userswap_policy::slab::Slab;
use userswap_policy::slabs::Slabs;

const SLAB_BYTES: usize = 1 << 20;
/// What is taken from the arena at a time: at most, and at least.
const AREA_BYTES: usize = 64 << 20;
const AREA_BYTES_MIN: usize = 4 << 20;
/// mimalloc may waste one in so many bytes.
const WASTE_SHARE: usize = 32;
const SHARDS: usize = 8;

/// By MiB of the arena: which slab is there, see [`Place`].
static PLACES: OnceLock<ZeroedSlice<AtomicU64>> = OnceLock::new();

/// Slabs by class, as far as there are some.
struct Shard(Vec<Slabs<usize>>);

/// Nobody waits for one of these: its entry in `LOCKS` comes first.
static ALL: [Lock<Shard>; SHARDS] = [const { Lock::new(Shard(Vec::new())) }; SHARDS];
static LOCKS: [Owned; SHARDS] = [const { Owned::new() }; SHARDS];

/// A bit for each shard that the thread which forks is in the middle of.
static KEPT: AtomicU32 = AtomicU32::new(0);

/// Addresses of slabs that are nobody's, their memory zero.
static VACANT: Lock<Vec<usize>> = Lock::new(Vec::new());

/// There was no memory for more of them: mimalloc has all that comes then.
static REFUSED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static SHARD: Cell<usize> = const { Cell::new(0) };
    static FREQUENT: Cell<Frequent> = const { Cell::new(Frequent::new()) };
}

/// Where a slab is listed, as a word that is not zero.
#[derive(Clone, Copy)]
struct Place {
    shard: usize,
    class: Class,
    /// Among the slabs of its shard and class.
    index: usize,
}

impl Place {
    const SHARD_BITS: u32 = SHARDS.ilog2();
    const CLASS_BITS: u32 = CLASSES.ilog2();

    fn word(self) -> u64 {
        let number = (self.index as u64 + 1) << Self::SHARD_BITS | self.shard as u64;
        number << Self::CLASS_BITS | self.class.index() as u64
    }

    fn of_word(word: u64) -> Option<Self> {
        let number = word >> Self::CLASS_BITS;
        Some(Self {
            index: (number >> Self::SHARD_BITS).checked_sub(1)? as usize,
            shard: number as usize % SHARDS,
            class: Class::from_index(word as usize % CLASSES),
        })
    }

    /// Whose slab an address is in; None for all other memory.
    #[inline]
    fn at(address: usize) -> Option<Self> {
        // Relaxed: whoever has a block has it from the thread that set this.
        Self::of_word(word_at(address)?.load(Ordering::Relaxed))
    }
}

#[inline]
fn word_at(address: usize) -> Option<&'static AtomicU64> {
    let start = process::current()?.arena.start() / SLAB_BYTES;
    PLACES.get()?.get((address / SLAB_BYTES).checked_sub(start)?)
}

/// Makes the table; called by the constructor.
///
/// # Errors
/// No memory for it.
pub fn prepare(process: &Process) -> io::Result<()> {
    let end = process.arena.address() + process.arena.bytes();
    let slabs = end / SLAB_BYTES + 1 - process.arena.start() / SLAB_BYTES;
    assert!(PLACES.set(ZeroedSlice::new(slabs)?).is_ok(), "the constructor runs once");
    Ok(())
}

/// Before fork: no other thread is in the middle of anything.
pub fn hold() {
    let mut kept = 0;
    for (shard, lock) in LOCKS.iter().enumerate() {
        match lock.is_mine() {
            true => kept |= 1 << shard,
            false => std::mem::forget(lock.take()),
        }
    }
    KEPT.store(kept, Ordering::Relaxed);
    VACANT.hold();
}

/// After it, in the parent and in the child.
pub fn release() {
    VACANT.release();
    let kept = KEPT.load(Ordering::Relaxed);
    let others = LOCKS.iter().enumerate().filter(|(shard, _)| kept >> shard & 1 == 0);
    others.for_each(|(_, lock)| lock.release());
}

/// In the child, whose thread keeps its number as long as a lock may have it.
pub fn renew() {
    if KEPT.load(Ordering::Relaxed) == 0 {
        owned::renew();
    }
}

/// A block for so many bytes, and whether it is zero; None where mimalloc's will do, and without memory for a slab.
#[inline]
pub fn allocate(bytes: usize) -> Option<(*mut c_void, bool)> {
    let class = Class::of(bytes)?;
    // SAFETY: computes a number.
    let rounded = unsafe { libmimalloc_sys::mi_good_size(bytes) };
    if rounded - bytes <= bytes / WASTE_SHARE || !is_frequent(class) {
        return None;
    }
    let errno = raw::errno();
    let taken = take(class);
    raw::set_errno(errno);
    taken
}

fn is_frequent(class: Class) -> bool {
    let mut frequent = FREQUENT.get();
    let is_frequent = frequent.note(class);
    FREQUENT.set(frequent);
    is_frequent
}

fn take(class: Class) -> Option<(*mut c_void, bool)> {
    let process = process::current()?;
    let mut new = None;
    let (address, is_fresh) = loop {
        match take_from_shard(class, new)? {
            Some(taken) => break taken,
            None => new = Some(vacant(process)?),
        }
    };
    if is_fresh {
        on_own_stack(|| commitment::commit(process, Span { address, bytes: class.bytes() }));
    }
    Some((address as *mut c_void, is_fresh))
}

/// The address of a block, and whether it is fresh, by way of a new slab if there is one; None inside where none is free.
fn take_from_shard(class: Class, new: Option<usize>) -> Option<Option<(usize, bool)>> {
    let (shard, _owner) = shard()?;
    let mut slabs = ALL[shard].lock();
    let slabs = slabs.of(class);
    if let Some(address) = new {
        let index = slabs.add(address, Slab::new(class.bytes(), SLAB_BYTES));
        word_at(address)?.store(Place { shard, class, index }.word(), Ordering::Relaxed);
    }
    Some(slabs.take().map(|(address, taken)| (address + taken.byte, taken.is_fresh)))
}

impl Shard {
    fn of(&mut self, class: Class) -> &mut Slabs<usize> {
        if self.0.len() <= class.index() {
            self.0.resize_with(class.index() + 1, Slabs::default);
        }
        &mut self.0[class.index()]
    }
}

/// A shard that is not in use, if there is one; None where this thread has the only one that could be waited for.
fn shard() -> Option<(usize, Owner<'static>)> {
    let first = SHARD.get();
    for shard in (first..first + SHARDS).map(|shard| shard % SHARDS) {
        if let Some(owner) = LOCKS[shard].try_take() {
            SHARD.set(shard);
            return Some((shard, owner));
        }
    }
    (!LOCKS[first].is_mine()).then(|| (first, LOCKS[first].take()))
}

/// The address of a slab that is nobody's.
#[cold]
fn vacant(process: &Process) -> Option<usize> {
    let _blocked = Blocked::new();
    if let Some(address) = VACANT.lock().pop() {
        return Some(address);
    }
    if REFUSED.load(Ordering::Relaxed) {
        return None;
    }
    let area = on_own_stack(|| largest_area(process, AREA_BYTES, AREA_BYTES_MIN));
    let Some(range) = area else {
        REFUSED.store(true, Ordering::Relaxed);
        return None;
    };
    let Span { address, bytes } = process.span_of(range);
    // The first ones first.
    let others = (1..bytes / SLAB_BYTES).rev().map(|slab| address + slab * SLAB_BYTES);
    VACANT.lock().extend(others);
    Some(address)
}

/// How large the block at an address is; None if it is not of a slab.
#[inline]
pub fn bytes_of(address: usize) -> Option<usize> {
    Place::at(address).map(|place| place.class.bytes())
}

/// Gives a block back; false if the address is not in a slab. Ends the process where no block in use begins there.
#[inline]
pub fn free(address: usize) -> bool {
    let Some(place) = Place::at(address) else { return false };
    let errno = raw::errno();
    // What a handler gives back that has come in the middle of this very shard is never used again.
    if !LOCKS[place.shard].is_mine() {
        put(place, address);
    }
    raw::set_errno(errno);
    true
}

fn put(place: Place, address: usize) {
    let byte = address % SLAB_BYTES;
    let owner = LOCKS[place.shard].take();
    let mut shard = ALL[place.shard].lock();
    let slabs = shard.of(place.class);
    if !slabs.is_used(place.index, byte) {
        not_a_block();
    }
    let emptied = slabs.put(place.index, byte);
    if emptied.is_some() {
        word_at(address).expect("it is in a slab").store(0, Ordering::Relaxed);
    }
    drop(shard);
    drop(owner);
    if let (Some(address), Some(process)) = (emptied, process::current()) {
        on_own_stack(|| give_back(process, Span { address, bytes: SLAB_BYTES }));
        let _blocked = Blocked::new();
        VACANT.lock().push(address);
    }
}

const _: () = assert!(AREA_BYTES_MIN.is_multiple_of(SLAB_BYTES));
const _: () = assert!(SHARDS.is_power_of_two() && CLASSES.is_power_of_two());
