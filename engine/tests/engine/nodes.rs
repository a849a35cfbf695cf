//! Several nodes, made up over the CPUs of this machine: pages, frames and accounting of each stay its own.
use crate::support::*;
use userswap::Error;

/// Runs `work` on a CPU of its own.
fn on_cpu<R: Send>(cpu: u32, work: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let pinned = move || {
            numa::run_on(&[cpu]);
            work()
        };
        scope.spawn(pinned).join().unwrap()
    })
}

#[test]
fn a_page_belongs_to_the_node_of_the_cpu_that_touches_it() {
    for way in ways() {
        limit(50);
        let engine = build(builder(way).fake_numa(2));
        assert_eq!(engine.core().nodes.len(), 2);
        for cpu in 0..clock::cpus().min(2) {
            let region = engine.map(2 * MIB).unwrap();
            let pages = Pages::of(&region);
            on_cpu(cpu, || pages.fill_all(3));
            // Zeros ahead of the program may still be on their way.
            audit(&engine);
            let core = engine.core();
            let first = core.arena.page_of(pages.address);
            for page in first..first + pages.count as u32 {
                let Some(Mapped { node, .. }) = core.pages.state(page).mapped() else {
                    panic!("page {page} fits its node's share: {:?}", core.pages.state(page))
                };
                assert_eq!(u32::from(node.0), cpu % 2, "page {page} {way:?}");
            }
        }
        audit(&engine);
    }
}

#[test]
fn a_program_on_one_node_may_use_the_budget_of_all() {
    for way in ways() {
        limit(50);
        let engine = build(builder(way).fake_numa(2));
        let region = engine.map(12 * MIB).unwrap();
        let pages = Pages::of(&region);
        let used = |node: usize| engine.core().nodes[node].lock().resident;
        // 16 MiB are the budget, 8 of them node 0's. On a machine with other work its reclaimer may be as fast as this.
        let is_beyond = || {
            on_cpu(0, || pages.fill_all(3));
            let usage = engine.usage();
            // Mapped, cached, or on its way from the one to the other.
            let held = usage.budget - usage.free - usage.spare;
            held as usize > 9 * MIB / PAGE && used(0) > 0 && used(1) > 0
        };
        eventually("the other node's budget is used", is_beyond);
        pages.check_all(3);
        audit(&engine);
    }
}

#[test]
fn every_byte_is_right_with_four_nodes_and_threads_that_wander() {
    for way in ways() {
        limit(100);
        let engine = build(builder(way).fake_numa(4));
        let region = engine.map(48 * MIB).unwrap();
        let pages = Pages::of(&region);
        let seed = seed();
        std::thread::scope(|scope| {
            for task in 0..4 {
                scope.spawn(move || {
                    let mut random = Random::new(seed + task as u64);
                    let own = pages.count / 4;
                    let mut stamps = vec![0; own];
                    for step in 1..rounds(100) {
                        numa::run_on(&[random.below(clock::cpus() as usize) as u32]);
                        let first = random.below(own - 64);
                        for (index, stamp) in stamps.iter_mut().enumerate().skip(first).take(64) {
                            let page = task * own + index;
                            pages.check(page, *stamp);
                            *stamp = step;
                            pages.fill(page, step);
                        }
                    }
                    (0..own).for_each(|index| pages.check(task * own + index, stamps[index]));
                });
            }
        });
        audit(&engine);
        let core = engine.core();
        core.drop_range(core.range_at(pages.address, region.len()));
        pages.check_all(0);
        audit(&engine);
    }
}

#[test]
fn each_node_gets_what_was_asked_for_and_keeps_its_share_when_the_budget_changes() {
    limit(50);
    let build = |first: u64, second: u64| {
        builder(WAYS[0])
            .fake_numa(2)
            .ram_of_node(0, first << 20)
            .ram_of_node(1, second << 20)
            .build()
    };
    let engine = build(24, 8).unwrap();
    let budgets = || engine.core().nodes.iter().map(|node| node.lock().budget).collect::<Vec<_>>();
    assert_eq!(budgets(), [6144, 2048]);
    engine.set_budget(48 << 20).unwrap();
    assert_eq!(budgets(), [9216, 3072]);
    let region = engine.map(60 * MIB).unwrap();
    let pages = Pages::of(&region);
    pages.fill_all(5);
    engine.set_budget(20 << 20).unwrap();
    assert_eq!(budgets(), [3840, 1280]);
    pages.check_all(5);
    // Parts that no division leaves even, again and again.
    for mib in (16..48).cycle().take(200) {
        engine.set_budget((mib << 20) + 3 * PAGE_BYTES as u64).unwrap();
    }
    engine.set_budget(32 << 20).unwrap();
    assert_eq!(budgets(), [6144, 2048]);
    pages.check_all(5);
    audit(&engine);
    assert!(matches!(build(16, 2), Err(Error::NodeBudgetTooSmall(1, _))));
    let nowhere = builder(WAYS[0]).fake_numa(2).ram_of_node(7, 32 << 20).build();
    assert!(matches!(nowhere, Err(Error::NoNode(7, _))));
}
