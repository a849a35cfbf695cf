//! The five mechanisms at work in a running engine: each test looks at what its mechanism does there (lock counts,
//! lists, requests, turns), and fails when the engine stops asking the policy that decides. `tests/mutants` takes
//! each wire away and expects a failure here.
use crate::support::*;
use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use userswap::internals::{Proceed, SwapoffMethod};
use userswap::{Engine, Region};
use userswap_policy::free_batch::FreeOrder;

/// Slots that a CPU's buffer holds, and a batch frees.
const SLOT_BATCH: u64 = 64;

/// Pages of a region that are paged out one by one, in an order of chance.
fn paged_out_at_random(engine: &Engine, count: usize) -> (Region, Pages) {
    let region = engine.map(count * PAGE).unwrap();
    let pages = Pages::of(&region);
    pages.fill_all(7);
    let mut order: Vec<usize> = (0..count).collect();
    let mut random = Random::new(seed());
    (1..count).rev().for_each(|last| order.swap(last, random.below(last + 1)));
    for page in order {
        region.page_out(page * PAGE..(page + 1) * PAGE).unwrap();
    }
    (region, pages)
}

/// Device locks taken per batch of slots, when a region is given back whose neighbours are on different devices.
fn freeing_locks_per_batch(order: FreeOrder) -> f64 {
    let engine = engine_on(WAYS[0], &["mem:32M,pri=1", "mem:32M,pri=1", "mem:32M,pri=1"]);
    engine.core().devices.set_free_order(order);
    let (region, pages) = paged_out_at_random(&engine, 3000);
    pages.check_all(7);
    region.page_out(0..region.len()).unwrap();
    let so_far = || {
        engine.core().devices.list().fold((0, 0), |(locks, slots), device| {
            let freeing = device.freeing.read().acquisitions;
            (locks + freeing, slots + device.freed.load(Ordering::Relaxed))
        })
    };
    let list_lock = || engine.core().devices.list_lock.read().acquisitions;
    let (before, list_before) = (so_far(), list_lock());
    drop(region);
    let (after, list_after) = (so_far(), list_lock());
    assert_eq!(list_after, list_before, "no device was full: nothing is to be listed");
    let slots = after.1 - before.1;
    assert!(slots > 2000, "{slots} slots were given back to the devices");
    (after.0 - before.0) as f64 * SLOT_BATCH as f64 / slots as f64
}

#[test]
fn slots_go_back_in_batches_each_device_locked_once_and_unsorted_for_nearly_every_slot() {
    limit(60);
    let sorted = freeing_locks_per_batch(FreeOrder::Sorted);
    let unsorted = freeing_locks_per_batch(FreeOrder::Unsorted);
    let grouped = freeing_locks_per_batch(FreeOrder::Grouped);
    assert!(sorted <= 4.0, "{sorted} locks a batch, with three devices");
    assert!(grouped <= 4.0, "{grouped} locks a batch, with three devices");
    assert!(unsorted > 20.0, "{unsorted} locks a batch: neighbours are on different devices");
}

#[test]
fn what_was_given_in_runs_alone_goes_back_in_batches_too() {
    limit(60);
    let engine = engine_on(WAYS[0], &["mem:64M"]);
    let mut region = engine.map(8 * MIB).unwrap();
    let pages = Pages::of(&region);
    pages.fill_all(5);
    region.page_out(0..8 * MIB).unwrap();
    let locks =
        || engine.core().devices.list().map(|one| one.freeing.read().acquisitions).sum::<u64>();
    let before = locks();
    for page in (0..pages.count).step_by(2) {
        region.discard(page * PAGE..(page + 1) * PAGE).unwrap();
    }
    let taken = locks() - before;
    let most = pages.count as u64 / 2 / SLOT_BATCH + u64::from(clock::cpus());
    assert!(taken <= most, "{taken} locks for {} slots", pages.count / 2);
    (1..pages.count).step_by(2).for_each(|page| pages.check(page, 5));
    audit(&engine);
}

#[test]
fn single_slots_come_from_a_buffer_that_asks_for_a_batch() {
    limit(60);
    let list_locks_for = |mode: SlotMode| {
        let engine = engine_on(WAYS[0], &["mem:64M"]);
        engine.core().devices.set_mode(mode);
        let before = engine.core().devices.list_lock.read().acquisitions;
        let (_region, _) = paged_out_at_random(&engine, 640);
        engine.core().devices.list_lock.read().acquisitions - before
    };
    let (cache, clusters) = (list_locks_for(SlotMode::Cache), list_locks_for(SlotMode::Clusters));
    // The thread may wander: each CPU that it comes to fills a buffer.
    let most = 640 / SLOT_BATCH + u64::from(clock::cpus());
    assert!((1..=most).contains(&cache), "{cache} looks at the list for 640 slots");
    assert!(clusters >= 640, "{clusters} looks at the list without buffers");
}

/// Threads of two nodes write more than the budget has room for.
fn write_on_both_nodes(engine: &Engine) {
    std::thread::scope(|scope| {
        for cpu in 0..2 {
            scope.spawn(move || {
                numa::run_on(&[cpu]);
                let region = engine.map(20 * MIB).unwrap();
                let pages = Pages::of(&region);
                pages.fill_all(3);
                pages.check_all(3);
            });
        }
    });
}

#[test]
fn each_node_writes_to_its_own_device_while_that_has_room() {
    limit(60);
    let builder = with_swap(builder(WAYS[0]).fake_numa(2), &["mem:64M,node=0", "mem:64M,node=1"]);
    let engine = build(builder);
    write_on_both_nodes(&engine);
    let devices = &engine.core().devices;
    let placed: Vec<Vec<u64>> = devices
        .list()
        .map(|device| device.placed[..2].iter().map(|of| of.load(Ordering::Relaxed)).collect())
        .collect();
    assert!(placed[0][0] > 0 && placed[1][1] > 0, "{placed:?}");
    assert_eq!((placed[0][1], placed[1][0]), (0, 0), "device by node: {placed:?}");
    audit(&engine);
}

/// Describes, as `/sys` does, two nodes with half of the CPUs each, and what the files of `files` are on.
fn describe_machine(sysfs: &Path, files: &Path, disk: (&str, &str)) {
    let write = |name: &str, text: &str| {
        let path = sysfs.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("devices/system/node/online", "0-1\n");
    for node in 0..2 {
        let cpus: Vec<String> =
            (0..clock::cpus()).filter(|cpu| cpu % 2 == node).map(|cpu| cpu.to_string()).collect();
        write(&format!("devices/system/node/node{node}/cpulist"), &cpus.join(","));
        write(&format!("devices/system/node/node{node}/distance"), "10 20\n");
    }
    let number = files.metadata().unwrap().dev();
    let disk_at = format!("dev/block/{}:{}", libc::major(number), libc::minor(number));
    write(&format!("{disk_at}/device/numa_node"), disk.0);
    write(&format!("{disk_at}/queue/rotational"), disk.1);
}

#[test]
fn a_device_is_near_to_the_node_that_sysfs_says() {
    limit(60);
    let (sysfs, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/var/tmp").unwrap());
    describe_machine(sysfs.path(), files.path(), ("1\n", "0\n"));
    let file = format!("{}:64M", files.path().display());
    let engine = build(with_swap(builder(WAYS[0]).sysfs(sysfs.path()), &["mem:64M", &file]));
    assert_eq!(engine.core().nodes.len(), 2);
    let devices = &engine.core().devices;
    let nodes = devices.list().map(|device| device.label().unwrap().node).collect::<Vec<_>>();
    assert_eq!(nodes, [None, Some(NodeId(1))]);
    write_on_both_nodes(&engine);
    let placed = |device: usize, node: usize| {
        devices.list().nth(device).unwrap().placed[node].load(Ordering::Relaxed)
    };
    assert!(placed(0, 0) > 0 && placed(1, 1) > 0, "both nodes wrote");
    assert_eq!((placed(1, 0), placed(0, 1)), (0, 0), "the file comes first on its node only");
    audit(&engine);
}

/// Where a page is that is on a device only.
fn slot_of(engine: &Engine, page: u32) -> u32 {
    match engine.core().pages.state(page) {
        PageState::Swapped { slot } => slot.0.get(),
        other => panic!("page {page} is {other:?}"),
    }
}

/// A page whose next neighbour in memory is far from it on the device: the windows of both orders hold at most 32.
fn apart_on_the_device(engine: &Engine, first: u32) -> u32 {
    let is_apart = |page: &u32| slot_of(engine, *page).abs_diff(slot_of(engine, page + 1)) >= 64;
    (first..).find(is_apart).expect("the order is a random one")
}

/// Whether a fault brings the page's neighbours in memory, rather than those on the device.
fn reads_neighbours_in_memory(rotational: &str) -> bool {
    let (sysfs, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/var/tmp").unwrap());
    describe_machine(sysfs.path(), files.path(), ("-1\n", rotational));
    let file = format!("{}:64M", files.path().display());
    let builder = builder(WAYS[0]).sysfs(sysfs.path()).readahead(ReadaheadPolicy::Scaling);
    let engine = build(with_swap(builder, &[&file]));
    let (_region, pages) = paged_out_at_random(&engine, 2048);
    let core = engine.core();
    let first = core.arena.page_of(pages.address);
    let page = apart_on_the_device(&engine, first + 1000);
    pages.check((page - first) as usize, 7);
    eventually("the window is read", || engine.counters().swap_ra >= 6);
    let came = !matches!(core.pages.state(page + 1), PageState::Swapped { .. });
    pages.check_all(7);
    came
}

#[test]
fn scaling_reads_in_the_order_of_addresses_unless_a_device_seeks() {
    limit(60);
    assert!(reads_neighbours_in_memory("0\n"));
    assert!(!reads_neighbours_in_memory("1\n"));
}

/// Reads of a swapoff, a window of at most 32 slots each.
fn walk_requests(engine: &Engine, method: SwapoffMethod, pages: Pages) -> usize {
    engine.set("page_cluster", "5").unwrap();
    let device = engine.core().devices.list().next().unwrap();
    let reads = || device.traffic.reads.requests.load(Ordering::Relaxed) as usize;
    let before = reads();
    swapoff_by(engine, "mem", method, &mut |_| Proceed::GoOn).unwrap();
    let requests = reads() - before;
    pages.check_all(7);
    requests
}

#[test]
fn a_fixed_walk_reads_whole_blocks_where_a_scaling_one_reads_what_hits_say() {
    limit(60);
    let at_random = |method| {
        let engine = engine_on(WAYS[0], &["mem:64M"]);
        let (_region, pages) = paged_out_at_random(&engine, 2048);
        let first = engine.core().arena.page_of(pages.address);
        let blocks: HashSet<_> =
            (first..first + 2048).map(|page| slot_of(&engine, page) / 32).collect();
        (walk_requests(&engine, method, pages), blocks.len())
    };
    let ((fixed, blocks), (scaling, _)) =
        (at_random(SwapoffMethod::Fixed), at_random(SwapoffMethod::Scaling));
    // A page in transition is found by a later pass, with a read of its own.
    let most = blocks + 2 * clock::cpus() as usize;
    assert!((blocks..=most).contains(&fixed), "{fixed} requests for {blocks} blocks");
    assert!(scaling > fixed, "{scaling} requests of windows that grow, {fixed} of whole blocks");
}

#[test]
fn a_scaling_walk_counts_its_hits_and_grows_to_whole_blocks() {
    limit(60);
    let engine = engine_on(WAYS[0], &["mem:64M"]);
    let (_region, pages) = paged_out(&engine, 2048, 7);
    let requests = walk_requests(&engine, SwapoffMethod::Scaling, pages);
    let blocks = 2048 / 32;
    assert!((blocks..blocks * 3 / 2).contains(&requests), "{requests} requests, {blocks} blocks");
}

#[test]
fn a_blind_walk_sees_no_hits_and_reads_what_made_up_ones_say() {
    limit(100);
    let requests = |method| {
        let engine = engine_on(WAYS[0], &["mem:64M"]);
        let (_region, pages) = paged_out(&engine, 2048, 7);
        walk_requests(&engine, method, pages)
    };
    let (blind, bumped, forced) = (
        requests(SwapoffMethod::Scaling56),
        requests(SwapoffMethod::Bumped56),
        requests(SwapoffMethod::Forced56),
    );
    // The first windows are of a fresh state, which has four hits; CPUs fill clusters of their own.
    assert!((1000..1100).contains(&blind), "{blind} requests of two pages");
    assert!((500..600).contains(&bumped), "{bumped} requests of four pages");
    assert!((64..=96).contains(&forced), "{forced} requests of 32 pages");
}

#[test]
fn an_unmap_lock_is_taken_once_for_a_batch() {
    limit(60);
    let engine = engine_on(WAYS[0], &["mem:64M"]);
    let region = engine.map(48 * MIB).unwrap();
    let pages = Pages::of(&region);
    pages.fill_all(3);
    pages.check_all(3);
    let counters = engine.counters();
    let unmapped = counters.pgsteal_kswapd + counters.pgsteal_direct;
    let locked = engine.core().unmap_locks.used.acquisitions.load(Ordering::Relaxed);
    assert!(unmapped > 6000 && locked > 0, "{unmapped} pages, {locked} times locked");
    assert!(unmapped / locked >= 32, "{unmapped} pages in {locked} goes");
}

/// Pages of a thousand newcomers and of as many active ones that are expected back from a second chance.
fn expected_back(engine: &Engine) -> (u32, u32) {
    let state = engine.core().nodes[0].lock();
    (state.workingset.expected_back(1000, 0), state.workingset.expected_back(0, 1000))
}

#[test]
fn what_has_its_second_chance_and_what_comes_back_are_told_to_the_working_set() {
    limit(60);
    let engine = engine(WAYS[0]);
    assert_eq!(expected_back(&engine), (500, 500), "nothing is known");
    let region = engine.map(48 * MIB).unwrap();
    let pages = Pages::of(&region);
    pages.fill_all(1);
    let (newcomers, _) = expected_back(&engine);
    assert!(newcomers < 100, "{newcomers} of 1000 are expected back, of a scan");
    let core = engine.core();
    let first = core.arena.page_of(pages.address);
    let has_second_chance =
        |page: &usize| matches!(core.pages.state(first + *page as u32), PageState::Cached { .. });
    let mut next = 0;
    eventually("what is used comes back", || {
        // What asks for frames has more pages looked at.
        (next..next + 32).for_each(|page| pages.check(page % pages.count, 1));
        next += 32;
        (0..pages.count).filter(has_second_chance).for_each(|page| pages.check(page, 1));
        let (newcomers, active) = expected_back(&engine);
        newcomers > 200 || active > 600
    });
    pages.check_all(1);
    audit(&engine);
}

/// A background reclaimer that meets a taken lock has the turn until its node is balanced.
#[test]
fn a_reclaimer_that_collides_is_exclusive_until_its_node_is_balanced() {
    limit(60);
    let engine = build(with_swap(builder(WAYS[0]).fake_numa(2), &["mem:128M"]));
    let core = engine.core();
    core.unmap_locks.set_contention(Contention::Stall);
    let region = engine.map(40 * MIB).unwrap();
    let pages = Pages::of(&region);
    let turns = || engine.counters().reclaim_turns;
    let exclusive = || core.status().unmap_lock.exclusive;
    std::thread::scope(|scope| {
        let held = {
            let parts = Parts::new(&core.arena);
            core.unmap_locks.enter_at_last(parts.of(core.arena.page_of(pages.address)))
        };
        scope.spawn(|| pages.fill_all(3));
        eventually("a reclaimer has the turn", || exclusive().is_some());
        assert_eq!(turns(), 0, "no turn has ended");
        drop(held);
    });
    pages.check_all(3);
    eventually("balanced, it gives the turn back", || exclusive().is_none());
    assert!(turns() >= 1);
    audit(&engine);
}

/// Does something while a thread gives all pages back and writes to them, again and again; then all hold what it wrote
/// last.
fn while_written<R>(mut region: Region, act: impl FnOnce() -> R) -> R {
    let pages = Pages::of(&region);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut stamp = 0;
            while !over.load(Ordering::Relaxed) {
                stamp += 1;
                // No page is read back then, and nothing slows the writer but want of pages.
                region.discard(0..region.len()).unwrap();
                pages.fill_all(stamp);
            }
            stamp
        });
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
        over.store(true, Ordering::Relaxed);
        pages.check_all(writer.join().unwrap());
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// As the exclusive reclaimer was proposed, it keeps the turn while it sleeps for a write.
#[test]
fn a_turn_until_balanced_outlasts_the_sleeps_of_its_reclaimer() {
    limit(100);
    // 4 MiB take it a fifth of a second: it sleeps between writes.
    let engine = engine_on(WAYS[0], &["mem:128M,throttle=20"]);
    let core = engine.core();
    // Far from balanced as long as there is a writer.
    core.set_watermarks(|marks| marks.second_chance_percent = 40).unwrap();
    core.unmap_locks.set_contention(Contention::StallBalanced);
    let region = engine.map(40 * MIB).unwrap();
    let pages = Pages::of(&region);
    let turns = || engine.counters().reclaim_turns;
    let outlasts = || {
        let held = {
            let parts = Parts::new(&core.arena);
            core.unmap_locks.enter_at_last(parts.of(core.arena.page_of(pages.address)))
        };
        eventually("a reclaimer has the turn", || core.status().unmap_lock.exclusive.is_some());
        let (turns_before, written) = (turns(), engine.counters().pswpout);
        drop(held);
        eventually("4 MiB are written", || engine.counters().pswpout > written + 1024);
        turns() == turns_before
    };
    // A writer that gets no CPU for a while lets its node be balanced.
    let outlasted = while_written(region, || (0..20).any(|_| outlasts()));
    assert!(outlasted, "every turn ended within 4 MiB");
    eventually("balanced, it gives the turn back", || core.status().unmap_lock.exclusive.is_none());
    audit(&engine);
}

#[test]
fn faults_wait_for_the_background_reclaimer_when_its_writes_are_slow() {
    limit(60);
    let engine = engine_on(WAYS[0], &["mem:64M,throttle=20"]);
    let region = engine.map(32 * MIB).unwrap();
    let throttled = || {
        engine.set("min_free", "auto").unwrap();
        let stalls = engine.counters().allocstall;
        eventually("all but the minimum is used", || engine.counters().allocstall > stalls + 10);
        let written = engine.counters().pswpout;
        // What is left is far below this one.
        engine.set("min_free", "4M").unwrap();
        let counters = || engine.counters();
        eventually("a fault waits, or a MiB is written", || {
            counters().pgthrottle > 0 || counters().pswpout > written + 256
        });
        counters().pgthrottle > 0
    };
    let has_waited = while_written(region, || (0..20).any(|_| throttled()));
    assert!(has_waited, "no fault has waited");
    audit(&engine);
}

#[test]
fn a_budget_that_was_shrunk_is_kept_though_no_thread_faults() {
    limit(60);
    let engine = engine_on(WAYS[0], &["mem:64M"]);
    engine.set_budget(48 << 20).unwrap();
    let region = engine.map(40 * MIB).unwrap();
    let pages = Pages::of(&region);
    pages.fill_all(3);
    engine.set_budget(16 << 20).unwrap();
    eventually("the debt is paid", || engine.usage().debt == 0);
    audit(&engine);
    pages.check_all(3);
}

#[test]
fn a_throttled_device_takes_the_time_that_its_speed_allows() {
    limit(60);
    let engine = engine_on(WAYS[0], &["mem:64M,throttle=100"]);
    let started = Instant::now();
    let (_region, pages) = paged_out(&engine, 2048, 7);
    let written = started.elapsed();
    pages.check_all(7);
    // 8 MiB at 100 MB/s, out and in again.
    let least = Duration::from_millis(83);
    assert!(written >= least && started.elapsed() >= 2 * least, "{written:?}");
}
