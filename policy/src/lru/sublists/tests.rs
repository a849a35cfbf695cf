//! Vectors of the specification, then random operations against queues.
use super::super::{Code, Walk};
use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

const UNGROUPED: ListNumber = ListNumber::UNGROUPED;

fn lists(items: usize, groups: u32) -> Sublists<Vec<Link>> {
    let mut lists = Sublists::new(vec![Link::default(); items], groups + 1);
    (1..=groups).for_each(|group| lists.open(ListNumber(group)));
    lists
}

fn items(lists: &Sublists<Vec<Link>>, list: ListNumber) -> Vec<u32> {
    lists.items(list).collect()
}

#[test]
fn l17_an_item_is_added_once() {
    let mut lists = lists(1, 0);
    assert_eq!(lists.add(UNGROUPED, 0), Some(UNGROUPED));
    assert_eq!(lists.add(UNGROUPED, 0), None);
    assert_eq!((lists.count(), lists.count_of(UNGROUPED)), (1, 1));
}

#[test]
fn l18_an_item_never_added_is_not_deleted() {
    let mut lists = lists(1, 0);
    assert_eq!(lists.del(0), None);
    assert_eq!(lists.count(), 0);
}

#[test]
fn l22_a_childs_items_become_the_parents_oldest() {
    let mut lists = lists(5, 2);
    let (parent, child) = (ListNumber(1), ListNumber(2));
    for (list, item) in [(parent, 3), (parent, 4), (child, 1), (child, 2)] {
        lists.add(list, item);
    }
    lists.reparent(child, parent);
    assert_eq!(items(&lists, parent), [1, 2, 3, 4]);
    assert_eq!((lists.count_of(parent), lists.count_of(child), lists.count()), (4, 0, 4));
    assert!(lists.is_valid());
}

#[test]
fn l23_a_negative_count_is_shown_as_none() {
    let mut lists = lists(1, 1);
    lists.table.at_mut(1).count = -1;
    assert_eq!(lists.count_of(ListNumber(1)), -1);
    assert_eq!(shown(lists.count_of(ListNumber(1))), 0);
    assert_eq!(shown(2), 2);
}

#[test]
fn what_is_added_to_a_dead_list_goes_to_the_parents() {
    let mut lists = lists(3, 2);
    let (parent, child) = (ListNumber(1), ListNumber(2));
    lists.add(child, 0);
    lists.reparent(child, parent);
    assert_eq!(lists.add(child, 1), Some(parent));
    assert_eq!(items(&lists, parent), [0, 1]);
    assert_eq!(lists.del(0), Some(parent));
}

#[test]
fn a_number_is_free_again_when_no_item_remembers_it() {
    let mut lists = lists(3, 3);
    let [first, second, third] = [1, 2, 3].map(ListNumber);
    lists.add(third, 0);
    lists.reparent(third, second);
    lists.reparent(second, first);
    assert!(!lists.is_free(second) && !lists.is_free(third), "item 0 is on list 1 by way of both");
    assert_eq!(lists.del(0), Some(first));
    assert!(lists.is_free(second) && lists.is_free(third));
    lists.open(third);
    lists.add(third, 0);
    assert_eq!((items(&lists, third), items(&lists, first)), (vec![0], vec![]));
}

#[test]
fn an_item_in_a_chain_can_neither_be_added_nor_deleted() {
    let mut lists = lists(2, 0);
    lists.add(UNGROUPED, 0);
    let (mut walk, mut chain, mut budget) = (Walk::new(UNGROUPED), Chain::default(), 1);
    walk.next(&lists, &mut budget);
    walk.isolate_move(&mut lists, &mut chain);
    walk.done(&mut lists, Code::Removed);
    assert_eq!((lists.add(UNGROUPED, 0), lists.del(0)), (None, None));
    assert_eq!(lists.pop(&mut chain), Some(0));
    assert_eq!(lists.add(UNGROUPED, 0), Some(UNGROUPED));
}

#[test]
#[should_panic(expected = "list ListNumber(1) is in use")]
fn a_list_in_use_is_not_opened_again() {
    lists(1, 1).open(ListNumber(1));
}

const ITEMS: u32 = 12;
const GROUPS: u32 = 4;

#[derive(Clone, Debug)]
enum Operation {
    Add(u32, u32),
    Del(u32),
    Reparent(u32, u32),
    Open(u32),
    Walk(u32, Vec<Code>, u64),
}

fn operation() -> impl Strategy<Value = Operation> {
    let code = prop_oneof![
        Just(Code::Removed),
        Just(Code::RemovedRetry),
        Just(Code::Rotate),
        Just(Code::Skip),
        Just(Code::Retry),
        Just(Code::Stop),
    ];
    let list = 0..=GROUPS;
    prop_oneof![
        6 => (list.clone(), 0..ITEMS).prop_map(|(list, item)| Operation::Add(list, item)),
        3 => (0..ITEMS).prop_map(Operation::Del),
        1 => (1..=GROUPS, list.clone())
            .prop_map(|(child, parent)| Operation::Reparent(child, parent)),
        1 => (1..=GROUPS).prop_map(Operation::Open),
        3 => (list, prop::collection::vec(code, 1..20), 0..30u64)
            .prop_map(|(list, codes, budget)| Operation::Walk(list, codes, budget)),
    ]
}

/// Queues by list; None for a number that is not a live list. Only live lists are added to.
struct Model {
    queues: Vec<Option<VecDeque<u32>>>,
}

impl Model {
    fn del(&mut self, item: u32) -> bool {
        let mut queues = self.queues.iter_mut().flatten();
        queues.any(|queue| {
            let before = queue.len();
            queue.retain(|other| *other != item);
            queue.len() < before
        })
    }

    fn contains(&self, item: u32) -> bool {
        self.queues.iter().flatten().any(|queue| queue.contains(&item))
    }

    /// The visits of a walk, by the words of the specification.
    fn walk(&mut self, list: u32, codes: &[Code], mut budget: u64) -> (Vec<u32>, u64) {
        let (mut visited, mut isolated) = (Vec::new(), 0);
        let Some(queue) = &mut self.queues[list as usize] else { return (visited, 0) };
        let mut codes = codes.iter().cycle();
        let mut current = queue.front().copied();
        while let Some(item) = current {
            if budget == 0 {
                break;
            }
            budget -= 1;
            visited.push(item);
            let index = queue.iter().position(|other| *other == item).unwrap();
            let next = queue.get(index + 1).copied();
            current = match codes.next().unwrap() {
                Code::Removed => {
                    queue.remove(index);
                    isolated += 1;
                    next
                }
                Code::RemovedRetry => {
                    queue.remove(index);
                    isolated += 1;
                    queue.front().copied()
                }
                Code::Rotate => {
                    queue.remove(index);
                    queue.push_back(item);
                    next
                }
                Code::Skip => next,
                Code::Retry => queue.front().copied(),
                Code::Stop => None,
            };
        }
        (visited, isolated)
    }
}

fn walked(
    lists: &mut Sublists<Vec<Link>>,
    list: u32,
    codes: &[Code],
    mut budget: u64,
) -> (Vec<u32>, u64) {
    let mut walk = Walk::new(ListNumber(list));
    let mut codes = codes.iter().cycle();
    let mut visited = Vec::new();
    while let Some(item) = walk.next(lists, &mut budget) {
        visited.push(item);
        let code = *codes.next().unwrap();
        if matches!(code, Code::Removed | Code::RemovedRetry) {
            walk.isolate(lists);
        }
        walk.done(lists, code);
    }
    (visited, walk.isolated())
}

fn apply(operation: Operation, lists: &mut Sublists<Vec<Link>>, model: &mut Model) {
    let is_live = |model: &Model, list: u32| model.queues[list as usize].is_some();
    match operation {
        Operation::Add(list, item) if is_live(model, list) => {
            let free = !model.contains(item);
            assert_eq!(lists.add(ListNumber(list), item).is_some(), free);
            if free {
                model.queues[list as usize].as_mut().unwrap().push_back(item);
            }
        }
        Operation::Del(item) => assert_eq!(lists.del(item).is_some(), model.del(item)),
        Operation::Reparent(child, parent)
            if child != parent && is_live(model, child) && is_live(model, parent) =>
        {
            lists.reparent(ListNumber(child), ListNumber(parent));
            let mut moved = model.queues[child as usize].take().unwrap();
            let into = model.queues[parent as usize].as_mut().unwrap();
            moved.append(into);
            *into = moved;
        }
        Operation::Open(list) if lists.is_free(ListNumber(list)) => {
            assert!(!is_live(model, list));
            lists.open(ListNumber(list));
            model.queues[list as usize] = Some(VecDeque::new());
        }
        Operation::Walk(list, codes, budget) => {
            let expected = model.walk(list, &codes, budget);
            assert_eq!(walked(lists, list, &codes, budget), expected);
        }
        _ => {}
    }
}

proptest! {
    #[test]
    fn lists_equal_queues(operations in prop::collection::vec(operation(), 1..200)) {
        let mut lists = lists(ITEMS as usize, GROUPS);
        let mut model = Model { queues: vec![Some(VecDeque::new()); GROUPS as usize + 1] };
        for operation in operations {
            apply(operation, &mut lists, &mut model);
            for (number, queue) in (0..).zip(&model.queues) {
                let order = queue.clone().map_or_else(Vec::new, Vec::from);
                prop_assert_eq!(lists.count_of(ListNumber(number)), order.len() as i64);
                prop_assert_eq!(items(&lists, ListNumber(number)), order);
            }
            prop_assert!(lists.is_valid());
        }
        (0..ITEMS).for_each(|item| _ = lists.del(item));
        prop_assert_eq!(lists.count(), 0);
        for group in 1..=GROUPS {
            let list = ListNumber(group);
            prop_assert!(lists.is_live(list) || lists.is_free(list), "nothing holds {:?}", list);
        }
    }
}
