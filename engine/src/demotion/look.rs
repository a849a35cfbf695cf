//! Which pages of a device move on: those that have been away for longest.
//!
//! Two passes over its slots: the first counts ages, the second moves what is old enough. Each looks at a part of the
//! device in one passage of the gate, so that no fork waits for it.
use super::{Extent, Mover, Moving};
use crate::base::index::{PageIndex, Slot};
use crate::base::limits::BATCH;
use crate::device::record::Device;
use crate::state::core::Core;
use crate::state::page::{PageState, Word};
use std::ops::Range;
use std::sync::atomic::Ordering;
use userswap_policy::devices::DeviceId;
use userswap_policy::workingset::Shadow;

/// Slots looked at in one passage of the gate.
const LOOK_SLOTS: u32 = 1 << 13;

/// Of a page that left on request, and was not used since: nothing is older.
const OLDEST: u64 = u64::MAX;

impl Core {
    /// Moves the oldest pages on from a device; returns how many places there became free.
    pub(super) fn demote(&self, mover: &mut Mover, id: DeviceId, extent: Extent) -> u32 {
        let mut freed = self.count_ages(mover, id, extent.pages());
        let left = extent.after(freed);
        if left.pages() > 0 {
            let oldest = mover.ages.oldest(left.pages());
            freed += self.move_older(mover, id, oldest, left);
        }
        self.inside_gate(|| {
            if self.devices.compact_compressed() {
                self.settle_stored(self.node_here());
            }
        });
        freed
    }

    /// Counts the ages of the pages on a device; gives up copies of mapped ones there, up to so many, and returns how many.
    fn count_ages(&self, mover: &mut Mover, id: DeviceId, most: u32) -> u32 {
        mover.ages.clear();
        let mut freed = 0;
        self.over_slots(id, |device, numbers, now| {
            for number in numbers.clone() {
                let (page, slot) = at(device, number);
                let seen = self.pages.load(page);
                match seen.state() {
                    PageState::Swapped { slot: held } if held == slot => {
                        mover.ages.add(age(seen, now));
                    }
                    state if freed < most && state.mapped().is_some() => {
                        freed += u32::from(self.forget_slot(page, slot));
                    }
                    _ => {}
                }
            }
            Some(numbers.end)
        });
        freed
    }

    /// Moves pages on that are as old as that, in the order of their slots; returns how many have gone.
    fn move_older(&self, mover: &mut Mover, id: DeviceId, oldest: u64, extent: Extent) -> u32 {
        let mut moved = 0;
        mover.moving.clear();
        self.over_slots(id, |device, numbers, now| {
            let ever = device.slots_ever.load(Ordering::Relaxed);
            let mut next = numbers.end;
            for number in numbers {
                let (page, slot) = at(device, number);
                let seen = self.pages.load(page);
                if seen.state() == (PageState::Swapped { slot }) && age(seen, now) >= oldest {
                    mover.moving.push(Moving { page, number, checksum: 0 });
                }
                if mover.moving.len() == BATCH {
                    next = number + 1;
                    break;
                }
            }
            if mover.moving.len() < BATCH && next < ever {
                return Some(next);
            }
            let batch = self.move_batch(mover, device);
            mover.moving.clear();
            moved += batch.moved;
            let has_enough = extent != Extent::All && self.devices.missing(device) == 0;
            (batch.goes_on && !has_enough && moved < extent.pages()).then_some(next)
        });
        moved
    }

    /// Goes over the slots of a device, inside the gate a part at a time, for as long as `look` says where to go on and the
    /// device is there.
    fn over_slots(
        &self,
        id: DeviceId,
        mut look: impl FnMut(&Device, Range<u32>, &[Shadow]) -> Option<u32>,
    ) {
        let mut next = Some(1);
        while let Some(first) = next.filter(|_| !self.is_stopping()) {
            next = self.inside_gate(|| {
                let device = self.devices.by_id(id);
                let end = device.slots_ever.load(Ordering::Relaxed).min(first + LOOK_SLOTS);
                if first >= end || !self.devices.is_in_front(device) {
                    return None;
                }
                let now: Vec<Shadow> =
                    self.nodes.iter().map(|node| node.lock().workingset.now()).collect();
                look(device, first..end, &now)
            });
        }
    }
}

/// The page that was given a slot last, and the slot.
fn at(device: &Device, number: u32) -> (PageIndex, Slot) {
    (device.pages_on()[number as usize].load(Ordering::Relaxed), device.slot(number))
}

/// How many pages have left since one did.
fn age(seen: Word, now: &[Shadow]) -> u64 {
    seen.shadow().map_or(OLDEST, |(node, shadow)| now[usize::from(node.0)].since(shadow))
}
