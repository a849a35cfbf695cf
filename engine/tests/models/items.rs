//! The container of reclaimable items: `list_lru/`.
use crate::list_lru::{Code, ListLru, Visit};
use loom::{model, thread};
use std::sync::Arc;
use userswap::NodeId;

const NODE: NodeId = NodeId(0);

fn removed(visit: &mut Visit<'_>) -> Code {
    visit.isolate();
    Code::Removed
}

/// Walks as inode reclaim does: the first item needs the lock dropped before it can go.
fn walk_with_a_dropped_lock(lru: &ListLru) -> Vec<u32> {
    let (mut isolated, mut retried) = (Vec::new(), false);
    let count = lru.walk_one(NODE, None, &mut 4, |visit| {
        if !retried {
            retried = true;
            visit.unlock();
            return Code::Retry;
        }
        visit.isolate();
        isolated.push(visit.item());
        visit.unlock();
        Code::RemovedRetry
    });
    assert_eq!(count, isolated.len() as u64);
    isolated
}

/// What is left is what the counts say.
fn assert_left(lru: &ListLru, mut left: Vec<u32>) {
    assert!(lru.is_valid());
    assert_eq!(lru.count(), left.len() as u64);
    let mut found = Vec::new();
    lru.walk(&mut 9, |visit| {
        found.push(visit.item());
        removed(visit)
    });
    found.sort_unstable();
    left.sort_unstable();
    assert_eq!(found, left);
}

#[test]
fn two_walkers_and_a_deleter_get_each_item_once() {
    model(|| {
        let lru = Arc::new(ListLru::new(1, 4).unwrap());
        assert!(lru.add(NODE, 0) && lru.add(NODE, 1));
        let walkers = [(); 2].map(|()| {
            let lru = lru.clone();
            thread::spawn(move || walk_with_a_dropped_lock(&lru))
        });
        let deleted = lru.del(NODE, 1);
        let mut got: Vec<u32> =
            walkers.into_iter().flat_map(|walker| walker.join().unwrap()).collect();
        got.extend(deleted.then_some(1));
        got.sort_unstable();
        assert_eq!(got, [0, 1]);
        assert_left(&lru, vec![]);
    });
}

#[test]
fn an_item_added_and_deleted_beside_a_walk_is_taken_once() {
    model(|| {
        let lru = Arc::new(ListLru::new(1, 4).unwrap());
        assert!(lru.add(NODE, 0));
        let walker = {
            let lru = lru.clone();
            thread::spawn(move || walk_with_a_dropped_lock(&lru))
        };
        let adder = {
            let lru = lru.clone();
            thread::spawn(move || {
                assert!(lru.add(NODE, 1));
                lru.del(NODE, 1)
            })
        };
        let got = walker.join().unwrap();
        let deleted = adder.join().unwrap();
        assert_eq!(got.contains(&1), !deleted, "it is got by one of the two");
        assert!(got.contains(&0));
        assert_left(&lru, vec![]);
    });
}

#[test]
fn nothing_is_lost_when_a_group_ends_under_adders_and_a_walk() {
    model(|| {
        let lru = Arc::new(ListLru::with_groups(1, 4, 2).unwrap());
        let parent = lru.group(None).unwrap();
        let child = lru.group(Some(&parent)).unwrap();
        assert!(lru.add_to(NODE, &child, 0));
        let adder = {
            let (lru, child) = (lru.clone(), child.clone());
            thread::spawn(move || assert!(lru.add_to(NODE, &child, 1)))
        };
        let walker = {
            let (lru, child) = (lru.clone(), child.clone());
            thread::spawn(move || {
                let mut got = Vec::new();
                lru.walk_one(NODE, Some(&child), &mut 2, |visit| {
                    visit.isolate();
                    got.push(visit.item());
                    visit.unlock();
                    Code::RemovedRetry
                });
                got
            })
        };
        lru.reparent(&child);
        adder.join().unwrap();
        let got = walker.join().unwrap();
        assert_eq!(lru.count_one(NODE, Some(&child)), 0);
        let left: Vec<u32> = (0..2).filter(|item| !got.contains(item)).collect();
        assert_eq!(lru.count_one(NODE, Some(&parent)), left.len() as u64);
        assert_left(&lru, left);
    });
}

#[test]
fn a_child_and_its_parent_end_at_once_and_their_items_reach_the_top() {
    model(|| {
        let lru = Arc::new(ListLru::with_groups(1, 4, 2).unwrap());
        let parent = lru.group(None).unwrap();
        let child = lru.group(Some(&parent)).unwrap();
        assert!(lru.add_to(NODE, &child, 0) && lru.add_to(NODE, &parent, 1));
        let other = {
            let (lru, parent) = (lru.clone(), parent.clone());
            thread::spawn(move || lru.reparent(&parent))
        };
        let deleter = {
            let lru = lru.clone();
            thread::spawn(move || lru.del(NODE, 0))
        };
        lru.reparent(&child);
        other.join().unwrap();
        assert!(deleter.join().unwrap(), "it is on some list all the time");
        assert_eq!(lru.count_one(NODE, None), 1);
        assert_left(&lru, vec![1]);
    });
}
