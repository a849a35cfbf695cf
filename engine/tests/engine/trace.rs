//! What is recorded is what happened: as many faults of each kind as were counted, and pages that leave only after they came.
use crate::support::*;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use userswap::internals::Options;
use userswap::{Builder, Engine, Snapshot};
use userswap_trace::{Event, Kind, Reader};

/// An engine that records into a directory of the test's own.
fn recording((fault, transfer): Way) -> (Engine, tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let file = directory.path().join("a trace");
    let options =
        Options { fault, transfer, trace: Some(file.clone()), ..Options::new(16 * MIB as u64) };
    (build(Builder::from_options(options).arena_bytes(1 << 30)), directory, file)
}

/// The events of a trace that has ended, and how many were lost.
fn events_of(file: &Path) -> (Vec<Event>, u64) {
    let mut reader = Reader::open(file).unwrap();
    let (mut events, mut lost) = (Vec::new(), 0);
    while let Some(block) = reader.next_block().unwrap() {
        events.extend(block.events);
        lost += block.lost;
    }
    assert!(reader.has_ended());
    (events, lost)
}

fn faults(events: &[Event], kind: Kind) -> u64 {
    events.iter().filter(|event| event.kind == kind).count() as u64
}

fn pages(events: &[Event], kind: Kind) -> u64 {
    events.iter().filter(|event| event.kind == kind).map(|event| u64::from(event.count)).sum()
}

/// The faults of a trace are those that were counted between two moments.
fn assert_counted(events: &[Event], before: &Snapshot, after: &Snapshot) {
    let all = events.iter().filter(|event| event.kind.is_fault()).count() as u64;
    assert_eq!(all, after.pgfault - before.pgfault);
    assert_eq!(faults(events, Kind::Read), after.pgmajfault - before.pgmajfault);
    assert_eq!(faults(events, Kind::SecondChance), after.pgfault_cached - before.pgfault_cached);
    assert_eq!(faults(events, Kind::Written), after.pgfault_wp - before.pgfault_wp);
}

/// Pages come before they leave, and a page that is read has left.
fn assert_possible(events: &[Event]) {
    let mut there = HashSet::new();
    for event in events {
        let pages = event.first..event.first + event.count;
        match event.kind {
            Kind::Fresh | Kind::Back => there.extend(pages),
            Kind::Left => pages.for_each(|page| assert!(there.remove(&page), "{page} left")),
            Kind::Dropped => there.retain(|page| !pages.contains(page)),
            Kind::Read => assert!(!there.contains(&event.first), "{event:?}"),
            Kind::FirstTouch
            | Kind::SecondChance
            | Kind::Waited
            | Kind::Present
            | Kind::Nothing => {}
            Kind::Written => assert!(there.contains(&event.first), "{event:?}"),
        }
    }
}

/// Threads on pages of their own, all over two and a half times the budget, with runs that are given up.
fn threads(engine: &Engine, stamp: u64) {
    let mut region = engine.map(40 * MIB).unwrap();
    let pages = Pages::of(&region);
    pages.fill_all(stamp);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                let mut random = Random::new(thread as u64 + stamp);
                let mut stamps = vec![stamp; pages.count / 4];
                for step in 0..rounds(2000) {
                    let mine = random.below(stamps.len());
                    pages.check(mine * 4 + thread, stamps[mine]);
                    stamps[mine] = step + 2;
                    pages.fill(mine * 4 + thread, stamps[mine]);
                }
            });
        }
    });
    region.discard(0..4 * MIB).unwrap();
    (0..MIB / PAGE).for_each(|page| pages.check(page, 0));
}

fn all_is_recorded(way: Way) {
    limit(60);
    let (engine, _directory, file) = recording(way);
    threads(&engine, 7);
    let counters = engine.counters();
    audit(&engine);
    drop(engine);
    let reader = Reader::open(&file).unwrap();
    let header = reader.header();
    assert_eq!((header.budget_pages, header.pid), (4096, std::process::id()));
    assert!(!header.forked && header.fault == way.0.to_string(), "{header:?}");
    let (events, lost) = events_of(&file);
    assert_eq!((lost, counters.trace_lost), (0, 0));
    assert_counted(&events, &Snapshot::default(), &counters);
    assert_possible(&events);
    let left = pages(&events, Kind::Left);
    assert!(left >= counters.pgsteal_kswapd + counters.pgsteal_direct, "{left}: {counters:?}");
    assert!(pages(&events, Kind::Fresh) >= 40 * (MIB / PAGE) as u64);
    assert_eq!(pages(&events, Kind::Dropped), counters.pgdrop);
    assert!(counters.pgmajfault > 1000 && left > 6000, "{counters:?}");
    let has_clean = way.0 == FaultMode::Thread && userswap::internals::scattered::is_supported();
    assert_eq!(has_clean, counters.pgfault_wp > 0, "first writes to pages that were read");
}

#[test]
fn all_is_recorded_by_message_and_move() {
    all_is_recorded(WAYS[0]);
}

#[test]
fn all_is_recorded_by_signal_and_move() {
    all_is_recorded(WAYS[1]);
}

#[test]
fn all_is_recorded_by_message_and_copy() {
    all_is_recorded(WAYS[2]);
}

#[test]
fn all_is_recorded_by_signal_and_copy() {
    all_is_recorded(WAYS[3]);
}

/// A parent goes on in its file; each child has one of its own, which begins with the child.
fn each_process_has_a_file(way: Way) {
    let (engine, directory, file) = recording(way);
    threads(&engine, 1);
    let region = engine.map(30 * MIB).unwrap();
    let pages = Pages::of(&region);
    pages.fill_all(5);
    let child = fork(&engine, || {
        let before = engine.counters();
        pages.check_all(5);
        threads(&engine, 2);
        engine.end_trace();
        let own = directory.path().join(format!("a trace.{}", std::process::id()));
        assert!(Reader::open(&own).unwrap().header().forked);
        let (events, lost) = events_of(&own);
        assert_eq!(lost, 0);
        assert_counted(&events, &before, &engine.counters());
        assert!(engine.counters().pgmajfault > before.pgmajfault);
    });
    threads(&engine, 3);
    pages.check_all(5);
    join(child);
    drop(region);
    let counters = engine.counters();
    drop(engine);
    let (events, lost) = events_of(&file);
    assert_eq!(lost, 0);
    assert_counted(&events, &Snapshot::default(), &counters);
    assert_possible(&events);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
}

#[test]
fn parent_and_child_each_record_their_own_by_message() {
    alone(50, || each_process_has_a_file(WAYS[0]));
}

#[test]
fn parent_and_child_each_record_their_own_by_signal() {
    alone(50, || each_process_has_a_file(WAYS[1]));
}

#[test]
fn what_finds_no_room_is_counted_in_the_file_and_in_the_counters() {
    limit(60);
    const NOTED: u32 = 20_000_000;
    let (engine, _directory, file) = recording(WAYS[0]);
    let core = engine.core().clone();
    (0..NOTED).for_each(|page| core.trace.note(|| Event::fault(Kind::Present, page % 100_000)));
    engine.end_trace();
    let counted = engine.counters().trace_lost;
    drop(engine);
    let (events, lost) = events_of(&file);
    assert!(lost > 0, "a ring holds no {NOTED} events");
    assert_eq!((lost, events.len() as u64 + lost), (counted, u64::from(NOTED)));
}

#[test]
fn a_trace_that_finds_no_more_room_ends_with_a_whole_block() {
    const ROOM: u64 = 100_000;
    alone(50, || {
        let (engine, _directory, file) = recording(WAYS[0]);
        limit_files(ROOM);
        let (core, mut random) = (engine.core().clone(), Random::new(7));
        for _ in 0..200_000 {
            let page = random.below(100_000) as u32;
            core.trace.note(|| Event::fault(Kind::Present, page));
        }
        engine.end_trace();
        drop(engine);
        let mut reader = Reader::open(&file).unwrap();
        let mut events = 0;
        while let Some(block) = reader.next_block().unwrap() {
            events += block.events.len();
        }
        assert!(events > 0 && !reader.has_ended() && reader.cut_at().is_none(), "{events}");
        assert!(std::fs::metadata(&file).unwrap().len() < ROOM);
    });
}

#[test]
fn a_program_whose_trace_cannot_be_written_goes_on() {
    let output = in_child(50, || {
        let options =
            Options { trace: Some("/dev/null/a trace".into()), ..Options::new(16 * MIB as u64) };
        let engine = build(Builder::from_options(options).arena_bytes(1 << 30));
        threads(&engine, 9);
        engine.end_trace();
    });
    let Some(output) = output else { return };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let lines: Vec<_> = said.lines().filter(|line| line.contains("--trace")).collect();
    let named = "userswap: --trace /dev/null/a trace: Not a directory";
    assert!(lines.len() == 1 && lines[0].starts_with(named), "{said}");
}
