use super::*;
use crate::allocator::Allocator;
use crate::slots::ClusterCursor;
use proptest::prelude::*;

/// Allocates `count` slots for one CPU.
fn take<A: Allocator>(device: &mut A, cursor: &mut ClusterCursor, count: usize) -> Vec<u32> {
    (0..count).map(|_| device.allocate_one(cursor).unwrap()).collect()
}

/// Allocates for one CPU until the device is full.
fn take_all<A: Allocator>(device: &mut A, cursor: &mut ClusterCursor) -> Vec<u32> {
    let pages = device.pages() as usize;
    let slots = core::iter::from_fn(|| device.allocate_one(cursor));
    // One more than there are, lest a device that never fills up be asked for ever.
    let slots: Vec<_> = slots.take(pages + 1).collect();
    assert!(device.is_full());
    slots
}

fn rotational(max: u32, taken: usize) -> (Rotational, ClusterCursor) {
    let (mut device, mut cursor) = (Rotational::new(max, &[]), ClusterCursor::new());
    let slots = take(&mut device, &mut cursor, taken);
    assert!(slots.into_iter().eq(1..=taken as u32));
    (device, cursor)
}

fn chain(ranges: &[core::ops::RangeInclusive<u32>]) -> Vec<u32> {
    ranges.iter().cloned().flatten().collect()
}

#[test]
fn s1_s2_a_rotational_device_fills_from_its_start_and_reuses_what_is_freed() {
    let (mut device, mut cursor) = (Rotational::new(1024, &[]), ClusterCursor::new());
    for slot in 1..=1023 {
        assert!(!device.is_full(), "it leaves the lists once, with its last slot");
        assert_eq!(device.allocate_one(&mut cursor), Some(slot));
    }
    assert_eq!((device.is_full(), device.bounds()), (true, (1024, 0)));
    assert_eq!(device.allocate_one(&mut cursor), None);
    device.free_one(500);
    assert_eq!((device.is_full(), device.bounds()), (false, (500, 500)));
    assert_eq!(device.allocate_one(&mut cursor), Some(500));
    assert_eq!((device.is_full(), device.bounds()), (true, (1024, 0)));
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
        freed.iter().for_each(|slot| device.free_one(*slot));
        assert_eq!(device.bounds().0, freed[0], "{row}");
        assert_eq!(take(&mut device, &mut cursor, expected.len()), expected, "{row}");
    }
}

#[test]
fn s10_a_stretch_of_a_rotational_device_has_no_bad_slot() {
    let (mut device, mut cursor) = (Rotational::new(2048, &[100]), ClusterCursor::new());
    assert_eq!(device.pages(), 2046);
    assert_eq!(take(&mut device, &mut cursor, 256), chain(&[101..=356]));
}

#[test]
fn without_a_stretch_a_rotational_device_is_filled_from_its_lowest_gap() {
    let (mut device, mut cursor) = rotational(1024, 1023);
    // Every fourth slot is in use: no 256 free ones lie together.
    (1..1024).filter(|slot| slot % 4 != 0).for_each(|slot| device.free_one(slot));
    let slots = take_all(&mut device, &mut cursor);
    assert!(slots.into_iter().eq((1..1024).filter(|slot| slot % 4 != 0)));
}

#[test]
fn looking_for_a_stretch_in_vain_starts_again_at_the_lowest_gap() {
    let (mut device, mut cursor) = rotational(2048, 2047);
    let is_gap = |slot: &u32| !slot.is_multiple_of(4);
    (1..2048).filter(is_gap).for_each(|slot| device.free_one(slot));
    // One allocation is left of the stretch before: 255 slots were free when it began.
    let gaps: Vec<_> = (1..2048).filter(is_gap).take(1 + 256).collect();
    assert_eq!(take(&mut device, &mut cursor, gaps.len()), gaps);
    device.free_one(2);
    assert_eq!(device.allocate_one(&mut cursor), Some(2));
}

#[test]
fn with_fewer_than_256_free_slots_no_stretch_is_looked_for() {
    let (mut device, mut cursor) = rotational(1000, 768);
    device.free_one(5);
    assert_eq!(take(&mut device, &mut cursor, 2), [769, 770]);
}

#[test]
fn s6_a_solid_state_device_uses_clusters_in_turn_and_the_first_by_halves() {
    let (mut device, mut cursor) = (SolidState::new(1024, 600, &[]), ClusterCursor::new());
    assert_eq!(device.free_clusters(), [2, 3, 1]);
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
        let slots = [0, 1].map(|cpu| device.allocate_one(&mut cursors[cpu]));
        assert_eq!(slots, [Some(512 + offset), Some(768 + offset)]);
    }
    assert_eq!(device.free_clusters(), [1]);
}

#[test]
fn s8_a_cluster_that_the_end_cuts_off_is_left_to_the_fallback() {
    let (mut device, mut cursor) = (SolidState::new(1000, 1, &[]), ClusterCursor::new());
    assert_eq!(device.free_clusters(), [1, 2]);
    assert_eq!(take(&mut device, &mut cursor, 512), chain(&[256..=767]));
    assert_eq!(take(&mut device, &mut cursor, 3), [769, 771, 773]);
}

#[test]
fn s9_a_freed_cluster_is_used_last() {
    let (mut device, mut cursor) = (SolidState::new(1024, 1, &[]), ClusterCursor::new());
    let slots = take(&mut device, &mut cursor, 256);
    slots.into_iter().for_each(|slot| device.free_one(slot));
    assert_eq!(device.free_clusters(), [2, 3, 1]);
    let expected = chain(&[512..=1023, 256..=511]);
    assert_eq!(take(&mut device, &mut cursor, 768), expected);
}

#[test]
fn a_cluster_that_became_free_under_its_cpu_waits_for_its_turn() {
    let (mut device, mut cursor) = (SolidState::new(1024, 1, &[]), ClusterCursor::new());
    assert_eq!(take(&mut device, &mut cursor, 2), [256, 257]);
    device.free_one(256);
    device.free_one(257);
    assert_eq!(device.free_clusters(), [2, 3, 1]);
    assert_eq!(device.allocate_one(&mut cursor), Some(512));
}

#[test]
fn a_cluster_with_a_bad_slot_is_left_to_the_fallback() {
    let device = SolidState::new(1024, 1, &[300, 300]);
    assert_eq!((device.free_clusters(), device.pages()), (vec![2, 3], 1022));
}

#[test]
fn neighbours_in_the_first_list_are_64_clusters_apart() {
    let device = SolidState::new(130 * CLUSTER, 63 * CLUSTER, &[]);
    let free = device.free_clusters();
    assert_eq!(free[..7], [63, 127, 64, 128, 1, 65, 129]);
    assert_eq!(free.len(), 129);
}

#[test]
fn the_only_free_slot_is_found_where_the_fallback_begins() {
    let (mut device, mut cursor) = (SolidState::new(1024, 1, &[]), ClusterCursor::new());
    let last = *take_all(&mut device, &mut cursor).last().unwrap();
    device.free_one(last);
    assert_eq!(device.allocate_one(&mut cursor), Some(last));
    // The kernel's scan leaves out the slot behind the one that was allocated last.
    device.free_one(last + 1);
    assert_eq!(device.allocate_one(&mut cursor), Some(last + 1));
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
    device.free_one(7);
    device.free_one(7);
}

proptest! {
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
                    if device.is_used(slot) {
                        device.free_one(slot);
                    }
                }),
                _ => (0..count).for_each(|_| _ = device.allocate_one(&mut cursors[number % 2])),
            }
            device.assert_valid();
        }
    }
}
