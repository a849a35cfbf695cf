//! Compressed memory in front of all devices: its size, which is set or decided about while the program runs, and the pages
//! that move because of that; none is lost or changed.
use crate::demotion::{assert_nothing_lost, compressed, moved, use_while};
use crate::support::*;
use crate::zram::{all, check, fill, stored};
use userswap::{Builder, Engine};

/// With compressed memory in front of a device.
fn compressing(way: Way, compress: &str, swap: &[&str]) -> Engine {
    build(with_swap(builder(way), swap).compress(compress.parse().unwrap()))
}

#[test]
fn compressed_memory_in_front_of_all_devices_takes_no_more_than_it_may() {
    limit(60);
    for way in ways() {
        let engine = compressing(way, "8M", &["mem:128M"]);
        engine.core().devices.allowance.set_most(1200);
        let region = engine.map(40 * MIB).unwrap();
        use_while(&engine, Pages::of(&region), 4000, || {
            eventually("pages have moved on", || {
                region.page_out(0..region.len()).unwrap();
                moved(&engine) > 4000
            });
        });
        region.page_out(0..region.len()).unwrap();
        let now = stored(&engine, "zram");
        assert!(now.pages > 300 && now.slab_bytes <= (1200 + 256) * PAGE as u64, "{now:?}");
        // Devices that come later are behind it, as the first.
        swapon(&engine, "mem:64M").unwrap();
        let tiers = engine.core().devices.list().map(|device| device.tier()).collect::<Vec<_>>();
        assert_eq!(tiers, [Some(0), Some(1), Some(1)]);
        let refused = swapon(&engine, "zram:64M").unwrap_err().to_string();
        assert!(refused.contains("leave it out"), "{refused}");
        swapoff(&engine, "zram").unwrap();
        assert_nothing_lost(&engine);
    }
}

#[test]
fn where_data_do_not_compress_their_memory_goes_back_and_comes_again_with_others() {
    limit(60);
    for way in ways() {
        // What is behind has to be slower, or no memory is worth it.
        let engine = compressing(way, "auto", &["mem:256M,throttle=100"]);
        let room = || engine.core().devices.allowance.room().total;
        let region = engine.map(28 * MIB).unwrap();
        let noise = Pages::of(&region);
        let mut stamp = 0;
        eventually("noise is given up on", || {
            stamp += 1;
            noise.fill_all(stamp);
            noise.check_all(stamp);
            room() == 0 && stored(&engine, "zram").pages == 0
        });
        drop(region);
        let region = engine.map(28 * MIB).unwrap();
        let text = Pages::of(&region);
        let line =
            |stamp: u64, page: usize, index: usize| word(stamp, page, index % 3 + index / 99);
        eventually("what compresses gets memory again", || {
            stamp += 1;
            for page in 0..text.count {
                text.fill_with(page, |index| line(stamp, page, index));
            }
            for page in 0..text.count {
                assert_eq!(text.wrong_word(page, |index| line(stamp, page, index)), None);
            }
            let now = stored(&engine, "zram");
            room() > 200 && now.pages * PAGE as u64 > now.slab_bytes * 2
        });
        assert_nothing_lost(&engine);
    }
}

fn set(engine: &Engine, value: &str) -> Result<String, String> {
    settings::set(engine.core(), "compress", value)
}

#[test]
fn pages_move_to_and_fro_as_compressed_memory_is_set_while_threads_use_them() {
    limit(60);
    for way in ways() {
        let engine = compressing(way, "auto", &["mem:128M,throttle=400"]);
        let region = engine.map(40 * MIB).unwrap();
        use_while(&engine, Pages::of(&region), 4000, || {
            for (value, shown) in
                [("8M", "8M"), ("0", "0"), ("auto", "auto"), ("64M", "64M"), ("0", "0")]
            {
                assert_eq!(set(&engine, value).as_deref(), Ok(shown));
                region.page_out(0..region.len()).unwrap();
            }
        });
        region.page_out(0..region.len()).unwrap();
        eventually("compressed memory is empty", || stored(&engine, "zram").pages == 0);
        assert_nothing_lost(&engine);
    }
}

#[test]
fn clean_pages_come_to_compressed_memory_that_has_room_again() {
    limit(60);
    for way in ways() {
        let engine = compressing(way, "64M", &["mem:128M"]);
        set(&engine, "0").unwrap();
        let region = engine.map(24 * MIB).unwrap();
        let pages = Pages::of(&region);
        all(pages, 3, fill);
        region.page_out(0..region.len()).unwrap();
        assert_eq!(compressed(&engine, pages), 0);
        set(&engine, "64M").unwrap();
        // Only read: they would go back to where they came from for nothing.
        all(pages, 3, check);
        region.page_out(0..region.len()).unwrap();
        let (promoted, now) = (engine.counters().swap_promoted, compressed(&engine, pages));
        assert!(promoted > 500 && now > 500, "{promoted} {now}");
        all(pages, 3, check);
        // It is full: what comes and goes in order makes nothing move on.
        let before = moved(&engine);
        for _ in 0..3 {
            all(pages, 3, check);
        }
        region.page_out(0..region.len()).unwrap();
        assert!(moved(&engine) < before + 3000, "{before} {}", moved(&engine));
        assert_nothing_lost(&engine);
    }
}

#[test]
fn a_smaller_budget_has_compressed_pages_move_on() {
    limit(60);
    for way in ways() {
        let engine = build(builder_of(way, 48).compress("64M".parse().unwrap()));
        let region = engine.map(60 * MIB).unwrap();
        let pages = Pages::of(&region);
        pages.fill_all(3);
        region.page_out(0..region.len()).unwrap();
        let before = engine.usage().compressed;
        assert!(before > 5000, "{before}");
        engine.set_budget(20 << 20).unwrap();
        let after = engine.usage().compressed;
        assert!(after <= 2 << 10, "{before} {after}");
        pages.check_all(3);
        pages.fill_all(4);
        pages.check_all(4);
        assert_nothing_lost(&engine);
    }
}

#[test]
fn budgets_that_shrink_at_once_are_refused_for_nobody_elses_bound() {
    limit(60);
    let engine = build(builder_of(WAYS[0], 48).compress("64M".parse().unwrap()));
    let region = engine.map(60 * MIB).unwrap();
    for round in 1..=4 {
        Pages::of(&region).fill_all(round);
        region.page_out(0..region.len()).unwrap();
        std::thread::scope(|scope| {
            for mib in [20, 24, 28] {
                let engine = &engine;
                scope.spawn(move || engine.set_budget(mib << 20).unwrap());
            }
        });
        Pages::of(&region).check_all(round);
        engine.set_budget(48 << 20).unwrap();
        let room = engine.core().devices.allowance.room();
        assert!(room.total > 4000, "no bound is left: {room:?}");
    }
    assert_nothing_lost(&engine);
}

#[test]
fn a_child_knows_nothing_of_its_parents_shrinking() {
    alone(60, || {
        let engine = build(builder_of(WAYS[0], 48).compress("64M".parse().unwrap()));
        let allowance = &engine.core().devices.allowance;
        let before = allowance.room().total;
        allowance.bound_by(100);
        assert!(allowance.room().total <= 100);
        join(fork(&engine, || assert_eq!(allowance.room().total, before)));
        allowance.unbind(100);
        assert_eq!(allowance.room().total, before);
    });
}

fn builder_of(way: Way, mebibytes: u64) -> Builder {
    let (fault, transfer) = way;
    let builder = Builder::new(mebibytes << 20).fault(fault).transfer(transfer);
    with_swap(builder.arena_bytes(1 << 30), &["mem:128M"])
}

#[test]
fn what_cannot_be_set_is_refused_by_name() {
    let engine = compressing(WAYS[0], "64M", &["mem:1M"]);
    for value in ["1M", "half", "-1", ""] {
        let refused = set(&engine, value).unwrap_err();
        assert!(
            refused.contains(&format!("{value:?}")) && refused.contains("or auto"),
            "{refused}"
        );
    }
    let region = engine.map(16 * MIB).unwrap();
    let pages = Pages::of(&region);
    pages.fill_all(3);
    let _ = region.page_out(0..8 * MIB);
    engine.page_out_all();
    let refused = set(&engine, "0").unwrap_err();
    assert!(refused.contains("swapon") && refused.lines().count() == 1, "{refused}");
    pages.check_all(3);
    let plain = engine_on(WAYS[0], &["mem:64M"]);
    let refused = set(&plain, "auto").unwrap_err();
    assert!(refused.contains("--compress auto"), "{refused}");
}

#[test]
fn other_compressed_memory_may_take_the_place_of_what_was_swapped_off() {
    limit(60);
    let engine = compressing(WAYS[0], "auto", &["mem:128M"]);
    let (region, pages) = paged_out(&engine, 20 * MIB / PAGE, 3);
    let twice = swapon(&engine, "zram:64M").unwrap_err().to_string();
    assert!(twice.contains("in front of all devices already"), "{twice}");
    swapoff(&engine, "zram").unwrap();
    let refused = set(&engine, "20M").unwrap_err();
    assert!(refused.contains("swapon zram:SIZE,tier=0"), "{refused}");
    swapon(&engine, "mem:16M").unwrap();
    swapon(&engine, "zram:64M").unwrap();
    set(&engine, "20M").unwrap();
    pages.fill_all(4);
    region.page_out(0..region.len()).unwrap();
    assert!(stored(&engine, "zram").pages > 0);
    pages.check_all(4);
    audit(&engine);
}
