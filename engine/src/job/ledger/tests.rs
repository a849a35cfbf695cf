//! The ledger alone, with members that are all of this process.
use super::*;
use crate::job::member::{Member, Turn};

const LIMIT: u32 = 100;

#[test]
fn what_a_member_wants_for_a_moment_is_not_held() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(&directory.path().join("1-1.ledger"), LIMIT).unwrap();
    let (first, second) = (ledger.claim().unwrap(), 1);
    ledger.head(Head::Used).store(2, Ordering::Relaxed);
    assert_eq!(ledger.grow(first, 50), 50);
    // As while it grows, until it has added up the rows.
    Word::Share.write(&ledger.rows()[second], 80);
    assert_eq!(ledger.grow(first, 60), 50);
    assert_eq!(ledger.peak(), LIMIT);
    rows::shrink(ledger.rows(), second, 50);
    ledger.exceed(second, 80);
    assert_eq!((ledger.peak(), ledger.exceeded()), (130, 30));
}

#[test]
fn who_thrashes_takes_the_token_and_one_that_is_not_there_loses_it_to_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("1-1.ledger");
    let ledger = Ledger::open(&path, LIMIT).unwrap();
    let members = [(); 2].map(|()| Member::join(&path, LIMIT).unwrap());
    let standing =
        Standing { floor: 10, demand: 200, rate: Some(900), speed: 20, ..Standing::default() };
    members.iter().for_each(|member| member.publish(standing, 50));
    let (mut first, mut second) = (Turn::default(), Turn::default());
    let holder = || ledger.token().holder;
    members[0].turn(&mut first, 1);
    assert_eq!(holder(), None, "at once nothing is known");
    members[0].turn(&mut first, 5000);
    assert_eq!((holder(), ledger.token().before), (Some(0), 40));
    members[1].turn(&mut second, 5000);
    members[1].turn(&mut second, 20_000);
    assert_eq!(holder(), Some(0), "it is the other's to give on");
    members[1].turn(&mut second, 40_000);
    assert_eq!(holder(), Some(1), "the other was stopped");
    // A row that nobody has, or a member without an engine.
    ledger.pass_token(ledger.token(), Token { holder: Some(7), ..Token::default() });
    members[1].turn(&mut second, 40_001);
    assert_eq!(holder(), Some(0));
    ledger.pass_token(ledger.token(), Token { holder: Some(0), ..Token::default() });
    members[0].leave();
    assert_eq!(holder(), Some(1), "the other has ended");
}
