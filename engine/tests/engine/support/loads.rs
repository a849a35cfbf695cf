//! What pages are used for while something else is tested.
use super::{PAGE, Pages, Random, audit, seed};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use userswap::Engine;

/// Checks all pages, and has every third one's next content.
pub fn write_thirds(pages: Pages, stamp: u64) {
    pages.check_all(stamp);
    (0..pages.count).step_by(3).for_each(|page| pages.fill(page, stamp + 1));
}

/// Checks what is there then, from behind.
pub fn check_thirds(pages: Pages, range: Range<usize>, stamp: u64) {
    range.rev().for_each(|page| pages.check(page, stamp + u64::from(page % 3 == 0)));
}

/// Threads write, check and discard pages of their own, far more than there is RAM.
pub fn churn(engine: &Engine, bytes: usize, seconds: u64, meanwhile: impl FnOnce()) {
    let region = engine.map(bytes).unwrap();
    let (pages, seed, over) = (Pages::of(&region), seed(), AtomicBool::new(false));
    thread::scope(|scope| {
        for thread in 0..4 {
            let over = &over;
            scope.spawn(move || {
                let mut random = Random::new(seed ^ thread as u64);
                let mut stamps = vec![0; pages.count];
                let mine = pages.count / 4;
                while !over.load(Ordering::Relaxed) {
                    let page = thread * mine + random.below(mine - 32);
                    match random.below(8) {
                        0 => {
                            let core = engine.core();
                            core.drop_range(core.range_at(pages.at(page) as usize, 32 * PAGE));
                            stamps[page..page + 32].fill(0);
                        }
                        1..4 => {
                            for page in page..page + 16 {
                                stamps[page] = random.below(1000) as u64 + 1;
                                pages.fill(page, stamps[page]);
                            }
                        }
                        _ => (page..page + 16).for_each(|page| pages.check(page, stamps[page])),
                    }
                }
                for page in thread * mine..(thread + 1) * mine {
                    pages.check(page, stamps[page]);
                }
            });
        }
        meanwhile();
        thread::sleep(Duration::from_secs(seconds));
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(engine.counters().pages_lost, 0);
    audit(engine);
}
