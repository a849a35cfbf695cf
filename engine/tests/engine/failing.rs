//! Devices that are full, refuse writes, lose bytes or lie: only what a device really lost may be lost, and
//! the thread that touches it is told.
use crate::support::*;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};
use userswap::internals::{Proceed, Progress};
use userswap::{Engine, Error};

#[test]
fn with_all_devices_full_the_budget_is_exceeded_and_nothing_lost() {
    for way in ways() {
        limit(50);
        let engine = engine_on(way, &["mem:8M"]);
        let region = engine.map(28 * MIB).unwrap();
        let pages = Pages::of(&region);
        for pass in 1..=rounds(2) {
            pages.check_all(pass - 1);
            pages.fill_all(pass);
        }
        let counters = engine.counters();
        assert!(counters.budget_exceeded >= (28 - 16 - 8) * 200, "{way:?} {counters:?}");
        let debt = engine.usage().debt;
        println!("{way:?}: {debt} pages over the budget");
        // 4 MiB have no room; a batch on its way out may need room twice.
        assert!(debt <= 4 * 256 + 1024, "{way:?} {:?}", engine.usage());
        assert_eq!(counters.pages_lost, 0);
        audit(&engine);
        drop(region);
        // With room again the budget is kept again.
        let small = engine.map(20 * MIB).unwrap();
        let pages = Pages::of(&small);
        let before = engine.counters().budget_exceeded;
        for pass in 1..3 {
            pages.fill_all(pass);
            pages.check_all(pass);
        }
        let exceeded = engine.counters().budget_exceeded - before;
        assert_eq!(
            exceeded,
            0,
            "{way:?}: 20 MiB fit 16 of RAM and 8 of swap; {:?}",
            engine.usage()
        );
        eventually("the debt is paid", || engine.usage().debt == 0);
        audit(&engine);
    }
}

#[test]
fn threads_go_on_at_random_with_all_devices_full() {
    for way in ways() {
        limit(50);
        let engine = engine_on(way, &["mem:4M"]);
        let region = engine.map(30 * MIB).unwrap();
        let pages = Pages::of(&region);
        let seed = seed();
        std::thread::scope(|scope| {
            for thread in 0..3usize {
                scope.spawn(move || {
                    let mut random = Random::new(seed ^ (thread as u64 * 77));
                    let mut stamps = vec![0u64; pages.count / 3];
                    for step in 1..rounds(1500) {
                        let mine = random.below(stamps.len());
                        pages.check(mine * 3 + thread, stamps[mine]);
                        if random.below(2) == 0 {
                            stamps[mine] = step;
                            pages.fill(mine * 3 + thread, step);
                        }
                    }
                    (0..stamps.len()).for_each(|mine| pages.check(mine * 3 + thread, stamps[mine]));
                });
            }
        });
        assert_eq!(engine.counters().pages_lost, 0);
        audit(&engine);
    }
}

/// Writes to more than a device has room for, nothing of which compresses; the program is stopped.
fn fill_up(device: &str) {
    let engine = build(with_swap(builder(WAYS[0]).on_full(OnFull::Stop), &[device]));
    let region = engine.map(80 * MIB).unwrap();
    let pages = Pages::of(&region);
    let mut random = Random::new(1);
    let mut word = || (random.below(1 << 31) << 33 | random.below(1 << 31)) as u64;
    (0..pages.count).for_each(|page| pages.fill_with(page, |_| word()));
}

/// What a program that was stopped has said; nothing in that program.
fn said_when_stopped(output: Option<Output>) -> Option<String> {
    let output = output?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.signal(), Some(libc::SIGKILL), "{:?} {errors}", output.status);
    Some(errors)
}

#[test]
fn with_all_devices_full_the_program_stops_if_asked() {
    let Some(errors) = said_when_stopped(in_child(20, || fill_up("mem:8M"))) else { return };
    assert!(errors.contains("all swap devices are full: stopping the program"), "{errors}");
    assert!(errors.contains("larger swap SIZE"), "{errors}");
}

#[test]
fn with_compressed_memory_alone_more_ram_or_a_disk_behind_is_asked_for() {
    let Some(errors) = said_when_stopped(in_child(20, || fill_up("zram:1G"))) else { return };
    assert!(errors.contains("may take no more of the RAM budget: stopping"), "{errors}");
    assert!(errors.contains("--ram") && errors.contains("--swap PATH"), "{errors}");
}

/// Pages out, then overwrites one slot in `every` in the file; returns the pages that are damaged now.
pub fn damage(engine: &Engine, pages: Pages, path: &Path, every: usize) -> Vec<usize> {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    let core = engine.core();
    let first = core.arena.page_of(pages.address);
    let victims: Vec<usize> = (0..pages.count).step_by(every).collect();
    for page in &victims {
        let PageState::Swapped { slot } = core.pages.state(first + *page as u32) else {
            panic!("page {page} was paged out: {:?}", core.pages.state(first + *page as u32))
        };
        let (_, index) = core.devices.describe(core.devices.under(slot));
        file.write_all_at(&[0xA5; 64], u64::from(index) * PAGE as u64 + 100).unwrap();
    }
    file.sync_all().unwrap();
    victims
}

fn damaged_slots(way: Way) {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = directory.path().join("swap");
    let engine = engine_on(way, &[&format!("{}:64M", path.display())]);
    let mut region = engine.map(4 * MIB).unwrap();
    let pages = Pages::of(&region);
    pages.fill_all(6);
    region.page_out(0..region.len()).unwrap();
    let victims = damage(&engine, pages, &path, 37);
    for page in 0..pages.count {
        match victims.contains(&page) {
            true => assert!(is_lost(pages, page), "page {page} is damaged and must not be read"),
            false => pages.check(page, 6),
        }
    }
    assert!(victims.iter().all(|page| is_lost(pages, *page)), "it stays lost");
    assert_eq!(engine.counters().pages_lost, victims.len() as u64);
    audit(&engine);
    // Moved elsewhere (mremap) they are still lost, and must not become zeros.
    let other = engine.map(4 * MIB).unwrap();
    let others = Pages::of(&other);
    let core = engine.core();
    core.move_range(core.range_at(pages.address, region.len()), core.arena.page_of(others.address));
    assert!(victims.iter().all(|page| is_lost(others, *page)), "a moved page is still lost");
    (0..pages.count).filter(|page| !victims.contains(page)).for_each(|page| others.check(page, 6));
    // Discarded, they are as good as new.
    let core = engine.core();
    core.drop_range(core.range_at(others.address, other.len()));
    others.check_all(0);
    others.fill_all(8);
    others.check_all(8);
    region.discard(0..4 * MIB).unwrap();
    audit(&engine);
    drop((region, other));
    audit(&engine);
}

#[test]
fn a_damaged_slot_raises_sigbus_and_spares_all_others_by_message() {
    alone(20, || {
        damaged_slots(WAYS[0]);
        damaged_slots(WAYS[2]);
    });
}

#[test]
fn a_damaged_slot_raises_sigbus_and_spares_all_others_by_signal() {
    alone(20, || {
        damaged_slots(WAYS[1]);
        damaged_slots(WAYS[3]);
    });
}

fn touch_a_damaged_page(way: Way) {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = directory.path().join("swap");
    let engine = engine_on(way, &[&format!("{}:64M", path.display())]);
    let (_region, pages) = paged_out(&engine, MIB / PAGE, 6);
    damage(&engine, pages, &path, 1);
    std::fs::remove_file(&path).unwrap();
    std::fs::remove_dir(directory.keep()).unwrap();
    pages.check(5, 6);
}

fn ended_by_sigbus(output: Option<Output>) {
    let Some(output) = output else { return };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{:?} {errors}", output.status);
    assert!(errors.contains("lost the page at address 0x"), "{errors}");
    assert!(errors.contains("does not hold what was written there"), "{errors}");
}

#[test]
fn a_program_without_a_handler_ends_by_sigbus_by_message() {
    ended_by_sigbus(in_child(20, || touch_a_damaged_page(WAYS[0])));
}

#[test]
fn a_program_without_a_handler_ends_by_sigbus_by_signal() {
    ended_by_sigbus(in_child(20, || touch_a_damaged_page(WAYS[1])));
}

#[test]
fn a_device_cut_off_unannounced_loses_its_slots_only() {
    alone(30, || {
        for way in ways() {
            let directory = tempfile::tempdir_in("/var/tmp").unwrap();
            let path = directory.path().join("swap");
            let engine = engine_on(way, &[&format!("{}:64M", path.display())]);
            let region = engine.map(4 * MIB).unwrap();
            let pages = Pages::of(&region);
            pages.fill_all(6);
            region.page_out(0..region.len()).unwrap();
            let core = engine.core();
            let first = core.arena.page_of(pages.address);
            // 2 MiB of the file are left.
            let beyond = (first..first + pages.count as u32).filter(|page| {
                let PageState::Swapped { slot } = core.pages.state(*page) else { return false };
                core.devices.describe(slot).1 >= 512
            });
            let beyond = beyond.count();
            assert!((500..pages.count).contains(&beyond), "{beyond}");
            File::options().write(true).open(&path).unwrap().set_len(2 << 20).unwrap();
            let lost = (0..pages.count).filter(|page| is_lost(pages, *page)).count();
            for page in 0..pages.count {
                if !is_lost(pages, page) {
                    pages.check(page, 6);
                }
            }
            assert_eq!((lost, engine.counters().pages_lost), (beyond, beyond as u64), "{way:?}");
            let good = (64 << 20) / PAGE - 1 - beyond;
            assert_eq!(engine.usage().slots, good as u64, "they are not used again");
            audit(&engine);
        }
    });
}

/// A file system of its own, unmounted when dropped.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn tmpfs(size: &str) -> Self {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(directory.path())
            .status()
            .unwrap();
        assert!(status.success(), "this test must be allowed to mount a tmpfs");
        Self(directory)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// Uses more memory than there is RAM and swap, and finds all of it.
fn use_too_much(engine: &Engine, mib: usize) {
    let region = engine.map(mib * MIB).unwrap();
    let pages = Pages::of(&region);
    for pass in 1..3 {
        pages.fill_all(pass);
        pages.check_all(pass);
    }
    let counters = engine.counters();
    assert_eq!(counters.pages_lost, 0, "{counters:?}");
    assert!(counters.budget_exceeded > 0, "{counters:?}");
    audit(engine);
}

#[test]
fn a_full_file_system_costs_no_page() {
    for way in ways() {
        limit(50);
        let mounted = Mounted::tmpfs("12M");
        let swap = SwapSpec::at(mounted.0.path());
        let engine = build(builder(way).swap(SwapSpec { size: Some(8 << 20), ..swap }));
        // Others fill the file system after the device was opened.
        let hog = File::create(mounted.0.path().join("hog")).unwrap();
        let block = vec![1u8; 64 * 1024];
        let mut offset = 0;
        while hog.write_all_at(&block, offset).is_ok() && offset < 12 << 20 {
            offset += block.len() as u64;
        }
        hog.set_len(9 << 20).unwrap();
        use_too_much(&engine, 30);
        drop(engine);
    }
}

#[test]
fn writes_that_a_limit_refuses_go_to_the_same_file_in_another_way() {
    alone(40, || {
        for way in ways() {
            let directory = tempfile::tempdir_in("/var/tmp").unwrap();
            let engine = engine_on(way, &[&format!("{}:64M", directory.path().display())]);
            limit_files(6 << 20);
            let region = engine.map(40 * MIB).unwrap();
            let pages = Pages::of(&region);
            for pass in 1..3 {
                pages.fill_all(pass);
                pages.check_all(pass);
            }
            let counters = engine.counters();
            limit_files(libc::RLIM_INFINITY);
            let lost = (counters.pages_lost, counters.budget_exceeded);
            assert_eq!(lost, (0, 0), "{way:?} {counters:?}");
            // Nobody has told the engine of the limit; the first 6 MiB are below it.
            assert!(counters.swap_write_errors > 0, "{counters:?}");
            assert!(counters.pswpout > 4000, "{counters:?}");
            audit(&engine);
            println!("{way:?}: {} writes failed", counters.swap_write_errors);
        }
    });
}

#[test]
fn when_the_first_device_refuses_writes_the_second_takes_the_pages() {
    alone(40, || {
        for way in ways() {
            let directory = tempfile::tempdir_in("/var/tmp").unwrap();
            let first = format!("{}:64M,pri=5", directory.path().display());
            let engine = engine_on(way, &[&first, "mem:64M,pri=1"]);
            refuse_writes(&engine, 0);
            let region = engine.map(40 * MIB).unwrap();
            let pages = Pages::of(&region);
            for pass in 1..3 {
                pages.fill_all(pass);
                pages.check_all(pass);
            }
            let counters = engine.counters();
            assert_eq!(
                (counters.pages_lost, counters.budget_exceeded),
                (0, 0),
                "{way:?} {counters:?}"
            );
            assert!(counters.swap_write_errors > 0 && counters.pswpout > 4000, "{counters:?}");
            audit(&engine);
            drop(region);
            assert_eq!(engine.usage().slots_used, 0);
        }
    });
}

#[test]
fn discards_while_writes_fail_leave_no_frame_and_no_slot() {
    alone(40, || {
        let engine = engine_on(WAYS[0], &["mem:32M,pri=5", "mem:64M,pri=1"]);
        refuse_writes(&engine, 0);
        let mut random = Random::new(seed());
        let mut region = engine.map(24 * MIB).unwrap();
        let pages = Pages::of(&region);
        let mut stamps = vec![0; pages.count];
        for step in 1..rounds(1000) {
            let first = random.below(pages.count - 64);
            for page in first..first + 64 {
                pages.check(page, stamps[page]);
                stamps[page] = step;
                pages.fill(page, step);
            }
            let first = random.below(pages.count - 32);
            region.discard(first * PAGE..(first + 32) * PAGE).unwrap();
            stamps[first..first + 32].fill(0);
        }
        (0..pages.count).for_each(|page| pages.check(page, stamps[page]));
        audit(&engine);
        drop(region);
        assert_eq!(engine.usage().slots_used, 0);
        audit(&engine);
        // What the device refused is never handed out again, also where the page had gone meanwhile.
        let bad = 8191 - engine.core().devices.list().next().unwrap().pages();
        assert!(bad > 0);
        assert_eq!(u64::from(bad), engine.counters().swap_bad_slots);
    });
}

#[test]
fn a_device_that_refused_too_much_stays_out_of_use_after_a_cancelled_swapoff() {
    alone(40, || {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let file = format!("{}:64M,pri=5", directory.path().display());
        let engine = engine_on(WAYS[0], &[&file, "mem:128M,pri=1"]);
        let (early, late) = (engine.map(4 * MIB).unwrap(), engine.map(40 * MIB).unwrap());
        let (first, second) = (Pages::of(&early), Pages::of(&late));
        first.fill_all(6);
        early.page_out(0..early.len()).unwrap();
        let devices = &engine.core().devices;
        let device = devices.list().next().unwrap();
        let disk = format!("/proc/self/fd/{}", device.descriptor());
        let disk = File::options().read(true).write(true).open(disk).unwrap();
        refuse_writes(&engine, 0);
        second.fill_all(7);
        late.page_out(0..late.len()).unwrap();
        // The disk is well again, but not trusted.
        fd::replace(device.descriptor(), disk.as_raw_fd()).unwrap();
        let state = || device.store().lock().state;
        let usable = devices.room().total;
        assert_eq!(state(), DeviceState::Retired);
        let cancel = &mut |_: Progress| Proceed::Cancel;
        let outcome = swapoff_with(&engine, directory.path(), cancel);
        assert!(matches!(outcome, Err(Error::SwapoffCancelled)), "{outcome:?}");
        assert_eq!((state(), devices.room().total), (DeviceState::Retired, usable));
        audit(&engine);
        first.check_all(6);
        second.check_all(7);
        swapoff(&engine, directory.path()).unwrap();
        first.check_all(6);
        audit(&engine);
    });
}
