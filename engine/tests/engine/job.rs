//! The ledger of a job: members that take pages at once, and die at any moment.
use crate::support::{alone, end, forked, is_long, kill, send, shared_words, stop};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use userswap::internals::{Ledger, Member, ledger};

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
        let kills = if is_long() { 16_000 } else { 2000 };
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
