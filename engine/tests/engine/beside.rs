//! Pages out of the blue: read with the block beside them, as far as that is used.
use crate::readahead::{BYTES, engine_with, grown, swapped};
use crate::support::*;

#[test]
fn pages_that_left_together_come_together_wherever_they_are_and_not_where_that_does_not_help() {
    for way in ways() {
        limit(50);
        let engine = engine_with(way, ReadaheadPolicy::Stream);
        engine.set_budget(32 << 20).unwrap();
        let region = engine.map(16 * MIB).unwrap();
        let pages = Pages::of(&region);
        pages.fill_all(7);
        // By the golden ratio: none of the last streams is near enough to expect the next page.
        let order: Vec<usize> = (0..pages.count).map(|index| index * 2531 % pages.count).collect();
        order.iter().for_each(|page| region.page_out(page * PAGE..(page + 1) * PAGE).unwrap());
        let together = grown(&engine, || order.iter().for_each(|page| pages.check(*page, 7)));
        let faults = together(|counters| counters.pgmajfault);
        assert!(faults * 3 < pages.count as u64, "{way:?}: {faults} faults in the order of slots");
        // Some stay unmapped, so that it is seen that they are used.
        let (ahead, hits) =
            (together(|counters| counters.swap_ra), together(|counters| counters.swap_ra_hit));
        assert!(
            ahead > 2 * faults && hits > 40,
            "{way:?}: {hits} uses of {ahead} pages of blocks were seen"
        );
        let cached = together(|counters| counters.pgfault_cached);
        assert!(
            hits == cached && hits * 2 < ahead,
            "{way:?}: {hits} of {ahead} pages took a fault of their own"
        );
        engine.page_out_all();
        let mut random = Random::new(seed());
        let scattered = grown(&engine, || {
            (0..1000).for_each(|_| {
                let page = random.below(pages.count);
                pages.check(page, 7);
                region.page_out(page * PAGE..(page + 1) * PAGE).unwrap();
            });
        });
        let ahead = scattered(|counters| counters.swap_ra);
        // Each of the 1000 would bring 15; now and then a page out of the blue was among those.
        assert!(ahead < 5000, "{way:?}: {ahead} pages are read for nothing before that is noticed");
        audit(&engine);
    }
}

#[test]
fn a_scan_whose_pages_come_by_blocks_becomes_a_stream() {
    limit(50);
    let engine = engine_with(WAYS[0], ReadaheadPolicy::Stream);
    let (_region, pages) = swapped(&engine, BYTES, 3);
    let marked = grown(&engine, || pages.check_all(3));
    let faults = marked(|counters| counters.pgfault);
    assert!(faults * 20 < pages.count as u64, "{faults} faults for {} pages", pages.count);
}
