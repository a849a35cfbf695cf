use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Four devices, one per node.
const Q: &str = "A@0 B@1 C@2 D@3";
const D12: &str = "A@0 B@0 C@1 D@2 E@2 F@3";

impl DeviceTable {
    /// The devices that are swapped on, full or not, in order, with their keys.
    fn active(&self) -> impl Iterator<Item = (DeviceId, i32)> + '_ {
        self.active.iter().map(|(id, key)| (DeviceId(id), key))
    }
}

/// A table whose devices have letters for names.
struct Bench {
    table: DeviceTable,
    ids: BTreeMap<char, DeviceId>,
}

impl Bench {
    /// Runs a script: `A@1=5` swaps A on, on node 1 with priority 5; `-A` off; `!A` off, which fails;
    /// `^A` reports A full, `vA` that it has room.
    fn new(nodes: u8, placement: Placement, script: &str) -> Self {
        let table = DeviceTable::new(nodes, placement);
        let mut bench = Self { table, ids: BTreeMap::new() };
        bench.run(script);
        bench
    }

    fn near(nodes: u8, script: &str) -> Self {
        Self::new(nodes, Placement::Near, script)
    }

    fn run(&mut self, script: &str) {
        for word in script.split_whitespace() {
            let name = word.chars().nth(1).unwrap_or_default();
            match word.chars().next().unwrap() {
                '-' => {
                    self.table.swap_off_begin(self.ids[&name]).unwrap();
                    self.table.swap_off_done(self.ids.remove(&name).unwrap());
                }
                '!' => {
                    self.table.swap_off_begin(self.ids[&name]).unwrap();
                    self.table.swap_off_failed(self.ids[&name]);
                }
                '^' => self.table.on_full(self.ids[&name]),
                'v' => self.table.on_not_full(self.ids[&name]),
                name => {
                    let (word, priority) = word.split_once('=').unzip_or(word);
                    let node = word.split_once('@').map(|(_, node)| NodeId(node.parse().unwrap()));
                    let priority = priority.map(|priority| priority.parse().unwrap());
                    let id = self.table.swap_on(node, priority, 100).unwrap();
                    self.ids.insert(name, id);
                }
            }
        }
    }

    fn name(&self, id: DeviceId) -> char {
        *self.ids.iter().find(|(_, other)| **other == id).unwrap().0
    }

    /// The list of a node as `A:1 B:3`.
    fn listed(&self, node: u8) -> String {
        let listed = self.table.listed(NodeId(node));
        let words: Vec<_> = listed.map(|(id, key)| format!("{}:{key}", self.name(id))).collect();
        words.join(" ")
    }

    /// The priorities as `A-2 B5`, by name.
    fn priorities(&self) -> String {
        let devices =
            self.ids.iter().filter_map(|(name, id)| Some((name, self.table.device(*id)?)));
        let words: Vec<_> = devices.map(|(name, it)| format!("{name}{}", it.priority)).collect();
        words.join(" ")
    }

    /// The devices that as many searches on `node` ask first.
    fn picks(&mut self, node: u8, count: u32) -> String {
        let mut pick = || self.table.next(NodeId(node), &mut Walk::new()).unwrap();
        let picked: Vec<_> = (0..count).map(|_| pick()).collect();
        picked.into_iter().map(|id| self.name(id)).collect()
    }

    /// The devices that one search asks until it finds no more.
    fn walk(&mut self, node: u8) -> String {
        let mut walk = Walk::new();
        let asked: Vec<_> =
            core::iter::from_fn(|| self.table.next(NodeId(node), &mut walk)).take(99).collect();
        asked.into_iter().map(|id| self.name(id)).collect()
    }
}

/// What `Option::unzip` does, with the whole word if there is nothing to split.
trait UnzipOr<'a> {
    fn unzip_or(self, whole: &'a str) -> (&'a str, Option<&'a str>);
}

impl<'a> UnzipOr<'a> for Option<(&'a str, &'a str)> {
    fn unzip_or(self, whole: &'a str) -> (&'a str, Option<&'a str>) {
        self.map_or((whole, None), |(front, back)| (front, Some(back)))
    }
}

/// Number, nodes, script, priorities with the least one, lists from node 0 on.
type Row = (&'static str, u8, String, &'static str, i16, &'static [&'static str]);

fn after_q(script: &str) -> String {
    format!("{Q} {script}")
}

#[rustfmt::skip]
fn rows() -> Vec<Row> {
    vec![
        ("D1", 4, Q.into(), "A-2 B-3 C-4 D-5", -5,
            &["A:1 B:3 C:4 D:5", "B:1 A:2 C:4 D:5", "C:1 A:2 B:3 D:5", "D:1 A:2 B:3 C:4"]),
        ("D2", 4, after_q("-B"), "A-2 C-3 D-4", -4,
            &["A:1 C:3 D:4", "A:2 C:3 D:4", "C:1 A:2 D:4", "D:1 A:2 C:3"]),
        ("D3", 4, after_q("-B B@1"), "A-2 B-5 C-3 D-4", -5,
            &["A:1 C:3 D:4 B:5", "B:1 A:2 C:3 D:4", "C:1 A:2 D:4 B:5", "D:1 A:2 C:3 B:5"]),
        ("D4", 4, after_q("-A"), "B-2 C-3 D-4", -4,
            &["B:2 C:3 D:4", "B:1 C:3 D:4", "C:1 B:2 D:4", "D:1 B:2 C:3"]),
        ("D5", 4, after_q("E@2=5"), "A-2 B-3 C-4 D-5 E5", -5,
            &["E:-5 A:1 B:3 C:4 D:5", "E:-5 B:1 A:2 C:4 D:5", "E:-5 C:1 A:2 B:3 D:5", "E:-5 D:1 A:2 B:3 C:4"]),
        ("D6", 4, after_q("!B"), "A-2 B-5 C-3 D-4", -5,
            &["A:1 C:3 D:4 B:5", "B:1 A:2 C:3 D:4", "C:1 A:2 D:4 B:5", "D:1 A:2 C:3 B:5"]),
        ("D7", 4, after_q("E@2=5 -B"), "A-2 C-3 D-4 E5", -4,
            &["E:-5 A:1 C:3 D:4", "E:-5 A:2 C:3 D:4", "E:-5 C:1 A:2 D:4", "E:-5 D:1 A:2 C:3"]),
        ("D8", 4, after_q("E@2=5 -E"), "A-2 B-3 C-4 D-5", -5,
            &["A:1 B:3 C:4 D:5", "B:1 A:2 C:4 D:5", "C:1 A:2 B:3 D:5", "D:1 A:2 B:3 C:4"]),
        ("D9", 4, after_q("E"), "A-2 B-3 C-4 D-5 E-6", -6,
            &["A:1 B:3 C:4 D:5 E:6", "B:1 A:2 C:4 D:5 E:6", "C:1 A:2 B:3 D:5 E:6", "D:1 A:2 B:3 C:4 E:6"]),
        ("D10", 2, "N A@0 B@1".into(), "A-3 B-4 N-2", -4,
            &["A:1 N:2 B:4", "B:1 N:2 A:3"]),
        ("D11", 4, format!("F@1=0 {Q}"), "A-2 B-3 C-4 D-5 F0", -5,
            &["F:0 A:1 B:3 C:4 D:5", "F:0 B:1 A:2 C:4 D:5", "F:0 C:1 A:2 B:3 D:5", "F:0 D:1 A:2 B:3 C:4"]),
        ("D12", 4, D12.into(), "A-2 B-3 C-4 D-5 E-6 F-7", -7,
            &["A:1 B:1 C:4 D:5 E:6 F:7", "C:1 A:2 B:3 D:5 E:6 F:7", "D:1 E:1 A:2 B:3 C:4 F:7", "F:1 A:2 B:3 C:4 D:5 E:6"]),
        ("D18, C full", 4, after_q("^C"), "A-2 B-3 C-4 D-5", -5,
            &["A:1 B:3 D:5", "B:1 A:2 D:5", "A:2 B:3 D:5", "D:1 A:2 B:3"]),
        ("D18, B off", 4, after_q("^C -B"), "A-2 C-3 D-4", -4,
            &["A:1 D:4", "A:2 D:4", "A:2 D:4", "D:1 A:2"]),
        ("D18", 4, after_q("^C -B vC"), "A-2 C-3 D-4", -4,
            &["A:1 C:3 D:4", "A:2 C:3 D:4", "C:1 A:2 D:4", "D:1 A:2 C:3"]),
        ("D19", 2, "A@0 B@0 C@1 -A".into(), "B-2 C-3", -3,
            &["B:1 C:3", "C:1 B:2"]),
        ("D20", 2, "B@1 A@0".into(), "A-3 B-2", -3,
            &["A:1 B:2", "B:1 A:3"]),
    ]
}

#[test]
fn priorities_and_lists_are_those_of_the_per_node_kernels() {
    for (row, nodes, script, priorities, least, lists) in rows() {
        let bench = Bench::near(nodes, &script);
        assert_eq!(bench.priorities(), priorities, "{row}");
        assert_eq!(bench.table.priority_least, least, "{row}");
        for node in 0..nodes {
            assert_eq!(bench.listed(node), lists[usize::from(node)], "{row}, node {node}");
        }
    }
}

#[test]
fn d13_devices_of_a_node_take_turns_before_any_other() {
    let mut bench = Bench::near(4, D12);
    assert_eq!(bench.picks(0, 6), "ABABAB");
    assert_eq!(bench.picks(2, 4), "DEDE");
    assert_eq!(bench.picks(1, 3), "CCC");
}

#[test]
fn d14_d15_a_full_device_leaves_all_lists_and_comes_back_behind_its_equals() {
    let mut bench = Bench::near(4, D12);
    bench.picks(0, 2);
    bench.run("^A");
    assert_eq!(bench.picks(0, 3), "BBB");
    assert!((0..4).all(|node| !bench.listed(node).contains('A')));
    bench.run("vA");
    assert_eq!(bench.listed(0), "B:1 A:1 C:4 D:5 E:6 F:7");
    assert_eq!(bench.picks(0, 4), "BABA");
}

#[test]
fn d16_d17_nodes_rotate_independently() {
    let mut bench = Bench::near(2, "X@0=10 Y@0=10 Z@1=10");
    assert_eq!(bench.picks(0, 7), "XYZXYZX");
    assert_eq!(bench.picks(1, 4), "XYZX");
    bench.run("W@0");
    assert_eq!(bench.listed(0), "Y:-10 Z:-10 X:-10 W:1");
    assert_eq!(bench.listed(1), "Y:-10 Z:-10 X:-10 W:2");
}

#[test]
fn d22_spread_devices_are_equal_and_keep_their_priority() {
    let mut bench = Bench::new(4, Placement::Spread, "A B C D");
    assert_eq!((bench.priorities().as_str(), bench.table.priority_least), ("A-1 B-1 C-1 D-1", -1));
    assert_eq!(bench.picks(0, 5), "ABCDA");
    assert_eq!(bench.picks(3, 2), "BC", "there is one list, on whatever node");
    bench.run("E@1 -B !C F@0=3");
    assert_eq!(bench.priorities(), "A-1 C-1 D-1 E-1 F3");
    assert_eq!(bench.listed(2), "F:-3 D:1 A:1 E:1 C:1");
}

#[test]
fn changing_the_placement_numbers_anew_and_keeps_what_users_gave() {
    let mut bench = Bench::near(4, "A@0 B@1 E@2=5 C@2 ^B !A");
    bench.table.set_placement(Placement::Spread);
    assert_eq!(bench.priorities(), "A-1 B-1 C-1 E5");
    assert_eq!(bench.listed(1), "E:-5 C:1 A:1");
    bench.run("vB");
    bench.table.set_placement(Placement::Near);
    assert_eq!((bench.priorities().as_str(), bench.table.priority_least), ("A-4 B-2 C-3 E5", -4));
    assert_eq!(bench.listed(0), "E:-5 A:1 B:2 C:3");
    assert_eq!(bench.listed(2), "E:-5 C:1 B:2 A:4");
}

#[test]
fn an_index_is_used_again_and_the_lowest_first() {
    let mut bench = Bench::near(1, "A B C D -B -C");
    bench.run("X");
    assert_eq!((bench.ids[&'X'], bench.table.indexes_used()), (DeviceId(1), 4));
    let ids: Vec<_> = bench.table.devices().map(|(id, _)| id.0).collect();
    assert_eq!(ids, [0, 1, 3]);
}

#[test]
fn what_cannot_be_swapped_on_is_refused() {
    let mut table = DeviceTable::new(2, Placement::Near);
    let too_high = PRIORITY_MAX + 1;
    let node = NodeId(2);
    assert_eq!(table.swap_on(Some(node), None, 1), Err(SwapOnError::NoSuchNode(node)));
    assert_eq!(table.swap_on(None, None, 0), Err(SwapOnError::Empty));
    let refused = table.swap_on(None, Some(too_high), 1);
    assert_eq!(refused, Err(SwapOnError::PriorityTooHigh(too_high)));
    for index in 0..DEVICES_MAX as u8 {
        assert_eq!(table.swap_on(None, None, 1), Ok(DeviceId(index)));
    }
    assert_eq!(table.swap_on(None, None, 1), Err(SwapOnError::TooManyDevices));
    assert_eq!(table.priority_least, -33);
}

#[test]
fn a_device_being_swapped_off_is_not_listed_by_a_slot_that_becomes_free() {
    let mut bench = Bench::near(2, "A@0 B@1 ^A");
    let a = bench.ids[&'A'];
    bench.table.swap_off_begin(a).unwrap();
    assert_eq!(bench.table.swap_off_begin(a), Err(SwapOffError::NotOn(a)));
    bench.run("vA vA");
    assert_eq!((bench.listed(0).as_str(), bench.listed(1).as_str()), ("B:2", "B:1"));
    bench.table.swap_off_failed(a);
    assert_eq!(bench.listed(0), "A:1 B:2");
}

#[test]
fn a_device_that_is_full_when_swap_off_fails_stays_off_the_lists() {
    let mut bench = Bench::near(1, "A@0 B@0 ^A ^A !A");
    assert_eq!((bench.listed(0).as_str(), bench.priorities().as_str()), ("B:1", "A-3 B-2"));
    bench.run("vA vA");
    assert_eq!(bench.listed(0), "B:1 A:1");
}

#[test]
fn a_device_being_swapped_off_keeps_its_priority_while_others_move_up() {
    let mut bench = Bench::near(1, "A B C D");
    bench.table.swap_off_begin(bench.ids[&'C']).unwrap();
    bench.table.swap_off_begin(bench.ids[&'A']).unwrap();
    assert_eq!((bench.priorities().as_str(), bench.table.priority_least), ("A-2 B-2 C-4 D-3", -3));
    bench.table.swap_off_failed(bench.ids[&'C']);
    bench.table.swap_off_failed(bench.ids[&'A']);
    assert_eq!(bench.listed(0), "B:2 D:3 C:4 A:5");
}

#[test]
#[should_panic(expected = "device 0 is not being swapped off")]
fn ending_a_swap_off_that_never_began_is_refused() {
    let mut bench = Bench::near(1, "A");
    bench.table.swap_off_done(DeviceId(0));
}

#[test]
fn resizing_changes_what_is_shown_and_nothing_else() {
    let mut bench = Bench::near(1, "A");
    bench.table.resize(DeviceId(0), 7);
    let device = *bench.table.device(DeviceId(0)).unwrap();
    assert_eq!((device.pages, device.room, device.is_listed()), (7, Room::Left, true));
}

#[test]
fn a_walk_past_equal_devices_that_yield_nothing_ends() {
    let mut bench = Bench::near(1, "A@0=5 B@0=5 C@0=5 D@0 E@0");
    assert_eq!(bench.walk(0), "ABCDE");
    assert_eq!(bench.listed(0), "A:-5 B:-5 C:-5 D:1 E:1");
    assert_eq!(Bench::near(1, "").walk(0), "");
}

#[test]
fn a_walk_goes_on_at_its_successor_after_what_it_asked_left() {
    let mut bench = Bench::near(1, "A@0 B@0 C@0");
    let mut walk = Walk::new();
    assert_eq!(bench.table.next(NodeId(0), &mut walk), Some(bench.ids[&'A']));
    bench.run("-A");
    assert_eq!(bench.table.next(NodeId(0), &mut walk), Some(bench.ids[&'B']));
    assert_eq!(bench.table.next(NodeId(0), &mut walk), Some(bench.ids[&'C']));
    assert_eq!(bench.table.next(NodeId(0), &mut walk), None);
}

#[test]
fn a_walk_whose_successor_left_starts_again_where_the_caller_is() {
    let mut bench = Bench::near(3, "A@0 B@1 C@2");
    let mut walk = Walk::new();
    assert_eq!(bench.table.next(NodeId(0), &mut walk), Some(bench.ids[&'A']));
    bench.run("^B");
    assert_eq!(bench.table.next(NodeId(2), &mut walk), Some(bench.ids[&'C']));
    bench.run("vB");
    assert_eq!(bench.table.next(NodeId(1), &mut walk), Some(bench.ids[&'B']));
}

#[test]
fn a_walk_stays_on_its_list_when_the_caller_moves() {
    let mut bench = Bench::near(3, "A@0 B@1 C@2 D@2");
    let mut walk = Walk::new();
    let asked = [0, 2, 2, 2].map(|node| bench.table.next(NodeId(node), &mut walk).unwrap());
    assert_eq!(asked.map(|id| bench.name(id)), ['A', 'B', 'C', 'D']);
    assert_eq!(bench.listed(2), "C:1 D:1 A:2 B:3", "turns were taken on node 0");
}

#[test]
fn a_successor_that_left_and_came_back_is_asked_at_its_new_place() {
    let mut bench = Bench::near(1, "A@0=5 B@0=5 C@0=5");
    let mut walk = Walk::new();
    bench.table.next(NodeId(0), &mut walk);
    bench.run("^B vB");
    assert_eq!(bench.listed(0), "C:-5 A:-5 B:-5");
    let rest = [(); 2].map(|()| bench.table.next(NodeId(0), &mut walk).unwrap());
    assert_eq!(rest.map(|id| bench.name(id)), ['B', 'C'], "and what stood before it is not missed");
    assert_eq!(bench.table.next(NodeId(0), &mut walk), None);
}

/// What a naive table knows of a device.
#[derive(Clone, Debug)]
struct Plain {
    node: Option<u8>,
    user: Option<u16>,
    leaving: bool,
    full: bool,
}

/// The table again: priorities and keys are never stored but counted whenever they are asked for.
struct Model {
    placement: Placement,
    devices: BTreeMap<u8, Plain>,
    /// In the order of swap-on or of the failed swap-off.
    active: Vec<u8>,
    lists: Vec<Vec<u8>>,
}

#[derive(Clone, Default)]
struct ModelWalk {
    visited: Vec<u8>,
    successor: Option<(u8, u8)>,
}

const NODES: u8 = 3;

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
        let is_near = self.placement == Placement::Near && device.node == Some(list as u8);
        if device.user.is_none() && is_near { 1 } else { -self.priority(id) }
    }

    fn list_number(&self, node: u8) -> usize {
        if self.placement == Placement::Near { usize::from(node) } else { 0 }
    }

    fn add(&mut self, id: u8) {
        for list in 0..self.lists.len() {
            let behind = |other: &u8| self.key(*other, list) > self.key(id, list);
            let at = self.lists[list].iter().position(behind).unwrap_or(self.lists[list].len());
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

    fn next(&mut self, node: u8, walk: &mut ModelWalk) -> Option<u8> {
        let mut order: Vec<(u8, u8)> = Vec::new();
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
        let behind = self.lists[number].iter().position(|other| self.key(*other, number) > key);
        let at = behind.unwrap_or(self.lists[number].len());
        self.lists[number].insert(at, id);
        Some(id)
    }
}

#[derive(Clone, Debug)]
enum Operation {
    On(Option<u8>, Option<u16>),
    Begin(u8),
    Done(u8),
    Failed(u8),
    Full(u8),
    NotFull(u8),
    Next(u8, usize),
    StartWalk(usize),
    Place(Placement),
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
        1 => placement.prop_map(Operation::Place),
    ]
}

/// A table, its model, and two walks through both.
struct Pair {
    table: DeviceTable,
    model: Model,
    walks: [(Walk, ModelWalk); 2],
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
            Operation::On(node, user) => self.swap_on(node, user),
            Operation::Begin(id) => self.begin(id),
            Operation::Done(id) if self.is_leaving(id) => {
                self.table.swap_off_done(DeviceId(id));
                self.model.devices.remove(&id);
            }
            Operation::Failed(id) if self.is_leaving(id) => {
                self.table.swap_off_failed(DeviceId(id));
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
            Operation::Place(placement) => {
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

    fn swap_on(&mut self, node: Option<u8>, user: Option<u16>) {
        let id = (0..32).find(|id| !self.model.devices.contains_key(id));
        let result = self.table.swap_on(node.map(NodeId), user, 9);
        assert_eq!(result, id.map(DeviceId).ok_or(SwapOnError::TooManyDevices));
        if let Some(id) = id {
            self.model.devices.insert(id, Plain { node, user, leaving: false, full: false });
            self.model.active.push(id);
            self.model.add(id);
        }
    }

    fn begin(&mut self, id: u8) {
        let is_on = self.model.active.contains(&id);
        let expected = if is_on { Ok(()) } else { Err(SwapOffError::NotOn(DeviceId(id))) };
        assert_eq!(self.table.swap_off_begin(DeviceId(id)), expected);
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
        let (mut walk, mut asked) = (Walk::new(), Vec::new());
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
            pair.model.lists = (0..pair.model.lists.len() as u8)
                .map(|node| pair.table.listed(NodeId(node)).map(|(id, _)| id.0).collect())
                .collect();
        }
    }
}
