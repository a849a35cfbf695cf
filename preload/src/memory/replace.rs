//! Mapping over memory that is in use: MAP_FIXED and MREMAP_FIXED, as the JVM, V8 and .NET commit their heaps.
//!
//! A range that is replaced is never free meanwhile: no other thread's mapping can come to lie in it. Memory
//! over memory is one change of protection and a drop of what was there. What the kernel is to map (a file,
//! shared memory) is made elsewhere first, so that what it refuses changes nothing, and then moved over the
//! range in one call; under the engine the range leaves its hands before that.
//! Signals are blocked in all of these.
use super::{engagement, locking, ranges};
use crate::abi::raw::{self, Errno, MapRequest, Span};
use crate::state::areas::{Area, Memory};
use crate::state::process::{Phase, Process};
use libc::{EEXIST, ENOMEM, PROT_NONE, PROT_WRITE};
use userswap::Engine;
use userswap::internals::PageRange;

/// What a mapping at an exact address may replace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Over {
    /// Whatever the program has there (MAP_FIXED).
    Anything,
    /// Nothing (MAP_FIXED_NOREPLACE).
    Nothing,
}

/// A range that is being mapped over. All of it is allocated; what the program had there still is there.
pub struct Claim {
    /// The pages.
    pub range: PageRange,
    parts: Vec<(PageRange, Area)>,
    /// Was free: is freed again if the replacement fails.
    gaps: Vec<PageRange>,
    /// Of the gaps, what may hold something.
    left_open: Vec<PageRange>,
}

/// Allocates all of a range that is not the program's yet. The phase is held until the replacement is done.
///
/// # Errors
/// EEXIST when something is there that may not be replaced; ENOMEM when that is the heap.
pub fn claim(process: &Process, range: PageRange, over: Over) -> Result<Claim, Errno> {
    let mut areas = process.areas.lock();
    if over == Over::Nothing && !process.arena.allocated(range).is_empty() {
        return Err(EEXIST);
    }
    let parts = areas.within(range);
    if parts.iter().any(|(_, area)| matches!(area, Area::Heap { .. })) {
        return Err(ENOMEM);
    }
    process.will_manage(range);
    let gaps = process.arena.replace(range);
    let left_open = ranges::take_left_open(&mut areas.left_open, range);
    Ok(Claim { range, parts, gaps, left_open })
}

impl Claim {
    fn memory(&self) -> impl Iterator<Item = (PageRange, Memory)> + '_ {
        self.parts.iter().filter_map(|(part, area)| match area {
            Area::Memory(memory) => Some((*part, *memory)),
            Area::Heap { .. } | Area::Foreign => None,
        })
    }

    fn foreign(&self) -> impl Iterator<Item = PageRange> + '_ {
        let is_foreign =
            |(part, area): &(PageRange, Area)| (*area == Area::Foreign).then_some(*part);
        self.parts.iter().filter_map(is_foreign)
    }

    fn is_keyed(&self) -> bool {
        self.memory().any(|(_, memory)| memory.keyed)
    }

    /// Undoes the program's locks.
    fn unlock(&self, process: &Process, phase: &Phase<'_>) {
        for (part, _) in self.memory().filter(|(_, memory)| memory.locked) {
            locking::release(process, phase, part);
        }
    }

    /// Drops what the memory in it may hold.
    fn empty(&self, process: &Process, phase: &Phase<'_>) {
        self.memory().for_each(|(part, _)| ranges::forget(process, phase, part));
        self.left_open.iter().for_each(|part| ranges::forget(process, phase, *part));
    }

    /// The replacement has failed: what was free is free again.
    fn give_back(&self, process: &Process) {
        self.gaps.iter().for_each(|gap| ranges::give_back(process, *gap));
        let mut areas = process.areas.lock();
        self.left_open.iter().for_each(|part| areas.left_open.insert(*part));
    }
}

/// Puts empty memory of the program's in the place of what was there.
///
/// # Errors
/// ENOMEM for want of mappings. What was there may have lost its content by then, as with the kernel's own.
pub fn with_memory(
    process: &Process,
    phase: &Phase<'_>,
    claim: &Claim,
    protection: i32,
) -> Result<(), Errno> {
    let outcome = put_memory(process, phase, claim, protection);
    match outcome {
        Ok(()) => process.areas.lock().set(claim.range, Area::Memory(Memory::new(protection))),
        Err(_) => claim.give_back(process),
    }
    outcome
}

fn put_memory(
    process: &Process,
    phase: &Phase<'_>,
    claim: &Claim,
    protection: i32,
) -> Result<(), Errno> {
    for part in claim.foreign() {
        let _alone = process.alone(phase);
        put_plain(process, phase, part, protection)?;
    }
    claim.unlock(process, phase);
    // Pages move out of memory only while it is writable.
    let first = protection & PROT_WRITE == 0;
    if first {
        claim.empty(process, phase);
    }
    let span = process.span_of(claim.range);
    ranges::protect_anew(span, protection, claim.is_keyed())?;
    match protection {
        PROT_NONE => ranges::leave_out_of_dump(process, claim.range),
        _ => ranges::add_to_dump(process, claim.range),
    }
    if !first {
        claim.empty(process, phase);
    }
    Ok(())
}

/// Puts plain memory, with a protection, where the program had mapped something of the kernel's. No fork and
/// no engagement may come between.
///
/// # Errors
/// ENOMEM for want of mappings; what was there stays.
pub fn put_plain(
    process: &Process,
    phase: &Phase<'_>,
    range: PageRange,
    protection: i32,
) -> Result<(), Errno> {
    let span = process.span_of(range);
    let Span { address, bytes } = span;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    raw::map(MapRequest { address, bytes, protection, flags, fd: -1, offset: 0 })?;
    // After mlockall(MCL_FUTURE) it is locked, which the rest of the arena is not.
    raw::lock(libc::SYS_munlock, span, 0).expect("the range was just mapped");
    if let Phase::Engaged(engine) = phase {
        engagement::join(engine, span);
        // What was written before the engine could know of it was written before this mapping.
        raw::advise(span, libc::MADV_DONTNEED).expect("the arena is ours");
    }
    process.areas.lock().dumped.insert(range);
    if protection == PROT_NONE {
        ranges::leave_out_of_dump(process, range);
    }
    process.arena.set_plain(range);
    process.areas.lock().set(range, Area::Memory(Memory::new(protection)));
    Ok(())
}

/// Makes a claimed range that the engine has a mapping of its own, as taking it from the engine will need one.
///
/// # Errors
/// ENOMEM at the limit on mappings; nothing has changed, and the claim is given back.
pub fn separate(process: &Process, phase: &Phase<'_>, claim: &Claim) -> Result<(), Errno> {
    if let Phase::Engaged(_) = phase {
        for part in process.arena.plain_within(claim.range) {
            // For the kernel's readahead alone, which this memory has none of.
            raw::advise(process.span_of(part), libc::MADV_RANDOM).map_err(|_| {
                undo_separate(process, claim);
                // madvise says EAGAIN.
                ENOMEM
            })?;
        }
    }
    Ok(())
}

fn undo_separate(process: &Process, claim: &Claim) {
    for part in process.arena.plain_within(claim.range) {
        // Without effect but on the number of mappings.
        let _ = raw::advise(process.span_of(part), libc::MADV_NORMAL);
    }
    claim.give_back(process);
}

/// Puts something of the kernel's in the place of what was there; `place` maps it, in one call. The claim is
/// separate already.
///
/// # Errors
/// What `place` says. What was there is memory without content and access then.
pub fn with_foreign(
    process: &Process,
    phase: &Phase<'_>,
    claim: &Claim,
    place: impl FnOnce() -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    let _alone = process.alone(phase);
    ranges::let_go(phase, claim.range);
    if let Phase::Engaged(engine) = phase {
        claim.unlock(process, phase);
        release(process, engine, claim);
    }
    // Before it is: who claims the same meanwhile waits for this.
    process.arena.set_foreign(claim.range);
    process.areas.lock().set(claim.range, Area::Foreign);
    let outcome = place();
    if outcome.is_ok() {
        return outcome;
    }
    // There may be nothing at all now. What is not the arena's is the kernel's, and as it left that.
    for part in process.arena.own_within(claim.range) {
        put_plain(process, phase, part, PROT_NONE)?;
    }
    let mut areas = process.areas.lock();
    for gap in &claim.gaps {
        areas.clear(*gap);
        process.arena.free(*gap);
    }
    outcome
}

/// The engine lets go of a range: nothing of it is in its tables, and no fault there is its own any more.
fn release(process: &Process, engine: &Engine, claim: &Claim) {
    for part in process.arena.plain_within(claim.range) {
        let Span { address, bytes } = process.span_of(part);
        // Most of it while pages still move.
        engine.core().drop_range(part);
        if let Err(error) = engine.core().uffd.unregister(address, bytes) {
            raw::say(&format!("cannot take memory back from the engine: {error}"));
            raw::exit_now(1);
        }
        // What came in before the kernel knew.
        engine.core().drop_range(part);
    }
}

/// mmap of something of the kernel's over a claimed range.
///
/// # Errors
/// The kernel's; what it refuses changes nothing.
pub fn with_mapping(
    process: &Process,
    phase: &Phase<'_>,
    claim: &Claim,
    request: MapRequest,
) -> Result<usize, Errno> {
    let exact = libc::MAP_FIXED | libc::MAP_32BIT;
    let elsewhere = MapRequest { address: 0, flags: request.flags & !exact, ..request };
    separate(process, phase, claim)?;
    let address = raw::map(elsewhere).inspect_err(|_| undo_separate(process, claim))?;
    with_foreign(process, phase, claim, || {
        let bytes = request.bytes;
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let new_address = request.address;
        let moving = raw::RemapRequest { address, bytes, new_bytes: bytes, flags, new_address };
        raw::remap(moving).or_else(|_| {
            // Some devices' mappings cannot move.
            raw::unmap(Span { address, bytes })?;
            raw::map(request)
        })
    })
}
