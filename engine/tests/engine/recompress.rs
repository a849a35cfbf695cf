//! What stays in compressed memory is compressed once more: the bytes stay what they were, there, on the device behind, in a
//! forked child, and while threads use them.
use crate::support::*;
use crate::zram::{all, check, fill, stored};
use userswap::Engine;

/// What has been there for a second is cold; by either algorithm, with a device behind it.
const SWAPS: [&[&str]; 2] = [
    &["zram:64M,recompress=9:1,tier=0", "mem:64M,tier=1"],
    &["zram:64M,algo=zstd,level=-7,recompress=9:1,tier=0", "mem:64M,tier=1"],
];

/// Waits until many pages are smaller: that is done while no test wants the CPUs.
fn many_are_smaller(engine: &Engine) {
    eventually("pages that stay are compressed once more", || {
        engine.counters().zram_recompressed > 400
    });
}

#[test]
fn pages_that_were_compressed_once_more_come_back_as_they_were() {
    limit(280);
    for (way, swap) in ways().zip(SWAPS.into_iter().cycle()) {
        let engine = engine_on(way, swap);
        let region = engine.map(16 * MIB).unwrap();
        let pages = Pages::of(&region);
        all(pages, 2, fill);
        region.page_out(0..region.len()).unwrap();
        let before = stored(&engine, "zram");
        many_are_smaller(&engine);
        let after = stored(&engine, "zram");
        let average = |stored: Stored| stored.compressed_bytes / stored.pages;
        assert!(average(after) < average(before), "{before:?}, {after:?}");
        join(fork(&engine, || all(pages, 2, check)));
        all(pages, 2, check);
        audit(&engine);
        // Some are packed on the device behind as they are now.
        all(pages, 3, fill);
        region.page_out(0..region.len()).unwrap();
        let seen = engine.counters().zram_recompressed;
        eventually("others are smaller", || engine.counters().zram_recompressed > seen + 400);
        engine.page_out_all();
        all(pages, 3, check);
        let counters = engine.counters();
        assert!(counters.zswpwb > 0, "nothing moved on");
        assert_eq!((counters.pages_lost, counters.swap_read_errors), (0, 0));
        audit(&engine);
    }
}
