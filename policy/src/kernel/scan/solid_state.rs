//! The search on devices where seeking is cheap: each CPU fills a cluster of its own, free clusters are
//! used in the order in which they became free.
//!
//! The cluster with the header, those with bad slots and one that the device's end cuts off never count
//! as free; only the fallback scan uses them, for lack of any other.

use super::{CLUSTER, Map, Scan};
use crate::slots::ClusterCursor;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// Neighbours in the first list of free clusters are this many clusters apart: 64 MiB, so that CPUs
/// work in different parts of the kernel's swap cache.
const COLUMNS: u32 = 64;

/// The slots of a solid-state device, in the order in which the kernel gives them out.
#[derive(Debug)]
pub struct SolidState {
    pub(super) map: Map,
    /// Slots per cluster that are in use, bad or do not exist; none in a free cluster.
    pub(super) counts: Vec<u16>,
    /// The free clusters; a CPU takes the first one by using its first slot.
    pub(super) free: VecDeque<u32>,
}

impl SolidState {
    /// A device of `max` slots, counting the header, of which those in `bad` cannot be used. The cluster
    /// of slot `start`, which the kernel draws by lot, is used first.
    ///
    /// # Panics
    /// When `max` is more than [`SLOTS_MAX`](crate::slots::SLOTS_MAX), a bad slot does not exist, or
    /// `start` is no slot after the header.
    pub fn new(max: u32, start: u32, bad: &[u32]) -> Self {
        assert!(max <= 1 || (1..max).contains(&start), "start slot {start} of {max}");
        let mut map = Map::new(max, start);
        let clusters = max.div_ceil(CLUSTER);
        let mut counts = vec![0; clusters as usize];
        if let [first, ..] = &mut counts[..] {
            *first += 1;
        }
        if let [.., last] = &mut counts[..] {
            *last += (clusters * CLUSTER - max) as u16;
        }
        for slot in bad {
            counts[(slot / CLUSTER) as usize] += u16::from(map.exclude(*slot));
        }
        // Room for all from the start: nothing allocates later.
        let mut free = VecDeque::with_capacity(counts.len());
        for column in (0..COLUMNS).map(|column| (column + start / CLUSTER) % COLUMNS) {
            let clusters = (column..clusters).step_by(COLUMNS as usize);
            free.extend(clusters.filter(|cluster| counts[*cluster as usize] == 0));
        }
        Self { map, counts, free }
    }

    /// The next free slot of the CPU's cluster, or of the first free cluster if that one has none.
    fn next_in_cluster(&self, cursor: &mut ClusterCursor) -> Option<u32> {
        if let Some(cluster) = cursor.cluster() {
            let end = self.map.max.min((cluster + 1) * CLUSTER);
            if let Some(slot) = self.map.first_free(cursor.next..end) {
                cursor.next = slot + 1;
                return Some(slot);
            }
            *cursor = ClusterCursor::new();
        }
        // All slots of a free cluster are free.
        let slot = self.free.front()? * CLUSTER;
        cursor.next = slot + 1;
        Some(slot)
    }

    /// Is the slot in a free cluster whose turn it is not?
    fn is_conflict(&self, slot: u32) -> bool {
        let cluster = slot / CLUSTER;
        self.counts[cluster as usize] == 0 && self.free.front() != Some(&cluster)
    }
}

impl Scan for SolidState {
    fn allocate(&mut self, cursor: &mut ClusterCursor) -> Option<u32> {
        if self.map.is_full() {
            return None;
        }
        let found = self.next_in_cluster(cursor);
        let mut slot = found.or_else(|| self.map.first_free_after(self.map.next))?;
        if self.is_conflict(slot) {
            // The cluster has become free under the CPU's cursor: it waits for its turn like others.
            *cursor = ClusterCursor::new();
            slot = self.next_in_cluster(cursor).expect("the cluster that waits is in the list");
        }
        self.map.take(slot);
        let cluster = slot / CLUSTER;
        if self.free.front() == Some(&cluster) {
            self.free.pop_front();
        }
        self.counts[cluster as usize] += 1;
        Some(slot)
    }

    fn free(&mut self, slot: u32) {
        self.map.give_back(slot);
        let cluster = slot / CLUSTER;
        self.counts[cluster as usize] -= 1;
        if self.counts[cluster as usize] == 0 {
            self.free.push_back(cluster);
        }
    }
}
