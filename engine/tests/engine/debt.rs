//! A budget that becomes smaller while the program runs: what is over it leaves beside the program's faults, not before them.
use crate::support::*;
use userswap::Builder;

#[test]
fn faults_go_on_while_a_debt_is_paid() {
    alone(60, || {
        for (fault, transfer) in WAYS {
            let builder =
                Builder::new(128 << 20).fault(fault).transfer(transfer).arena_bytes(1 << 30);
            let engine = build(with_swap(builder, &["mem:512M,throttle=60"]));
            let region = engine.map(208 * MIB).unwrap();
            let pages = Pages::of(&region);
            let filled = 112 * MIB / PAGE;
            (0..filled).for_each(|page| pages.fill(page, 1));
            engine.set_budget(64 << 20).unwrap();
            // More than all writes that are under way at a time.
            engine.set("min_free", "12M").unwrap();
            let mut next = filled;
            while engine.usage().debt > 0 && next < pages.count {
                pages.fill(next, 1);
                next += 1;
            }
            let got = next - filled;
            assert!(got > 2_000, "{got} pages while {:?}", engine.usage());
            eventually("the debt is paid", || engine.usage().debt == 0);
            (0..next).for_each(|page| pages.check(page, 1));
            audit(&engine);
        }
    });
}

#[test]
fn a_debt_is_paid_under_a_load_that_takes_all_there_is() {
    alone(120, || {
        let engine = build(with_swap(builder(WAYS[0]), &["mem:512M,throttle=100"]));
        engine.set_budget(64 << 20).unwrap();
        let region = engine.map(96 * MIB).unwrap();
        let pages = Pages::of(&region);
        pages.fill_all(0);
        engine.set_budget(20 << 20).unwrap();
        let mut pass = 0;
        eventually("the debt is paid", || {
            pass += 1;
            for page in (0..pages.count).step_by(7) {
                pages.fill(page, pass);
            }
            engine.usage().debt == 0
        });
        (0..pages.count).step_by(7).for_each(|page| pages.check(page, pass));
        audit(&engine);
    });
}
