//! Where pages go when their device does: the kernel's walks, other devices, pins and nodes.
use super::{count_present, used, with_memory};
use crate::support::*;
use userswap::Builder;
use userswap::internals::{Proceed, SwapoffMethod};

#[test]
fn the_kernels_walks_bring_everything_back_too() {
    for way in WAYS {
        for method in SwapoffMethod::ALL.into_iter().filter(|way| *way != SwapoffMethod::Device) {
            limit(30);
            let engine = with_memory(way, 16, &["mem:64M"]);
            let (region, pages) = paged_out(&engine, 2500, 7);
            for page_cluster in [0, 1, 3, 8] {
                engine.set("page_cluster", &page_cluster.to_string()).unwrap();
                let before = engine.counters().pswpin;
                let mut requests = 0;
                let mut count = |_| {
                    requests += 1;
                    Proceed::GoOn
                };
                swapoff_by(&engine, "mem", method, &mut count).unwrap();
                assert_eq!(engine.counters().pswpin - before, 2500, "{way:?} {method}");
                // The default reads a mebibyte at a time: fewer requests would be its.
                let least = 2500 >> page_cluster;
                assert!(requests >= least, "{way:?} {method} {page_cluster}: {requests} requests");
                assert_eq!((count_present(pages), engine.usage().slots_used), (2500, 0));
                pages.check_all(7);
                audit(&engine);
                swapon(&engine, "mem:64M").unwrap();
                region.page_out(0..region.len()).unwrap();
            }
        }
    }
}

#[test]
fn a_walk_moves_what_ram_cannot_hold_to_another_device() {
    limit(60);
    let engine = with_memory(WAYS[0], 16, &["mem:64M,pri=5", "mem:64M,pri=1"]);
    let (_region, pages) = paged_out(&engine, 9000, 7);
    for (name, method) in [("mem", SwapoffMethod::Scaling), ("mem#2", SwapoffMethod::Fixed)] {
        swapoff_by(&engine, name, method, &mut go_on).unwrap();
        swapon(&engine, "mem:64M").unwrap();
        audit(&engine);
    }
    pages.check_all(7);
    assert_eq!(engine.counters().budget_exceeded, 0);
}

#[test]
fn pinned_pages_stay_where_they_are_and_give_their_slots_up() {
    limit(30);
    let engine = with_memory(WAYS[0], 16, &["mem:64M"]);
    let (region, pages) = paged_out(&engine, 1000, 7);
    region.pin(0..100 * PAGE).unwrap();
    swapoff(&engine, "mem").unwrap();
    pages.check_all(7);
    region.unpin(0..100 * PAGE).unwrap();
    assert!(used(&engine).is_empty());
    audit(&engine);
}

/// A node full of pinned pages has nothing to offer; the others have.
#[test]
fn pages_go_to_whichever_node_has_room() {
    limit(60);
    let builder = Builder::new(64 << 20).fake_numa(2).arena_bytes(1 << 30);
    let builder = builder.swap("mem:128M,pri=5".parse().unwrap());
    let engine = builder.swap("mem:128M,pri=1".parse().unwrap()).build().unwrap();
    let pinned = engine.map(36 * MIB).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            stay_on(std::thread::available_parallelism().unwrap().get() - 1);
            pinned.pin(0..pinned.len()).unwrap();
        });
    });
    let (_region, pages) = paged_out(&engine, 60 * MIB / PAGE, 7);
    swapoff(&engine, "mem").unwrap();
    assert_eq!(engine.counters().budget_exceeded, 0);
    pages.check_all(7);
    pinned.unpin(0..pinned.len()).unwrap();
    audit(&engine);
}
