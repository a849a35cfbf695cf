//! Pages that stay are compressed once more: `recompress=LEVEL` of `zram:`.
//!
//! When a page has its turn is `policy::recompress`'s. What a slot holds is copied with its entry held; the work, tens of
//! microseconds, is done on the copy, with no lock that a fault could wait for; and the smaller page takes the place of the
//! other if that is still there, byte for byte: then it is the same page, whatever came and went meanwhile.
use super::Zram;
use super::codec::{Codec, Packed};
use super::entries::{Entry, Place};
use super::options::Compression;
use crate::sys::lock::Lock;
use crate::sys::mapping::{Mapping, ZeroedSlice};
use crate::sys::{PAGE_BYTES, pages};
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use userswap_policy::cells::SLAB_PAGES;
use userswap_policy::recompress::{Look, look, look_ns};

/// Pages that have their turn in one step: it holds a fork up, by half a millisecond at a low level.
const TRIED_MAX: u32 = 8;
/// Slots that are looked at in one step.
const LOOKED_MAX: u32 = 1 << 16;
/// A page must become smaller by one part in so many of itself.
const WORTH_PART: usize = 16;

/// What compresses once more.
pub(super) struct Recompress {
    look_ns: u64,
    /// For how long each slot's page has been there, as the policy counts. Relaxed, a hint: what is missed stays as it is.
    ages: ZeroedSlice<AtomicU8>,
    sweep: Lock<Sweep>,
}

/// The look at all pages that is under way.
struct Sweep {
    codec: Codec,
    /// What was in the cell, and the page that it makes.
    memory: Mapping,
    /// The slot that is looked at next.
    next: u32,
    /// When the look after this one begins.
    begins_ns: u64,
}

/// What a step has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// So many pages are smaller now; there may be more at once.
    Smaller(u32),
    /// There is nothing to do for so many nanoseconds.
    Over(u64),
}

impl Recompress {
    /// For so many slots, if that is asked for.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn new(compression: Compression, slots: u32) -> io::Result<Option<Self>> {
        let Some(again) = compression.again else { return Ok(None) };
        let sweep = Sweep {
            codec: Codec::new(compression)?,
            memory: Mapping::undumped(2 * PAGE_BYTES)?,
            next: 0,
            begins_ns: 0,
        };
        let ages = ZeroedSlice::new(slots as usize)?;
        Ok(Some(Self { look_ns: look_ns(again.seconds), ages, sweep: Lock::new(sweep) }))
    }

    /// A page has come to a slot.
    pub(super) fn on_written(&self, number: u32) {
        self.ages[number as usize].store(0, Ordering::Relaxed);
    }

    /// Whether a slot's page has its turn at this look.
    fn has_turn(&self, number: u32) -> bool {
        let age = &self.ages[number as usize];
        let (next, has_turn) = match look(age.load(Ordering::Relaxed)) {
            Look::Young(next) => (next, false),
            Look::Cold(next) => (next, true),
            Look::Tried => return false,
        };
        age.store(next, Ordering::Relaxed);
        has_turn
    }
}

impl Zram {
    /// Whether it compresses once more what stays.
    pub fn recompresses(&self) -> bool {
        self.recompress.is_some()
    }

    /// Looks at some slots, and compresses once more what has its turn; None where that is not asked for, or another does.
    /// Takes up to a few milliseconds: never in a fault.
    pub fn recompress(&self, now_ns: u64) -> Option<Step> {
        let recompress = self.recompress.as_ref()?;
        let mut sweep = recompress.sweep.try_lock()?;
        if sweep.next == 0 {
            if now_ns < sweep.begins_ns {
                return Some(Step::Over(sweep.begins_ns - now_ns));
            }
            sweep.begins_ns = now_ns + recompress.look_ns;
        }
        let end = self.leaving.slots_ever.load(Ordering::Relaxed);
        let (mut tried, mut smaller) = (0, 0);
        let stop = end.min(sweep.next + LOOKED_MAX);
        while sweep.next < stop && tried < TRIED_MAX {
            let number = sweep.next;
            sweep.next += 1;
            if self.entries.cell_hint(number).is_some() && recompress.has_turn(number) {
                tried += 1;
                smaller += u32::from(self.try_again(number, &mut sweep));
            }
        }
        if sweep.next >= end {
            sweep.next = 0;
        }
        Some(Step::Smaller(smaller))
    }

    /// Whether what a slot holds is smaller now.
    fn try_again(&self, number: u32, sweep: &mut Sweep) -> bool {
        let kept = pages::view_mut(sweep.memory.address(), PAGE_BYTES);
        let page = pages::view_mut(sweep.memory.address() + PAGE_BYTES, PAGE_BYTES);
        let Some(from) = self.copy_cell(number, kept) else { return false };
        let kept = &kept[..from.bytes as usize];
        match kept.len() {
            PAGE_BYTES => page.copy_from_slice(kept),
            _ if sweep.codec.unpack(kept, page) => {}
            // Its checksum says so when it is needed.
            _ => return false,
        }
        let Packed::Smaller(bytes) = sweep.codec.pack_again(page) else { return false };
        if bytes.len() + kept.len() / WORTH_PART > kept.len() {
            return false;
        }
        // What is promised to others is not taken.
        let Some(to) = self.has_slabs(SLAB_PAGES).then(|| self.store(bytes)).flatten() else {
            return false;
        };
        self.exchange(number, (from, kept), to)
    }

    /// Copies what is in a slot's cell, if it has one.
    pub(super) fn copy_cell(&self, number: u32, to: &mut [u8]) -> Option<Place> {
        let held = self.entries.hold(number);
        let Entry::Cell(place) = held.entry() else { return None };
        to[..place.bytes as usize].copy_from_slice(self.view(place));
        Some(place)
    }

    /// Puts a cell in the place of another, if that still is what was copied; else the cell is free again.
    pub(super) fn exchange(&self, number: u32, (from, kept): (Place, &[u8]), to: Place) -> bool {
        let held = self.entries.hold(number);
        let is_same = held.entry() == Entry::Cell(from) && self.view(from) == kept;
        self.remember(Entry::Cell(to));
        if is_same {
            held.replace(Entry::Cell(to));
        }
        drop(held);
        self.forget(Entry::Cell(if is_same { from } else { to }));
        is_same
    }
}
