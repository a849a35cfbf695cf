//! Slots of one device: which are in use, and where the next run of pages goes.
//!
//! Slots are grouped in clusters of 256. Runs are placed next-fit: each continues after the previous
//! one while its cluster lasts, so that pages leaving together lie together, then in the next cluster in
//! which no slot is used, of those that had some before: a file has blocks there, which are written faster than new ones, and
//! what is known of slots stays small. Only when there is none the device is used further than before. When there is no
//! free cluster at all, the gaps of others are filled. Reference counts, content and caches of slots are left to others.
//!
//! Where "after the previous one" is, a [`ClusterCursor`] says. With one per CPU, each CPU fills clusters
//! of its own: taking the first slots of a free cluster takes it away from the others. As in the kernel,
//! CPUs meet in one cluster only when no free one is left, or when it has become free under a CPU's
//! cursor and another CPU takes it.
//!
//! Slot 0 is the device's header. It, bad slots and what lies between the end and that of the last cluster are
//! *unusable*: taken for ever, never used. A new device is untouched zero memory but for both ends.

use crate::bits::{Set, WORD, first_one, longest_run, masks};
use alloc::vec;
use alloc::vec::Vec;

/// Most slots that a device may have, with its header.
pub const SLOTS_MAX: u32 = 1 << 31;

/// Slots in a cluster, as in the kernel: 1 MiB of 4 KiB pages.
pub(crate) const CLUSTER: u32 = 256;
const CLUSTER_WORDS: u32 = CLUSTER / WORD;

/// Consecutive slots of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotRun {
    /// The lowest slot, counted from the header.
    pub first: u32,
    /// How many slots.
    pub count: u32,
}

/// The cluster of a device that a CPU fills, or another owner, and the slot to go on with.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ClusterCursor {
    /// The slot after the previous one taken. At the start of a cluster it stands for no cluster: the
    /// one before is done, and this one has no owner.
    pub(crate) next: u32,
}

impl ClusterCursor {
    /// For an owner without a cluster.
    pub const fn new() -> Self {
        Self { next: 0 }
    }

    /// The cluster that is being filled.
    pub const fn cluster(&self) -> Option<u32> {
        if self.next.is_multiple_of(CLUSTER) { None } else { Some(self.next / CLUSTER) }
    }
}

/// The state of every slot of a device.
#[derive(Debug)]
pub struct Slots {
    /// Bitmaps: a slot is used if it is taken and not unusable.
    taken: Vec<u64>,
    unusable: Vec<u64>,
    /// Clusters with room in which no slot is used.
    clusters_free: Set,
    /// Clusters with room.
    clusters_room: Set,
    /// Clusters up to the last in which a slot ever was in use.
    reached: u32,
    pages: u32,
    used: u32,
    /// Of callers without a cursor of their own.
    cursor: ClusterCursor,
}

impl Slots {
    /// A device of `max` slots, counting the header, with none in use.
    ///
    /// # Panics
    /// When `max` is more than [`SLOTS_MAX`].
    pub fn new(max: u32) -> Self {
        assert!(max <= SLOTS_MAX, "a device of {max} slots");
        let clusters = max.div_ceil(CLUSTER);
        let words = (clusters * CLUSTER_WORDS) as usize;
        let mut slots = Self {
            taken: vec![0; words],
            unusable: vec![0; words],
            clusters_free: Set::full(clusters),
            clusters_room: Set::full(clusters),
            reached: 0,
            pages: max.saturating_sub(1),
            used: 0,
            cursor: ClusterCursor::new(),
        };
        let header = SlotRun { first: 0, count: max.min(1) };
        let tail = SlotRun { first: max, count: clusters * CLUSTER - max };
        for run in [header, tail] {
            for (word, mask) in masks(run.first, run.count) {
                slots.taken[word] |= mask;
                slots.unusable[word] |= mask;
            }
            slots.note_clusters(run);
        }
        slots
    }

    /// Number of slots that hold or could hold a page.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Number of slots in use.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Is every usable slot in use?
    pub fn is_full(&self) -> bool {
        self.used == self.pages
    }

    /// Takes up to `want` consecutive slots into use; `None` if the device is full or `want` is 0.
    pub fn allocate(&mut self, want: u32) -> Option<SlotRun> {
        let mut cursor = self.cursor;
        let run = self.allocate_at(&mut cursor, want);
        self.cursor = cursor;
        run
    }

    /// Does the same for a caller with a cursor of its own.
    ///
    /// # Panics
    /// When the cursor is seen to be of another device.
    pub fn allocate_at(&mut self, cursor: &mut ClusterCursor, want: u32) -> Option<SlotRun> {
        let run = self.find(*cursor, want)?;
        for (word, mask) in masks(run.first, run.count) {
            assert!(self.taken[word] & mask == 0, "{run:?} was found to be free");
            self.taken[word] |= mask;
        }
        self.note_clusters(run);
        self.used += run.count;
        let end = run.first + run.count;
        self.reached = self.reached.max(end.div_ceil(CLUSTER));
        cursor.next = if end < self.end() { end } else { 0 };
        Some(run)
    }

    /// Gives slots back that are in use.
    ///
    /// # Panics
    /// When one of them is not in use.
    pub fn free(&mut self, run: SlotRun) {
        self.assert_used(run);
        for (word, mask) in masks(run.first, run.count) {
            self.taken[word] &= !mask;
        }
        self.note_clusters(run);
        self.used -= run.count;
    }

    /// Takes a slot in use out of service for ever: writing it failed.
    ///
    /// # Panics
    /// When it is not in use.
    pub fn mark_bad(&mut self, slot: u32) {
        let run = SlotRun { first: slot, count: 1 };
        self.assert_used(run);
        for (word, mask) in masks(slot, 1) {
            self.unusable[word] |= mask;
        }
        self.note_clusters(run);
        self.used -= 1;
        self.pages -= 1;
    }

    /// Takes every free slot from `max` on out of service: the device turned out to end there.
    pub fn limit(&mut self, max: u32) {
        let end = self.end();
        for slot in max.min(end)..end {
            let (word, mask) = ((slot / WORD) as usize, 1 << (slot % WORD));
            if self.taken[word] & mask == 0 {
                self.taken[word] |= mask;
                self.unusable[word] |= mask;
                self.pages -= 1;
            }
        }
        let first = max.min(end) / CLUSTER * CLUSTER;
        self.note_clusters(SlotRun { first, count: end - first });
    }

    /// The slots in use as the longest possible runs, ascending.
    pub fn used_runs(&self) -> impl Iterator<Item = SlotRun> + '_ {
        let mut from = 0;
        core::iter::from_fn(move || {
            let first = self.next_used(from)?;
            let unused = first_one(|word| !self.used_word(word), first..self.end());
            from = unused.unwrap_or(self.end());
            Some(SlotRun { first, count: from - first })
        })
    }

    /// Finds the free slots of the next run.
    fn find(&self, cursor: ClusterCursor, want: u32) -> Option<SlotRun> {
        assert!(cursor.next <= self.end(), "{cursor:?} is of another device");
        let next_cluster = cursor.next.div_ceil(CLUSTER);
        if cursor.cluster().is_some()
            && let Some(run) = self.longest_from(cursor.next, want)
        {
            return Some(run);
        }
        let cluster = self
            .next_free(next_cluster)
            .or_else(|| self.clusters_room.next_cyclic(next_cluster))?;
        self.longest_from(cluster * CLUSTER, want)
    }

    /// The next free cluster in the part of the device that has been in use; if there is none, the first after it.
    fn next_free(&self, from: u32) -> Option<u32> {
        let next = self.clusters_free.next(from).filter(|cluster| *cluster < self.reached);
        next.or_else(|| self.clusters_free.next(0))
    }

    /// The longest run of free slots up to `want` between `from` and its cluster's end, or across it
    /// into free clusters.
    fn longest_from(&self, from: u32, want: u32) -> Option<SlotRun> {
        let mut end = (from / CLUSTER + 1) * CLUSTER;
        let is_room_before = self.clusters_free.next(0).is_some_and(|first| first < self.reached);
        let limit = if is_room_before { self.reached * CLUSTER } else { self.end() };
        let enough = end.saturating_add(want).min(limit);
        while end < enough && self.clusters_free.contains(end / CLUSTER) {
            end += CLUSTER;
        }
        let run = longest_run(|word| !self.taken[word], from..end.min(self.end()), want)?;
        Some(SlotRun { first: run.start, count: run.end - run.start })
    }

    fn next_used(&self, from: u32) -> Option<u32> {
        let mut from = from;
        while from < self.end() {
            let cluster = from / CLUSTER;
            let end = (cluster + 1) * CLUSTER;
            // Most clusters of a huge device are free: their words are not even populated.
            if !self.clusters_free.contains(cluster) {
                let used = first_one(|word| self.used_word(word), from..end);
                if used.is_some() {
                    return used;
                }
            }
            from = end;
        }
        None
    }

    /// The slot after the last cluster.
    fn end(&self) -> u32 {
        self.taken.len() as u32 * WORD
    }

    fn used_word(&self, word: usize) -> u64 {
        self.taken[word] & !self.unusable[word]
    }

    fn assert_used(&self, run: SlotRun) {
        let end = run.first.checked_add(run.count);
        assert!(end.is_some_and(|end| end <= self.end()), "{run:?} is beyond the device");
        for (word, mask) in masks(run.first, run.count) {
            let wrong = mask & !self.used_word(word);
            let slot = word as u32 * WORD + wrong.trailing_zeros();
            assert!(wrong == 0, "slot {slot} is not in use");
        }
    }

    /// Sorts the clusters that `run` touches into the sets after a change.
    fn note_clusters(&mut self, run: SlotRun) {
        let clusters = run.first / CLUSTER..(run.first + run.count).div_ceil(CLUSTER);
        for cluster in clusters {
            let first = (cluster * CLUSTER_WORDS) as usize;
            let words = first..first + CLUSTER_WORDS as usize;
            let has_room = words.clone().any(|word| self.taken[word] != u64::MAX);
            let has_used = words.clone().any(|word| self.used_word(word) != 0);
            match has_room {
                true => self.clusters_room.insert(cluster),
                false => self.clusters_room.remove(cluster),
            }
            match has_room && !has_used {
                true => self.clusters_free.insert(cluster),
                false => self.clusters_free.remove(cluster),
            }
        }
    }
}

#[cfg(test)]
mod tests;
