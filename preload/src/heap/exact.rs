//! Blocks that are as large as what was asked for (`policy::sizes`), where mimalloc's classes would waste more than a 32nd: in
//! slabs of 1 MiB, each of blocks of one size. Nothing is kept in the blocks, so that giving one back touches none.
//!
//! A thread takes blocks from one of a few shards, and from the next one if it finds that in use. A slab that has run empty
//! beside another one with room is given back to the kernel, and serves any shard and size after that.
use super::malloc::not_a_block;
use super::mimalloc::{give_back, heap_area};
use crate::abi::raw::Span;
use crate::memory::commitment;
use crate::memory::own_stack::on_own_stack;
use crate::state::process::{self, Process};
use libc::c_void;
use std::cell::Cell;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use userswap::internals::PAGE_BYTES;
use userswap::internals::lock::{Guard, Lock};
use userswap::internals::mapping::ZeroedSlice;
use userswap::internals::signal::Blocked;
use userswap_policy::sizes::{CLASSES, Class, Frequent};
use userswap_policy::slab::Slab;
use userswap_policy::slabs::Slabs;

const SLAB_BYTES: usize = 1 << 20;
/// Slabs that are taken from the arena at a time.
const AREA_BYTES: usize = 64 << 20;
/// mimalloc may waste one in so many bytes.
const WASTE_SHARE: usize = 32;
const SHARDS: usize = 8;

/// By MiB of the arena: whose slab is there, see [`Owner`].
static OWNERS: OnceLock<ZeroedSlice<AtomicU32>> = OnceLock::new();

/// Slabs by class, as far as there are some.
struct Shard(Vec<Slabs<usize>>);

static ALL: [Lock<Shard>; SHARDS] = [const { Lock::new(Shard(Vec::new())) }; SHARDS];

/// Addresses of slabs that are nobody's, their memory zero. Waited for by who holds a shard.
static VACANT: Lock<Vec<usize>> = Lock::new(Vec::new());

thread_local! {
    static SHARD: Cell<usize> = const { Cell::new(0) };
    static FREQUENT: Cell<Frequent> = const { Cell::new(Frequent::new()) };
}

/// A slab, as a word that is not zero.
#[derive(Clone, Copy)]
struct Owner {
    shard: usize,
    class: Class,
    /// Among the slabs of its shard and class.
    index: usize,
}

impl Owner {
    const SHARD_BITS: u32 = SHARDS.ilog2();
    const CLASS_BITS: u32 = CLASSES.ilog2();

    fn word(self) -> u32 {
        let number = (self.index as u32 + 1) << Self::SHARD_BITS | self.shard as u32;
        number << Self::CLASS_BITS | self.class.index() as u32
    }

    fn of_word(word: u32) -> Option<Self> {
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
fn word_at(address: usize) -> Option<&'static AtomicU32> {
    let start = process::current()?.arena.start() / SLAB_BYTES;
    OWNERS.get()?.get((address / SLAB_BYTES).checked_sub(start)?)
}

/// Makes the table; called by the constructor.
///
/// # Errors
/// No memory for it.
pub fn prepare(process: &Process) -> io::Result<()> {
    let end = process.arena.address() + process.arena.bytes();
    let slabs = end / SLAB_BYTES + 1 - process.arena.start() / SLAB_BYTES;
    assert!(OWNERS.set(ZeroedSlice::new(slabs)?).is_ok(), "the constructor runs once");
    Ok(())
}

/// Before fork, and after it, on both sides.
pub fn hold() {
    ALL.iter().for_each(Lock::hold);
    VACANT.hold();
}

/// See [`hold`].
pub fn release() {
    VACANT.release();
    ALL.iter().for_each(Lock::release);
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
    take(class)
}

fn is_frequent(class: Class) -> bool {
    let mut frequent = FREQUENT.get();
    let is_frequent = frequent.note(class);
    FREQUENT.set(frequent);
    is_frequent
}

fn take(class: Class) -> Option<(*mut c_void, bool)> {
    let process = process::current()?;
    let (shard, mut slabs) = shard();
    if slabs.0.len() <= class.index() {
        slabs.0.resize_with(class.index() + 1, Slabs::default);
    }
    let slabs_of_class = &mut slabs.0[class.index()];
    let taken = loop {
        if let Some((address, taken)) = slabs_of_class.take() {
            break (address + taken.byte, taken.is_fresh);
        }
        let address = vacant(process)?;
        let index = slabs_of_class.add(address, Slab::new(class.bytes(), SLAB_BYTES));
        word_at(address)?.store(Owner { shard, class, index }.word(), Ordering::Relaxed);
    };
    drop(slabs);
    let (address, is_fresh) = taken;
    if is_fresh {
        on_own_stack(|| commitment::commit(process, Span { address, bytes: class.bytes() }));
    }
    Some((address as *mut c_void, is_fresh))
}

/// A shard that is not in use, if there is one.
fn shard() -> (usize, Guard<'static, Shard>) {
    let first = SHARD.get();
    for shard in (first..first + SHARDS).map(|shard| shard % SHARDS) {
        if let Some(guard) = ALL[shard].try_lock() {
            SHARD.set(shard);
            return (shard, guard);
        }
    }
    (first, ALL[first].lock())
}

/// The address of a slab that is nobody's.
#[cold]
fn vacant(process: &Process) -> Option<usize> {
    let _blocked = Blocked::new();
    let mut vacant = VACANT.lock();
    if vacant.is_empty() {
        let range = heap_area(process, AREA_BYTES)?;
        let Span { address, bytes } = process.span_of(range);
        // The first ones first.
        vacant.extend((0..bytes / SLAB_BYTES).rev().map(|slab| address + slab * SLAB_BYTES));
    }
    vacant.pop()
}

/// How large the block at an address is; None if it is not of a slab.
#[inline]
pub fn bytes_of(address: usize) -> Option<usize> {
    Owner::at(address).map(|owner| owner.class.bytes())
}

/// Gives a block back; false if the address is not in a slab. Ends the process where no block in use begins there.
#[inline]
pub fn free(address: usize) -> bool {
    Owner::at(address).map(|owner| put(owner, address)).is_some()
}

fn put(owner: Owner, address: usize) {
    let slab_address = address / SLAB_BYTES * SLAB_BYTES;
    let mut shard = ALL[owner.shard].lock();
    let slabs = &mut shard.0[owner.class.index()];
    if !slabs.is_used(owner.index, address - slab_address) {
        not_a_block();
    }
    let emptied = slabs.put(owner.index, address - slab_address);
    if emptied.is_some() {
        word_at(address).expect("it is in a slab").store(0, Ordering::Relaxed);
    }
    drop(shard);
    if let (Some(address), Some(process)) = (emptied, process::current()) {
        on_own_stack(|| give_back(process, Span { address, bytes: SLAB_BYTES }));
        let _blocked = Blocked::new();
        VACANT.lock().push(address);
    }
}

const _: () =
    assert!(AREA_BYTES.is_multiple_of(SLAB_BYTES) && SLAB_BYTES.is_multiple_of(PAGE_BYTES));
const _: () = assert!(SHARDS.is_power_of_two() && CLASSES.is_power_of_two());
