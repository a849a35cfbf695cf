//! Pages move on as they are compressed: several to a slot of the device behind (`device::pack`), by requests of up to
//! 1 MiB. What did not compress, or has no other to share a slot with, moves on as it is (`batch.rs`).
//!
//! What is written is unpacked before, once, and its checksum compared with that of its slot: so a page whose slot was
//! given to another meanwhile, or has another content, stays where it is, and nothing damaged is handed on.
use super::{Mover, Moving};
use crate::base::counters::count;
use crate::base::limits::BATCH;
use crate::device::SlotSpan;
use crate::device::pack::Kept;
use crate::device::record::Device;
use crate::device::zram::{Form, Zram};
use crate::state::core::Core;
use crate::sys::{PAGE_BYTES, pages};
use userswap_policy::pack::{Place, places};

/// A page in the buffer.
#[derive(Clone, Copy)]
struct Packed {
    moving: Moving,
    place: Place,
    form: Form,
}

/// Slots behind, and those of a pack for pages on them.
struct Room<'a> {
    below: SlotSpan,
    pack: &'a Device,
    slots: SlotSpan,
}

/// How often room may be found that is too short for the pages of one slot.
const MISSES_MAX: u32 = 2;

impl Core {
    /// Moves on what of `mover.moving` is compressed and shares a slot, which is taken out of it; what it leaves there has
    /// to move on as it is. Returns how many pages have moved.
    pub(super) fn move_packed(&self, mover: &mut Mover, device: &Device, zram: &Zram) -> u32 {
        let packed = self.pack_all(mover, device, zram);
        let (mut moved, mut left, mut misses) = (0, packed.as_slice(), 0);
        while let (Some(first), Some(last), 0..MISSES_MAX) = (left.first(), left.last(), misses) {
            let slots = last.place.slot - first.place.slot + 1;
            let Some(room) = self.room_for(device, zram, slots, left.len() as u32) else {
                break;
            };
            let (part, rest) = left.split_at(fitting(left, &room));
            // What is left of a cluster may be too short: the next is asked for.
            misses += u32::from(part.is_empty());
            moved += self.write_packed(mover.buffer.address(), part, device, room);
            left = rest;
        }
        // What found no room is to find none as it is either, or to be written so.
        mover.moving.extend(left.iter().map(|one| one.moving));
        mover.moving.sort_unstable_by_key(|one| one.number);
        moved
    }

    /// Fills the buffer with pages that share slots, which are taken out of what moves; returns them in the order in which
    /// they are there.
    fn pack_all(&self, mover: &mut Mover, device: &Device, zram: &Zram) -> Vec<Packed> {
        let sizes: Vec<_> = mover.moving.iter().map(|one| zram.bytes_of(one.number)).collect();
        let places = places(&sizes);
        let slots = places.iter().flatten().map(|place| place.slot + 1).max().unwrap_or(0);
        let buffer = mover.buffer.address();
        let page = buffer + BATCH * PAGE_BYTES;
        // What is between the pages is nobody's.
        pages::zero(buffer, slots);
        let mut next = places.into_iter().zip(sizes);
        let mut packed = Vec::with_capacity(mover.moving.len());
        mover.moving.retain(|one| {
            let Some((Some(place), Some(bytes))) = next.next() else { return true };
            let at = buffer + place.slot as usize * PAGE_BYTES + place.start;
            // One that has changed meanwhile stays, and leaves its room empty.
            let room = pages::view_mut(at, bytes);
            if let Some(form) = zram.copy_packed(one.number, room)
                && let Some(checksum) = self.checksum_of(form, room, (zram, page))
                && checksum == self.devices.checksum(device.slot(one.number))
            {
                packed.push(Packed { moving: Moving { checksum, ..*one }, place, form });
            }
            false
        });
        packed.sort_unstable_by_key(|one| (one.place.slot, one.place.start));
        packed
    }

    /// Of the page that was packed, which is unpacked to an address: no stack, which a core dump would have.
    fn checksum_of(&self, form: Form, packed: &[u8], (zram, to): (&Zram, usize)) -> Option<u64> {
        let page = pages::view_mut(to, PAGE_BYTES);
        let is_whole = form.expand(&packed[..form.bytes()], page, zram.codecs());
        is_whole.then(|| self.checksums.of(page))
    }

    /// Slots behind a device, and those of the pack there.
    fn room_for(&self, device: &Device, zram: &Zram, slots: u32, pages: u32) -> Option<Room<'_>> {
        let near = self.node_here().id;
        let below = self.devices.allocate_behind(device, slots, near)?;
        let on = self.devices.device_of(below.first);
        let make = || {
            let _changing = self.change_devices().ok()?;
            self.devices.make_pack(on, zram).ok()?;
            self.devices.pack_of(on, zram)
        };
        // What compresses by itself takes pages as they were.
        let pack = match on.is_compressed() {
            true => None,
            false => self.devices.pack_of(on, zram).or_else(make),
        };
        let found = pack.and_then(|pack| Some((pack, self.devices.allocate_packed(pack, pages)?)));
        match found {
            Some((pack, slots)) => Some(Room { below, pack, slots }),
            None => {
                self.free_slots(below);
                None
            }
        }
    }

    /// Writes pages, and has their words name their new slots; returns how many have moved.
    fn write_packed(&self, buffer: usize, packed: &[Packed], from: &Device, room: Room<'_>) -> u32 {
        let slots_used = packed.last().map_or(0, |last| last.place.slot + 1 - packed[0].place.slot);
        let (below, spare) = room.below.split(slots_used);
        let (slots, left) = room.slots.split(packed.len() as u32);
        spare.into_iter().chain(left).for_each(|span| self.free_slots(span));
        let (Some(below), Some(slots)) = (below, slots) else { return 0 };
        let first = packed[0].place.slot;
        let address = buffer + first as usize * PAGE_BYTES;
        if !self.write_or_mark(below, address, self.node_here().id) {
            self.free_slots(slots);
            return 0;
        }
        let on = self.devices.number_of(below.first);
        let pack = room.pack.pack().expect("a pack that was found is one");
        for (slot, one) in slots.slots().zip(packed) {
            let Packed { moving, place, form } = *one;
            let kept = Kept { slot: on + place.slot - first, start: place.start, form };
            pack.put(self.devices.number_of(slot), kept);
            self.devices.set_checksum(slot, moving.checksum);
            self.devices.set_page(slot, moving.page);
        }
        // Those whose pages have all changed before they were copied.
        let has_page = |slot: u32| packed.binary_search_by_key(&slot, |one| one.place.slot).is_ok();
        let bare = below.slots().zip(first..).filter(|(_, number)| !has_page(*number));
        bare.for_each(|(slot, _)| self.free_slot(slot));
        count(&self.counters.pswpout, slots.count.into());
        count(&self.counters.zswpwb, slots.count.into());
        let moving: Vec<Moving> = packed.iter().map(|one| one.moving).collect();
        self.exchange_all(&moving, from, slots)
    }
}

/// How many of the first pages fit, all of a slot or none.
fn fitting(packed: &[Packed], room: &Room<'_>) -> usize {
    let first = packed[0].place.slot;
    let fits = |count: usize| {
        count <= room.slots.count as usize
            && packed[count - 1].place.slot - first < room.below.count
            && packed.get(count).is_none_or(|next| next.place.slot > packed[count - 1].place.slot)
    };
    (1..=packed.len()).rev().find(|count| fits(*count)).unwrap_or(0)
}
