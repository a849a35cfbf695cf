//! How the server, and threads that read for themselves, wait: that they look when they are to and never else, that what comes
//! meanwhile is served, also around forks, and that idle CPUs are kept from halting only while faults are dense.
use crate::support::*;
use std::fs;
use std::io::Read;
use std::os::unix::fs::FileExt;
use userswap::internals::clock::cpus;
use userswap::internals::cpu_latency;
use userswap::internals::process::usable_cpus;
use userswap::{Engine, Poll};
use userswap_policy::awake::CPUS_MAX;

/// Looks longer than any fault takes here.
const LONG: Poll = Poll::Micros(1000);

fn engine_polling(way: Way, poll: Poll) -> Engine {
    build(builder(way).poll(poll).swap("mem:64M".parse().unwrap()))
}

/// Two threads and a child use all pages in orders of their own, and every one has its bytes.
fn used_at_random(engine: &Engine) {
    let (region, pages) = paged_out(engine, 24 * MIB / PAGE, 5);
    let use_all = |seed: u64| {
        let mut random = Random::new(seed);
        for _ in 0..rounds(4000) {
            pages.check(random.below(pages.count), 5);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| use_all(seed()));
        use_all(seed());
    });
    let child = fork(engine, || {
        pages.check_all(5);
        pages.fill_all(6);
        pages.check_all(6);
        audit(engine);
    });
    use_all(seed());
    join(child);
    pages.check_all(5);
    audit(engine);
    drop(region);
}

/// What the four counters say: looks, those answered, nanoseconds of both kinds.
fn looks(engine: &Engine) -> [u64; 4] {
    let counters = engine.counters();
    [
        counters.poll_attempted,
        counters.poll_successful,
        counters.poll_success_ns,
        counters.poll_fail_ns,
    ]
}

#[test]
fn a_server_that_looks_serves_what_comes_meanwhile_and_counts_its_looks() {
    alone(100, || {
        for way in [WAYS[0], WAYS[2]] {
            let engine = engine_polling(way, LONG);
            used_at_random(&engine);
            eventually("the last look was in vain", || looks(&engine)[3] > 0);
            let [attempted, successful, success_ns, fail_ns] = looks(&engine);
            assert!(successful > 0 && successful < attempted, "{successful} of {attempted}");
            assert!(success_ns > successful && fail_ns >= 1_000_000, "{success_ns}, {fail_ns} ns");
        }
    });
}

#[test]
fn a_server_that_looks_without_io_uring_serves_what_comes_meanwhile() {
    alone(100, || {
        let swap = "mem:64M".parse().unwrap();
        let engine = build(builder(WAYS[0]).poll(LONG).io(IoBackend::Threads).swap(swap));
        used_at_random(&engine);
        assert!(looks(&engine)[1] > 0, "{:?}", looks(&engine));
    });
}

#[test]
fn a_server_that_is_not_to_look_never_does_and_none_does_where_faults_are_signals() {
    alone(100, || {
        for (way, poll) in [(WAYS[0], Poll::Off), (WAYS[1], LONG)] {
            let engine = engine_polling(way, poll);
            used_at_random(&engine);
            assert_eq!(looks(&engine), [0; 4]);
        }
    });
}

#[test]
fn threads_that_read_for_themselves_look_for_the_end_and_so_does_a_child() {
    alone(100, || {
        let attempted = [LONG, Poll::Off].map(|poll| {
            let engine = build(builder(WAYS[1]).poll(poll).swap("/var/tmp:64M".parse().unwrap()));
            used_at_random(&engine);
            let before = looks(&engine);
            let maps = || fs::read_to_string("/proc/self/maps").unwrap();
            assert_eq!(
                maps().contains("/[aio]"),
                before[0] > 0,
                "a context is a ring that is mapped"
            );
            let child = fork(&engine, || {
                assert!(!maps().contains("/[aio]"), "the parent's are of no use");
                let (region, pages) = paged_out(&engine, 500, 5);
                pages.check_all(5);
                let looks_of_its_own = looks(&engine)[0] - before[0];
                assert_eq!(looks_of_its_own > 0, before[0] > 0, "as its parent");
                drop(region);
            });
            join(child);
            before[0]
        });
        // One CPU is left to those who work.
        assert_eq!([attempted[0] > 0, attempted[1] > 0], [usable_cpus() > 1, false]);
    });
}

#[test]
fn how_the_server_waits_can_be_set_while_it_serves() {
    limit(100);
    let engine = engine_polling(WAYS[0], Poll::Off);
    let (region, pages) = paged_out(&engine, 500, 5);
    assert_eq!(engine.set("poll", "1000").unwrap(), "1000");
    let use_all = || {
        region.page_out(0..region.len()).unwrap();
        pages.check_all(5);
        looks(&engine)
    };
    eventually("a look is answered", || use_all()[1] > 0);
    assert_eq!(engine.set("poll", "off").unwrap(), "off");
    let mut before = looks(&engine);
    eventually("the last look has ended, and no other begins", || {
        std::mem::replace(&mut before, use_all()) == before
    });
    for text in ["0", "1001", "fast", "-5", ""] {
        let refusal = engine.set("poll", text).unwrap_err().to_string();
        let line = format!(
            "poll: {text:?} is not allowed: use auto, off, idle or a number of microseconds from 1 to 1000"
        );
        assert_eq!(refusal, line);
    }
    assert_eq!(engine.set("poll", "auto").unwrap(), "auto");
    eventually("no other work wants the CPU, and the server looks", || use_all()[1] > before[1]);
}

/// What the kernel has as the longest time that a CPU may take to wake, in microseconds: the least that any process wishes.
fn latency_us() -> i32 {
    let mut word = [0; 4];
    fs::File::open("/dev/cpu_dma_latency").unwrap().read_exact(&mut word).unwrap();
    i32::from_ne_bytes(word)
}

/// The descriptors of this process that are the kernel's file.
fn wishes() -> Vec<i32> {
    let numbers = fs::read_dir("/proc/self/fd").unwrap();
    let numbers = numbers.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let is_wish = |number: &i32| {
        let target = fs::read_link(format!("/proc/self/fd/{number}"));
        target.is_ok_and(|target| target.to_str() == Some("/dev/cpu_dma_latency"))
    };
    numbers.map(|number| number.parse().unwrap()).filter(is_wish).collect()
}

fn awake_ns(engine: &Engine) -> u64 {
    engine.counters().idle_awake_ns
}

fn idle_cpus_stay_awake_while_faults_are_dense(way: Way) {
    let engine = engine_polling(way, Poll::Idle);
    let (region, pages) = paged_out(&engine, 2000, 5);
    let mut least = i32::MAX;
    eventually("faults are dense, and idle CPUs are kept from halting", || {
        region.page_out(0..region.len()).unwrap();
        pages.check_all(5);
        least = least.min(latency_us());
        awake_ns(&engine) > 0 && least == 0
    });
    let parent = std::process::id() as i32;
    let [number] = wishes()[..] else { panic!("one file of the engine's: {:?}", wishes()) };
    join(fork(&engine, || {
        assert_eq!(wishes(), [number]);
        assert!(!is_shared_with(parent, number), "the child wishes by a file of its own");
        pages.check_all(5);
        audit(&engine);
    }));
    pages.check_all(5);
    eventually("faults have ended, and idle CPUs may halt", || !engine.core().polling.is_dense());
    let before = awake_ns(&engine);
    pages.check_all(5);
    assert_eq!(awake_ns(&engine), before);
    assert_eq!(engine.set("poll", "off").unwrap(), "off");
    region.page_out(0..region.len()).unwrap();
    pages.check_all(5);
    assert!(!engine.core().polling.is_dense());
}

#[test]
fn idle_cpus_are_kept_from_halting_while_faults_are_dense_and_by_each_process_itself() {
    alone(100, || {
        if let Err(refusal) = cpu_latency::check() {
            // A machine without the file: then it says so, and goes on as if asked for `auto`.
            let engine = engine_polling(WAYS[0], Poll::Idle);
            let asked = engine.set("poll", "idle").unwrap_err().to_string();
            assert_eq!(asked, format!("poll: {refusal}"));
            return assert_eq!(engine.core().polling.setting(), Poll::Auto);
        }
        idle_cpus_stay_awake_while_faults_are_dense(WAYS[0]);
        idle_cpus_stay_awake_while_faults_are_dense(WAYS[1]);
        assert!(wishes().is_empty(), "the engine takes it with it");
    });
}

/// Where the setting is `auto`, CPUs are kept awake in some windows at least, to see whether it pays, and in none once faults have
/// ended.
#[test]
fn idle_cpus_are_kept_from_halting_on_trial_in_a_small_guest_and_nowhere_else() {
    alone(100, || {
        let engine = engine_polling(WAYS[0], Poll::Auto);
        let (region, pages) = paged_out(&engine, 24 * MIB / PAGE, 5);
        // Far from each other: a fault for every second or third.
        let use_all = || {
            let mut random = Random::new(seed());
            for _ in 0..20_000 {
                pages.check(random.below(pages.count), 5);
            }
        };
        let is_tried =
            cpu_latency::is_guest() && cpus() <= CPUS_MAX && cpu_latency::check().is_ok();
        assert_eq!(wishes().len(), usize::from(is_tried));
        if !is_tried {
            use_all();
            return assert_eq!(awake_ns(&engine), 0);
        }
        eventually("a trial keeps idle CPUs from halting", || {
            use_all();
            awake_ns(&engine) > 0
        });
        join(fork(&engine, || {
            eventually("the child has trials of its own", || {
                let before = awake_ns(&engine);
                use_all();
                awake_ns(&engine) > before
            });
            audit(&engine);
        }));
        use_all();
        eventually("faults have ended", || !engine.core().polling.is_dense());
        assert_eq!(engine.set("poll", "off").unwrap(), "off");
        use_all();
        assert!(!engine.core().polling.is_dense());
        drop(region);
    });
}

#[test]
fn a_program_that_has_closed_the_file_keeps_what_it_has_in_its_place() {
    alone(100, || {
        if let Err(refusal) = cpu_latency::check() {
            return progress(&format!("not to be tested here: {refusal}"));
        }
        let engine = engine_polling(WAYS[0], Poll::Idle);
        let [number] = wishes()[..] else { panic!("one file of the engine's: {:?}", wishes()) };
        let other = tempfile::tempfile().unwrap();
        other.write_all_at(b"the program's", 0).unwrap();
        fd::replace(number, std::os::fd::AsRawFd::as_raw_fd(&other)).unwrap();
        let (region, pages) = paged_out(&engine, 500, 5);
        eventually("faults are dense", || {
            region.page_out(0..region.len()).unwrap();
            pages.check_all(5);
            engine.core().polling.is_dense()
        });
        drop(region);
        let refusal = engine.set("poll", "idle").unwrap_err().to_string();
        assert!(refusal.starts_with("poll: /dev/cpu_dma_latency cannot be opened"), "{refusal}");
        drop(engine);
        let mut bytes = [0; 13];
        other.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!((&bytes, other.metadata().unwrap().len()), (b"the program's", 13));
    });
}

#[test]
fn without_the_right_to_keep_cpus_from_halting_the_setting_is_refused_in_one_line() {
    alone(50, || {
        let engine = engine_polling(WAYS[0], Poll::Off);
        become_user(12345);
        let refusal = engine.set("poll", "idle").unwrap_err().to_string();
        assert!(refusal.starts_with("poll: /dev/cpu_dma_latency cannot be opened ("), "{refusal}");
        assert!(refusal.ends_with("run as root, or use --poll auto"), "{refusal}");
        assert_eq!(engine.core().polling.setting(), Poll::Off);
    });
}
