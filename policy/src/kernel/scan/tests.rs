//! Vectors of the specification, then random operations against a set of free slots.
use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// What the tests see of a device of either kind.
trait Device: Scan {
    fn map(&self) -> &Map;
}

impl Device for Rotational {
    fn map(&self) -> &Map {
        &self.map
    }
}

impl Device for SolidState {
    fn map(&self) -> &Map {
        &self.map
    }
}

fn free_clusters(device: &SolidState) -> Vec<u32> {
    device.free.iter().copied().collect()
}

/// Checks what must hold between the parts of a solid-state device.
fn assert_valid(device: &SolidState) {
    let mut free = free_clusters(device);
    free.sort_unstable();
    let counted = (0..).zip(&device.counts).filter(|(_, count)| **count == 0);
    assert!(counted.map(|(cluster, _)| cluster).eq(free), "free clusters are those without use");
    for (cluster, count) in (0..).zip(&device.counts) {
        let slots = cluster * CLUSTER..((cluster + 1) * CLUSTER).min(device.map.max);
        let room = slots.filter(|slot| device.map.is_free(*slot)).count();
        assert_eq!(room + usize::from(*count), CLUSTER as usize, "cluster {cluster}");
    }
}

/// Allocates `count` slots for one CPU.
fn take<D: Device>(device: &mut D, cursor: &mut ClusterCursor, count: usize) -> Vec<u32> {
    (0..count).map(|_| device.allocate(cursor).unwrap()).collect()
}

/// Allocates for one CPU until the device is full.
fn take_all<D: Device>(device: &mut D, cursor: &mut ClusterCursor) -> Vec<u32> {
    let pages = device.map().pages as usize;
    let slots = core::iter::from_fn(|| device.allocate(cursor));
    // One more than there are, lest a device that never fills up be asked for ever.
    let slots: Vec<_> = slots.take(pages + 1).collect();
    assert!(device.map().is_full());
    slots
}

fn rotational(max: u32, taken: usize) -> (Rotational, ClusterCursor) {
    let (mut device, mut cursor) = (Rotational::new(max, &[]), ClusterCursor::new());
    let slots = take(&mut device, &mut cursor, taken);
    assert!(slots.into_iter().eq(1..=taken as u32));
    (device, cursor)
}

fn chain(ranges: &[RangeInclusive<u32>]) -> Vec<u32> {
    ranges.iter().cloned().flatten().collect()
}

/// Between which slots free ones are looked for.
fn bounds(device: &Rotational) -> [u32; 2] {
    [device.map.lowest, device.map.highest]
}

/// Of a full device of 1024 slots.
const NO_BOUNDS: [u32; 2] = [1024, 0];

#[test]
fn s1_s2_a_rotational_device_fills_from_its_start_and_reuses_what_is_freed() {
    let (mut device, mut cursor) = (Rotational::new(1024, &[]), ClusterCursor::new());
    for slot in 1..=1023 {
        assert!(!device.map.is_full(), "it leaves the lists once, with its last slot");
        assert_eq!(device.allocate(&mut cursor), Some(slot));
    }
    assert_eq!((device.map.is_full(), bounds(&device)), (true, NO_BOUNDS));
    assert_eq!(device.allocate(&mut cursor), None);
    device.free(500);
    assert_eq!((device.map.is_full(), bounds(&device)), (false, [500, 500]));
    assert_eq!(device.allocate(&mut cursor), Some(500));
    assert_eq!((device.map.is_full(), bounds(&device)), (true, NO_BOUNDS));
}

/// Slots taken from the start of a device of 2048, slots freed, slots allocated then.
type Row = (&'static str, usize, Vec<u32>, Vec<u32>);

#[test]
fn s3_s4_s5_a_stretch_of_256_is_used_up_before_the_next_is_looked_for() {
    let rows: [Row; 3] = [
        ("S3", 10, vec![3], vec![11, 12, 13]),
        ("S4", 256, vec![3, 4], vec![257]),
        ("S5", 300, chain(&[1..=256]), chain(&[301..=512, 1..=2])),
    ];
    for (row, taken, freed, expected) in rows {
        let (mut device, mut cursor) = rotational(2048, taken);
        freed.iter().for_each(|slot| device.free(*slot));
        assert_eq!(device.map.lowest, freed[0], "{row}");
        assert_eq!(take(&mut device, &mut cursor, expected.len()), expected, "{row}");
    }
}

#[test]
fn s10_a_stretch_of_a_rotational_device_has_no_bad_slot() {
    let (mut device, mut cursor) = (Rotational::new(2048, &[100]), ClusterCursor::new());
    assert_eq!(device.map.pages, 2046);
    assert_eq!(take(&mut device, &mut cursor, 256), chain(&[101..=356]));
}

#[test]
fn without_a_stretch_a_rotational_device_is_filled_from_its_lowest_gap() {
    let (mut device, mut cursor) = rotational(1024, 1023);
    // Every fourth slot is in use: no 256 free ones lie together.
    (1..1024).filter(|slot| slot % 4 != 0).for_each(|slot| device.free(slot));
    let slots = take_all(&mut device, &mut cursor);
    assert!(slots.into_iter().eq((1..1024).filter(|slot| slot % 4 != 0)));
}

#[test]
fn looking_for_a_stretch_in_vain_starts_again_at_the_lowest_gap() {
    let (mut device, mut cursor) = rotational(2048, 2047);
    let is_gap = |slot: &u32| !slot.is_multiple_of(4);
    (1..2048).filter(is_gap).for_each(|slot| device.free(slot));
    // One allocation is left of the stretch before: 255 slots were free when it began.
    let gaps: Vec<_> = (1..2048).filter(is_gap).take(1 + 256).collect();
    assert_eq!(take(&mut device, &mut cursor, gaps.len()), gaps);
    device.free(2);
    assert_eq!(device.allocate(&mut cursor), Some(2));
}

#[test]
fn with_fewer_than_256_free_slots_no_stretch_is_looked_for() {
    let (mut device, mut cursor) = rotational(1000, 768);
    device.free(5);
    assert_eq!(take(&mut device, &mut cursor, 2), [769, 770]);
}

#[test]
fn s6_a_solid_state_device_uses_clusters_in_turn_and_the_first_by_halves() {
    let (mut device, mut cursor) = (SolidState::new(1024, 600, &[]), ClusterCursor::new());
    assert_eq!(free_clusters(&device), [2, 3, 1]);
    let mut expected = chain(&[512..=1023, 256..=511]);
    expected.extend((1..256).step_by(2));
    expected.extend((2..256).step_by(2));
    assert_eq!(take_all(&mut device, &mut cursor), expected);
}

#[test]
fn s7_cpus_fill_clusters_of_their_own() {
    let mut device = SolidState::new(1024, 600, &[]);
    let mut cursors = [ClusterCursor::new(); 2];
    for offset in 0..4 {
        let slots = [0, 1].map(|cpu| device.allocate(&mut cursors[cpu]));
        assert_eq!(slots, [Some(512 + offset), Some(768 + offset)]);
    }
    assert_eq!(free_clusters(&device), [1]);
}

#[test]
fn s8_a_cluster_that_the_end_cuts_off_is_left_to_the_fallback() {
    let (mut device, mut cursor) = (SolidState::new(1000, 1, &[]), ClusterCursor::new());
    assert_eq!(free_clusters(&device), [1, 2]);
    assert_eq!(take(&mut device, &mut cursor, 512), chain(&[256..=767]));
    assert_eq!(take(&mut device, &mut cursor, 3), [769, 771, 773]);
}

#[test]
fn s9_a_freed_cluster_is_used_last() {
    let (mut device, mut cursor) = (SolidState::new(1024, 1, &[]), ClusterCursor::new());
    let slots = take(&mut device, &mut cursor, 256);
    slots.into_iter().for_each(|slot| device.free(slot));
    assert_eq!(free_clusters(&device), [2, 3, 1]);
    let expected = chain(&[512..=1023, 256..=511]);
    assert_eq!(take(&mut device, &mut cursor, 768), expected);
}

#[test]
fn a_cluster_that_became_free_under_its_cpu_waits_for_its_turn() {
    let (mut device, mut cursor) = (SolidState::new(1024, 1, &[]), ClusterCursor::new());
    assert_eq!(take(&mut device, &mut cursor, 2), [256, 257]);
    device.free(256);
    device.free(257);
    assert_eq!(free_clusters(&device), [2, 3, 1]);
    assert_eq!(device.allocate(&mut cursor), Some(512));
}

#[test]
fn a_cluster_with_a_bad_slot_is_left_to_the_fallback() {
    let device = SolidState::new(1024, 1, &[300, 300]);
    assert_eq!((free_clusters(&device), device.map.pages), (vec![2, 3], 1022));
}

#[test]
fn neighbours_in_the_first_list_are_64_clusters_apart() {
    let device = SolidState::new(130 * CLUSTER, 63 * CLUSTER, &[]);
    let free = free_clusters(&device);
    assert_eq!(free[..7], [63, 127, 64, 128, 1, 65, 129]);
    assert_eq!(free.len(), 129);
}

#[test]
fn the_only_free_slot_is_found_where_the_fallback_begins() {
    let (mut device, mut cursor) = (SolidState::new(1024, 1, &[]), ClusterCursor::new());
    let last = *take_all(&mut device, &mut cursor).last().unwrap();
    device.free(last);
    assert_eq!(device.allocate(&mut cursor), Some(last));
    // The kernel's scan leaves out the slot after the one that was allocated last.
    device.free(last + 1);
    assert_eq!(device.allocate(&mut cursor), Some(last + 1));
}

#[test]
fn a_device_of_nothing_but_a_header_is_full() {
    for max in [0, 1] {
        let mut cursor = ClusterCursor::new();
        assert_eq!(take_all(&mut Rotational::new(max, &[]), &mut cursor), []);
        assert_eq!(take_all(&mut SolidState::new(max, 1, &[]), &mut cursor), []);
    }
}

#[test]
#[should_panic(expected = "slot 7 is not in use")]
fn freeing_twice_is_refused() {
    let (mut device, _) = rotational(100, 10);
    device.free(7);
    device.free(7);
}

/// A device and what it should know, slot by slot.
struct Checked<D> {
    device: D,
    cursors: [ClusterCursor; CPUS],
    free: BTreeSet<u32>,
    used: BTreeSet<u32>,
}

const CPUS: usize = 3;

impl<D: Device> Checked<D> {
    fn new(device: D, max: u32, bad: &[u32]) -> Self {
        let free = (1..max).filter(|slot| !bad.contains(slot)).collect();
        Self { device, cursors: Default::default(), free, used: BTreeSet::new() }
    }

    fn allocate(&mut self, cpu: usize) -> bool {
        let slot = self.device.allocate(&mut self.cursors[cpu]);
        match slot {
            Some(slot) => {
                assert!(self.free.remove(&slot), "slot {slot} is not free");
                self.used.insert(slot);
            }
            None => assert!(self.free.is_empty(), "{:?} are free", self.free),
        }
        slot.is_some()
    }

    fn apply(&mut self, operation: u32, number: usize) {
        let victim = self.used.iter().nth(number % self.used.len().max(1)).copied();
        match (operation, victim) {
            (0..=4, _) => (0..=number % 40).for_each(|_| _ = self.allocate(number % CPUS)),
            (_, Some(first)) => {
                let run = first..first.saturating_add(number as u32 % 300);
                let freed: Vec<_> = self.used.range(run).copied().collect();
                for slot in freed {
                    self.device.free(slot);
                    self.used.remove(&slot);
                    self.free.insert(slot);
                }
            }
            _ => {}
        }
    }

    fn check(&self, max: u32) {
        let map = self.device.map();
        assert_eq!(map.used as usize, self.used.len());
        assert_eq!(map.pages as usize, self.used.len() + self.free.len());
        assert_eq!(map.is_full(), self.free.is_empty());
        for slot in 0..max {
            assert_eq!(map.is_used(slot), self.used.contains(&slot));
        }
    }

    fn run(mut self, max: u32, operations: &[(u32, usize)]) {
        for (operation, number) in operations {
            self.apply(*operation, *number);
            self.check(max);
        }
        let mut cpu = 0;
        while self.allocate(cpu) {
            cpu = (cpu + 1) % CPUS;
        }
        self.check(max);
    }
}

proptest! {
    #[test]
    fn searches_give_out_every_free_slot_and_no_other(
        max in 2u32..1500,
        start in any::<u32>(),
        bad in prop::collection::btree_set(1u32..1500, 0..6),
        operations in prop::collection::vec((0u32..9, any::<usize>()), 1..60),
    ) {
        let bad: Vec<_> = bad.into_iter().filter(|slot| *slot < max).collect();
        Checked::new(Rotational::new(max, &bad), max, &bad).run(max, &operations);
        let solid_state = SolidState::new(max, 1 + start % (max - 1), &bad);
        Checked::new(solid_state, max, &bad).run(max, &operations);
    }

    #[test]
    fn free_clusters_of_a_solid_state_device_are_those_without_use(
        max in 2u32..1500,
        operations in prop::collection::vec((any::<usize>(), 0u32..3, 0u32..600), 1..60),
    ) {
        let mut device = SolidState::new(max, max - 1, &[]);
        let mut cursors = [ClusterCursor::new(); 2];
        for (number, operation, count) in operations {
            let mut slots = (1..max).map(|slot| (slot + number as u32 % max) % max);
            match operation {
                0 => slots.by_ref().take(count as usize).for_each(|slot| {
                    if device.map.is_used(slot) {
                        device.free(slot);
                    }
                }),
                _ => (0..count).for_each(|_| _ = device.allocate(&mut cursors[number % 2])),
            }
            assert_valid(&device);
        }
    }
}
