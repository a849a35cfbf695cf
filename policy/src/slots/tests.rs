//! Vectors and single rules, then random operations against an array of states.
use super::*;
use proptest::prelude::*;

impl Slots {
    /// Is the slot in use? False for the header, bad slots and slots that do not exist.
    fn is_used(&self, slot: u32) -> bool {
        slot < self.end() && self.used_word((slot / WORD) as usize) >> (slot % WORD) & 1 == 1
    }
}

fn run(first: u32, count: u32) -> SlotRun {
    SlotRun { first, count }
}

#[test]
fn after_a_limit_nothing_is_handed_out_and_the_rest_still_works() {
    let mut slots = Slots::new(1024);
    let run = slots.allocate(256).unwrap();
    slots.limit(400);
    assert_eq!(slots.pages(), 399);
    while let Some(run) = slots.allocate(64) {
        assert!(run.first + run.count <= 400);
    }
    assert!(slots.is_full());
    slots.free(run);
    assert!(slots.allocate(64).is_some_and(|run| run.first + run.count <= 400));
}

#[test]
fn a_device_of_nothing_but_a_header_is_full() {
    for max in [0, 1] {
        let mut slots = Slots::new(max);
        assert_eq!((slots.pages(), slots.used(), slots.is_full()), (0, 0, true));
        assert_eq!(slots.allocate(1), None);
    }
}

#[test]
fn a_huge_device_costs_nothing_until_touched() {
    let mut slots = Slots::new(SLOTS_MAX);
    assert_eq!(slots.pages(), SLOTS_MAX - 1);
    assert_eq!(slots.allocate(512), Some(run(1, 512)));
    assert_eq!(slots.used_runs().collect::<Vec<_>>(), [run(1, 512)]);
    slots.free(run(1, 512));
    assert_eq!(slots.used_runs().count(), 0);
}

#[test]
fn the_header_and_slots_after_the_end_are_never_handed_out() {
    let mut slots = Slots::new(300);
    assert_eq!(slots.allocate(1000), Some(run(1, 299)));
    assert!(slots.is_full() && slots.allocate(1).is_none());
    assert!(!slots.is_used(0) && slots.is_used(299) && !slots.is_used(300));
    assert!(!slots.is_used(u32::MAX));
}

#[test]
fn runs_follow_each_other_and_cross_into_a_free_cluster() {
    let mut slots = Slots::new(4 * CLUSTER);
    assert_eq!(slots.allocate(200), Some(run(1, 200)));
    assert_eq!(slots.allocate(100), Some(run(201, 100)));
    assert_eq!(slots.allocate(0), None);
}

#[test]
fn cpus_with_cursors_of_their_own_fill_different_clusters() {
    let mut slots = Slots::new(8 * CLUSTER);
    let mut cursors = [ClusterCursor::new(); 2];
    for batch in 0..4 {
        for (cpu, cursor) in (0..).zip(&mut cursors) {
            let expected = match (cpu, batch) {
                (0, 0) => run(1, 64),
                // A run ends with its cluster: the next one is the other CPU's.
                (0, 3) => run(193, 63),
                (0, _) => run(1 + batch * 64, 64),
                _ => run(CLUSTER + batch * 64, 64),
            };
            assert_eq!(slots.allocate_at(cursor, 64), Some(expected));
        }
    }
    let [zero, one] = &mut cursors;
    assert_eq!((zero.cluster(), one.cluster()), (None, None));
    assert_eq!(slots.allocate_at(one, 1), Some(run(2 * CLUSTER, 1)));
    assert_eq!(slots.allocate_at(zero, 1), Some(run(3 * CLUSTER, 1)));
    assert_eq!((zero.cluster(), one.cluster()), (Some(3), Some(2)));
}

#[test]
fn a_batch_at_a_cursor_may_be_larger_than_a_cluster() {
    let mut slots = Slots::new(8 * CLUSTER);
    let mut cursors = [ClusterCursor::new(); 2];
    assert_eq!(slots.allocate_at(&mut cursors[0], 2 * CLUSTER), Some(run(1, 2 * CLUSTER)));
    assert_eq!(cursors[0].cluster(), Some(2));
    let after = run(3 * CLUSTER, 2 * CLUSTER);
    assert_eq!(slots.allocate_at(&mut cursors[1], 2 * CLUSTER), Some(after));
    let rest = run(2 * CLUSTER + 1, CLUSTER - 1);
    assert_eq!(slots.allocate_at(&mut cursors[0], CLUSTER), Some(rest));
}

#[test]
fn without_a_free_cluster_cpus_share_gaps() {
    let mut slots = Slots::new(2 * CLUSTER);
    slots.allocate(2 * CLUSTER);
    slots.free(run(100, 4));
    let mut cursors = [ClusterCursor::new(); 2];
    let taken = [0, 1, 0, 1].map(|cpu| slots.allocate_at(&mut cursors[cpu], 1));
    assert_eq!(taken, [100, 101, 102, 103].map(|slot| Some(run(slot, 1))));
    assert_eq!(slots.allocate_at(&mut cursors[0], 1), None);
}

#[test]
#[should_panic(expected = "is of another device")]
fn a_cursor_beyond_the_device_is_refused() {
    let mut cursor = ClusterCursor::new();
    Slots::new(8 * CLUSTER).allocate_at(&mut cursor, 1000);
    Slots::new(CLUSTER).allocate_at(&mut cursor, 1);
}

#[test]
fn a_run_ends_where_the_next_cluster_is_in_use() {
    let mut slots = Slots::new(3 * CLUSTER);
    slots.allocate(3 * CLUSTER);
    slots.free(run(100, 156));
    slots.free(run(300, 400));
    slots.cursor.next = 100;
    assert_eq!(slots.allocate(256), Some(run(100, 156)));
}

#[test]
fn a_free_cluster_is_preferred_to_gaps_and_gaps_to_nothing() {
    let mut slots = Slots::new(4 * CLUSTER);
    slots.allocate(4 * CLUSTER);
    slots.free(run(10, 20));
    slots.free(run(40, 60));
    slots.free(run(2 * CLUSTER, CLUSTER));
    assert_eq!(slots.allocate(64), Some(run(2 * CLUSTER, 64)));
    assert_eq!(slots.allocate(256), Some(run(2 * CLUSTER + 64, 192)));
    assert_eq!(slots.allocate(64), Some(run(40, 60)));
    assert_eq!(slots.allocate(64), Some(run(10, 20)));
    assert_eq!(slots.allocate(64), None);
}

#[test]
fn what_has_been_used_is_used_again_before_new_clusters() {
    let mut slots = Slots::new(100 * CLUSTER);
    assert_eq!(slots.allocate(CLUSTER), Some(run(1, CLUSTER)));
    for _ in 0..1000 {
        let taken = slots.allocate(CLUSTER).expect("there is room");
        assert!(taken.first + taken.count <= 5 * CLUSTER, "{taken:?}");
        slots.free(taken);
    }
}

#[test]
fn the_first_cluster_counts_as_free_again_once_it_is_empty() {
    let mut slots = Slots::new(2 * CLUSTER);
    assert_eq!(slots.allocate(2 * CLUSTER), Some(run(1, 2 * CLUSTER - 1)));
    slots.free(run(1, CLUSTER - 1));
    assert_eq!(slots.allocate(CLUSTER), Some(run(1, CLUSTER - 1)));
}

#[test]
fn a_bad_slot_is_never_handed_out_again() {
    let mut slots = Slots::new(11);
    slots.allocate(10);
    slots.mark_bad(4);
    assert_eq!((slots.pages(), slots.used(), slots.is_used(4)), (9, 9, false));
    slots.free(run(1, 3));
    slots.free(run(5, 6));
    let first = slots.allocate(10);
    assert_eq!((first, slots.allocate(10)), (Some(run(5, 6)), Some(run(1, 3))));
    assert!(slots.is_full());
}

#[test]
#[should_panic(expected = "slot 3 is not in use")]
fn freeing_twice_is_refused() {
    let mut slots = Slots::new(100);
    slots.allocate(10);
    slots.free(run(3, 2));
    slots.free(run(1, 10));
}

#[test]
#[should_panic(expected = "slot 0 is not in use")]
fn freeing_the_header_is_refused() {
    Slots::new(100).free(run(0, 1));
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    Used,
    Unusable,
}

/// Up to `max` used slots at the first one from `from` on.
fn used_run(model: &[State], from: usize, max: u32) -> Option<SlotRun> {
    let first = (from..model.len()).find(|slot| model[*slot] == State::Used)?;
    let count = model[first..].iter().take_while(|state| **state == State::Used).count();
    Some(run(first as u32, (count as u32).min(max)))
}

fn set(model: &mut [State], run: SlotRun, from: State, to: State) {
    for state in &mut model[run.first as usize..][..run.count as usize] {
        assert_eq!(*state, from);
        *state = to;
    }
}

/// A device, and two CPUs that use it besides those without a cursor.
struct Shared {
    slots: Slots,
    cursors: [ClusterCursor; 2],
}

impl Shared {
    fn allocate(&mut self, cpu: u32, want: u32) -> Option<SlotRun> {
        match self.cursors.get_mut(cpu as usize) {
            Some(cursor) => self.slots.allocate_at(cursor, want),
            None => self.slots.allocate(want),
        }
    }
}

fn apply(shared: &mut Shared, model: &mut [State], operation: u32, from: usize, max: u32) {
    let used = used_run(model, from % model.len(), max);
    match (operation, used) {
        (0..=3, _) => match shared.allocate(operation, max) {
            Some(run) => {
                assert!((1..=max).contains(&run.count));
                set(model, run, State::Free, State::Used);
            }
            None => assert!(max == 0 || !model.contains(&State::Free)),
        },
        (4..=7, Some(run)) => {
            shared.slots.free(run);
            set(model, run, State::Used, State::Free);
        }
        (8, Some(used)) if used.count > 0 => {
            shared.slots.mark_bad(used.first);
            set(model, run(used.first, 1), State::Used, State::Unusable);
        }
        _ => {}
    }
}

fn check(slots: &Slots, model: &[State]) {
    let count = |state| model.iter().filter(|other| **other == state).count() as u32;
    assert_eq!(slots.used(), count(State::Used));
    assert_eq!(slots.pages(), count(State::Used) + count(State::Free));
    assert_eq!(slots.is_full(), count(State::Free) == 0);
    let mut runs = slots.used_runs();
    let mut from = 0;
    while let Some(expected) = used_run(model, from, u32::MAX) {
        assert_eq!(runs.next(), Some(expected));
        from = (expected.first + expected.count) as usize;
    }
    assert_eq!(runs.next(), None);
    for (cluster, states) in model.chunks(CLUSTER as usize).enumerate() {
        let (room, used) = (states.contains(&State::Free), states.contains(&State::Used));
        assert_eq!(slots.clusters_room.contains(cluster as u32), room);
        assert_eq!(slots.clusters_free.contains(cluster as u32), room && !used);
    }
}

proptest! {
    #[test]
    fn slots_equal_an_array_of_states(
        max in 1u32..1500,
        operations in prop::collection::vec((0u32..9, any::<usize>(), 0u32..600), 1..200),
    ) {
        let mut shared = Shared { slots: Slots::new(max), cursors: Default::default() };
        let mut model = vec![State::Free; max as usize];
        model[0] = State::Unusable;
        for (operation, from, want) in operations {
            apply(&mut shared, &mut model, operation, from, want);
            check(&shared.slots, &model);
        }
    }

    #[test]
    fn cpus_never_meet_while_a_cluster_is_free(
        batches in prop::collection::vec((0usize..4, 1u32..300), 1..60),
    ) {
        let mut slots = Slots::new(40 * CLUSTER);
        let mut cursors = [ClusterCursor::new(); 4];
        let mut owners = [None; 40];
        for (cpu, want) in batches {
            let has_free = slots.clusters_free.next_cyclic(0).is_some();
            let Some(run) = slots.allocate_at(&mut cursors[cpu], want) else { break };
            for cluster in run.first / CLUSTER..(run.first + run.count).div_ceil(CLUSTER) {
                let owner = owners[cluster as usize].replace(cpu);
                prop_assert!(!has_free || owner.is_none_or(|owner| owner == cpu));
            }
        }
    }

    #[test]
    fn a_device_is_used_further_only_without_a_free_cluster_before(
        operations in prop::collection::vec((0usize..4, any::<usize>(), 1u32..300), 1..200),
    ) {
        let mut slots = Slots::new(40 * CLUSTER);
        let mut cursors = [ClusterCursor::new(); 2];
        let (mut taken, mut reached) = (Vec::new(), 0);
        for (operation, which, want) in operations {
            if let Some(cursor) = cursors.get_mut(operation) {
                let has_free = (0..reached).any(|cluster| slots.clusters_free.contains(cluster));
                let Some(run) = slots.allocate_at(cursor, want) else { continue };
                let end = (run.first + run.count).div_ceil(CLUSTER);
                prop_assert!(end <= reached || !has_free, "{run:?}, {reached} clusters were in use");
                reached = reached.max(end);
                taken.push(run);
            } else if !taken.is_empty() {
                slots.free(taken.swap_remove(which % taken.len()));
            }
        }
    }
}
