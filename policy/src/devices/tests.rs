//! Vectors of the specification, and single rules.
mod model;

use super::*;
use std::collections::BTreeMap;

/// Four devices, one per node.
const Q: &str = "A@0 B@1 C@2 D@3";
const D12: &str = "A@0 B@0 C@1 D@2 E@2 F@3";

/// A table whose devices have letters for names.
struct Bench {
    table: DeviceTable,
    ids: BTreeMap<char, DeviceId>,
}

impl Bench {
    /// Runs a script: `A@1=5` swaps A on, on node 1 with priority 5; `-A` off; `!A` off, which fails;
    /// `^A` reports A full, `vA` that it has room.
    fn new(nodes: u16, placement: Placement, script: &str) -> Self {
        let table = DeviceTable::new(nodes, placement);
        let mut bench = Self { table, ids: BTreeMap::new() };
        bench.run(script);
        bench
    }

    fn near(nodes: u16, script: &str) -> Self {
        Self::new(nodes, Placement::Near, script)
    }

    fn run(&mut self, script: &str) {
        for word in script.split_whitespace() {
            let name = word.chars().nth(1).unwrap_or_default();
            match word.chars().next().unwrap() {
                '-' => {
                    self.table.swapoff_begin(self.ids[&name]).unwrap();
                    self.table.swapoff_done(self.ids.remove(&name).unwrap());
                }
                '!' => {
                    self.table.swapoff_begin(self.ids[&name]).unwrap();
                    self.table.swapoff_failed(self.ids[&name]);
                }
                '^' => self.table.on_full(self.ids[&name]),
                'v' => self.table.on_not_full(self.ids[&name]),
                name => {
                    let (word, priority) = word.split_once('=').unzip_or(word);
                    let node = word.split_once('@').map(|(_, node)| NodeId(node.parse().unwrap()));
                    let priority = priority.map(|priority| priority.parse().unwrap());
                    let id = self.table.swapon(node, priority, 100).unwrap();
                    self.ids.insert(name, id);
                }
            }
        }
    }

    fn name(&self, id: DeviceId) -> char {
        *self.ids.iter().find(|(_, other)| **other == id).unwrap().0
    }

    /// The list of a node as `A:1 B:3`.
    fn listed(&self, node: u16) -> String {
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
    fn picks(&mut self, node: u16, count: u32) -> String {
        let mut pick = || self.table.next(NodeId(node), &mut Search::new()).unwrap();
        let picked: Vec<_> = (0..count).map(|_| pick()).collect();
        picked.into_iter().map(|id| self.name(id)).collect()
    }

    /// The devices that one search asks until it finds no more.
    fn walk(&mut self, node: u16) -> String {
        let mut walk = Search::new();
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
type Row = (&'static str, u16, String, &'static str, i16, &'static [&'static str]);

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
fn every_device_of_a_tier_is_asked_before_those_of_the_next() {
    for placement in [Placement::Near, Placement::Spread] {
        let mut table = DeviceTable::new(2, Placement::Near);
        let mut add = |tier, node: Option<u16>, priority| {
            table.swapon_in(tier, node.map(NodeId), priority, 100).unwrap()
        };
        let (slow, near) = (add(TIER_MAX, Some(1), Some(PRIORITY_MAX)), add(1, Some(1), None));
        let (far, first) = (add(1, Some(0), None), add(0, None, None));
        let chosen = add(1, None, Some(0));
        table.set_placement(placement);
        let mut search = Search::new();
        let asked: Vec<_> = std::iter::from_fn(|| table.next(NodeId(1), &mut search)).collect();
        assert_eq!(asked, [first, chosen, near, far, slow]);
        // Those of the lower tiers are passed by where pages come from there.
        let mut search = Search::without(1 << first.0 | 1 << chosen.0);
        let asked: Vec<_> = std::iter::from_fn(|| table.next(NodeId(1), &mut search)).collect();
        assert_eq!(asked.len(), 3);
        assert_eq!((asked[0] == near || asked[0] == far, asked[2]), (true, slow));
        let keys: Vec<_> = table.listed(NodeId(1)).map(|(_, key)| key).collect();
        assert!(keys.iter().all(|key| key.abs() <= i32::from(PRIORITY_MAX)), "{keys:?}");
        // Gaps in the numbering close across tiers, and the order stays.
        table.swapoff_begin(near).unwrap();
        table.swapoff_done(near);
        let order: Vec<_> = table.listed(NodeId(1)).map(|(id, _)| id).collect();
        assert_eq!(order, [first, chosen, far, slow]);
    }
    let mut table = DeviceTable::new(1, Placement::Near);
    let refused = table.swapon_in(TIER_MAX + 1, None, None, 1);
    assert_eq!(refused, Err(SwaponError::TierTooHigh(TIER_MAX + 1)));
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
fn d14_d15_a_full_device_leaves_all_lists_and_comes_back_after_its_equals() {
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
    assert_eq!(table.swapon(Some(node), None, 1), Err(SwaponError::NoSuchNode(node)));
    assert_eq!(table.swapon(None, None, 0), Err(SwaponError::Empty));
    let refused = table.swapon(None, Some(too_high), 1);
    assert_eq!(refused, Err(SwaponError::PriorityTooHigh(too_high)));
    for index in 0..DEVICES_MAX as u8 {
        assert_eq!(table.swapon(None, None, 1), Ok(DeviceId(index)));
    }
    assert_eq!(table.swapon(None, None, 1), Err(SwaponError::TooManyDevices));
    assert_eq!(table.priority_least, -1 - DEVICES_MAX as i16);
}

#[test]
fn a_device_being_swapped_off_is_not_listed_by_a_slot_that_becomes_free() {
    let mut bench = Bench::near(2, "A@0 B@1 ^A");
    let a = bench.ids[&'A'];
    bench.table.swapoff_begin(a).unwrap();
    assert_eq!(bench.table.swapoff_begin(a), Err(SwapoffError::NotOn(a)));
    bench.run("vA vA");
    assert_eq!((bench.listed(0).as_str(), bench.listed(1).as_str()), ("B:2", "B:1"));
    bench.table.swapoff_failed(a);
    assert_eq!(bench.listed(0), "A:1 B:2");
}

#[test]
fn a_device_that_is_full_when_swapoff_fails_stays_off_the_lists() {
    let mut bench = Bench::near(1, "A@0 B@0 ^A ^A !A");
    assert_eq!((bench.listed(0).as_str(), bench.priorities().as_str()), ("B:1", "A-3 B-2"));
    bench.run("vA vA");
    assert_eq!(bench.listed(0), "B:1 A:1");
}

#[test]
fn a_device_being_swapped_off_keeps_its_priority_while_others_move_up() {
    let mut bench = Bench::near(1, "A B C D");
    bench.table.swapoff_begin(bench.ids[&'C']).unwrap();
    bench.table.swapoff_begin(bench.ids[&'A']).unwrap();
    assert_eq!((bench.priorities().as_str(), bench.table.priority_least), ("A-2 B-2 C-4 D-3", -3));
    bench.table.swapoff_failed(bench.ids[&'C']);
    bench.table.swapoff_failed(bench.ids[&'A']);
    assert_eq!(bench.listed(0), "B:2 D:3 C:4 A:5");
}

#[test]
#[should_panic(expected = "device 0 is not being swapped off")]
fn ending_a_swapoff_that_never_began_is_refused() {
    let mut bench = Bench::near(1, "A");
    bench.table.swapoff_done(DeviceId(0));
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
    let mut walk = Search::new();
    assert_eq!(bench.table.next(NodeId(0), &mut walk), Some(bench.ids[&'A']));
    bench.run("-A");
    assert_eq!(bench.table.next(NodeId(0), &mut walk), Some(bench.ids[&'B']));
    assert_eq!(bench.table.next(NodeId(0), &mut walk), Some(bench.ids[&'C']));
    assert_eq!(bench.table.next(NodeId(0), &mut walk), None);
}

#[test]
fn a_walk_whose_successor_left_starts_again_where_the_caller_is() {
    let mut bench = Bench::near(3, "A@0 B@1 C@2");
    let mut walk = Search::new();
    assert_eq!(bench.table.next(NodeId(0), &mut walk), Some(bench.ids[&'A']));
    bench.run("^B");
    assert_eq!(bench.table.next(NodeId(2), &mut walk), Some(bench.ids[&'C']));
    bench.run("vB");
    assert_eq!(bench.table.next(NodeId(1), &mut walk), Some(bench.ids[&'B']));
}

#[test]
fn a_walk_stays_on_its_list_when_the_caller_moves() {
    let mut bench = Bench::near(3, "A@0 B@1 C@2 D@2");
    let mut walk = Search::new();
    let asked = [0, 2, 2, 2].map(|node| bench.table.next(NodeId(node), &mut walk).unwrap());
    assert_eq!(asked.map(|id| bench.name(id)), ['A', 'B', 'C', 'D']);
    assert_eq!(bench.listed(2), "C:1 D:1 A:2 B:3", "turns were taken on node 0");
}

#[test]
fn a_successor_that_left_and_came_back_is_asked_where_it_is_now() {
    let mut bench = Bench::near(1, "A@0=5 B@0=5 C@0=5");
    let mut walk = Search::new();
    bench.table.next(NodeId(0), &mut walk);
    bench.run("^B vB");
    assert_eq!(bench.listed(0), "C:-5 A:-5 B:-5");
    let rest = [(); 2].map(|()| bench.table.next(NodeId(0), &mut walk).unwrap());
    assert_eq!(rest.map(|id| bench.name(id)), ['B', 'C'], "and what stood before it is not missed");
    assert_eq!(bench.table.next(NodeId(0), &mut walk), None);
}
