//! System calls on swapped memory, and devices that write into pages while reclaim wants them: with faults
//! delivered by message a program sees no difference, and no byte that a device wrote may be lost.
use crate::support::*;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use userswap::Engine;

/// Pages of one transfer.
const CHUNK: usize = 32;

/// Takes out pages of `pages`, and fills others so that everything has to leave, until `done`.
fn press(engine: &Engine, pages: Pages, done: &AtomicBool) {
    let other = engine.map(20 * MIB).unwrap();
    let others = Pages::of(&other);
    let core = engine.core();
    let mut random = Random::new(99);
    let mut stamp = 0;
    while !done.load(Ordering::Relaxed) {
        stamp += 1;
        for page in (0..others.count).step_by(64) {
            (page..(page + 16).min(others.count)).for_each(|page| others.fill(page, stamp));
            let first = random.below(pages.count - 64);
            core.page_out_range(core.range_at(pages.at(first) as usize, 64 * PAGE));
        }
    }
}

#[test]
fn read_and_write_reach_swapped_memory() {
    for way in [WAYS[0], WAYS[2]] {
        limit(50);
        let engine = engine(way);
        let region = engine.map(24 * MIB).unwrap();
        let pages = Pages::of(&region);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let pressing = scope.spawn(|| press(&engine, pages, &done));
            let mut file = tempfile::tempfile_in("/var/tmp").unwrap();
            for first in (0..pages.count).step_by(CHUNK) {
                (first..first + CHUNK).for_each(|page| pages.fill(page, 4));
                file.write_all(bytes(pages, first, CHUNK)).unwrap();
            }
            // Back into the same memory, pages of which are untouched, resident, cached and swapped.
            pages.fill_all(5);
            for first in (0..pages.count).step_by(CHUNK) {
                file.read_exact_at(bytes(pages, first, CHUNK), (first * PAGE) as u64).unwrap();
            }
            pages.check_all(4);
            done.store(true, Ordering::Relaxed);
            pressing.join().unwrap();
        });
        assert_eq!(engine.counters().pages_lost, 0);
        audit(&engine);
    }
}

#[test]
fn bytes_pass_through_a_socket_from_one_region_to_another() {
    for way in [WAYS[0], WAYS[2]] {
        limit(50);
        let engine = engine(way);
        let (first, second) = (engine.map(20 * MIB).unwrap(), engine.map(20 * MIB).unwrap());
        let (from, to) = (Pages::of(&first), Pages::of(&second));
        from.fill_all(6);
        let (mut here, mut there) = UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || here.write_all(bytes(from, 0, from.count)).unwrap());
            there.read_exact(bytes(to, 0, to.count)).unwrap();
        });
        to.check_all(6);
        audit(&engine);
    }
}

fn direct_file() -> (tempfile::TempDir, File) {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = directory.path().join("file");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)
        .unwrap();
    (directory, file)
}

/// Only MOVE tells which pages a device holds. Where pages leave by copying (before Linux 6.8), a program
/// that lets a device write into a region pins that part meanwhile.
fn must_pin(way: Way) -> bool {
    way.1 == Transfer::Copy
}

/// What may be done with the memory that is read into.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    Data,
    /// Code may run there.
    Code,
    /// The same, and the program has a ring.
    LentCode,
}

const CODE: i32 = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;

/// Makes memory executable in a program that may lend its pages.
fn make_code(engine: &Engine, pages: Pages) {
    engine.core().note_lending();
    protect(pages, CODE);
}

/// Reads past the page cache into memory under pressure; returns what was found wrong.
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn direct_reads(way: Way, reads: usize, memory: Memory) -> Vec<String> {
    limit(50);
    let reads = rounds(reads);
    let engine = engine(way);
    let region = engine.map(16 * MIB).unwrap();
    let pages = Pages::of(&region);
    match memory {
        Memory::Data => {}
        Memory::Code => protect(pages, CODE),
        Memory::LentCode => make_code(&engine, pages),
    }
    let (_directory, file) = direct_file();
    // What a chunk of the file holds differs from page to page and from chunk to chunk.
    let source = engine.map(CHUNK * PAGE).unwrap();
    for chunk in 0..16u64 {
        let source = Pages::of(&source);
        (0..CHUNK).for_each(|page| source.fill(page, chunk + 1));
        file.write_all_at(bytes(source, 0, CHUNK), chunk * (CHUNK * PAGE) as u64).unwrap();
    }
    let done = AtomicBool::new(false);
    let held = AtomicU64::new(0);
    let mut wrong = Vec::new();
    std::thread::scope(|scope| {
        let pressing = scope.spawn(|| press(&engine, pages, &done));
        let readers: Vec<_> = (0..2)
            .map(|reader| {
                let (file, held, region) = (&file, &held, &region);
                scope.spawn(move || {
                    let mut random = Random::new(7 + reader as u64);
                    let mut wrong = Vec::new();
                    for _ in 0..reads {
                        let half = pages.count / 2;
                        let first = reader * half + random.below(half / CHUNK) * CHUNK;
                        let chunk = random.below(16) as u64;
                        let offset = chunk * (CHUNK * PAGE) as u64;
                        let range = first * PAGE..(first + CHUNK) * PAGE;
                        if must_pin(way) {
                            region.pin(range.clone()).unwrap();
                        }
                        file.read_exact_at(bytes(pages, first, CHUNK), offset).unwrap();
                        if must_pin(way) {
                            region.unpin(range).unwrap();
                        }
                        let view = Pages { address: pages.at(first) as usize, count: CHUNK };
                        wrong.extend((0..CHUNK).filter_map(|page| view.wrong(page, chunk + 1)));
                        held.fetch_add(1, Ordering::Relaxed);
                    }
                    wrong
                })
            })
            .collect();
        for reader in readers {
            wrong.extend(reader.join().unwrap());
        }
        done.store(true, Ordering::Relaxed);
        pressing.join().unwrap();
    });
    let counters = engine.counters();
    println!("{way:?}: {} reads, {counters:?}", held.into_inner());
    if memory != Memory::Data {
        assert!(counters.pswpout > 1000, "it leaves: {counters:?}");
    }
    assert_eq!(engine.counters().pages_lost, 0);
    audit(&engine);
    wrong
}

#[test]
fn a_page_that_a_device_writes_to_does_not_leave_with_move() {
    let wrong = direct_reads(WAYS[0], 300, Memory::Data);
    assert!(wrong.is_empty(), "{} pages lost what the device wrote: {}", wrong.len(), wrong[0]);
}

#[test]
fn a_pinned_page_that_a_device_writes_to_does_not_leave_with_copy() {
    let wrong = direct_reads(WAYS[2], 300, Memory::Data);
    assert!(wrong.is_empty(), "{} pages lost what the device wrote: {}", wrong.len(), wrong[0]);
}

#[test]
fn a_page_of_code_that_a_device_writes_to_does_not_leave() {
    for memory in [Memory::Code, Memory::LentCode] {
        let wrong = direct_reads(WAYS[0], 300, memory);
        assert!(wrong.is_empty(), "{} pages lost what the device wrote: {}", wrong.len(), wrong[0]);
    }
}

#[test]
fn code_leaves_and_comes_back_in_parent_and_child_while_a_ring_may_read_into_it() {
    for way in [WAYS[0], WAYS[1]] {
        limit(50);
        let engine = engine(way);
        let (region, other) = (engine.map(32 * MIB).unwrap(), engine.map(4 * MIB).unwrap());
        let pages = Pages::of(&region);
        make_code(&engine, pages);
        make_code(&engine, Pages::of(&other));
        let leaves = |stamp, tries| {
            let before = engine.counters().pswpout;
            pages.fill_all(stamp);
            let all_leave = || {
                region.page_out(0..region.len()).unwrap();
                pages.present().iter().all(|present| !present)
            };
            assert!((0..tries).any(|_| all_leave()), "{way:?}: it leaves");
            assert!(engine.counters().pswpout - before >= pages.count as u64, "{way:?}");
            pages.check_all(stamp);
        };
        leaves(1, 1);
        // Both at once, each by a thread of its own, and the reclaimer.
        std::thread::scope(|scope| {
            let beside = Pages::of(&other);
            scope.spawn(move || {
                for stamp in 0..rounds(8) as u64 {
                    beside.fill_all(stamp);
                    beside.check_all(stamp);
                }
            });
            // What the reclaimer has in hand just then stays for another time.
            leaves(2, 100);
        });
        join(fork(&engine, || {
            pages.check_all(2);
            leaves(3, 1);
        }));
        pages.check_all(2);
        leaves(4, 1);
        assert_eq!(engine.counters().pages_lost, 0);
        audit(&engine);
    }
}

#[test]
fn a_device_reads_what_was_written_last() {
    for way in [WAYS[0], WAYS[2]] {
        limit(50);
        let engine = engine(way);
        let region = engine.map(16 * MIB).unwrap();
        let pages = Pages::of(&region);
        let (_directory, file) = direct_file();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let pressing = scope.spawn(|| press(&engine, pages, &done));
            let mut random = Random::new(3);
            let mut back = vec![0u8; (CHUNK + 1) * PAGE];
            for round in 1..rounds(80) {
                let first = random.below(pages.count / CHUNK) * CHUNK;
                (first..first + CHUNK).for_each(|page| pages.fill(page, round));
                file.write_all_at(bytes(pages, first, CHUNK), 0).unwrap();
                let skip = back.as_ptr().align_offset(PAGE);
                let view = &mut back[skip..skip + CHUNK * PAGE];
                file.read_exact_at(view, 0).unwrap();
                assert!(view == bytes(pages, first, CHUNK), "{way:?} round {round}");
                (first..first + CHUNK).for_each(|page| pages.check(page, round));
            }
            done.store(true, Ordering::Relaxed);
            pressing.join().unwrap();
        });
        audit(&engine);
    }
}

/// A ring's registered buffers are held for as long as the ring lives: the page may leave neither way.
fn registered_buffers(way: Way) {
    limit(50);
    let engine = engine(way);
    let region = engine.map(MIB).unwrap();
    let pages = Pages::of(&region);
    pages.fill_all(1);
    let (_directory, file) = direct_file();
    let source = engine.map(16 * PAGE).unwrap();
    (0..16).for_each(|page| Pages::of(&source).fill(page, 2));
    file.write_all_at(bytes(Pages::of(&source), 0, 16), 0).unwrap();
    let mut ring = io_uring::IoUring::new(4).unwrap();
    register(&ring, Pages { count: 16, ..pages });
    if must_pin(way) {
        region.pin(0..16 * PAGE).unwrap();
    }
    let other = engine.map(40 * MIB).unwrap();
    for stamp in 1..3 {
        (0..Pages::of(&other).count).for_each(|page| Pages::of(&other).fill(page, stamp));
        region.page_out(0..MIB).unwrap();
    }
    let fd = io_uring::types::Fd(file.as_raw_fd());
    let read = io_uring::opcode::ReadFixed::new(fd, pages.at(0).cast(), (16 * PAGE) as u32, 0);
    assert_eq!(answered(&mut ring, &read.build()), (16 * PAGE) as i32);
    let wrong: Vec<_> = (0..16).filter_map(|page| pages.wrong(page, 2)).collect();
    assert!(
        wrong.is_empty(),
        "{} of 16 pages lost what the device wrote: {}",
        wrong.len(),
        wrong[0]
    );
    (16..pages.count).for_each(|page| pages.check(page, 1));
    ring.submitter().unregister_buffers().unwrap();
    drop(ring);
    if must_pin(way) {
        region.unpin(0..16 * PAGE).unwrap();
    }
    region.page_out(0..MIB).unwrap();
    assert!(pages.present().iter().all(|present| !present), "released pages leave");
    (0..16).for_each(|page| pages.check(page, 2));
    audit(&engine);
}

#[test]
fn registered_buffers_stay_with_move() {
    registered_buffers(WAYS[0]);
}

#[test]
fn registered_buffers_stay_with_move_by_signal() {
    registered_buffers(WAYS[1]);
}

#[test]
fn registered_buffers_that_are_pinned_stay_with_copy() {
    registered_buffers(WAYS[2]);
}

#[test]
fn what_a_ring_reads_into_memory_that_may_be_executed_is_not_lost() {
    limit(50);
    let engine = engine(WAYS[0]);
    let region = engine.map(16 * PAGE).unwrap();
    let pages = Pages::of(&region);
    pages.fill_all(1);
    make_code(&engine, pages);
    let (_directory, file) = direct_file();
    file.write_all_at(bytes(pages, 0, 16), 0).unwrap();
    pages.fill_all(2);
    let mut ring = io_uring::IoUring::new(4).unwrap();
    register(&ring, pages);
    region.page_out(0..region.len()).unwrap();
    let fd = io_uring::types::Fd(file.as_raw_fd());
    let read = io_uring::opcode::ReadFixed::new(fd, pages.at(0).cast(), (16 * PAGE) as u32, 0);
    assert_eq!(answered(&mut ring, &read.build()), (16 * PAGE) as i32);
    pages.check_all(1);
    ring.submitter().unregister_buffers().unwrap();
    audit(&engine);
}

#[test]
fn what_a_ring_holds_for_ever_is_not_waited_for_page_by_page() {
    // A fifth of a second for each of 2048 pages would take longer.
    limit(50);
    let engine = engine(WAYS[0]);
    let (first, second) = (engine.map(8 * MIB).unwrap(), engine.map(8 * MIB).unwrap());
    let (from, to) = (Pages::of(&first), Pages::of(&second));
    from.fill_all(1);
    let ring = io_uring::IoUring::new(4).unwrap();
    register(&ring, from);
    let core = engine.core();
    core.move_range(core.range_at(from.address, first.len()), core.arena.page_of(to.address));
    to.check_all(1);
    from.check_all(0);
    ring.submitter().unregister_buffers().unwrap();
    audit(&engine);
}
