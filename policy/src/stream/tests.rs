//! Windows of single scans, then random faults against what must always hold.
use super::course::DISORDER;
use super::*;
use proptest::prelude::*;

const NO_AHEAD: Limits = Limits { page_cluster: 3, run_first: 4, run_max: 64, ahead_max: 0 };
const AHEAD: Limits = Limits { page_cluster: 3, run_first: 4, run_max: 64, ahead_max: 256 };

fn fault(page: u32) -> Fault {
    readahead::tests::fault(page, 1)
}

fn window(first: u32, count: u32) -> Window {
    Window::run(first, count)
}

fn stepped(first: u32, count: u32, step: i32) -> Window {
    Window { first, count, step, ahead: None }
}

fn ahead(first: u32, count: u32, marker: u32) -> Ahead {
    Ahead { first, count, step: 1, marker }
}

/// Which way a scan goes.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Way {
    Up,
    Down,
}

/// How often a scan over 4000 pages faults that comes in this order within each block of pages.
fn faults_of_disordered(block: &[u32], way: Way) -> u32 {
    let (mut streams, mut served, mut faults) = (Streams::new(), [false; 8192], 0);
    for index in 0..4000 {
        let page =
            index / block.len() as u32 * block.len() as u32 + block[index as usize % block.len()];
        let page = if way == Way::Down { 7000 - page } else { page };
        if served[page as usize] {
            continue;
        }
        faults += 1;
        let found = streams.window(&fault(page), &NO_AHEAD);
        for index in 0..found.count {
            served[at(found.first, found.step, index) as usize] = true;
        }
        assert!(served[page as usize]);
    }
    faults
}

#[test]
fn pages_that_come_a_little_out_of_order_are_a_stream_as_well() {
    let in_order = faults_of_disordered(&[0], Way::Up);
    for block in [
        &[1, 0][..],
        &[3, 2, 1, 0],
        &[2, 3, 0, 1],
        &[1, 3, 0, 2],
        &[7, 6, 5, 4, 3, 2, 1, 0],
        &[4, 5, 6, 7, 0, 1, 2, 3],
        &[5, 1, 7, 3, 0, 6, 2, 4],
    ] {
        for way in [Way::Up, Way::Down] {
            let faults = faults_of_disordered(block, way);
            assert!(faults <= in_order + 12, "{block:?}: {faults} faults, {in_order} in order");
        }
    }
}

/// Faults in order, with the windows they must get.
fn expect(streams: &mut Streams, limits: Limits, table: &[Window]) {
    for expected in table {
        let found = streams.window(&fault(expected.first), &limits);
        assert_eq!(found, *expected, "fault on page {}", expected.first);
    }
}

/// Brings a stream from page 0 to its first window ahead: pages 125 to 188.
fn reading_ahead() -> (Streams, Ahead) {
    let mut streams = Streams::new();
    for page in [0, 1, 5, 13, 29] {
        assert_eq!(streams.window(&fault(page), &AHEAD).ahead, None);
    }
    let window = streams.window(&fault(61), &AHEAD);
    assert_eq!((window.first, window.count), (61, 64));
    (streams, window.ahead.expect("a full window reads ahead"))
}

#[test]
fn a_sequential_scan_doubles_up_to_the_limit() {
    let table = [(100, 1), (101, 4), (105, 8), (113, 16), (129, 32), (161, 64), (225, 64)];
    expect(&mut Streams::new(), NO_AHEAD, &table.map(|(first, count)| window(first, count)));
}

#[test]
fn a_backward_scan_gets_windows_that_go_backwards_from_the_fault() {
    let table = [stepped(50, 1, 1), stepped(49, 4, -1), stepped(45, 8, -1), stepped(37, 16, -1)];
    let mut streams = Streams::new();
    expect(&mut streams, NO_AHEAD, &table);
    // No page has a number below 0.
    expect(&mut streams, NO_AHEAD, &[stepped(21, 22, -1)]);
}

#[test]
fn a_backward_scan_reads_ahead_too() {
    let mut streams = Streams::new();
    for page in [1000, 999, 995, 987, 971] {
        assert_eq!(streams.window(&fault(page), &AHEAD).ahead, None);
    }
    let first = streams.window(&fault(939), &AHEAD).ahead.expect("a full window reads ahead");
    assert_eq!(first, Ahead { first: 875, count: 64, step: -1, marker: 827 });
    let second = streams.on_marker(827, 0, &AHEAD);
    assert_eq!(second, Some(Ahead { first: 811, count: 128, step: -1, marker: 715 }));
}

#[test]
fn three_faults_at_equal_distances_make_a_stride() {
    for step in [2, 3, 17, 64, -2, -3, -64] {
        let mut streams = Streams::new();
        let page = |steps: i32| 100_000u32.wrapping_add_signed(step * steps);
        expect(&mut streams, AHEAD, &[window(page(0), 1), window(page(1), 1)]);
        for (index, count) in [(2, 4), (6, 8), (14, 16), (30, 32)] {
            expect(&mut streams, AHEAD, &[stepped(page(index), count, step)]);
        }
        let found = streams.window(&fault(page(62)), &AHEAD).ahead;
        let expected = Ahead { first: page(126), count: 64, step, marker: page(174) };
        assert_eq!(found, Some(expected));
        assert!(streams.on_marker(page(174), 0, &AHEAD).is_some());
    }
}

#[test]
fn two_strided_scans_interleave_and_pages_between_are_neither_ones() {
    let mut streams = Streams::new();
    let table = [
        window(1000, 1),
        window(9000, 1),
        window(1003, 1),
        window(8995, 1),
        stepped(1006, 4, 3),
        stepped(8990, 4, -5),
        stepped(1018, 8, 3),
        stepped(8970, 8, -5),
        window(1043, 1),
        stepped(1042, 16, 3),
    ];
    expect(&mut streams, AHEAD, &table);
}

#[test]
fn interleaved_scans_are_told_apart_even_close_to_each_other() {
    let table = [
        window(100, 1),
        window(5000, 1),
        window(101, 4),
        stepped(4999, 4, -1),
        window(105, 8),
        stepped(4995, 8, -1),
        window(113, 16),
        stepped(4987, 16, -1),
    ];
    expect(&mut Streams::new(), AHEAD, &table);
    let table = [window(100, 1), window(130, 1), window(101, 4), window(131, 4), window(105, 8)];
    expect(&mut Streams::new(), AHEAD, &table);
}

#[test]
fn random_faults_get_one_page_each_and_never_read_ahead() {
    let mut streams = Streams::new();
    for step in 0..10_000u32 {
        // A full-period generator over every 256th page: no two are near each other.
        let page = step.wrapping_mul(2_654_435_761) >> 4 << 8;
        assert_eq!(streams.window(&fault(page), &AHEAD), window(page, 1));
    }
    assert_eq!(streams.take_wasted(), 0);
}

#[test]
fn a_jump_shorter_than_the_last_window_goes_on_with_a_smaller_one() {
    let table = [
        (100, 1),
        (101, 4),
        (105, 8),
        (113, 16),
        (129, 32),
        // 31 pages after page 161.
        (192, 8),
        (200, 16),
        (216 + 16, 1),
    ];
    expect(&mut Streams::new(), NO_AHEAD, &table.map(|(first, count)| window(first, count)));
}

#[test]
fn a_jump_beyond_what_is_read_ahead_reads_nothing_ahead() {
    let (mut streams, _) = reading_ahead();
    expect(&mut streams, AHEAD, &[window(189 + 63, 16)]);
}

#[test]
fn the_same_fault_twice_stays_one_stream() {
    let mut streams = Streams::new();
    expect(&mut streams, AHEAD, &[window(10, 1), window(10, 1)]);
    let started = |stream: &&Stream| !matches!(stream.course, Course::Unused);
    assert_eq!(streams.streams.iter().filter(started).count(), 1);
}

#[test]
fn a_full_window_reads_ahead_and_markers_keep_it_going() {
    let (mut streams, first) = reading_ahead();
    assert_eq!(first, ahead(125, 64, 173));
    assert_eq!(streams.on_marker(173, 0, &AHEAD), Some(ahead(189, 128, 285)));
    assert_eq!(streams.on_marker(173, 0, &AHEAD), None, "a marker is told once");
    assert_eq!(streams.on_marker(285, 0, &AHEAD), Some(ahead(317, 256, 509)));
    assert_eq!(streams.on_marker(509, 0, &AHEAD), Some(ahead(573, 256, 765)));
}

#[test]
fn a_fault_inside_the_window_ahead_is_served_alone_and_may_go_on_from_there() {
    let (mut streams, first) = reading_ahead();
    expect(&mut streams, AHEAD, &[window(125, 1), window(140, 1), window(141, 4)]);
    assert!(streams.on_marker(first.marker, 0, &AHEAD).is_some());
    // The rest of the first window may still be on its way when the second one starts.
    expect(&mut streams, AHEAD, &[window(180, 1), window(200, 1)]);
}

#[test]
fn two_windows_back_is_no_longer_being_read() {
    let (mut streams, first) = reading_ahead();
    let second = streams.on_marker(first.marker, 0, &AHEAD).expect("the first marker holds");
    assert!(streams.on_marker(second.marker, 0, &AHEAD).is_some());
    let inside = |streams: &Streams, page: u32| {
        let mut relations =
            streams.streams.iter().filter_map(|stream| stream.course.relation(page));
        relations.any(|relation| relation == Relation::Inside)
    };
    assert!(inside(&streams, 200) && !inside(&streams, 130));
}

#[test]
fn a_fault_after_the_window_ahead_goes_on_with_a_larger_one() {
    let (mut streams, _) = reading_ahead();
    let expected = Window { ahead: Some(ahead(189 + 64, 128, 349)), ..window(189, 64) };
    assert_eq!(streams.window(&fault(189), &AHEAD), expected);
}

#[test]
fn what_was_really_served_moves_the_expectation() {
    let mut streams = Streams::new();
    expect(&mut streams, AHEAD, &[window(100, 1), window(101, 4)]);
    streams.on_served(101, window(101, 2), 0);
    expect(&mut streams, AHEAD, &[window(103, 8)]);
    streams.on_served(103, window(103, 0), 0);
    expect(&mut streams, AHEAD, &[window(103, 16)]);
    expect(&mut streams, AHEAD, &[window(500, 1), stepped(499, 4, -1)]);
    streams.on_served(499, stepped(499, 2, -1), 0);
    expect(&mut streams, AHEAD, &[stepped(497, 8, -1)]);
    streams.on_served(77, window(77, 5), 0);
}

#[test]
fn a_window_ahead_that_was_not_started_is_not_waited_for() {
    let (mut streams, first) = reading_ahead();
    streams.on_served(61, window(61, 64), 63);
    assert_eq!(streams.on_marker(first.marker, 0, &AHEAD), None);
    assert_eq!(streams.window(&fault(125), &AHEAD).count, 64);
}

#[test]
fn a_shortened_window_ahead_moves_its_marker() {
    let (mut streams, first) = reading_ahead();
    assert_eq!(streams.on_ahead(first, 8), Some(ahead(125, 8, 131)));
    let next = streams.on_marker(131, 0, &AHEAD).expect("the new marker holds");
    assert_eq!((next.first, next.count), (133, 16));
    assert_eq!(streams.on_ahead(next, 0), None);
    assert_eq!(streams.window(&fault(133), &AHEAD).count, 64);
}

#[test]
fn the_least_recently_used_stream_is_forgotten_and_what_it_read_ahead_is_wasted() {
    let (mut streams, first) = reading_ahead();
    for stream in 1..STREAMS as u32 {
        streams.window(&fault(10_000 * stream), &AHEAD);
    }
    assert!(streams.clone().on_marker(first.marker, 0, &AHEAD).is_some());
    assert_eq!(streams.take_wasted(), 0);
    streams.window(&fault(5_000_000), &AHEAD);
    assert_eq!(streams.on_marker(first.marker, 0, &AHEAD), None);
    assert_eq!(streams.take_wasted(), 64);
    assert_eq!(streams.take_wasted(), 0, "it is counted once");
}

#[test]
fn pages_are_proven_by_the_fault_that_follows_and_wasted_without_it() {
    let forget = |streams: &mut Streams| {
        for stream in 1..=STREAMS as u32 {
            streams.window(&fault(10_000 * stream), &NO_AHEAD);
        }
        streams.take_wasted()
    };
    let mut streams = Streams::new();
    expect(&mut streams, NO_AHEAD, &[window(100, 1), window(101, 4)]);
    streams.on_served(101, window(101, 4), 3);
    assert_eq!(forget(&mut streams), 3);
    expect(&mut streams, NO_AHEAD, &[window(100, 1), window(101, 4)]);
    streams.on_served(101, window(101, 4), 3);
    expect(&mut streams, NO_AHEAD, &[window(105, 8)]);
    streams.on_served(105, window(105, 8), 2);
    assert_eq!(forget(&mut streams), 2);
}

/// Scans up through pages, with streams of blocks of so many of them: how many are read that are not of the block.
fn beyond_blocks(streams: &mut Streams, blocks: u32, pages: u32, ahead: bool) -> u32 {
    let (mut beyond, limits) = (0, if ahead { AHEAD } else { NO_AHEAD });
    for block in 0..blocks {
        // Far from each other, in no order.
        let start = block.wrapping_mul(0x9E37_79B1) >> 8 << 12;
        let mut next = start;
        while next < start + pages {
            let found = streams.window(&fault(next), &limits);
            streams.on_served(next, found, found.count - 1);
            next += found.count + found.ahead.map_or(0, |ahead| ahead.count);
        }
        beyond += next - (start + pages);
    }
    beyond
}

#[test]
fn windows_grow_no_further_than_what_they_bring_is_used() {
    let mut streams = Streams::new();
    let first = beyond_blocks(&mut streams, 100, 64, true);
    let later = beyond_blocks(&mut streams, 1000, 64, true);
    assert!(later < 1000 * 64 / 2 && later / 10 < first, "{first} of the first 100, then {later}");
    // Long scans are none of those.
    let mut faults = 0;
    let mut next = 1 << 30;
    while next < (1 << 30) + 20_000 {
        let found = streams.window(&fault(next), &AHEAD);
        next += found.count + found.ahead.map_or(0, |ahead| ahead.count);
        faults += 1;
    }
    assert!(faults < 90, "{faults} faults, 70 with windows as large as they may be");
    // They are the rule again.
    let found = beyond_blocks(&mut streams, 1, 4000, true);
    assert!(found <= AHEAD.ahead_max + AHEAD.run_max, "{found}");
}

#[test]
fn where_a_long_scan_ends_only_windows_as_large_as_its_last_count_as_wasted() {
    let (mut streams, _) = reading_ahead();
    [173, 285, 509].iter().for_each(|marker| _ = streams.on_marker(*marker, 0, &AHEAD));
    let before = streams.worth.clone();
    (1..=STREAMS as u32).for_each(|far| _ = streams.window(&fault(far << 20), &AHEAD));
    let is_same = |size| streams.worth.balance_of(size) == before.balance_of(size);
    assert_eq!([32, 64, 128, 256].map(is_same), [true, true, true, false]);
}

#[test]
fn a_stream_that_was_silent_for_long_is_not_gone_on_with() {
    let mut streams = Streams::new();
    let later = |page, now_ns| Fault { now_ns, ..fault(page) };
    assert_eq!(streams.window(&later(100, 0), &AHEAD), window(100, 1));
    assert_eq!(streams.window(&later(101, SILENCE_NS - 1), &AHEAD), window(101, 4));
    assert_eq!(streams.window(&later(105, 2 * SILENCE_NS), &AHEAD), window(105, 1));
}

#[test]
fn a_stream_that_runs_by_markers_is_not_silent() {
    let (mut streams, first) = reading_ahead();
    let half = SILENCE_NS / 2;
    let second = streams.on_marker(first.marker, half, &AHEAD).expect("the first marker holds");
    let third = streams.on_marker(second.marker, 2 * half, &AHEAD).expect("the second one, too");
    let after = third.first + third.count;
    let later = Fault { now_ns: 3 * half, ..fault(after) };
    assert_eq!(streams.window(&later, &AHEAD).count, 64, "the stream goes on");
    let silent = Fault { now_ns: 5 * half, ..fault(after) };
    let (mut streams, first) = reading_ahead();
    assert!(streams.on_marker(first.marker, half, &AHEAD).is_some());
    assert_eq!(streams.window(&silent, &AHEAD).count, 1, "nothing was heard of it since");
}

#[test]
fn of_two_streams_that_expect_a_page_the_one_on_its_node_goes_on() {
    let mut streams = Streams::new();
    let here = |page, node| Fault { node: NodeId(node), ..fault(page) };
    for (page, node) in [(100, 1), (102, 0)] {
        assert_eq!(streams.window(&here(page, node), &NO_AHEAD).count, 1);
    }
    // Page 101 lies between both: after the stream of node 1, before that of node 0.
    assert_eq!(streams.clone().window(&here(101, 1), &NO_AHEAD).step, 1);
    assert_eq!(streams.window(&here(101, 0), &NO_AHEAD).step, -1);
}

#[test]
fn a_sequential_hint_reads_full_windows_at_once_and_a_random_one_never() {
    let mut streams = Streams::new();
    let hinted = |page, hint| Fault { hint, ..fault(page) };
    let expected = Window { ahead: Some(ahead(564, 64, 612)), ..window(500, 64) };
    assert_eq!(streams.window(&hinted(500, Hint::Sequential), &AHEAD), expected);
    for page in [1000, 1001, 1002] {
        assert_eq!(streams.window(&hinted(page, Hint::Random), &AHEAD), window(page, 1));
    }
}

fn check(window: Window, page: u32, limits: Limits) {
    let is_page = |index: &u32| at(window.first, window.step, *index) == i64::from(page);
    assert!((0..window.count.min(100)).any(|index| is_page(&index)), "{window:?} without {page}");
    assert!((1..=limits.run_max.max(DISORDER as u32)).contains(&window.count));
    assert!((0..i64::from(u32::MAX)).contains(&at(window.first, window.step, window.count - 1)));
    if let Some(ahead) = window.ahead {
        assert_eq!(i64::from(ahead.first), at(window.first, window.step, window.count));
        assert_eq!(ahead.step, window.step);
        check_ahead(ahead, limits);
    }
}

fn check_ahead(ahead: Ahead, limits: Limits) {
    assert!((1..=limits.ahead_max).contains(&ahead.count));
    let last = at(ahead.first, ahead.step, ahead.count - 1);
    assert!((0..i64::from(u32::MAX)).contains(&last), "a window ahead has page numbers");
    let is_marker = |index: u32| at(ahead.first, ahead.step, index) == i64::from(ahead.marker);
    assert!((0..ahead.count).any(is_marker), "the marker belongs to the window");
}

proptest! {
    #[test]
    fn windows_begin_with_the_page_and_stay_within_the_limits(
        run_first in 0u32..10,
        run_max in prop_oneof![0u32..80, Just(u32::MAX)],
        ahead_max in prop_oneof![0u32..300, Just(u32::MAX)],
        base in prop_oneof![Just(0u32), Just(1 << 20), Just(u32::MAX - 2001)],
        stride in 1u32..70,
        operations in prop::collection::vec((0..7, 0u32..2001), 1..300),
    ) {
        let limits = Limits { page_cluster: 3, run_first, run_max, ahead_max };
        let mut streams = Streams::new();
        let mut last = window(base, 1);
        let clip = |page: i64| page.clamp(0, i64::from(u32::MAX - 1)) as u32;
        for (operation, number) in operations {
            let page = match operation {
                0 => base + number,
                1 => clip(i64::from(last.first) - 1),
                2 => clip(i64::from(last.first) + i64::from(stride)),
                3 => clip(i64::from(last.first) - i64::from(stride)),
                _ => last.ahead.map_or(clip(at(last.first, last.step, last.count)), |a| a.marker),
            };
            if let Some(ahead) = streams.on_marker(page, 0, &limits) {
                check_ahead(ahead, limits);
                last.ahead = Some(ahead);
                continue;
            }
            last = streams.window(&fault(page), &limits);
            check(last, page, limits);
            if operation == 6 && last.ahead.is_none() {
                last.count = last.count.min(number);
                streams.on_served(page, last, number);
            }
        }
    }

    /// A stream alone gets the windows that a list of all its pages gives: whatever the stride, every
    /// page of it is served exactly once, in order, and nothing else.
    #[test]
    fn a_stream_alone_serves_each_of_its_pages_once_and_no_other(
        step in prop_oneof![-64i32..-1, 2i32..65, Just(1), Just(-1)],
        ahead_max in 0u32..200,
    ) {
        let limits = Limits { page_cluster: 3, run_first: 2, run_max: 16, ahead_max };
        let mut streams = Streams::new();
        let mut served = std::collections::BTreeSet::new();
        let mut marked = std::collections::BTreeSet::new();
        let first = 1_000_000u32;
        for index in 0..2000 {
            let page = at(first, step, index) as u32;
            let next = if marked.remove(&page) { streams.on_marker(page, 0, &limits) } else { None };
            let mut windows = vec![next];
            if next.is_none() && !served.contains(&i64::from(page)) {
                let found = streams.window(&fault(page), &limits);
                for index in 0..found.count {
                    prop_assert!(served.insert(at(page, found.step, index)), "served twice");
                }
                windows.push(found.ahead);
            }
            for ahead in windows.into_iter().flatten() {
                marked.insert(ahead.marker);
                for index in 0..ahead.count {
                    let page = at(ahead.first, ahead.step, index);
                    prop_assert!(served.insert(page), "read twice");
                }
            }
        }
        let on_stride = |page: &i64| (page - i64::from(first)) % i64::from(step) == 0;
        prop_assert!(served.iter().all(on_stride));
        // A page lies after the last one touched only because a window does.
        prop_assert!(served.len() < 2000 + 2 * 200 + 16);
    }
}
