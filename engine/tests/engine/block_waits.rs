//! When a fault that finds no page waits for a reclaimer that takes blocks.
use crate::blocks::{engine_of_blocks, owners_step};
use crate::support::*;
use std::sync::atomic::Ordering;
use std::time::Duration;
use userswap::OnFull;

#[test]
fn faults_leave_what_is_to_go_to_the_reclaimer_while_it_takes_blocks() {
    alone(60, || {
        let engine = engine_of_blocks(WAYS[1]);
        let region = engine.map(64 * MIB).unwrap();
        owners_step(Pages::of(&region), 8, 12_000, |_| {});
        let counters = engine.counters();
        // But for what leaves before the first block.
        assert!(counters.pgthrottle > 1_000, "{counters:?}");
        assert!(counters.pgsteal_direct < counters.swpout_block / 10, "{counters:?}");
        audit(&engine);
    });
}

#[test]
fn faults_do_not_wait_for_blocks_that_no_device_takes() {
    alone(60, || {
        for nodes in [1, 2] {
            let builder = builder(WAYS[1]).on_full(OnFull::Exceed).fake_numa(nodes);
            let engine = build(with_swap(builder, &["mem:4M"]));
            engine.set("reclaim_way", "blocks").unwrap();
            let region = engine.map(40 * MIB).unwrap();
            owners_step(Pages::of(&region), 4, 10_000, |_| {});
            let counters = engine.counters();
            assert!(counters.budget_exceeded > 0 && counters.pages_lost == 0, "{counters:?}");
            // They leave and come back, and nothing has become free.
            let core = engine.core();
            eventually("a block comes back without a word", || {
                let freed = core.shortage.freed.load(Ordering::Relaxed);
                let taken = engine.counters().swpout_block;
                std::thread::sleep(Duration::from_millis(300));
                core.shortage.freed.load(Ordering::Relaxed) == freed
                    && engine.counters().swpout_block > taken
            });
            audit(&engine);
        }
    });
}
