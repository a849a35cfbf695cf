//! The container of reclaimable items as a program sees it: the specification's vectors that need nodes,
//! groups or locks, and many threads at once. (What one list does is tested in the policy crate.)
use crate::support::*;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};

const N0: NodeId = NodeId(0);
const N1: NodeId = NodeId(1);
const N2: NodeId = NodeId(2);

fn removed(visit: &mut Visit<'_>) -> Code {
    visit.isolate();
    Code::Removed
}

/// The items of a list, oldest first.
fn items(lru: &ListLru, node: NodeId, group: Option<&Group>) -> Vec<u32> {
    let mut items = Vec::new();
    lru.walk_one(node, group, &mut { u64::MAX }, |visit| {
        items.push(visit.item());
        Code::Skip
    });
    items
}

fn active(lru: &ListLru) -> Vec<NodeId> {
    lru.active_nodes().collect()
}

#[test]
fn l19_the_mask_follows_the_nodes_that_have_items() {
    let lru = ListLru::new(3, 4).unwrap();
    assert!(lru.add(N0, 0) && lru.add(N0, 1) && lru.add(N2, 0));
    assert_eq!((active(&lru), lru.count()), (vec![N0, N2], 3));
    assert!(lru.del(N2, 0));
    assert_eq!(active(&lru), [N0]);
    lru.walk_one(N0, None, &mut 9, removed);
    assert_eq!((active(&lru), lru.count()), (vec![], 0));
}

#[test]
fn l20_a_walk_over_all_nodes_ends_with_its_budget() {
    let lru = ListLru::new(3, 4).unwrap();
    for (node, count) in [(N0, 2), (N2, 4)] {
        (0..count).for_each(|item| assert!(lru.add(node, item)));
    }
    let (mut budget, mut visited) = (5, Vec::new());
    let isolated = lru.walk(&mut budget, |visit| {
        visited.push((visit.node(), visit.item()));
        removed(visit)
    });
    assert_eq!((isolated, budget), (5, 0));
    assert_eq!(visited, [(N0, 0), (N0, 1), (N2, 0), (N2, 1), (N2, 2)]);
    assert_eq!((lru.count_node(N0), items(&lru, N2, None)), (0, vec![3]));
}

#[test]
fn l21_a_nodes_walk_goes_from_the_ungrouped_items_to_the_groups() {
    let lru = ListLru::with_groups(1, 8, 1).unwrap();
    let group = lru.group(None).unwrap();
    (0..3).for_each(|item| assert!(lru.add_to(N0, &group, item)));
    (3..5).for_each(|item| assert!(lru.add(N0, item)));
    let mut budget = 4;
    assert_eq!((lru.walk_node(N0, &mut budget, removed), budget), (4, 0));
    assert_eq!((lru.count_one(N0, None), lru.count_one(N0, Some(&group))), (0, 1));
    assert_eq!(items(&lru, N0, Some(&group)), [2]);
}

#[test]
fn stop_ends_a_groups_walk_and_the_next_one_begins() {
    let lru = ListLru::with_groups(1, 8, 2).unwrap();
    let groups = [lru.group(None).unwrap(), lru.group(None).unwrap()];
    for (item, group) in [(0, 0), (1, 0), (2, 1)] {
        assert!(lru.add_to(N0, &groups[group], item));
    }
    let (mut budget, mut visited) = (10, Vec::new());
    lru.walk_node(N0, &mut budget, |visit| {
        visited.push(visit.item());
        visit.unlock();
        Code::Stop
    });
    assert_eq!((visited, budget), (vec![0, 2], 8));
}

#[test]
fn l24_a_walker_of_one_node_does_not_hold_up_another() {
    limit(60);
    let lru = ListLru::new(2, 2).unwrap();
    assert!(lru.add(N0, 0));
    lru.walk_one(N0, None, &mut 1, |_| {
        // The thread would not end if node 1 shared node 0's lock.
        std::thread::scope(|scope| scope.spawn(|| assert!(lru.add(N1, 0))).join().unwrap());
        Code::Skip
    });
    assert_eq!(lru.count(), 2);
}

#[test]
fn without_the_lock_others_may_do_what_they_want_with_the_item() {
    let lru = ListLru::new(1, 4).unwrap();
    (0..3).for_each(|item| assert!(lru.add(N0, item)));
    let mut visited = Vec::new();
    let isolated = lru.walk_one(N0, None, &mut 9, |visit| {
        visited.push(visit.item());
        if visited.len() > 1 {
            return removed(visit);
        }
        visit.unlock();
        // Both the item and the one that was remembered as its successor go.
        assert!(lru.del(N0, 0) && lru.del(N0, 1));
        Code::Retry
    });
    assert_eq!((visited, isolated, lru.count()), (vec![0, 2], 1, 0));
    assert!(lru.is_valid());
}

#[test]
fn l22_l23_an_ended_groups_items_are_the_parents_oldest() {
    let lru = ListLru::with_groups(2, 8, 2).unwrap();
    let parent = lru.group(None).unwrap();
    let child = lru.group(Some(&parent)).unwrap();
    for (group, item) in [(&parent, 3), (&parent, 4), (&child, 1), (&child, 2)] {
        assert!(lru.add_to(N1, group, item));
    }
    lru.reparent(&child);
    assert_eq!(items(&lru, N1, Some(&parent)), [1, 2, 3, 4]);
    assert_eq!((lru.count_one(N1, Some(&parent)), lru.count_one(N1, Some(&child))), (4, 0));
    assert!(lru.add_to(N1, &child, 5), "a late item goes to the parent");
    assert_eq!(lru.walk_one(N1, Some(&child), &mut 9, removed), 0);
    assert!(lru.del(N1, 1) && lru.del(N1, 5));
    assert_eq!(items(&lru, N1, Some(&parent)), [2, 3, 4]);
    assert!(lru.is_valid());
}

#[test]
fn a_number_goes_to_another_group_when_no_item_remembers_it() {
    let lru = ListLru::with_groups(2, 8, 1).unwrap();
    let first = lru.group(None).unwrap();
    assert!(lru.add_to(N1, &first, 0));
    assert!(lru.group(None).is_none(), "there is room for one");
    lru.reparent(&first);
    assert!(lru.group(None).is_none(), "item 0 remembers the first");
    assert!(lru.del(N1, 0));
    let second = lru.group(None).unwrap();
    assert!(lru.add_to(N1, &second, 1) && lru.add_to(N1, &first, 2));
    assert_eq!((items(&lru, N1, Some(&second)), items(&lru, N1, None)), (vec![1], vec![2]));
    assert_eq!(lru.count_one(N1, Some(&first)), 0, "its number means another group now");
}

#[test]
fn a_walk_does_not_go_on_in_a_group_that_got_the_number_meanwhile() {
    let lru = ListLru::with_groups(1, 8, 1).unwrap();
    let first = lru.group(None).unwrap();
    assert!(lru.add_to(N0, &first, 0));
    let (mut visited, mut second) = (Vec::new(), None);
    lru.walk_one(N0, Some(&first), &mut 9, |visit| {
        visited.push(visit.item());
        visit.unlock();
        lru.reparent(&first);
        assert!(lru.del(N0, 0));
        second = lru.group(None);
        assert!(lru.add_to(N0, second.as_ref().unwrap(), 1));
        Code::Retry
    });
    assert_eq!(visited, [0]);
    assert_eq!(items(&lru, N0, second.as_ref()), [1]);
}

#[test]
fn l25_what_was_taken_comes_out_the_last_first() {
    let lru = ListLru::new(2, 8).unwrap();
    (0..5).for_each(|item| assert!(lru.add(N1, item)));
    let mut taken = Taken::new(N1);
    let isolated = lru.walk_one(N1, None, &mut 4, |visit| {
        visit.isolate_move(&mut taken);
        Code::Removed
    });
    assert_eq!((isolated, taken.len(), lru.count()), (4, 4, 1));
    assert!(!lru.add(N1, 3) && !lru.del(N1, 3), "it is taken");
    assert_eq!(lru.take(&mut taken, &mut [0; 3]), [3, 2, 1]);
    assert_eq!(lru.take(&mut taken, &mut [0; 3]), [0]);
    assert!(taken.is_empty() && lru.add(N1, 3) && lru.is_valid());
}

#[test]
fn a_request_carries_node_budget_and_group() {
    let lru = ListLru::with_groups(2, 8, 1).unwrap();
    let group = lru.group(None).unwrap();
    (0..4).for_each(|item| assert!(lru.add_to(N1, &group, item)));
    assert_eq!(lru.shrink_count(&ShrinkRequest::new(N1, 0)), 0);
    let mut request = ShrinkRequest { node: N1, group: Some(group), nr_to_scan: 3 };
    assert_eq!(lru.shrink_count(&request), 4);
    assert_eq!(lru.shrink_walk(&mut request, removed), 3);
    assert_eq!((request.nr_to_scan, lru.shrink_count(&request)), (0, 1));
}

#[test]
#[should_panic(expected = "Skip is no answer after the lock was dropped")]
fn skipping_after_the_lock_was_dropped_is_an_error() {
    let lru = ListLru::new(1, 1).unwrap();
    lru.add(N0, 0);
    lru.walk_one(N0, None, &mut 1, |visit| {
        visit.unlock();
        Code::Skip
    });
}

#[test]
#[should_panic(expected = "the group is this container's")]
fn a_group_of_another_container_is_refused() {
    let [one, other] = [(); 2].map(|()| ListLru::with_groups(1, 1, 1).unwrap());
    one.add_to(N0, &other.group(None).unwrap(), 0);
}

#[test]
fn a_callback_that_panics_leaves_the_counts_right_and_the_lock_free() {
    let lru = ListLru::new(1, 4).unwrap();
    (0..2).for_each(|item| assert!(lru.add(N0, item)));
    let walk = || {
        lru.walk_one(N0, None, &mut 9, |visit| {
            visit.isolate();
            panic!("a callback's own mistake")
        })
    };
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(walk)).unwrap_err();
    assert!(lru.is_valid());
    assert_eq!((lru.count(), items(&lru, N0, None)), (1, vec![1]));
}

const FREE: u8 = 0;
const OWNED: u8 = 1;
const LISTED: u8 = 2;
const ITEMS: u32 = 64;

/// Items whose owners are known, so that one that is got twice is noticed.
struct Owned {
    lru: ListLru,
    owners: Vec<AtomicU8>,
    groups: Mutex<Vec<Group>>,
}

impl Owned {
    fn new() -> Self {
        let lru = ListLru::with_groups(2, ITEMS, 8).unwrap();
        let groups = Mutex::new(vec![lru.group(None).unwrap()]);
        let owners = (0..2 * ITEMS).map(|_| AtomicU8::new(FREE)).collect();
        Self { lru, owners, groups }
    }

    fn owner(&self, node: NodeId, item: u32) -> &AtomicU8 {
        &self.owners[(u32::from(node.0) * ITEMS + item) as usize]
    }

    /// An item that is taken off a list was on one.
    fn release(&self, node: NodeId, item: u32) {
        assert_eq!(self.owner(node, item).swap(FREE, Ordering::SeqCst), LISTED);
    }

    fn some_group(&self, random: &mut Random) -> Group {
        let groups = self.groups.lock().unwrap();
        groups[random.below(groups.len())].clone()
    }

    fn add(&self, node: NodeId, item: u32, random: &mut Random) {
        let owner = self.owner(node, item);
        if owner.compare_exchange(FREE, OWNED, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            return;
        }
        owner.store(LISTED, Ordering::SeqCst);
        let added = match random.below(2) {
            0 => self.lru.add(node, item),
            _ => self.lru.add_to(node, &self.some_group(random), item),
        };
        assert!(added, "an item that was free is added");
    }

    fn change_groups(&self, random: &mut Random) {
        let mut groups = self.groups.lock().unwrap();
        let index = random.below(groups.len());
        match random.below(2) {
            0 if groups.len() > 1 => self.lru.reparent(&groups.swap_remove(index)),
            _ => {
                let child = self.lru.group(Some(&groups[index]));
                groups.extend(child);
            }
        }
    }

    fn walk(&self, node: NodeId, random: &mut Random) {
        let (group, mut budget) = (self.some_group(random), 1 + random.below(20) as u64);
        self.lru.walk_one(node, Some(&group), &mut budget, |visit| match random.below(6) {
            0 => Code::Rotate,
            1 => Code::Skip,
            2 => {
                visit.unlock();
                Code::Retry
            }
            3 => {
                visit.isolate();
                visit.unlock();
                self.release(visit.node(), visit.item());
                Code::RemovedRetry
            }
            _ => {
                self.release(visit.node(), visit.item());
                removed(visit)
            }
        });
    }

    fn round(&self, random: &mut Random) {
        let (node, item) = (NodeId(random.below(2) as u8), random.below(ITEMS as usize) as u32);
        match random.below(16) {
            0..8 => self.add(node, item, random),
            8..12 if self.lru.del(node, item) => self.release(node, item),
            8..12 => {}
            12 => self.change_groups(random),
            _ => self.walk(node, random),
        }
    }
}

#[test]
fn many_threads_lose_no_item_and_get_none_twice() {
    limit(120);
    let seed = seed();
    let owned = Owned::new();
    std::thread::scope(|scope| {
        for thread in 1..=6u64 {
            let owned = &owned;
            scope.spawn(move || {
                let mut random = Random::new(seed ^ thread << 32);
                (0..20_000).for_each(|_| owned.round(&mut random));
            });
        }
    });
    let lru = &owned.lru;
    assert!(lru.is_valid());
    let listed = owned.owners.iter().filter(|owner| owner.load(Ordering::SeqCst) == LISTED).count();
    assert_eq!(lru.count(), listed as u64);
    assert_eq!(lru.walk(&mut { u64::MAX }, removed), listed as u64);
    assert_eq!((lru.count(), active(lru)), (0, vec![]));
}
