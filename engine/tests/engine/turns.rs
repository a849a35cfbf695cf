//! A member of a job while another has its turn.
use crate::job::{budget_of, member_engine};
use crate::support::{
    MIB, PAGE, Pages, alone, apart, end_with_parent, eventually, kill, rest, shared_words,
};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use userswap::internals::{Member, Turn, settings};
use userswap::{Engine, Region};
use userswap_policy::job::Standing;

fn has_turn(member: &Member) -> bool {
    let members = member.ledger.status().members;
    members.iter().any(|it| it.pid == std::process::id() && it.has_turn)
}

/// A child that holds so many pages and has its turn, once another member is short as well, until it is killed. It gives the turn up
/// when it is told to.
struct Holder {
    pid: i32,
    told: &'static [AtomicU64],
}

impl Holder {
    fn start(path: &Path, limit: u32, pages: u32) -> Self {
        let told = shared_words(1);
        let pid = apart(|| {
            end_with_parent();
            let member = Member::join(path, limit).unwrap();
            let mut now_ms = 0;
            let mut seen = Turn::default();
            let mut turn_until = |is_over: &dyn Fn() -> bool, step_ms| {
                while !is_over() {
                    let share = member.grow(pages);
                    let (floor, demand) = (pages, limit);
                    let standing = Standing { share, floor, demand, ..Standing::default() };
                    member.publish(Standing { rate: Some(5000), ..standing }, share);
                    member.turn(&mut seen, now_ms);
                    now_ms += step_ms;
                    std::thread::sleep(Duration::from_millis(1));
                }
            };
            turn_until(&|| has_turn(&member) && member.share() >= pages, 100);
            told[0].store(1, Ordering::SeqCst);
            while told[0].load(Ordering::SeqCst) != 2 {
                std::thread::sleep(Duration::from_millis(1));
            }
            turn_until(&|| !has_turn(&member), 1000);
            told[0].store(3, Ordering::SeqCst);
            rest();
        });
        eventually("the child has its turn", || told[0].load(Ordering::SeqCst) == 1);
        Self { pid, told }
    }

    fn give_up(&self) {
        self.told[0].store(2, Ordering::SeqCst);
        eventually("the child gives up its turn", || self.told[0].load(Ordering::SeqCst) == 3);
    }
}

/// A member that uses all of its pages again and again, more than the job's budget.
struct Short<'a> {
    engine: &'a Engine,
    member: &'a Member,
    region: &'a Region,
}

impl Short<'_> {
    fn budget(&self) -> u32 {
        budget_of(self.engine)
    }
}

/// Such a member, which waits while another, with so many pages, has its turn.
fn beside_holder(pages: u32, act: impl FnOnce(&Short<'_>, Holder)) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("1-1.ledger");
    let (engine, member) = member_engine(&path);
    settings::set(engine.core(), "ram", "24M").unwrap();
    let region = engine.map(30 * MIB).unwrap();
    let content = Pages::of(&region);
    content.fill_all(1);
    let short = Short { engine: &engine, member: &member, region: &region };
    while_used(&content, || {
        let holder = Holder::start(&path, LIMIT, pages);
        eventually("it waits", || short.budget() <= WAITING);
        act(&short, holder);
    });
}

/// Uses all of its pages again and again, until `act` is over.
fn while_used(pages: &Pages, act: impl FnOnce()) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                pages.check_all(1);
            }
        });
        let outcome = catch_unwind(AssertUnwindSafe(act));
        done.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| resume_unwind(panic));
    });
    pages.check_all(1);
}

const LIMIT: u32 = (24 * MIB / PAGE) as u32;
const WAITING: u32 = (9 * MIB / PAGE) as u32;

#[test]
fn whoever_waits_its_turn_gets_by_with_little_and_has_more_for_what_it_pins() {
    alone(120, || {
        beside_holder(400, |short, holder| {
            let Short { member, region, .. } = short;
            // More than it could ever have is refused, and changes nothing.
            let exceeded = member.ledger.exceeded();
            region.pin(0..20 * MIB).unwrap_err();
            assert_eq!(member.ledger.exceeded(), exceeded);
            region.pin(0..8 * MIB).unwrap();
            assert!(short.budget() >= (11 * MIB / PAGE) as u32, "{} pages", short.budget());
            assert!(member.share() >= short.budget());
            region.unpin(0..8 * MIB).unwrap();
            eventually("it waits again", || short.budget() <= WAITING);
            kill(holder.pid);
            eventually("its own turn", || has_turn(member));
            eventually("it has its own again", || short.budget() >= (15 * MIB / PAGE) as u32);
        })
    });
}

#[test]
fn whoever_needs_more_again_takes_no_page_that_another_holds() {
    alone(120, || {
        beside_holder(LIMIT * 2 / 3, |short, holder| {
            let member = short.member;
            holder.give_up();
            // For a second it waits for what the other gives up, which is nothing.
            for _ in 0..500 {
                // In this order the share may only have grown meanwhile, or pages that are on their way out count.
                let (used, share) = (short.budget(), member.share());
                assert!(used <= share.max(member.share()), "{used} pages, {share} in the ledger");
                std::thread::sleep(Duration::from_millis(1));
            }
            eventually("it has what it needs", || short.budget() >= (11 * MIB / PAGE) as u32);
            assert!(member.ledger.exceeded() > 0, "which is counted");
            kill(holder.pid);
            eventually("it has its own again", || short.budget() >= (15 * MIB / PAGE) as u32);
        })
    });
}
