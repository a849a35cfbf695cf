//! Programs that have more than their budget.
use crate::support::*;

#[test]
fn what_has_grown_beyond_all_frames_of_the_pool_is_given_back_at_once() {
    for way in ways() {
        limit(50);
        // The pool has frames for 80 MiB.
        let engine = build(with_swap(builder(way), &["mem:1M"]));
        let mut region = engine.map(160 * MIB).unwrap();
        let pages = Pages::of(&region);
        pages.fill_all(1);
        // With its device full the reclaimer rests.
        region.discard(0..region.len()).unwrap();
        pages.check_all(0);
        assert!(engine.counters().budget_exceeded > 0);
        audit(&engine);
    }
}
