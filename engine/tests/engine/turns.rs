//! A member of a job while another has its turn.
use crate::job::member_engine;
use crate::support::{MIB, PAGE, Pages, alone, apart, eventually, kill, rest, shared_words};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use userswap::internals::{Member, Turn, settings};
use userswap_policy::job::Standing;

fn has_turn(member: &Member) -> bool {
    let members = member.ledger.status().members;
    members.iter().any(|it| it.pid == std::process::id() && it.has_turn)
}

/// A child that has its turn, once another member is short of pages as well, until it is killed.
fn child_with_turn(path: &Path, pages: u32) -> i32 {
    let words = shared_words(1);
    let child = apart(|| {
        let member = Member::join(path, pages).unwrap();
        let share = member.grow(pages / 16);
        let short =
            Standing { share, floor: 100, demand: pages, rate: Some(5000), ..Standing::default() };
        member.publish(short, share);
        let (mut seen, mut now_ms) = (Turn::default(), 0);
        while !has_turn(&member) {
            std::thread::sleep(std::time::Duration::from_millis(1));
            now_ms += 100;
            member.turn(&mut seen, now_ms);
        }
        words[0].store(1, Ordering::SeqCst);
        rest();
    });
    eventually("the child has its turn", || words[0].load(Ordering::SeqCst) == 1);
    child
}

#[test]
fn whoever_waits_its_turn_gets_by_with_little_and_has_more_for_what_it_pins() {
    alone(120, || {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("1-1.ledger");
        let (engine, member) = member_engine(&path);
        settings::set(engine.core(), "ram", "24M").unwrap();
        let region = engine.map(30 * MIB).unwrap();
        Pages::of(&region).fill_all(1);
        let budget = || engine.core().nodes.iter().map(|node| node.lock().budget).sum::<u32>();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    Pages::of(&region).check_all(1);
                }
            });
            let child = child_with_turn(&path, (24 * MIB / PAGE) as u32);
            let waiting = (9 * MIB / PAGE) as u32;
            eventually("it waits", || budget() <= waiting);
            region.pin(0..11 * MIB).unwrap();
            assert!(budget() >= (16 * MIB / PAGE) as u32, "{} pages", budget());
            assert!(member.share() >= budget());
            region.unpin(0..11 * MIB).unwrap();
            eventually("it waits again", || budget() <= waiting);
            kill(child);
            eventually("its own turn", || has_turn(&member));
            eventually("it has its own again", || budget() >= (15 * MIB / PAGE) as u32);
            done.store(true, Ordering::Relaxed);
        });
        Pages::of(&region).check_all(1);
    });
}
