//! The search on devices where seeking is expensive: stretches of 256 slots, as near to the start of the
//! device as there are any.

use super::{CLUSTER, Map, Scan};
use crate::slots::ClusterCursor;

/// The slots of a rotational device, in the order in which the kernel gives them out.
#[derive(Debug)]
pub struct Rotational {
    pub(super) map: Map,
    /// Allocations before the next stretch is looked for.
    stretch_left: u32,
}

impl Rotational {
    /// A device of `max` slots, counting the header, of which those in `bad` cannot be used.
    ///
    /// # Panics
    /// When `max` is more than [`SLOTS_MAX`](crate::slots::SLOTS_MAX), or a bad slot does not exist.
    pub fn new(max: u32, bad: &[u32]) -> Self {
        let mut map = Map::new(max, 1);
        bad.iter().for_each(|slot| _ = map.exclude(*slot));
        Self { map, stretch_left: 0 }
    }

    /// The slot to try first; it may be in use or beyond the upper bound.
    fn candidate(&mut self) -> u32 {
        if self.stretch_left > 0 {
            self.stretch_left -= 1;
            return self.map.next;
        }
        self.stretch_left = CLUSTER - 1;
        if self.map.pages - self.map.used < CLUSTER {
            return self.map.next;
        }
        self.map.first_free_run().unwrap_or(self.map.lowest)
    }
}

impl Scan for Rotational {
    /// All CPUs share one stretch: cursors are left as they are.
    fn allocate(&mut self, _cursor: &mut ClusterCursor) -> Option<u32> {
        if self.map.is_full() {
            return None;
        }
        let candidate = self.candidate();
        let candidate = if candidate > self.map.highest { self.map.lowest } else { candidate };
        let slot = match self.map.is_free(candidate) {
            true => candidate,
            false => self.map.first_free_after(candidate)?,
        };
        self.map.take(slot);
        Some(slot)
    }

    fn free(&mut self, slot: u32) {
        self.map.give_back(slot);
    }
}
