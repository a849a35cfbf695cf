//! More servers of fault messages: that they help when one does not keep up, rest when it does, and that no page is wrong
//! by that, also around forks and while devices go.
use crate::support::*;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use userswap::Engine;
use userswap::internals::Proceed;

/// Threads that fault at the same time.
const THREADS: u64 = 8;

/// A budget that a few devices are needed for, in memory, so that what is slow is the server.
fn engine_with_work() -> Engine {
    engine_on(WAYS[0], &["mem:64M", "mem:64M"])
}

fn helped(engine: &Engine) -> u64 {
    engine.counters().pgfault_helped
}

/// Some threads look up and write pages at random until `is_done`, each in pages of its own, and find what they wrote.
fn used_until(pages: Pages, is_done: impl Fn() -> bool + Sync) {
    let done = AtomicBool::new(false);
    let each = pages.count / THREADS as usize;
    // Not by the threads: a child made while one of them prints could never print.
    let seed = seed();
    let work = |thread: u64| {
        let mut random = Random::new(seed ^ thread);
        let first = thread as usize * each;
        let mut stamps = vec![5; each];
        while !done.load(Ordering::Relaxed) {
            let page = random.below(each);
            pages.check(first + page, stamps[page]);
            if random.below(3) == 0 {
                stamps[page] += 1;
                pages.fill(first + page, stamps[page]);
            }
        }
        for (page, stamp) in stamps.iter().enumerate() {
            pages.check(first + page, *stamp);
            pages.fill(first + page, 5);
        }
    };
    std::thread::scope(|scope| {
        (0..THREADS).for_each(|thread| drop(scope.spawn(move || work(thread))));
        // What is not done after all must end, not hang.
        let outcome = catch_unwind(AssertUnwindSafe(|| eventually("the work is done", &is_done)));
        done.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| resume_unwind(panic));
    });
}

/// Whether there is a CPU for a second server.
fn alone_in_serving(engine: &Engine) -> bool {
    let is_alone = engine.set("servers", "4").unwrap() == "1";
    if is_alone {
        println!("NOT TESTED: one CPU, and so one server");
    }
    is_alone
}

#[test]
fn others_help_a_server_that_does_not_keep_up_and_every_page_is_right() {
    alone(200, || {
        let engine = engine_with_work();
        let (region, pages) = paged_out(&engine, 32 * MIB / PAGE, 5);
        if alone_in_serving(&engine) {
            return;
        }
        used_until(pages, || helped(&engine) >= rounds(2000) as u64);
        audit(&engine);
        pages.check_all(5);
        drop(region);
    });
}

#[test]
fn others_help_while_the_program_forks_and_a_device_goes() {
    alone(300, || {
        let engine = engine_with_work();
        let (region, pages) = paged_out(&engine, 32 * MIB / PAGE, 5);
        if alone_in_serving(&engine) {
            return;
        }
        for _ in 0..rounds(3) {
            let before = helped(&engine);
            let forked_after = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let busy = || used_until(pages, || forked_after.load(Ordering::Relaxed));
                scope.spawn(busy);
                eventually("others help", || helped(&engine) > before);
                let child = fork(&engine, || {
                    // Its servers are its own.
                    let before = helped(&engine);
                    used_again(pages);
                    eventually("others help the child", || {
                        used_again(pages);
                        helped(&engine) > before
                    });
                    audit(&engine);
                });
                let device = &engine.core().status().devices[0].name;
                swapoff_with(&engine, device, &mut |_| Proceed::GoOn).unwrap();
                engine.swapon(&"mem:64M".parse().unwrap()).unwrap();
                join(child);
                forked_after.store(true, Ordering::Relaxed);
            });
            pages.check_all(5);
            audit(&engine);
        }
        drop(region);
    });
}

#[test]
fn a_page_that_a_helper_serves_is_of_the_node_whose_thread_asked_for_it() {
    alone(200, || {
        let engine = build(with_swap(builder(WAYS[0]).fake_numa(2), &["mem:64M"]));
        if alone_in_serving(&engine) {
            return;
        }
        // Less than the node has.
        let mut region = engine.map(4 * MIB).unwrap();
        let pages = Pages::of(&region);
        let each = pages.count / THREADS as usize;
        let of_node_1: Vec<u32> = (0..clock::cpus()).filter(|cpu| cpu % 2 == 1).collect();
        eventually("others have helped", || {
            region.discard(0..region.len()).unwrap();
            std::thread::scope(|scope| {
                for first in (0..pages.count).step_by(each) {
                    let cpus = &of_node_1;
                    scope.spawn(move || {
                        numa::run_on(cpus);
                        (first..first + each).for_each(|page| pages.fill(page, 3));
                    });
                }
            });
            assert_eq!(engine.core().nodes[0].lock().resident, 0);
            helped(&engine) >= rounds(200)
        });
        pages.check_all(3);
        audit(&engine);
    });
}

/// All pages are read by several threads, whatever is in them.
fn used_again(pages: Pages) {
    let seed = seed();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let mut random = Random::new(seed ^ thread);
                for _ in 0..2000 {
                    let _ = pages.read(random.below(pages.count), 0);
                }
            });
        }
    });
}

#[test]
fn how_many_servers_there_are_can_be_set_while_they_serve() {
    alone(200, || {
        let engine = engine_with_work();
        let (region, pages) = paged_out(&engine, 32 * MIB / PAGE, 5);
        if alone_in_serving(&engine) {
            return;
        }
        used_until(pages, || helped(&engine) > 0);
        assert_eq!(engine.set("servers", "1").unwrap(), "1");
        eventually("those that look for messages have gone to sleep", || {
            let (before, faults) = (helped(&engine), engine.counters().pgfault);
            used_until(pages, || engine.counters().pgfault > faults + 2000);
            helped(&engine) == before
        });
        for text in ["0", "5", "auto", "-1", ""] {
            let refusal = engine.set("servers", text).unwrap_err().to_string();
            let line = format!("servers: {text:?} is not allowed: use a number from 1 to 4");
            assert_eq!(refusal, line);
        }
        let before = helped(&engine);
        engine.set("servers", "4").unwrap();
        used_until(pages, || helped(&engine) > before);
        audit(&engine);
        drop(region);
    });
}

/// Threads of this process whose name begins so, by their numbers.
fn threads_named(name: &str) -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap());
    let is_so = |task: &std::fs::DirEntry| {
        // It may have ended meanwhile.
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name)
    };
    tasks.filter(is_so).map(|task| task.file_name().into_string().unwrap()).collect()
}

#[test]
fn what_a_fault_wants_from_memory_is_copied_by_the_server_itself() {
    alone(60, || {
        let engine = engine_on(WAYS[0], &["mem:128M"]);
        engine.set("swap_ra_policy", "off").unwrap();
        let (_region, pages) = paged_out(&engine, 48 * MIB / PAGE, 7);
        let mut random = Random::new(seed());
        (0..10_000).for_each(|_| pages.check(random.below(pages.count), 7));
        assert!(engine.counters().pgmajfault > 2_000, "{:?}", engine.counters());
        // The kernel names the workers of a ring after the thread that it works for.
        let servers = threads_named("userswap-fault");
        assert!(!servers.is_empty());
        for server in servers {
            let workers = threads_named(&format!("iou-wrk-{server}"));
            assert_eq!(workers.len(), 0, "the ring has read for thread {server}");
        }
        audit(&engine);
    });
}
