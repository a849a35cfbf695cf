//! Pages that cannot leave: they are in no one's way, they leave when the reason has ended, and when nothing at all can
//! leave the fault does what the option says.
use crate::support::*;
use std::sync::Arc;
use std::time::{Duration, Instant};
use userswap::{Engine, Region};

/// A ring whose registered buffers hold all of a region, so that none of its pages can be moved.
fn hold(region: &Region) -> io_uring::IoUring {
    let ring = io_uring::IoUring::new(4).unwrap();
    register(&ring, Pages::of(region));
    ring
}

fn unevictable(engine: &Engine) -> u32 {
    engine.core().nodes.iter().map(|node| node.lock().lists.len(ListId::Unevictable)).sum()
}

fn small(way: Way) -> Engine {
    engine_on(way, &["mem:256M"])
}

/// A quarter of the budget is held while a program goes over more than the budget: all pages that a round looks at are
/// held ones at some moment, with thousands of active ones beside them.
fn a_held_quarter(way: Way) {
    limit(60);
    let engine = small(way);
    let region = engine.map(24 * MIB).unwrap();
    let pages = Pages::of(&region);
    for stamp in 1..4 {
        pages.fill_all(stamp);
    }
    let held = engine.map(4 * MIB).unwrap();
    Pages::of(&held).fill_all(7);
    // A system call that meets a missing page fails where faults come by signal.
    held.pin(0..held.len()).unwrap();
    let ring = hold(&held);
    held.unpin(0..held.len()).unwrap();
    for stamp in 4..7 {
        pages.fill_all(stamp);
    }
    (0..pages.count).for_each(|page| pages.check(page, 6));
    assert!(unevictable(&engine) > 0, "pages that a device holds were met");
    assert_eq!(engine.counters().budget_exceeded, 0, "there was enough that could leave");
    drop(ring);
    (0..Pages::of(&held).count).for_each(|page| Pages::of(&held).check(page, 7));
    eventually("pages that a device has let go of leave", || {
        pages.fill_all(8);
        unevictable(&engine) == 0
    });
    audit(&engine);
}

#[test]
fn pages_that_a_device_holds_are_in_no_ones_way() {
    a_held_quarter(WAYS[0]);
}

#[test]
fn pages_that_a_device_holds_are_in_no_ones_way_by_signal() {
    a_held_quarter(WAYS[1]);
}

/// A program whose memory is held goes over half the budget of 16 MiB with the rest.
fn goes_on_beside(held: usize) {
    let engine = small(WAYS[0]);
    let held = engine.map(held).unwrap();
    Pages::of(&held).fill_all(3);
    let _ring = hold(&held);
    let region = engine.map(8 * MIB).unwrap();
    for stamp in 0..4 {
        Pages::of(&region).fill_all(stamp);
        Pages::of(&region).check_all(stamp);
    }
}

/// How often it said that nearly nothing can leave.
fn lines(output: &std::process::Output) -> usize {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    errors.lines().filter(|line| line.contains("M of RAM cannot leave, nearly all")).count()
}

#[test]
fn it_is_said_once_that_nearly_nothing_can_leave() {
    let Some(output) = in_child(60, || goes_on_beside(14 * MIB + MIB / 2)) else { return };
    assert_eq!(lines(&output), 1);
}

#[test]
fn where_much_can_leave_nothing_is_said() {
    let Some(output) = in_child(60, || goes_on_beside(8 * MIB)) else { return };
    assert_eq!(lines(&output), 0);
}

/// Devices have room, but what is in RAM cannot go there.
#[test]
fn a_fault_that_finds_nothing_that_can_leave_exceeds_the_budget() {
    limit(60);
    let engine = small(WAYS[0]);
    let held = engine.map(15 * MIB + MIB / 2).unwrap();
    Pages::of(&held).fill_all(3);
    let ring = hold(&held);
    let region = engine.map(2 * MIB).unwrap();
    let pages = Pages::of(&region);
    let begun = Instant::now();
    pages.fill_all(4);
    println!("2 MiB took {:?}", begun.elapsed());
    assert!(engine.counters().budget_exceeded > 0, "{:?}", engine.usage());
    (0..pages.count).for_each(|page| pages.check(page, 4));
    (0..Pages::of(&held).count).for_each(|page| Pages::of(&held).check(page, 3));
    drop(ring);
    audit(&engine);
}

#[test]
fn a_start_that_fails_ends_its_threads() {
    limit(60);
    let engine = small(WAYS[0]);
    let mut options = Options::new(16 << 20);
    options.swaps.push("mem:64M".parse().unwrap());
    // The kernel registers memory with one userfaultfd at a time.
    let begun = Instant::now();
    let second = Engine::engage(Arc::clone(&engine.core().arena), &options);
    assert!(second.is_err(), "the arena is another engine's");
    assert!(begun.elapsed() < Duration::from_secs(20), "it did not wait");
}

#[test]
fn will_need_goes_on_past_pages_that_need_nothing() {
    limit(60);
    let engine = build(with_swap(builder(WAYS[0]), &["mem:512M"]));
    engine.set_budget(64 << 20).unwrap();
    let region = engine.map(64 * MIB).unwrap();
    let pages = Pages::of(&region);
    // Further from the start than one look of the server goes.
    let first = 20 * 256;
    (first..first + 2048).for_each(|page| pages.fill(page, 3));
    region.page_out(first * PAGE..(first + 2048) * PAGE).unwrap();
    let before = engine.counters().pswpin;
    region.will_need(0..region.len()).unwrap();
    eventually("what is swapped behind untouched pages is read", || {
        engine.counters().pswpin >= before + 2048
    });
}
