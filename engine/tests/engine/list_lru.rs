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
fn every_node_of_the_largest_container_is_found_by_its_bit() {
    const LAST: u16 = userswap::list_lru::NODES_MAX as u16 - 1;
    let lru = ListLru::new(userswap::list_lru::NODES_MAX, 4).unwrap();
    for node in 0..=LAST {
        assert!(lru.add(NodeId(node), 0));
        assert_eq!(active(&lru), [NodeId(node)]);
        assert!(lru.del(NodeId(node), 0));
    }
    // The ends of words, and both ends of all.
    let nodes = [0, 62, 63, 64, 127, 128, 960, LAST].map(NodeId);
    nodes.iter().for_each(|node| assert!(lru.add(*node, 1) && lru.add(*node, 2)));
    assert_eq!((active(&lru), lru.count()), (nodes.to_vec(), 16));
    let mut visited = Vec::new();
    let isolated = lru.walk(&mut 15, |visit| {
        visited.push(visit.node());
        removed(visit)
    });
    assert_eq!((isolated, visited), (15, nodes.map(|node| [node; 2]).concat()[..15].to_vec()));
    assert_eq!((active(&lru), lru.count(), lru.is_valid()), (vec![NodeId(LAST)], 1, true));
}

#[test]
#[should_panic(expected = "1025 nodes, not 1 to 1024")]
fn a_container_of_more_nodes_is_refused() {
    _ = ListLru::new(1025, 1);
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
    fn new(nodes: u16) -> Self {
        let lru = ListLru::with_groups(nodes.into(), ITEMS, 8).unwrap();
        let groups = Mutex::new(vec![lru.group(None).unwrap()]);
        let owners = (0..u32::from(nodes) * ITEMS).map(|_| AtomicU8::new(FREE)).collect();
        Self { lru, owners, groups }
    }

    fn owner(&self, node: NodeId, item: u32) -> &AtomicU8 {
        &self.owners[(u32::from(node.0) * ITEMS + item) as usize]
    }

    fn listed(&self) -> u64 {
        let is_listed = |owner: &&AtomicU8| owner.load(Ordering::SeqCst) == LISTED;
        self.owners.iter().filter(is_listed).count() as u64
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

    /// What becomes of an item that a walk has come to.
    fn decide(&self, visit: &mut Visit<'_>, random: &mut Random) -> Code {
        match random.below(6) {
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
        }
    }

    fn walk(&self, node: NodeId, random: &mut Random) {
        let (group, mut budget) = (self.some_group(random), 1 + random.below(20) as u64);
        let isolated = match random.below(3) {
            0 => self.lru.walk(&mut budget, |visit| self.decide(visit, random)),
            _ => {
                let decide = |visit: &mut Visit<'_>| self.decide(visit, random);
                self.lru.walk_one(node, Some(&group), &mut budget, decide)
            }
        };
        assert!(isolated <= 20, "a walk ends with its budget");
    }

    fn round(&self, random: &mut Random) {
        let item = random.below(ITEMS as usize) as u32;
        let node = NodeId(random.below(self.lru.nodes()) as u16);
        match random.below(16) {
            0..8 => self.add(node, item, random),
            8..11 if self.lru.del(node, item) => self.release(node, item),
            8..11 => {}
            11 => assert!(self.lru.count() <= self.owners.len() as u64, "no count is off"),
            12 => self.change_groups(random),
            _ => self.walk(node, random),
        }
    }
}

fn many_threads_lose_nothing(nodes: u16) {
    let seed = seed();
    let owned = Owned::new(nodes);
    std::thread::scope(|scope| {
        for thread in 1..=6u64 {
            let owned = &owned;
            scope.spawn(move || {
                let mut random = Random::new(seed ^ thread << 32);
                (0..20_000).for_each(|_| owned.round(&mut random));
            });
        }
    });
    let (lru, listed) = (&owned.lru, owned.listed());
    assert!(lru.is_valid());
    let of_nodes: Vec<u64> = (0..nodes).map(|node| lru.count_node(NodeId(node))).collect();
    assert_eq!((lru.count(), of_nodes.iter().sum()), (listed, listed), "{nodes} nodes");
    let with_items = of_nodes.iter().filter(|count| **count > 0).count();
    assert_eq!(active(lru).len(), with_items, "{nodes} nodes: the mask has those with items");
    assert_eq!(lru.walk(&mut { u64::MAX }, removed), listed);
    assert_eq!((lru.count(), active(lru), lru.is_valid()), (0, vec![], true));
}

#[test]
fn many_threads_lose_no_item_and_get_none_twice() {
    limit(120);
    [1, 2, 64, 65, 1024].into_iter().for_each(many_threads_lose_nothing);
}
