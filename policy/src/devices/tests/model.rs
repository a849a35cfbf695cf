//! Random operations on a table and on a naive one.
use crate::devices::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// What a naive table knows of a device.
#[derive(Clone, Debug)]
struct Plain {
    node: Option<u16>,
    user: Option<u16>,
    leaving: bool,
    full: bool,
}

impl DeviceTable {
    /// The devices that are swapped on, full or not, in order, with their keys.
    fn active(&self) -> impl Iterator<Item = (DeviceId, i32)> + '_ {
        self.active.iter().map(|(id, key)| (DeviceId(id), key))
    }
}

/// The table again: priorities and keys are never stored but counted whenever they are asked for.
struct Model {
    placement: Placement,
    devices: BTreeMap<u8, Plain>,
    /// In the order of swap-on or of the failed swapoff.
    active: Vec<u8>,
    lists: Vec<Vec<u8>>,
}

#[derive(Clone, Default)]
struct ModelWalk {
    visited: Vec<u8>,
    successor: Option<(u16, u8)>,
}

const NODES: u16 = 3;

impl Model {
    fn priority(&self, id: u8) -> i32 {
        let is_automatic = |id: &&u8| self.devices[id].user.is_none();
        match (self.devices[&id].user, self.placement) {
            (Some(priority), _) => i32::from(priority),
            (None, Placement::Spread) => -1,
            (None, Placement::Near) => {
                let mut automatic = self.active.iter().filter(is_automatic);
                -2 - automatic.position(|other| *other == id).unwrap() as i32
            }
        }
    }

    fn key(&self, id: u8, list: usize) -> i32 {
        let device = &self.devices[&id];
        let is_near = self.placement == Placement::Near && device.node == Some(list as u16);
        if device.user.is_none() && is_near { 1 } else { -self.priority(id) }
    }

    fn list_number(&self, node: u16) -> usize {
        if self.placement == Placement::Near { usize::from(node) } else { 0 }
    }

    fn add(&mut self, id: u8) {
        for list in 0..self.lists.len() {
            let is_after = |other: &u8| self.key(*other, list) > self.key(id, list);
            let at = self.lists[list].iter().position(is_after).unwrap_or(self.lists[list].len());
            self.lists[list].insert(at, id);
        }
    }

    fn take_out(&mut self, id: u8) {
        self.lists.iter_mut().for_each(|list| list.retain(|other| *other != id));
    }

    fn set_placement(&mut self, placement: Placement) {
        if placement != self.placement {
            self.placement = placement;
            let mut active = self.active.clone();
            // As the active list is ordered; this sort is stable.
            active.sort_by_key(|id| -self.priority(*id));
            let lists = if placement == Placement::Near { usize::from(NODES) } else { 1 };
            self.lists = vec![Vec::new(); lists];
            active.retain(|id| !self.devices[id].full);
            active.into_iter().for_each(|id| self.add(id));
        }
    }

    fn next(&mut self, node: u16, walk: &mut ModelWalk) -> Option<u8> {
        let mut order: Vec<(u16, u8)> = Vec::new();
        if let Some((node, id)) = walk.successor {
            let list = self.lists[self.list_number(node)].iter();
            order.extend(list.skip_while(|other| **other != id).map(|id| (node, *id)));
        }
        order.extend(self.lists[self.list_number(node)].iter().map(|id| (node, *id)));
        let (node, id) = *order.iter().find(|(_, id)| !walk.visited.contains(id))?;
        walk.visited.push(id);
        let number = self.list_number(node);
        let at = self.lists[number].iter().position(|other| *other == id).unwrap();
        walk.successor = self.lists[number].get(at + 1).map(|next| (node, *next));
        self.lists[number].remove(at);
        let key = self.key(id, number);
        let after = self.lists[number].iter().position(|other| self.key(*other, number) > key);
        let at = after.unwrap_or(self.lists[number].len());
        self.lists[number].insert(at, id);
        Some(id)
    }
}

#[derive(Clone, Debug)]
enum Operation {
    On(Option<u16>, Option<u16>),
    Begin(u8),
    Done(u8),
    Failed(u8),
    Full(u8),
    NotFull(u8),
    Next(u16, usize),
    StartWalk(usize),
    SetPlacement(Placement),
}

fn operation() -> impl Strategy<Value = Operation> {
    let node = proptest::option::of(0..NODES);
    let placement = prop_oneof![4 => Just(Placement::Near), 1 => Just(Placement::Spread)];
    prop_oneof![
        4 => (node, proptest::option::weighted(0.3, 0u16..3)).prop_map(|(n, p)| Operation::On(n, p)),
        2 => (0u8..12).prop_map(Operation::Begin),
        2 => (0u8..12).prop_map(Operation::Done),
        1 => (0u8..12).prop_map(Operation::Failed),
        3 => (0u8..12).prop_map(Operation::Full),
        3 => (0u8..12).prop_map(Operation::NotFull),
        10 => (0..NODES, 0usize..2).prop_map(|(node, walk)| Operation::Next(node, walk)),
        2 => (0usize..2).prop_map(Operation::StartWalk),
        1 => placement.prop_map(Operation::SetPlacement),
    ]
}

/// A table, its model, and two walks through both.
struct Pair {
    table: DeviceTable,
    model: Model,
    walks: [(Search, ModelWalk); 2],
}

impl Pair {
    fn new() -> Self {
        let lists = vec![Vec::new(); usize::from(NODES)];
        let (devices, active) = Default::default();
        Self {
            table: DeviceTable::new(NODES, Placement::Near),
            model: Model { placement: Placement::Near, devices, active, lists },
            walks: Default::default(),
        }
    }

    fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::On(node, user) => self.swapon(node, user),
            Operation::Begin(id) => self.begin(id),
            Operation::Done(id) if self.is_leaving(id) => {
                self.table.swapoff_done(DeviceId(id));
                self.model.devices.remove(&id);
            }
            Operation::Failed(id) if self.is_leaving(id) => {
                self.table.swapoff_failed(DeviceId(id));
                self.model.devices.get_mut(&id).unwrap().leaving = false;
                self.model.active.push(id);
                if !self.model.devices[&id].full {
                    self.model.add(id);
                }
            }
            Operation::Full(id) if self.model.devices.contains_key(&id) => {
                self.table.on_full(DeviceId(id));
                self.model.devices.get_mut(&id).unwrap().full = true;
                self.model.take_out(id);
            }
            Operation::NotFull(id) if self.model.devices.contains_key(&id) => self.not_full(id),
            Operation::Next(node, walk) => {
                let (walk, model_walk) = &mut self.walks[walk];
                let expected = self.model.next(node, model_walk).map(DeviceId);
                assert_eq!(self.table.next(NodeId(node), walk), expected);
            }
            Operation::StartWalk(walk) => self.walks[walk] = Default::default(),
            Operation::SetPlacement(placement) => {
                self.table.set_placement(placement);
                self.model.set_placement(placement);
            }
            Operation::Done(_) | Operation::Failed(_) => {}
            Operation::Full(_) | Operation::NotFull(_) => {}
        }
    }

    fn is_leaving(&self, id: u8) -> bool {
        self.model.devices.get(&id).is_some_and(|device| device.leaving)
    }

    fn swapon(&mut self, node: Option<u16>, user: Option<u16>) {
        let id = (0..DEVICES_MAX as u8).find(|id| !self.model.devices.contains_key(id));
        let result = self.table.swapon(node.map(NodeId), user, 9);
        assert_eq!(result, id.map(DeviceId).ok_or(SwaponError::TooManyDevices));
        if let Some(id) = id {
            self.model.devices.insert(id, Plain { node, user, leaving: false, full: false });
            self.model.active.push(id);
            self.model.add(id);
        }
    }

    fn begin(&mut self, id: u8) {
        let is_on = self.model.active.contains(&id);
        let expected = if is_on { Ok(()) } else { Err(SwapoffError::NotOn(DeviceId(id))) };
        assert_eq!(self.table.swapoff_begin(DeviceId(id)), expected);
        if is_on {
            self.model.take_out(id);
            self.model.active.retain(|other| *other != id);
            self.model.devices.get_mut(&id).unwrap().leaving = true;
        }
    }

    fn not_full(&mut self, id: u8) {
        self.table.on_not_full(DeviceId(id));
        let device = self.model.devices.get_mut(&id).unwrap();
        let comes_back = device.full && !device.leaving;
        device.full = false;
        if comes_back {
            self.model.add(id);
        }
    }

    fn check_against_model(&self) {
        for node in 0..NODES {
            let number = self.model.list_number(node);
            let list = self.model.lists[number].iter();
            let expected: Vec<_> =
                list.map(|id| (DeviceId(*id), self.model.key(*id, number))).collect();
            assert_eq!(self.table.listed(NodeId(node)).collect::<Vec<_>>(), expected);
        }
        let mut active = self.model.active.clone();
        active.sort_by_key(|id| -self.model.priority(*id));
        let expected: Vec<_> =
            active.iter().map(|id| (DeviceId(*id), -self.model.priority(*id))).collect();
        assert_eq!(self.table.active().collect::<Vec<_>>(), expected);
        let known = self.table.devices().map(|(id, _)| id.0);
        assert!(known.eq(self.model.devices.keys().copied()));
    }

    /// The seven invariants of the device lists, as the table shows itself.
    fn check_invariants(&self) {
        let table = &self.table;
        for (id, device) in table.devices() {
            for node in 0..NODES {
                let key = table.listed(NodeId(node)).find(|(other, _)| *other == id);
                assert_eq!(key.is_some(), device.is_listed(), "1, 2: in all lists or in none");
                let Some((_, key)) = key else { continue };
                let is_promoted = device.priority < 0 && device.node == Some(NodeId(node));
                match table.placement() {
                    Placement::Near => assert_eq!(key == 1, is_promoted, "3: promoted at home"),
                    Placement::Spread => assert_eq!(key == 1, device.priority < 0),
                }
                assert_eq!(key <= 0, device.priority >= 0, "7: users' priorities come first");
            }
        }
        for node in 0..NODES {
            assert!(table.listed(NodeId(node)).is_sorted_by_key(|(_, key)| key), "4: sorted");
        }
        let on = table.active().map(|(id, _)| table.device(id).unwrap().priority);
        let automatic: Vec<_> = on.filter(|priority| *priority < 0).collect();
        match table.placement() {
            Placement::Near => {
                let expected = (table.priority_least..=-2).rev();
                assert!(automatic.iter().copied().eq(expected), "5: no gap, no duplicate");
            }
            Placement::Spread => assert!(automatic.iter().all(|priority| *priority == -1)),
        }
    }
}

proptest! {
    #[test]
    fn a_table_equals_lists_whose_keys_are_counted_anew(
        operations in prop::collection::vec(operation(), 1..150),
    ) {
        let mut pair = Pair::new();
        for operation in operations {
            pair.apply(operation);
            pair.check_against_model();
            pair.check_invariants();
        }
    }

    #[test]
    fn a_walk_asks_every_device_with_room_once_whatever_other_walks_do(
        script in prop::collection::vec((operation(), 0..NODES), 0..60),
    ) {
        let mut pair = Pair::new();
        let (mut walk, mut asked) = (Search::new(), Vec::new());
        for (operation, node) in script {
            pair.apply(operation);
            let next = pair.table.next(NodeId(node), &mut walk);
            let listed: Vec<_> = pair.table.listed(NodeId(0)).map(|(id, _)| id).collect();
            match next {
                Some(id) => {
                    prop_assert!(listed.contains(&id) && !asked.contains(&id));
                    asked.push(id);
                }
                None => prop_assert!(listed.iter().all(|id| asked.contains(id))),
            }
            // The model does not know of this walk's turns.
            pair.model.lists = (0..pair.model.lists.len() as u16)
                .map(|node| pair.table.listed(NodeId(node)).map(|(id, _)| id.0).collect())
                .collect();
        }
    }
}
