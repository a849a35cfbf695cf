//! Batched free: gives an array of slots back to their devices with as few lock acquisitions as possible.
//!
//! Decides in which order entries are freed and when a device's lock changes hands; locking and freeing
//! are the visitor's. The lock held last stays held as long as entries are of its device. An entry that
//! turns out invalid lets go of it, so that a broken array cannot hold a lock for long.
//!
//! [`FreeOrder::Sorted`] is version 5 of the kernel's patch, which was never merged: it frees the first
//! entry's device in one pass and sorts only from the first entry of another device on.
//! [`FreeOrder::Merged`] is what v4.13 did instead. Entries are sorted in place and by device only.
//! [`FreeOrder::Grouped`] is our own: it looks at all devices first and sorts nothing.

use crate::devices::DeviceId;
use crate::named_choice;

named_choice! {
    /// In which order a batch is freed.
    pub enum FreeOrder, "free order" {
        /// The first entry's device, then the others by index: one acquisition per device.
        Sorted = "sorted",
        /// By index, the whole array being sorted once a second index has ever been in use.
        Merged = "merged",
        /// As they come: one acquisition per change of device.
        Unsorted = "unsorted",
        /// Device by device, in passes over a list of whose each entry is: one acquisition per device.
        Grouped = "grouped",
    }
}

/// Most entries that are grouped: a bit for each. More are sorted.
const GROUPED_MAX: usize = u64::BITS as usize;

/// An entry that is no slot in use: of no device, beyond its end, or free already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Invalid;

/// The devices that a batch is given back to.
pub trait Devices {
    /// A slot with its device.
    type Entry: Copy;

    /// The device that an entry names, existing or not.
    fn device_of(&self, entry: Self::Entry) -> DeviceId;

    /// What can be seen of an entry without its device's lock; [`Self::free`] may find out more.
    ///
    /// # Errors
    /// When the entry is invalid.
    fn check(&mut self, entry: Self::Entry) -> Result<(), Invalid>;

    /// Takes the lock of a device; none is held.
    fn acquire(&mut self, device: DeviceId);

    /// Lets go of the lock of a device.
    fn release(&mut self, device: DeviceId);

    /// Frees a slot of the device whose lock is held.
    ///
    /// # Errors
    /// When the entry is invalid; nothing was freed.
    fn free(&mut self, entry: Self::Entry) -> Result<(), Invalid>;
}

/// What a batched free did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Times a device's lock was taken.
    pub acquisitions: u32,
    /// Entries that were handed to the sort.
    pub sorted: u32,
    /// Entries freed.
    pub freed: u32,
    /// Entries that turned out to be no slots in use.
    pub invalid: u32,
}

/// Frees every entry once, leaving the array in another order. `indexes_used` is how many different
/// device indexes there have ever been.
pub fn free_all<D: Devices>(
    order: FreeOrder,
    indexes_used: u32,
    entries: &mut [D::Entry],
    devices: &mut D,
) -> Stats {
    let mut pass = Pass { devices, held: None, stats: Stats::default() };
    match order {
        FreeOrder::Unsorted => pass.free(entries),
        FreeOrder::Merged | FreeOrder::Grouped if indexes_used <= 1 => pass.free(entries),
        FreeOrder::Grouped if entries.len() <= GROUPED_MAX => pass.free_grouped(entries),
        FreeOrder::Merged | FreeOrder::Grouped => {
            pass.sort(entries);
            pass.free(entries);
        }
        FreeOrder::Sorted => pass.free_first_device_first(entries),
    }
    pass.stats
}

/// The lock that is held between two entries.
struct Pass<'a, D> {
    devices: &'a mut D,
    held: Option<DeviceId>,
    stats: Stats,
}

impl<D: Devices> Pass<'_, D> {
    fn free_first_device_first(&mut self, entries: &mut [D::Entry]) {
        let Some(first) = entries.first().map(|entry| self.devices.device_of(*entry)) else {
            return;
        };
        let mut others_from = None;
        for (at, entry) in entries.iter().enumerate() {
            if self.devices.device_of(*entry) == first {
                self.free_one(*entry);
            } else {
                others_from = others_from.or(Some(at));
            }
        }
        self.switch(None);
        let Some(others_from) = others_from else { return };
        let rest = &mut entries[others_from..];
        self.sort(rest);
        for entry in rest {
            if self.devices.device_of(*entry) != first {
                self.free_one(*entry);
            }
        }
        self.switch(None);
    }

    /// Where one thread frees alone, sorting 64 entries takes longer than the locks that it saves.
    fn free_grouped(&mut self, entries: &[D::Entry]) {
        let mut owners = [DeviceId(0); GROUPED_MAX];
        for (owner, entry) in owners.iter_mut().zip(entries) {
            *owner = self.devices.device_of(*entry);
        }
        let mut left: u64 = (0..entries.len()).fold(0, |bits, at| bits | 1 << at);
        while left != 0 {
            let device = owners[left.trailing_zeros() as usize];
            let is_its = |at: usize| u64::from(owners[at] == device) << at;
            let mut group = left & (0..GROUPED_MAX).fold(0, |bits, at| bits | is_its(at));
            left &= !group;
            while group != 0 {
                self.free_one(entries[group.trailing_zeros() as usize]);
                group &= group - 1;
            }
        }
        self.switch(None);
    }

    fn sort(&mut self, entries: &mut [D::Entry]) {
        entries.sort_unstable_by_key(|entry| self.devices.device_of(*entry));
        self.stats.sorted += entries.len() as u32;
    }

    /// Frees entries in the order in which they stand.
    fn free(&mut self, entries: &[D::Entry]) {
        entries.iter().for_each(|entry| self.free_one(*entry));
        self.switch(None);
    }

    fn free_one(&mut self, entry: D::Entry) {
        let checked = self.devices.check(entry);
        let result = checked.and_then(|()| {
            self.switch(Some(self.devices.device_of(entry)));
            self.devices.free(entry)
        });
        match result {
            Ok(()) => self.stats.freed += 1,
            Err(Invalid) => {
                self.stats.invalid += 1;
                self.switch(None);
            }
        }
    }

    /// Holds the lock of `device`, or none, and no other.
    fn switch(&mut self, device: Option<DeviceId>) {
        if self.held == device {
            return;
        }
        if let Some(held) = self.held {
            self.devices.release(held);
        }
        if let Some(device) = device {
            self.devices.acquire(device);
            self.stats.acquisitions += 1;
        }
        self.held = device;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Position in the array as it was, and device.
    type Entry = (usize, u8);

    /// Devices that write down what happens to them.
    #[derive(Default)]
    struct Recorder {
        invalid: BTreeSet<usize>,
        /// Invalid entries that are recognised only with the lock held.
        invalid_inside: BTreeSet<usize>,
        held: Option<DeviceId>,
        freed: Vec<usize>,
    }

    impl Devices for Recorder {
        type Entry = Entry;

        fn device_of(&self, entry: Entry) -> DeviceId {
            DeviceId(entry.1)
        }

        fn check(&mut self, entry: Entry) -> Result<(), Invalid> {
            if self.invalid.contains(&entry.0) { Err(Invalid) } else { Ok(()) }
        }

        fn acquire(&mut self, device: DeviceId) {
            assert_eq!(self.held.replace(device), None);
        }

        fn release(&mut self, device: DeviceId) {
            assert_eq!(self.held.take(), Some(device));
        }

        fn free(&mut self, entry: Entry) -> Result<(), Invalid> {
            assert_eq!(self.held, Some(DeviceId(entry.1)));
            if self.invalid_inside.contains(&entry.0) {
                return Err(Invalid);
            }
            self.freed.push(entry.0);
            Ok(())
        }
    }

    fn entries(buffer: &str) -> Vec<Entry> {
        buffer.bytes().map(|digit| digit - b'0').enumerate().collect()
    }

    fn run(order: FreeOrder, indexes: u32, buffer: &str, invalid: &[usize]) -> (Stats, Vec<usize>) {
        let invalid = invalid.iter().copied().collect();
        let mut recorder = Recorder { invalid, ..Recorder::default() };
        let stats = free_all(order, indexes, &mut entries(buffer), &mut recorder);
        assert_eq!(recorder.held, None);
        (stats, recorder.freed)
    }

    /// Locks taken without sorting; locks and entries sorted by v5; the same by the merged form.
    struct Row {
        name: &'static str,
        buffer: String,
        invalid: &'static [usize],
        unsorted: u32,
        v5: (u32, u32),
        merged: (u32, u32),
        /// The order of v5 by position; inside a group any.
        groups: Vec<Vec<usize>>,
    }

    #[rustfmt::skip]
    fn rows() -> Vec<Row> {
        let row = |name, buffer: &str, unsorted, v5, merged, groups: &[&[usize]]| Row {
            name, buffer: buffer.into(), invalid: &[], unsorted, v5, merged,
            groups: groups.iter().map(|group| group.to_vec()).collect(),
        };
        let mut rows = vec![
            row("F1", "00000000", 1, (1, 0), (1, 8),
                &[&[0], &[1], &[2], &[3], &[4], &[5], &[6], &[7]]),
            row("F2", "01010101", 8, (2, 7), (2, 8), &[&[0], &[2], &[4], &[6], &[1, 3, 5, 7]]),
            row("F3", "000111", 2, (2, 3), (2, 6), &[&[0], &[1], &[2], &[3, 4, 5]]),
            row("F4", "012012", 6, (3, 5), (3, 6), &[&[0], &[3], &[1, 4], &[2, 5]]),
            row("F5", "10001", 3, (2, 4), (2, 5), &[&[0], &[4], &[1, 2, 3]]),
            row("F6", "010", 3, (2, 2), (2, 3), &[&[0], &[2], &[1]]),
            row("F7", "21021021", 8, (3, 7), (3, 8), &[&[0], &[3], &[6], &[2, 5], &[1, 4, 7]]),
            row("F8", &("0".repeat(63) + "1"), 2, (2, 1), (2, 64), &[]),
            row("F9", &"01".repeat(32), 64, (2, 63), (2, 64), &[]),
            row("F10", "000", 2, (2, 0), (2, 3), &[&[0], &[2]]),
            row("F11", "0101", 3, (2, 3), (2, 4), &[&[0], &[1, 3]]),
            row("F12", "0", 1, (1, 0), (1, 1), &[&[0]]),
            row("F13", "", 0, (0, 0), (0, 0), &[]),
        ];
        rows[7].groups = (0..64).map(|at| vec![at]).collect();
        rows[8].groups = (0..32).map(|at| vec![2 * at]).collect();
        rows[8].groups.push((0..32).map(|at| 2 * at + 1).collect());
        rows[9].invalid = &[1];
        rows[10].invalid = &[2];
        rows
    }

    #[test]
    fn locks_and_sorted_entries_are_those_of_the_kernels() {
        for row in rows() {
            let counts = |order, indexes| {
                let (stats, freed) = run(order, indexes, &row.buffer, row.invalid);
                assert_eq!(stats.freed as usize, row.buffer.len() - row.invalid.len());
                assert_eq!(stats.invalid as usize, row.invalid.len());
                assert_eq!(stats.freed as usize, freed.len());
                (stats.acquisitions, stats.sorted)
            };
            assert_eq!(counts(FreeOrder::Unsorted, 2), (row.unsorted, 0), "{}", row.name);
            assert_eq!(counts(FreeOrder::Sorted, 2), row.v5, "{}", row.name);
            assert_eq!(counts(FreeOrder::Merged, 2), row.merged, "{}", row.name);
        }
    }

    #[test]
    fn sorted_order_is_first_device_then_by_index() {
        for row in rows() {
            let (_, freed) = run(FreeOrder::Sorted, 2, &row.buffer, row.invalid);
            let mut freed = freed.into_iter();
            for mut group in row.groups {
                let mut found: Vec<_> = freed.by_ref().take(group.len()).collect();
                found.sort_unstable();
                group.sort_unstable();
                assert_eq!(found, group, "{}", row.name);
            }
            assert_eq!(freed.next(), None, "{}", row.name);
        }
    }

    #[test]
    fn unsorted_order_is_as_they_come_and_merged_order_by_index() {
        for row in rows() {
            let valid = (0..row.buffer.len()).filter(|at| !row.invalid.contains(at));
            let (_, freed) = run(FreeOrder::Unsorted, 2, &row.buffer, row.invalid);
            assert!(freed.into_iter().eq(valid.clone()), "{}", row.name);
            let (_, mut freed) = run(FreeOrder::Merged, 2, &row.buffer, row.invalid);
            assert!(freed.is_sorted_by_key(|at| row.buffer.as_bytes()[*at]), "{}", row.name);
            freed.sort_unstable();
            assert!(freed.into_iter().eq(valid), "{}", row.name);
        }
    }

    #[test]
    fn grouped_order_takes_the_locks_of_the_merged_one_and_sorts_nothing_that_fits() {
        for row in rows() {
            let (stats, freed) = run(FreeOrder::Grouped, 2, &row.buffer, row.invalid);
            assert_eq!((stats.acquisitions, stats.sorted), (row.merged.0, 0), "{}", row.name);
            let device = |at: &usize| row.buffer.as_bytes()[*at];
            let groups = freed.chunk_by(|one, other| device(one) == device(other)).count();
            let distinct = freed.iter().map(device).collect::<BTreeSet<_>>().len();
            assert_eq!(groups, distinct, "{}", row.name);
            let valid = (0..row.buffer.len()).filter(|at| !row.invalid.contains(at));
            assert_eq!(freed.into_iter().collect::<BTreeSet<_>>(), valid.collect(), "{}", row.name);
        }
        let (stats, _) = run(FreeOrder::Grouped, 2, &"01".repeat(33), &[]);
        assert_eq!((stats.acquisitions, stats.sorted), (2, 66));
    }

    #[test]
    fn merged_order_sorts_nothing_while_one_index_was_ever_used() {
        let row = |stats: Stats| (stats.acquisitions, stats.sorted, stats.freed);
        assert_eq!(row(run(FreeOrder::Merged, 1, "00000000", &[]).0), (1, 0, 8));
        assert_eq!(row(run(FreeOrder::Merged, 1, "000", &[1]).0), (2, 0, 2));
        assert_eq!(row(run(FreeOrder::Merged, 0, "", &[]).0), (0, 0, 0));
    }

    #[test]
    fn an_entry_found_invalid_under_its_lock_lets_go_of_it_too() {
        let mut recorder = Recorder { invalid_inside: [1].into(), ..Recorder::default() };
        let stats = free_all(FreeOrder::Unsorted, 1, &mut entries("000"), &mut recorder);
        assert_eq!(stats, Stats { acquisitions: 2, sorted: 0, freed: 2, invalid: 1 });
        assert_eq!((recorder.held, recorder.freed), (None, vec![0, 2]));
    }

    #[test]
    fn an_invalid_first_entry_takes_no_lock_and_its_device_is_still_first() {
        let (stats, freed) = run(FreeOrder::Sorted, 2, "1010", &[0]);
        assert_eq!(stats, Stats { acquisitions: 2, sorted: 3, freed: 3, invalid: 1 });
        assert_eq!(freed, [2, 1, 3]);
    }

    fn orders() -> impl Strategy<Value = FreeOrder> {
        prop_oneof![
            Just(FreeOrder::Sorted),
            Just(FreeOrder::Merged),
            Just(FreeOrder::Unsorted),
            Just(FreeOrder::Grouped)
        ]
    }

    proptest! {
        #[test]
        fn every_valid_entry_is_freed_once_and_sorting_takes_each_lock_once(
            devices in prop::collection::vec(0u8..5, 0..100),
            order in orders(),
        ) {
            let mut entries: Vec<Entry> = devices.iter().copied().enumerate().collect();
            let mut recorder = Recorder::default();
            let stats = free_all(order, 5, &mut entries, &mut recorder);
            let changes = devices.chunk_by(|one, other| one == other).count();
            let distinct = devices.iter().collect::<BTreeSet<_>>().len();
            let expected = if order == FreeOrder::Unsorted { changes } else { distinct };
            prop_assert_eq!(stats.acquisitions as usize, expected);
            recorder.freed.sort_unstable();
            prop_assert!(recorder.freed.into_iter().eq(0..devices.len()));
        }

        #[test]
        fn every_invalid_entry_costs_at_most_one_more_lock(
            devices in prop::collection::vec((0u8..5, 0u8..8), 0..100),
            order in orders(),
        ) {
            let array = || devices.iter().map(|(device, _)| *device).enumerate().collect::<Vec<_>>();
            let of_kind = |wanted| devices.iter().enumerate().filter_map(move |(at, (_, kind))| {
                (*kind == wanted).then_some(at)
            });
            let (invalid, invalid_inside) = (of_kind(0).collect(), of_kind(1).collect());
            let mut recorder = Recorder { invalid, invalid_inside, ..Recorder::default() };
            let stats = free_all(order, 5, &mut array(), &mut recorder);
            let all_valid = free_all(order, 5, &mut array(), &mut Recorder::default());
            prop_assert!(stats.acquisitions <= all_valid.acquisitions + stats.invalid);
            let expected: Vec<_> = (0..devices.len()).filter(|at| devices[*at].1 > 1).collect();
            recorder.freed.sort_unstable();
            prop_assert_eq!(stats.invalid as usize, devices.len() - expected.len());
            prop_assert_eq!(recorder.freed, expected);
            prop_assert_eq!(recorder.held, None);
        }
    }
}
