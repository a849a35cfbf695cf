//! The ledger of a job: members that take pages at once, and die at any moment.
use crate::support::{
    MIB, PAGE, Pages, alone, apart, end, eventually, fork, forked, is_long, join, kill, rest, send,
    shared_words, stop,
};
use std::fs;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use userswap::Engine;
use userswap::internals::mapping::Access;
use userswap::internals::{Arena, Ledger, Member, Options, ledger, settings};
use userswap_policy::job::{Move, Standing};

const LIMIT: u32 = 10_000;
const MEMBERS: usize = 4;

/// A child that takes and gives back pages until it is killed; it uses them only between the two.
fn start(path: &Path, used: &AtomicU64, seed: u64) -> i32 {
    let child = forked();
    if child > 0 {
        return child;
    }
    let member = Member::join(path, LIMIT).unwrap();
    let mut random = seed;
    loop {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed | 1);
        let pages = (random >> 40) as u32 % (LIMIT / 2);
        if random >> 63 == 0 {
            used.store(member.grow(pages).into(), Ordering::SeqCst);
        } else {
            used.fetch_min(pages.into(), Ordering::SeqCst);
            member.shrink(pages);
        }
    }
}

/// What the children use, while none of them runs.
fn used_at_rest(children: &[i32], words: &[AtomicU64]) -> u64 {
    children.iter().for_each(|child| stop(*child));
    let used = words.iter().map(|word| word.load(Ordering::SeqCst)).sum();
    children.iter().for_each(|child| send(*child, libc::SIGCONT));
    used
}

#[test]
fn members_killed_at_any_moment_leave_the_sum_right() {
    alone(300, || {
        let directory = tempfile::tempdir().unwrap();
        let path = Ledger::create(directory.path(), 1, LIMIT).unwrap();
        let watch = Ledger::open(&path, LIMIT).unwrap();
        let words = shared_words(MEMBERS);
        let mut children: Vec<i32> =
            words.iter().zip(1..).map(|(word, seed)| start(&path, word, seed)).collect();
        let kills = if is_long() { 16_000 } else { 800 };
        let mut most = 0;
        for round in 0..kills {
            let index = (round * 5) % MEMBERS;
            kill(children[index]);
            words[index].store(0, Ordering::SeqCst);
            children[index] = start(&path, &words[index], round as u64 + 100);
            if round % 20 == 0 {
                let used = used_at_rest(&children, words);
                assert!(used <= LIMIT.into(), "kill {round}: {used} pages are used of {LIMIT}");
                most = most.max(used);
            }
        }
        assert!(most > u64::from(LIMIT / 2), "the members did compete: {most}");
        children.iter().for_each(|child| kill(*child));
        assert!(watch.held() > 0, "the last ones died with pages");
        let last = Member::join(&path, LIMIT).unwrap();
        assert_eq!(last.grow(LIMIT), LIMIT, "the dead's pages are free");
        assert_eq!(watch.entries().count(), 1);
        assert_eq!(watch.held(), u64::from(LIMIT));
    });
}

#[test]
fn a_ledger_is_swept_only_when_its_job_has_ended() {
    alone(60, || {
        let directory = tempfile::tempdir().unwrap();
        let path = Ledger::create(directory.path(), 77, LIMIT).unwrap();
        let words = shared_words(MEMBERS);
        let child = start(&path, &words[0], 3);
        while words[0].load(Ordering::SeqCst) == 0 {
            std::hint::spin_loop();
        }
        ledger::sweep(directory.path(), |_| false);
        assert!(path.exists(), "the first process has ended, another has not");
        kill(child);
        ledger::sweep(directory.path(), |root| root == 77);
        assert!(path.exists(), "the first process runs and may come back to it");
        ledger::sweep(directory.path(), |_| false);
        assert!(!path.exists());
    });
}

#[test]
fn the_child_of_a_fork_never_writes_to_its_parents_row() {
    alone(60, || {
        let directory = tempfile::tempdir().unwrap();
        let path = Ledger::create(directory.path(), 1, LIMIT).unwrap();
        let member = Member::join(&path, LIMIT).unwrap();
        assert_eq!(member.grow(LIMIT / 2), LIMIT / 2);
        let child = forked();
        if child == 0 {
            // Made past our fork: it has no row, and all that it asks for.
            assert_eq!(member.grow(LIMIT), LIMIT);
            member.shrink(0);
            assert!(member.covers(LIMIT));
            member.leave();
            end(0);
        }
        crate::support::join(child);
        assert_eq!((member.share(), member.ledger.held()), (LIMIT / 2, u64::from(LIMIT / 2)));
        assert!(member.ledger.descriptor().as_raw_fd() > 2);

        member.hold();
        let child = forked();
        if child == 0 {
            assert_eq!(member.renew(LIMIT, 0), LIMIT / 2, "what its parent has left");
            assert_eq!(member.inherited(), LIMIT / 2);
            assert!(member.covers(LIMIT) && !member.covers(LIMIT + 1));
            end(0);
        }
        member.release();
        crate::support::join(child);
        assert_eq!(member.share(), LIMIT / 2);
        assert_eq!(member.grow(LIMIT), LIMIT, "the child's share went with it");
    });
}

/// A member with half of the budget that could use all of it, and says so.
fn thrashing(path: &Path) -> Member {
    let member = Member::join(path, LIMIT).unwrap();
    let share = member.grow(LIMIT / 2);
    member.publish(
        Standing { share, floor: 100, demand: LIMIT, rate: Some(5000), ..Standing::default() },
        share,
    );
    member
}

/// A child that is such a member until it is killed.
fn child_with(path: &Path) -> i32 {
    let words = shared_words(1);
    let child = apart(|| {
        let _member = thrashing(path);
        words[0].store(1, Ordering::SeqCst);
        rest();
    });
    eventually("the child is a member", || words[0].load(Ordering::SeqCst) == 1);
    child
}

#[test]
fn what_the_dead_could_have_used_is_the_livings() {
    alone(60, || {
        let directory = tempfile::tempdir().unwrap();
        let path = Ledger::create(directory.path(), 1, LIMIT).unwrap();
        let member = thrashing(&path);
        let child = child_with(&path);
        assert_eq!(member.decide(), Move::Keep, "equals have half each");
        kill(child);
        assert_eq!(member.decide(), Move::Grow(LIMIT));
    });
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn looking_at_ledgers_again_and_again_opens_each_once() {
    alone(60, || {
        let directory = tempfile::tempdir().unwrap();
        let path = Ledger::create(directory.path(), 77, LIMIT).unwrap();
        let child = child_with(&path);
        let before = descriptors();
        for _ in 0..10 {
            ledger::sweep(directory.path(), |_| false);
            assert_eq!(ledger::jobs(directory.path()).len(), 1);
        }
        assert!(descriptors() <= before + 1, "{} of {before}", descriptors());
        kill(child);
        ledger::sweep(directory.path(), |_| false);
        assert!(!path.exists());
    });
}

#[test]
fn a_member_is_where_the_others_find_it() {
    alone(60, || {
        let directory = tempfile::tempdir().unwrap();
        let path = Ledger::create(directory.path(), 1, LIMIT).unwrap();
        let mut opened = 0;
        let member = Member::join_by(|| {
            opened += 1;
            let ledger = Ledger::open(&path, LIMIT);
            if opened == 1 {
                // The last member that there was ends before this process has a row.
                join(apart(|| Member::join(&path, LIMIT).unwrap().leave()));
                assert!(!path.exists());
            }
            ledger
        });
        let member = member.unwrap();
        assert_eq!((opened, member.grow(LIMIT)), (2, LIMIT));
        // Another is a member of the same job, and removes nothing when it ends.
        join(apart(|| {
            let other = Member::join(&path, LIMIT).unwrap();
            assert_eq!((other.ledger.entries().count(), other.grow(LIMIT)), (2, 0));
            other.leave();
        }));
        assert!(path.exists());
        member.leave();
        assert!(!path.exists());
    });
}

/// An engine with the whole budget of a job, which can be doubled.
pub fn member_engine(path: &Path) -> (Engine, Arc<Member>) {
    let mut options = Options::new(16 * MIB as u64);
    options.ram_max_bytes = 32 * MIB as u64;
    options.swaps.push("mem:128M".parse().unwrap());
    let member = Arc::new(Member::join(path, (16 * MIB / PAGE) as u32).unwrap());
    let arena = Arc::new(Arena::reserve((64 * MIB / PAGE) as u32, Access::ReadWrite).unwrap());
    let gathered = Engine::gather(arena, &options).unwrap();
    let prepared = Engine::prepare(gathered, &options, Some(member.clone())).unwrap();
    (prepared.engage_all().unwrap(), member)
}

/// Pages of all nodes.
pub fn budget_of(engine: &Engine) -> u32 {
    engine.core().nodes.iter().map(|node| node.lock().budget).sum()
}

#[test]
fn what_is_taken_for_a_larger_budget_is_not_given_back_before_that_is_in_force() {
    alone(120, || {
        let directory = tempfile::tempdir().unwrap();
        let (engine, member) = member_engine(&directory.path().join("1-1.ledger"));
        let core = engine.core();
        let budget = || budget_of(&engine);
        let (done, mut wrong) = (AtomicBool::new(false), 0);
        std::thread::scope(|scope| {
            // Has the engine look again and again what it can give back.
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    member.wake();
                }
            });
            for _ in 0..if is_long() { 20_000 } else { 2000 } {
                settings::set(core, "ram", "32M").unwrap();
                // Between these two looks both may have grown; not each time.
                let is_right = (0..100).any(|_| member.share() >= budget());
                wrong += usize::from(!is_right);
                settings::set(core, "ram", "16M").unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(wrong, 0, "times that the ledger had less than the engine");
    });
}

#[test]
fn a_limit_that_is_refused_changes_nothing_for_the_job() {
    alone(60, || {
        let directory = tempfile::tempdir().unwrap();
        let (engine, member) = member_engine(&directory.path().join("1-1.ledger"));
        let before = (member.ledger.limit(), member.ledger.peak(), member.share());
        for _ in 0..100 {
            settings::set(engine.core(), "ram", "1T").unwrap_err();
        }
        let after = (member.ledger.limit(), member.ledger.peak(), member.share());
        assert_eq!(before, after, "limit, most that was held, share");
    });
}

#[test]
fn a_budget_that_was_made_smaller_does_not_grow_on_the_way_down() {
    alone(60, || {
        let directory = tempfile::tempdir().unwrap();
        let (engine, member) = member_engine(&directory.path().join("1-1.ledger"));
        let core = engine.core();
        let region = engine.map(30 * MIB).unwrap();
        for round in 0..10 {
            settings::set(core, "ram", "32M").unwrap();
            let pages = Pages::of(&region);
            pages.fill_all(round);
            settings::set(core, "ram", "16M").unwrap();
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(300) {
                let budget = budget_of(&engine);
                // A step that was decided before may still come; one from the old share would be to 6144 pages.
                assert!(budget <= (20 * MIB / PAGE) as u32, "{budget} pages");
                member.wake();
            }
            pages.check_all(round);
        }
    });
}

#[test]
fn the_dead_are_no_members_and_their_rows_are_used_again() {
    alone(60, || {
        let directory = tempfile::tempdir().unwrap();
        let path = Ledger::create(directory.path(), 1, LIMIT).unwrap();
        let member = Member::join(&path, LIMIT).unwrap();
        for round in 0..100 {
            join(apart(|| {
                let member = Member::join(&path, LIMIT).unwrap();
                if round == 0 {
                    assert_eq!(member.grow(LIMIT / 2), LIMIT / 2);
                }
            }));
        }
        assert!(member.ledger.entries().count() <= 20, "{} rows", member.ledger.entries().count());
        let status = member.ledger.status();
        assert_eq!((status.members.len(), status.held_pages), (1, 0));
        assert_eq!(member.grow(LIMIT / 4), LIMIT / 4);
        assert_eq!(member.ledger.peak(), LIMIT / 2, "no two were there at once");
    });
}

#[test]
fn a_ledger_has_its_blocks_from_the_start() {
    use std::os::unix::fs::MetadataExt;
    let directory = tempfile::tempdir().unwrap();
    let path = Ledger::create(directory.path(), 1, LIMIT).unwrap();
    let metadata = fs::metadata(&path).unwrap();
    assert!(metadata.blocks() * 512 >= metadata.len(), "a store would need one: {metadata:?}");
}

#[test]
fn a_budget_that_was_changed_outlives_the_member_that_was_told() {
    alone(60, || {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("1-1.ledger");
        let member = Member::join(&path, LIMIT).unwrap();
        member.ledger.set_limit(2 * LIMIT);
        // What it has started is on its way through exec, and has no row yet.
        member.leave();
        drop(member);
        join(apart(|| {
            assert_eq!(Member::join(&path, LIMIT).unwrap().ledger.limit(), 2 * LIMIT);
        }));
        ledger::sweep(directory.path(), |_| false);
        assert!(!path.exists());
    });
}

#[test]
fn what_is_given_back_is_never_what_another_thread_has_just_been_told_it_may_use() {
    alone(120, || {
        const SPAN: u32 = 10_240;
        let directory = tempfile::tempdir().unwrap();
        let member = Member::join(&directory.path().join("1-1.ledger"), 100_000).unwrap();
        let count = AtomicU32::new(2 * SPAN);
        assert!(member.covers(2 * SPAN));
        let (barrier, now) = (Barrier::new(2), || count.load(Ordering::SeqCst));
        let rounds = if is_long() { 200_000 } else { 50_000 };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..rounds {
                    barrier.wait();
                    count.fetch_sub(SPAN, Ordering::SeqCst);
                    member.settle(now);
                    barrier.wait();
                }
            });
            for _ in 0..rounds {
                barrier.wait();
                count.fetch_add(SPAN, Ordering::SeqCst);
                assert!(member.covers(now()));
                barrier.wait();
                assert!(member.share() >= now(), "{} for {}", member.share(), now());
            }
        });
    });
}

#[test]
fn what_children_make_their_own_is_in_the_ledger() {
    alone(120, || {
        let directory = tempfile::tempdir().unwrap();
        let (engine, member) = member_engine(&directory.path().join("1-1.ledger"));
        let region = engine.map(14 * MIB).unwrap();
        let pages = Pages::of(&region);
        pages.fill_all(1);
        let done = shared_words(1);
        let child = || {
            fork(&engine, || {
                while done[0].load(Ordering::SeqCst) == 0 {
                    pages.fill_all(2);
                    pages.check_all(2);
                }
            })
        };
        let children = [child(), child(), child()];
        // Each engine has its floor, whatever the others have.
        let floors = 4 * (16 * MIB / PAGE) as u64;
        eventually("their floors are held", || member.ledger.held() >= floors * 3 / 4);
        assert!(member.ledger.exceeded() > 0);
        done[0].store(1, Ordering::SeqCst);
        children.into_iter().for_each(join);
        pages.check_all(1);
    });
}

#[test]
fn a_budget_grows_beside_pins_and_a_member_gives_way_down_to_them() {
    alone(120, || {
        let directory = tempfile::tempdir().unwrap();
        let (engine, member) = member_engine(&directory.path().join("1-1.ledger"));
        let region = engine.map(30 * MIB).unwrap();
        Pages::of(&region).fill_all(1);
        let budget = || budget_of(&engine);
        let pinned = settled(&budget) * 17 / 24;
        region.pin(0..pinned as usize * PAGE).unwrap();
        // More than before, and less than one and a half times the pins.
        for kib in [16 * 1024 + 256, 16 * 1024 + 512, 32 * 1024] {
            settings::set(engine.core(), "ram", &format!("{kib}K")).unwrap();
            assert_eq!(member.ledger.limit() as usize, kib * 1024 / PAGE);
        }
        eventually("it has all", || member.share() >= (31 * MIB / PAGE) as u32);
        // Another is told that there is less now: this one cannot have as little as it should.
        member.ledger.set_limit((16 * MIB / PAGE) as u32);
        let least = || pinned * 3 / 2 + member.outside();
        eventually("it gives way", || member.share() <= least() + 256);
        assert!(member.share() >= pinned * 3 / 2);
        Pages::of(&region).check_all(1);
    });
}

#[test]
fn a_job_that_has_little_left_leaves_an_engine_what_it_needs() {
    alone(120, || {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("1-1.ledger");
        let (engine, member) = member_engine(&path);
        let region = engine.map(20 * MIB).unwrap();
        Pages::of(&region).fill_all(1);
        let pages = |mib: usize| (mib * MIB / PAGE) as u32;
        settings::set(engine.core(), "ram", "32M").unwrap();
        eventually("it has all", || member.share() >= pages(31));
        let outside = vec![1u8; 24 * MIB];
        // A quarter of the share, more than an engine needs.
        eventually("it is charged", || member.outside() >= pages(7));
        member.ledger.set_limit(pages(32) + LIMIT / 2);
        let child = child_with(&path);
        settings::set(engine.core(), "ram", "16M").unwrap();
        let budget = || budget_of(&engine);
        assert!(budget() >= pages(3), "{}", budget());
        Pages::of(&region).check_all(1);
        kill(child);
        assert_eq!(outside[outside.len() / 2], 1);
    });
}

/// What a number comes to once it has not changed for a while.
fn settled(number: &dyn Fn() -> u32) -> u32 {
    let mut seen = vec![number()];
    while seen.len() < 5 || seen[seen.len() - 5..].iter().any(|one| *one != number()) {
        std::thread::sleep(Duration::from_millis(100));
        seen.push(number());
    }
    number()
}

#[test]
fn a_process_that_becomes_another_program_loses_nothing_of_its_job() {
    alone(60, || {
        let directory = tempfile::tempdir().unwrap();
        let path = Ledger::create(directory.path(), 1, LIMIT).unwrap();
        let (watch, words) = (Ledger::open(&path, LIMIT).unwrap(), shared_words(1));
        let child = apart(|| {
            assert_eq!(Member::join(&path, LIMIT).unwrap().grow(LIMIT / 2), LIMIT / 2);
            // As exec leaves it: the member is gone, its lock with the descriptor, and the number is the same.
            let member = Member::join(&path, LIMIT).unwrap();
            assert_eq!(member.grow(LIMIT), LIMIT, "what the program before had is free");
            assert!(member.is_alone() && member.ledger.status().members.len() == 1);
            words[0].store(1, Ordering::SeqCst);
            rest();
        });
        eventually("it is there", || words[0].load(Ordering::SeqCst) == 1);
        assert_eq!((watch.status().members.len(), watch.held()), (1, LIMIT.into()));
        kill(child);
    });
}
