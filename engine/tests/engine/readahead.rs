//! Readahead by every policy, in every order and way: every byte is right, hits are counted as specified,
//! random readers get one page each, hints are followed, and policies change while many threads fault.
use crate::support::*;
use std::sync::atomic::{AtomicBool, Ordering};
use userswap::{Engine, Region, Snapshot};

/// Twice the budget.
pub const BYTES: usize = 32 * MIB;

pub fn engine_with(way: Way, policy: ReadaheadPolicy) -> Engine {
    engine_with_swap(way, policy, &[])
}

fn engine_with_swap(way: Way, policy: ReadaheadPolicy, swap: &[&str]) -> Engine {
    let builder = builder(way).readahead(policy).address_order(AddressOrder::Disabled);
    build(with_swap(builder, swap))
}

/// A region whose pages have the stamp, all of them swapped.
pub fn swapped(engine: &Engine, bytes: usize, stamp: u64) -> (Region, Pages) {
    paged_out(engine, bytes / PAGE, stamp)
}

/// The counters' growth while something is done.
pub fn grown(engine: &Engine, act: impl FnOnce()) -> impl Fn(fn(&Snapshot) -> u64) -> u64 {
    let before = engine.counters();
    act();
    let after = engine.counters();
    move |counter| counter(&after) - counter(&before)
}

/// Every kind of order, with its name.
fn orders(pages: usize, seed: u64) -> Vec<(&'static str, Vec<usize>)> {
    let mut random = Random::new(seed);
    let half = pages / 2;
    vec![
        ("sequential", (0..pages).collect()),
        ("backward", (0..pages).rev().collect()),
        ("strided", (0..pages).step_by(3).collect()),
        ("pairs swapped", (0..pages).map(|page| page ^ 1).collect()),
        ("strided far", (0..pages).step_by(17).collect()),
        ("interleaved", (0..half).flat_map(|page| [page, half + page]).collect()),
        ("random", (0..half).map(|_| random.below(pages)).collect()),
    ]
}

fn every_order_reads_right_bytes(way: Way) {
    let seed = seed();
    // Files are slow, and the bytes are the same; the long form waits for them.
    let swap: &[&str] = if is_long() { &[] } else { &["mem:64M"] };
    if is_long() {
        progress("every policy in seven orders, on a file");
    }
    for policy in ReadaheadPolicy::ALL {
        limit(50);
        let engine = engine_with_swap(way, policy, swap);
        engine.set("page_cluster", "5").unwrap();
        // Half of the budget is left, for one and a half times as much.
        let pinned = engine.map(8 * MIB).unwrap();
        pinned.pin(0..pinned.len()).unwrap();
        let (region, pages) = swapped(&engine, 12 * MIB, 3);
        for (name, order) in orders(pages.count, seed) {
            let grown = grown(&engine, || order.iter().for_each(|page| pages.check(*page, 3)));
            println!("{way:?} {policy} {name}: {} read", grown(|counters| counters.pswpin));
            // Writers as well: what was read ahead is changed, and read again.
            order.iter().step_by(5).for_each(|page| pages.fill(*page, 3));
            region.page_out(0..region.len()).unwrap();
        }
        pages.check_all(3);
        assert_eq!(engine.counters().pages_lost, 0);
        audit(&engine);
        drop(region);
        assert_eq!(engine.usage().slots_used, 0, "{policy}");
    }
}

#[test]
fn every_policy_reads_right_bytes_in_every_order_by_message_and_move() {
    every_order_reads_right_bytes(WAYS[0]);
}

#[test]
fn every_policy_reads_right_bytes_in_every_order_by_signal_and_move() {
    every_order_reads_right_bytes(WAYS[1]);
}

#[test]
fn every_policy_reads_right_bytes_in_every_order_by_message_and_copy() {
    every_order_reads_right_bytes(WAYS[2]);
}

#[test]
fn every_policy_reads_right_bytes_in_every_order_by_signal_and_copy() {
    every_order_reads_right_bytes(WAYS[3]);
}

#[test]
fn a_fixed_block_is_read_at_once_and_each_of_its_other_pages_is_one_hit() {
    for way in [WAYS[0], WAYS[1]] {
        limit(50);
        let engine = engine_with(way, ReadaheadPolicy::Fixed);
        let (_region, pages) = swapped(&engine, 4 * MIB, 5);
        let read = || pages.check_all(5);
        let first = grown(&engine, read);
        let faults = first(|counters| counters.pgmajfault);
        let ahead = first(|counters| counters.swap_ra);
        assert_eq!(faults + ahead, pages.count as u64);
        assert_eq!(first(|counters| counters.swap_ra_hit), ahead, "each page is one hit");
        assert_eq!(first(|counters| counters.swap_ra_wasted), 0);
        // Blocks are aligned to slots, and pages left in order: a block more at most than they fill.
        let blocks = pages.count as u64 / 8;
        assert!((blocks..=blocks + 1).contains(&faults), "{faults} faults for {blocks} blocks");
        let again = grown(&engine, || pages.check_all(5));
        assert_eq!(again(|counters| counters.swap_ra_hit), 0, "a mark is taken off by its use");
        audit(&engine);
    }
}

#[test]
fn blocks_end_at_their_part_of_the_budget_of_the_moment() {
    limit(50);
    let engine = engine_with(WAYS[0], ReadaheadPolicy::Fixed);
    engine.set("page_cluster", "10").unwrap();
    for (budget, block) in [(16 * MIB, 128), (32 * MIB, 256), (16 * MIB, 128)] {
        engine.set_budget(budget as u64).unwrap();
        let (_region, pages) = swapped(&engine, 4 * MIB, 5);
        let faults = grown(&engine, || pages.check_all(5))(|counters| counters.pgmajfault);
        let blocks = (pages.count / block) as u64;
        // The part of a block that is left to the server may come too late for the reader.
        assert!(
            (blocks..=blocks * 3 / 2 + 1).contains(&faults),
            "{budget}: {faults} faults, {block} each"
        );
    }
}

#[test]
fn scaling_and_vma_windows_grow_with_success_up_to_the_page_cluster() {
    for policy in [ReadaheadPolicy::Scaling, ReadaheadPolicy::Vma] {
        limit(50);
        let engine = engine_with(WAYS[0], policy);
        engine.set("page_cluster", "4").unwrap();
        let (_region, pages) = swapped(&engine, 4 * MIB, 7);
        let grown = grown(&engine, || pages.check_all(7));
        let faults = grown(|counters| counters.pgmajfault);
        // Windows of 16 once there were hits.
        let expected = pages.count as u64 / 16;
        assert!((expected..expected * 5 / 4 + 4).contains(&faults), "{policy}: {faults} faults");
        let ahead = grown(|counters| counters.swap_ra);
        assert_eq!(grown(|counters| counters.swap_ra_hit), ahead, "{policy}");
    }
}

#[test]
fn pages_read_ahead_and_not_used_are_counted_when_they_lose_their_frames() {
    limit(50);
    let engine = engine_with(WAYS[0], ReadaheadPolicy::Fixed);
    let (_region, pages) = swapped(&engine, BYTES, 9);
    // One page of each block: seven in eight are for nothing.
    let grown = grown(&engine, || {
        (0..pages.count).step_by(8).for_each(|page| pages.check(page, 9));
    });
    let (ahead, wasted) =
        (grown(|counters| counters.swap_ra), grown(|counters| counters.swap_ra_wasted));
    let kept = engine.usage().cached as u64;
    assert!(ahead > 4000, "{ahead} pages ahead");
    assert!(wasted > 0 && wasted <= ahead, "{wasted} of {ahead}");
    // What the last grants took is counted with the next one.
    assert!(wasted + kept + 64 >= ahead, "{wasted} wasted and {kept} kept of {ahead}");
}

#[test]
fn a_random_reader_gets_one_page_for_each_fault() {
    for way in ways() {
        limit(50);
        let mut random = Random::new(seed());
        let engine = engine_with(way, ReadaheadPolicy::Stream);
        // So large that the few blocks around a page that are tried have no three uses by chance, which would speak for
        // more of them: in `BYTES` they had in one run of some hundred.
        let (_region, pages) = swapped(&engine, 4 * BYTES, 11);
        // The streams of writing it all are forgotten first.
        (0..300).for_each(|_| pages.check(random.below(pages.count), 11));
        let grown = grown(&engine, || {
            (0..4000).for_each(|_| pages.check(random.below(pages.count), 11));
        });
        let (read, faults) =
            (grown(|counters| counters.pswpin), grown(|counters| counters.pgmajfault));
        assert!(read * 100 <= faults * 104, "{read} pages read for {faults} faults");
    }
}

#[test]
fn streams_read_far_fewer_times_than_pages_forwards_backwards_and_in_strides() {
    for way in ways() {
        for (name, order) in orders(BYTES / PAGE, 1).into_iter().take(6) {
            if name == "strided far" {
                continue;
            }
            limit(50);
            let engine = engine_with(way, ReadaheadPolicy::Stream);
            let (_region, pages) = swapped(&engine, BYTES, 13);
            let grown = grown(&engine, || order.iter().for_each(|page| pages.check(*page, 13)));
            let (reads, faults) =
                (grown(|counters| counters.swap_reads), grown(|counters| counters.pgmajfault));
            assert!(reads * 8 < order.len() as u64, "{way:?} {name}: {reads} requests");
            assert!(faults * 8 < order.len() as u64, "{way:?} {name}: {faults} faults");
        }
    }
}

#[test]
fn first_touches_a_little_out_of_order_are_served_in_runs() {
    limit(50);
    let engine = engine_with(WAYS[0], ReadaheadPolicy::Stream);
    let region = engine.map(8 * MIB).unwrap();
    let pages = Pages::of(&region);
    let grown = grown(&engine, || (0..pages.count).for_each(|page| pages.fill(page ^ 1, 25)));
    assert!(grown(|counters| counters.pgfault) * 16 < pages.count as u64);
    pages.check_all(25);
    audit(&engine);
}

#[test]
fn a_random_hint_stops_readahead_and_a_sequential_one_starts_it_at_the_first_fault() {
    for way in ways() {
        limit(50);
        let engine = engine_with(way, ReadaheadPolicy::Stream);
        let (region, pages) = swapped(&engine, 8 * MIB, 15);
        region.random(0..region.len() / 2).unwrap();
        let hinted = grown(&engine, || (0..500).for_each(|page| pages.check(page, 15)));
        assert_eq!(hinted(|counters| counters.pswpin), 500);
        assert_eq!(hinted(|counters| counters.swap_ra), 0);
        region.sequential(0..region.len()).unwrap();
        // Pages left by two threads: a window ends where the slots of one of them do.
        let windows = [1000, 1200, 1400, 1600]
            .map(|page| grown(&engine, || pages.check(page, 15))(|counters| counters.swap_ra));
        let most = *windows.iter().max().unwrap();
        assert!(most >= 63, "{way:?}: {windows:?} with a page's first fault");
        region.normal(0..region.len()).unwrap();
        let plain = grown(&engine, || pages.check(2000, 15));
        assert!(plain(|counters| counters.pgmajfault) == 1, "page 2000 was not read ahead");
        audit(&engine);
    }
}

#[test]
fn hints_end_with_their_region() {
    limit(50);
    let engine = engine_with(WAYS[0], ReadaheadPolicy::Stream);
    let (region, _) = swapped(&engine, 8 * MIB, 1);
    region.random(0..region.len()).unwrap();
    drop(region);
    let (_region, pages) = swapped(&engine, 8 * MIB, 1);
    let grown = grown(&engine, || pages.check_all(1));
    assert!(grown(|counters| counters.swap_ra) > 0);
}

#[test]
fn what_will_be_needed_comes_without_a_fault() {
    for way in ways() {
        limit(50);
        let engine = engine_with(way, ReadaheadPolicy::Stream);
        let (region, pages) = swapped(&engine, 2 * MIB, 17);
        region.will_need(0..region.len()).unwrap();
        eventually("the server has read it", || engine.usage().resident >= pages.count as u32);
        let grown = grown(&engine, || pages.check_all(17));
        assert_eq!(grown(|counters| counters.pgfault), 0);
    }
}

#[test]
fn asking_for_more_than_the_budget_does_no_harm() {
    limit(50);
    let engine = engine_with(WAYS[0], ReadaheadPolicy::Stream);
    let (region, pages) = swapped(&engine, BYTES, 19);
    (0..20).for_each(|_| region.will_need(0..region.len()).unwrap());
    pages.check_all(19);
    audit(&engine);
}

#[test]
fn cold_pages_are_the_next_to_leave() {
    limit(50);
    let engine = engine_with(WAYS[0], ReadaheadPolicy::Stream);
    let region = engine.map(8 * MIB).unwrap();
    let pages = Pages::of(&region);
    pages.fill_all(21);
    // The newest quarter: without advice the others would go first.
    let cold = pages.count * 3 / 4..pages.count;
    region.cold(cold.start * PAGE..cold.end * PAGE).unwrap();
    let other = engine.map(8 * MIB).unwrap();
    let others = Pages::of(&other);
    others.fill_all(22);
    let present = pages.present();
    let left = |range: std::ops::Range<usize>| present[range].iter().filter(|here| !**here).count();
    let (cold_left, warm_left) = (left(cold.clone()), left(0..cold.start));
    assert!(cold_left > 0, "nothing left");
    assert!(
        cold_left == cold.len() || warm_left == 0,
        "{cold_left} cold, {warm_left} warm ones left"
    );
    pages.check_all(21);
    audit(&engine);
}

#[test]
fn settings_that_are_not_allowed_are_refused_and_change_nothing() {
    let engine = engine(WAYS[0]);
    assert_eq!(engine.readahead().policy, ReadaheadPolicy::Stream, "the default");
    engine.set("swap_ra_policy", "1\n").unwrap();
    for (key, value, kept) in [
        ("swap_ra_policy", "2", "fixed"),
        ("swap_ra_policy", "-1", "fixed"),
        ("swap_ra_policy", "", "fixed"),
        ("swap_ra_policy", "true", "fixed"),
        ("swap_ra_policy", "0x1", "fixed"),
        ("swap_ra_policy", "1 ", "fixed"),
        ("page_cluster", "11", "3"),
        ("page_cluster", "-1", "3"),
        ("vma_ra_enabled", "maybe", "true"),
    ] {
        let error = engine.set(key, value).unwrap_err();
        assert_eq!(error.errno(), Some(libc::EINVAL), "{key}={value:?}");
        let text = error.to_string();
        assert!(text.contains(key) && text.contains("is not allowed: use "), "{text}");
        assert!(!text.contains('\n'), "one line");
        let settings = engine.core().status().readahead;
        let found = match key {
            "swap_ra_policy" => settings.swap_ra_policy,
            "page_cluster" => settings.page_cluster.to_string(),
            _ => settings.vma_ra_enabled.to_string(),
        };
        assert_eq!(found, kept, "{key} after {value:?}");
    }
    for (key, value, read) in [
        ("swap_ra_policy", "0\n", "scaling"),
        ("swap_ra_policy", "vma", "vma"),
        ("page_cluster", "10", "10"),
        ("vma_ra_enabled", "off", "false"),
        ("vma_ra_enabled", "y", "true"),
    ] {
        assert_eq!(engine.set(key, value).unwrap(), read);
    }
}

/// The kernel's file would say `1` and a newline.
#[test]
fn p8_a_policy_that_was_set_by_number_is_read_by_name_and_can_be_set_by_what_was_read() {
    let engine = engine(WAYS[0]);
    for (written, read) in
        [("0\n", "scaling"), ("1", "fixed"), ("0", "scaling"), ("1\n", "fixed"), ("fixed", "fixed")]
    {
        assert_eq!(engine.set("swap_ra_policy", written).unwrap(), read, "{written:?}");
        assert_eq!(engine.core().status().readahead.swap_ra_policy, read, "{written:?}");
    }
}

/// Threads that own every fourth page read and write in several orders, while another one changes policies
/// and page_cluster and gives hints.
fn everything_changes(way: Way, steps: usize) {
    limit(50);
    let (seed, steps) = (seed(), rounds(steps));
    let engine = engine_with(way, ReadaheadPolicy::Scaling);
    let region = engine.map(32 * MIB).unwrap();
    let pages = Pages::of(&region);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let owners: Vec<_> = (0..4)
            .map(|owner| {
                scope.spawn(move || own(pages, owner, Random::new(seed + owner as u64), steps))
            })
            .collect();
        scope.spawn(|| {
            let mut random = Random::new(seed ^ 0xabcd);
            while !done.load(Ordering::Relaxed) {
                disturb(&engine, &region, &mut random);
            }
        });
        let results: Vec<_> = owners.into_iter().map(|owner| owner.join()).collect();
        done.store(true, Ordering::Relaxed);
        results.into_iter().for_each(|result| result.unwrap());
    });
    assert_eq!(engine.counters().pages_lost, 0);
    assert!(engine.counters().swap_ra > 0);
    audit(&engine);
}

fn own(pages: Pages, owner: usize, mut random: Random, steps: usize) {
    let mine = pages.count / 4;
    let mut stamps = vec![0; mine];
    let mut index = 0;
    for step in 1..=steps {
        // Runs of a few dozen pages, forwards, backwards or in strides, from anywhere.
        if step % 40 == 1 {
            index = random.below(mine);
        }
        let page = index * 4 + owner;
        pages.check(page, stamps[index]);
        if random.below(3) == 0 {
            stamps[index] = ((step as u64) << 3) | (owner as u64 + 1);
            pages.fill(page, stamps[index]);
        }
        index = match step / 40 % 4 {
            0 => (index + 1) % mine,
            1 => (index + mine - 1) % mine,
            2 => (index + 3) % mine,
            _ => random.below(mine),
        };
    }
    (0..mine).for_each(|index| pages.check(index * 4 + owner, stamps[index]));
}

fn disturb(engine: &Engine, region: &Region, random: &mut Random) {
    engine.set_readahead(ReadaheadPolicy::ALL[random.below(ReadaheadPolicy::ALL.len())]);
    engine.set("page_cluster", &random.below(11).to_string()).unwrap();
    engine.set("vma_ra_enabled", ["true", "false"][random.below(2)]).unwrap();
    let first = random.below(region.len() / PAGE);
    let bytes = first * PAGE..(first * PAGE + random.below(4 * MIB)).min(region.len());
    match random.below(6) {
        0 => region.sequential(bytes),
        1 => region.random(bytes),
        2 => region.normal(bytes),
        3 => region.will_need(bytes),
        4 => region.cold(bytes),
        _ => region.page_out(bytes),
    }
    .unwrap();
}

#[test]
fn policies_and_hints_change_while_threads_fault_by_message_and_move() {
    everything_changes(WAYS[0], 2000);
}

#[test]
fn policies_and_hints_change_while_threads_fault_by_signal_and_move() {
    everything_changes(WAYS[1], 2000);
}

#[test]
fn policies_and_hints_change_while_threads_fault_by_message_and_copy() {
    everything_changes(WAYS[2], 2000);
}

#[test]
fn policies_and_hints_change_while_threads_fault_by_signal_and_copy() {
    everything_changes(WAYS[3], 2000);
}

#[test]
fn a_block_of_slots_is_right_after_pages_moved_to_other_addresses() {
    limit(50);
    let engine = engine_with(WAYS[0], ReadaheadPolicy::Fixed);
    let (first, from) = swapped(&engine, 8 * MIB, 23);
    let second = engine.map(8 * MIB).unwrap();
    let to = Pages::of(&second);
    let core = engine.core();
    core.move_range(core.range_at(from.address, first.len()), core.arena.page_of(to.address));
    let moved = (0..to.count).filter(|page| {
        // The same words at another page number would be wrong: compare as they were written.
        to.wrong(*page, 23).is_none()
    });
    let grown = grown(&engine, || assert_eq!(moved.count(), to.count));
    assert!(grown(|counters| counters.swap_ra) > to.count as u64 / 2, "blocks found their pages");
    audit(&engine);
}

#[test]
fn pages_read_ahead_and_not_used_give_way_to_all_but_readahead() {
    limit(50);
    let engine = engine_with(WAYS[0], ReadaheadPolicy::Fixed);
    let (_region, pages) = swapped(&engine, BYTES, 27);
    // One page of each block, until marked pages are all that is left to be had.
    let mut page = 0;
    while engine.counters().swap_ra_wasted == 0 {
        pages.check(page, 27);
        page = (page + 8) % pages.count;
    }
    engine.set("swap_ra_policy", "off").unwrap();
    let node = engine.core().nodes[0].lock();
    let (available, low) = (node.available(), node.watermarks.low);
    drop(node);
    let surplus = available.saturating_sub(low);
    assert!(surplus > 0, "{available} pages available, {low} must stay");
    let account = engine.account();
    assert!(account.try_charge(NodeId(0), surplus), "{surplus} pages cannot be had");
    account.uncharge(NodeId(0), surplus);
    audit(&engine);
}
