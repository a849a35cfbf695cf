//! Cells against a naive model.
use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

type Table = Vec<Slab>;

fn cells(slabs: usize) -> Cells<Table> {
    Cells::new(vec![Slab::default(); slabs])
}

#[test]
fn every_size_has_a_class_that_wastes_little_of_a_slab_and_of_a_cell() {
    let sizes: Vec<usize> = CELLS_OF.iter().map(|cells| cell_bytes(u32::from(*cells))).collect();
    assert_eq!((sizes[0], sizes.last()), (PAGE_BYTES, Some(&CELL_BYTES_MIN)));
    assert_eq!(sizes[1], COMPRESSED_BYTES_MAX);
    assert!(sizes.is_sorted_by(|one, next| one > next), "{sizes:?}");
    for bytes in 1..=PAGE_BYTES {
        let cell = sizes[class_of(bytes)];
        assert!(cell >= bytes && cell.is_multiple_of(ALIGNMENT), "{bytes} in {cell}");
        let smaller = sizes.get(class_of(bytes) + 1);
        assert!(smaller.is_none_or(|smaller| *smaller < bytes), "{bytes} in {cell}");
        if (1024..=COMPRESSED_BYTES_MAX).contains(&bytes) {
            assert!(cell - bytes <= bytes / 20, "{bytes} in {cell}");
        }
    }
    for (cells, size) in CELLS_OF.iter().zip(&sizes) {
        let left = SLAB_BYTES - usize::from(*cells) * size;
        assert!(left * 100 <= SLAB_BYTES * 2, "{left} of a slab of {cells} are left over");
    }
}

#[test]
fn the_fullest_slab_is_filled_first_so_that_others_become_empty() {
    let mut cells = cells(4);
    let taken: Vec<Cell> = (0..32).map(|_| cells.take(PAGE_BYTES).unwrap()).collect();
    // The first keeps one page, the second loses one.
    taken[1..16].iter().for_each(|cell| cells.put(*cell));
    cells.put(taken[20]);
    assert_eq!(cells.take(PAGE_BYTES).unwrap().slab(), taken[20].slab());
    cells.put(taken[0]);
    assert_eq!(cells.counts(), Counts { busy: 1, empty: 1, cell_bytes: 16 << 12 });
    let empty = cells.take_empty().unwrap();
    assert_eq!((empty, cells.take_empty(), cells.counts().empty), (0, None, 0));
    // While its memory is on its way back it is not used.
    assert_eq!(cells.take(100).unwrap().slab(), 2);
    cells.on_gone(empty);
    assert_eq!(cells.take(200).unwrap().slab(), empty);
}

#[test]
fn a_full_table_says_so() {
    let mut cells = cells(2);
    (0..32).for_each(|_| assert!(cells.take(PAGE_BYTES).is_some()));
    assert_eq!(cells.take(PAGE_BYTES), None);
    assert_eq!(cells.take(64), None);
}

/// As a sweep: all pages of slabs that leave move. How many slabs were busy at most on the way.
fn move_all(
    cells: &mut Cells<Table>,
    model: &mut BTreeMap<Cell, usize>,
    leaving: &BTreeSet<u32>,
) -> u32 {
    let from: Vec<Cell> =
        model.keys().copied().filter(|cell| leaving.contains(&cell.slab())).collect();
    let mut peak = cells.counts().busy;
    for cell in from {
        let bytes = model.remove(&cell).unwrap();
        let Some(to) = cells.take(bytes) else {
            model.insert(cell, bytes);
            continue;
        };
        assert!(!leaving.contains(&to.slab()));
        peak = peak.max(cells.counts().busy);
        cells.put(cell);
        model.insert(to, bytes);
    }
    peak
}

#[test]
fn slabs_leave_only_as_far_as_others_have_room_for_all_of_them() {
    const SLABS: u32 = 48;
    let mut cells = cells(2 * SLABS as usize);
    let taken: Vec<Cell> =
        (0..SLABS * SLAB_PAGES).map(|_| cells.take(PAGE_BYTES).unwrap()).collect();
    // Each slab keeps three quarters: a quarter of the slabs can become empty.
    let is_kept = |index: &usize| !index.is_multiple_of(4);
    let (kept, gone): (Vec<_>, Vec<_>) =
        taken.iter().enumerate().partition(|(index, _)| is_kept(index));
    gone.iter().for_each(|(_, cell)| cells.put(**cell));
    let mut model: BTreeMap<Cell, usize> =
        kept.iter().map(|(_, cell)| (**cell, PAGE_BYTES)).collect();
    assert_eq!(cells.scattered(), SLABS / 4);
    let mut leaving = BTreeSet::new();
    cells.start_leaving(SLABS, |slab| assert!(leaving.insert(slab)));
    assert_eq!(leaving.len() as u32, SLABS / 4);
    cells.start_leaving(SLABS, |slab| panic!("for slab {slab} there is no room"));
    assert_eq!(move_all(&mut cells, &mut model, &leaving), SLABS, "no slab is begun");
    cells.end_leaving();
    assert_eq!((cells.counts().busy, cells.scattered()), (SLABS / 4 * 3, 0));
}

proptest! {
    #[test]
    fn cells_in_use_never_overlap_and_counts_are_those_of_a_naive_model(
        steps in prop::collection::vec((0u8..8, 1..=PAGE_BYTES, any::<prop::sample::Index>()), 1..400),
    ) {
        let mut cells = cells(40);
        let mut model: BTreeMap<Cell, usize> = BTreeMap::new();
        let (mut gone, mut leaving) = (BTreeSet::new(), BTreeSet::new());
        for (step, bytes, choice) in steps {
            match step {
                // Few sizes, so that classes have several slabs.
                0..=2 => if let Some(cell) = cells.take(bytes / 1000 * 1000 + 1) {
                    prop_assert!(!leaving.contains(&cell.slab()));
                    let bytes = bytes / 1000 * 1000 + 1;
                    prop_assert!(cells.span(cell).bytes >= bytes);
                    prop_assert!(!gone.contains(&cell.slab()) || gone.remove(&cell.slab()));
                    prop_assert_eq!(model.insert(cell, bytes), None);
                } else {
                    prop_assert!(model.len() >= 16);
                },
                3 if !model.is_empty() => {
                    let cell = *choice.get(&model.keys().copied().collect::<Vec<_>>());
                    model.remove(&cell);
                    cells.put(cell);
                }
                4 => if let Some(slab) = cells.take_empty() {
                    prop_assert!(model.keys().all(|cell| cell.slab() != slab));
                    prop_assert!(gone.insert(slab), "it is empty once");
                    cells.on_gone(slab);
                },
                5 => {
                    let (scattered, is_first) = (cells.scattered(), leaving.is_empty());
                    cells.start_leaving(3, |slab| assert!(leaving.insert(slab)));
                    prop_assert!(!is_first || leaving.len() as u32 == scattered.min(3));
                }
                6 => {
                    // All that leaves has room elsewhere, and no slab is begun for it, unless others took that room.
                    let (busy, is_first) = (cells.counts().busy, leaving.is_empty());
                    cells.start_leaving(40, |slab| assert!(leaving.insert(slab)));
                    let peak = move_all(&mut cells, &mut model, &leaving);
                    // One that was given back may have been begun.
                    gone.retain(|slab| model.keys().all(|cell| cell.slab() != *slab));
                    prop_assert!(!is_first || peak == busy);
                    prop_assert!(cells.counts().busy <= busy);
                    cells.end_leaving();
                    leaving.clear();
                }
                7 => {
                    cells.end_leaving();
                    leaving.clear();
                }
                _ => {}
            }
            leaving.retain(|slab| model.keys().any(|cell| cell.slab() == *slab));
            let mut spans: Vec<Span> = model.keys().map(|cell| cells.span(*cell)).collect();
            spans.sort_by_key(|span| span.start);
            prop_assert!(spans.windows(2).all(|pair| pair[0].start + pair[0].bytes <= pair[1].start));
            let ends = |span: &Span| span.start / SLAB_BYTES == (span.start + span.bytes - 1) / SLAB_BYTES;
            prop_assert!(spans.iter().all(ends));
            let mut free = [0u32; CLASSES];
            let mut by_slab: BTreeMap<u32, u32> = BTreeMap::new();
            model.keys().for_each(|cell| *by_slab.entry(cell.slab()).or_default() += 1);
            for (slab, count) in by_slab.iter().filter(|(slab, _)| !leaving.contains(slab)) {
                let slab = &cells.slabs[*slab as usize];
                free[usize::from(slab.class)] += slab.cells() - count;
            }
            prop_assert_eq!(free, cells.free);
            let busy: BTreeSet<u32> = model.keys().map(|cell| cell.slab()).collect();
            let counts = cells.counts();
            prop_assert_eq!(counts.busy as usize, busy.len());
            prop_assert_eq!(counts.cell_bytes, spans.iter().map(|span| span.bytes as u64).sum::<u64>());
            prop_assert_eq!((counts.busy + counts.empty) as usize + gone.len(), cells.ever as usize);
        }
    }
}
