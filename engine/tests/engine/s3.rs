//! Objects of a store as a device: pages in every way, sparse objects, what is deleted and when, forks, servers that go
//! away, and what is refused.
use crate::encrypt::{MARK, check_marked, mark};
use crate::support::*;
use std::time::Duration;
use userswap::{Engine, Error};

/// Little in front: almost all moves on.
const FRONT: &str = "mem:4M,tier=0";

/// Keys that nobody checks.
fn give_keys() {
    set_variable("AWS_ACCESS_KEY_ID", "test");
    set_variable("AWS_SECRET_ACCESS_KEY", "secret");
}

fn refusal(specs: &[&str]) -> String {
    let built = with_swap(builder(WAYS[0]), specs).build();
    let refusal = built.err().unwrap_or_else(|| panic!("{specs:?} is refused")).to_string();
    assert_eq!(refusal.lines().count(), 1);
    refusal
}

/// One way of faults and pages, with what a SPEC says of encryption.
fn plain_or_encrypted() -> impl Iterator<Item = (Way, &'static str)> {
    one_way().map(|(fault, transfer)| {
        ((fault, transfer), if transfer == Transfer::Auto { "" } else { ",encrypt" })
    })
}

/// Slots of the cold device that are in use.
fn used(engine: &Engine) -> u64 {
    engine.core().devices.set_mode(engine.core().devices.mode());
    engine.core().devices.list().nth(1).unwrap().used().into()
}

#[test]
fn pages_come_back_as_they_were_and_nothing_stays() {
    alone(200, || {
        give_keys();
        let server = S3::start();
        for (way, encrypt) in plain_or_encrypted() {
            let cold = server.spec(&format!("a:128M{encrypt}"));
            let engine = engine_on(way, &[FRONT, &cold]);
            let (mut region, pages) = paged_out(&engine, 6000, 7);
            assert!(used(&engine) > 4000, "{way:?}: {}", used(&engine));
            eventually("full segments are objects", || server.segments() >= 4);
            write_thirds(pages, 7);
            check_thirds(pages, 0..pages.count, 7);
            audit(&engine);
            region.discard(0..region.len() / 2).unwrap();
            swapoff(&engine, "s3://bucket/a").unwrap();
            let names = server.names();
            assert!(names.is_empty(), "{way:?}: {names:?} are left of a device that was let go of");
            check_thirds(pages, pages.count / 2..pages.count, 7);
            assert_eq!(engine.counters().pages_lost, 0);
        }
        let engine = engine_on(WAYS[0], &[FRONT, &server.spec("b:128M")]);
        let (region, _) = paged_out(&engine, 4000, 1);
        eventually("there are objects", || server.segments() > 0);
        drop(region);
        drop(engine);
        assert!(server.names().is_empty(), "nothing is left of an engine");
    });
}

#[test]
fn a_store_can_read_the_pages_of_a_plain_device_and_not_of_an_encrypted_one() {
    alone(100, || {
        give_keys();
        let server = S3::start();
        let marks = |name: &String| {
            let answer = server.ask("GET", &format!("/bucket/{name}"));
            assert!(answer.starts_with("HTTP/1.1 200"), "{name}");
            answer.matches(MARK).count()
        };
        for (way, encrypt) in ways().zip(["", ",encrypt"].into_iter().cycle()) {
            let cold = server.spec(&format!("a:64M{encrypt}"));
            let engine = engine_on(way, &[FRONT, &cold]);
            let region = engine.map(6000 * PAGE).unwrap();
            let pages = Pages::of(&region);
            mark(pages);
            eventually("full segments are objects", || {
                region.page_out(0..region.len()).unwrap();
                server.segments() >= 4
            });
            let found: usize = server.names().iter().map(marks).sum();
            match encrypt {
                "" => assert!(found > 3500, "{way:?}: {found}"),
                _ => assert_eq!(found, 0, "{way:?}"),
            }
            check_marked(pages);
            audit(&engine);
        }
    });
}

#[test]
fn pages_that_are_used_again_and_again_stay_right_while_objects_come_and_go() {
    alone(200, || {
        give_keys();
        let server = S3::start();
        for way in one_way() {
            let engine = engine_on(way, &[FRONT, &server.spec("a:64M")]);
            churn(&engine, 36 * MIB, rounds(2), || {
                eventually("objects come and go", || {
                    let of = |name: &String| u32::from_str_radix(&name[name.len() - 8..], 16).ok();
                    let newest = server.names().iter().filter_map(of).max().unwrap_or(0);
                    newest as usize > server.segments() + 3
                });
            });
            drop(engine);
            assert!(server.names().is_empty());
        }
    });
}

#[test]
fn what_is_left_of_sparse_objects_moves_on_and_they_are_deleted() {
    alone(100, || {
        give_keys();
        let server = S3::start();
        for way in one_way() {
            let engine = engine_on(way, &[FRONT, &server.spec("a:128M")]);
            let (region, pages) = paged_out(&engine, 12_000, 3);
            eventually("full segments are objects", || server.segments() >= 8);
            let before = server.segments();
            let core = engine.core();
            // Of every ten pages one is left.
            for page in (0..pages.count).step_by(10) {
                core.drop_range(core.range_at(pages.at(page + 1) as usize, 9 * PAGE));
            }
            engine.core().devices.set_mode(engine.core().devices.mode());
            eventually("few objects are left", || server.segments() <= before / 4);
            (0..pages.count).step_by(10).for_each(|page| pages.check(page, 3));
            assert_eq!(engine.counters().pages_lost, 0);
            audit(&engine);
            drop(region);
        }
    });
}

#[test]
fn a_server_that_stops_for_a_while_loses_nothing() {
    alone(120, || {
        give_keys();
        let server = S3::start();
        let engine = engine_on(WAYS[1], &[FRONT, &server.spec("a:128M")]);
        churn(&engine, 48 * MIB, 2, || {
            // Longer than a connection is waited for.
            send(server.pid(), libc::SIGSTOP);
            std::thread::sleep(Duration::from_secs(7));
            send(server.pid(), libc::SIGCONT);
        });
    });
}

#[test]
fn a_server_that_is_not_ready_is_asked_again() {
    alone(100, || {
        give_keys();
        let server = S3::start();
        let front = Unready::start(server.port);
        let engine = engine_on(WAYS[0], &[FRONT, &s3_spec(front.port, "a:128M")]);
        churn(&engine, 48 * MIB, 2, || {
            for _ in 0..10 {
                front.refuse(true);
                std::thread::sleep(Duration::from_millis(100));
                front.refuse(false);
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        assert!(front.refused() > 0);
    });
}

#[test]
fn a_server_that_is_gone_loses_what_only_it_had() {
    alone(100, || {
        give_keys();
        for way in one_way() {
            let mut server = S3::start();
            let engine = engine_on(way, &[FRONT, &server.spec("a:64M")]);
            let (_region, pages) = paged_out(&engine, 4000, 3);
            eventually("full segments are objects, and no other is on its way", || {
                let before = server.segments();
                std::thread::sleep(Duration::from_millis(300));
                before >= 2 && server.segments() == before
            });
            engine.core().devices.set_patience_ns(1_000_000);
            let objects = server.segments() * 1024;
            server.kill();
            let lost = (0..pages.count).filter(|page| is_lost(pages, *page)).count();
            assert!(lost > 1000 && lost <= objects, "{way:?}: {lost} of {objects}");
            // What was in memory is there, and right.
            let left = pages.count - lost;
            assert!(left > 0 && engine.counters().pages_lost as usize >= lost);
        }
    });
}

#[test]
fn an_object_that_was_changed_or_replaced_is_never_read_as_if_it_were_right() {
    alone(100, || {
        give_keys();
        let server = S3::start();
        let engine = engine_on(WAYS[0], &[FRONT, &server.spec("a:64M")]);
        let (_region, pages) = paged_out(&engine, 4000, 3);
        eventually("full segments are objects", || server.segments() >= 2);
        engine.core().devices.set_patience_ns(1_000_000);
        let names = server.names();
        let of = |end: &str| names.iter().find(|name| name.ends_with(end)).unwrap();
        server.copy(&format!("/bucket/{}", of("00000002")), &format!("/bucket/{}", of("00000001")));
        let lost = (0..pages.count).filter(|page| is_lost(pages, *page)).count();
        assert!(lost > 500, "{lost}");
    });
}

#[test]
fn a_child_has_its_parents_pages_and_writes_its_own() {
    alone(100, || {
        give_keys();
        let server = S3::start();
        for (way, encrypt) in plain_or_encrypted() {
            let engine = engine_on(way, &[FRONT, &server.spec(&format!("a:64M{encrypt}"))]);
            let (region, pages) = paged_out(&engine, 6000, 3);
            let child = fork(&engine, || {
                for page in 0..pages.count {
                    pages.check(page, 3);
                    pages.fill(page, 4);
                }
                pages.check_all(4);
                join(fork(&engine, || {
                    pages.check_all(4);
                    pages.fill_all(6);
                    pages.check_all(6);
                }));
                pages.check_all(4);
                audit(&engine);
            });
            pages.fill_all(5);
            pages.check_all(5);
            join(child);
            pages.check_all(5);
            audit(&engine);
            assert_eq!(engine.counters().pages_lost, 0);
            assert!(engine.counters().fork_slots_copied > 0);
            drop(region);
            drop(engine);
        }
        // With nothing there yet, a child begins with a device of its own.
        let engine = engine_on(WAYS[0], &[FRONT, &server.spec("a:64M")]);
        join(fork(&engine, || {
            let (_region, pages) = paged_out(&engine, 6000, 3);
            eventually("its own objects", || server.segments() > 0);
            pages.check_all(3);
        }));
    });
}

#[test]
fn what_a_killed_engine_has_left_is_deleted_by_the_next_and_not_what_a_living_one_has() {
    alone(200, || {
        give_keys();
        let server = S3::start();
        let spec = server.spec("a:64M,lease=10");
        let of_another = || {
            let child = forked();
            if child == 0 {
                let engine = engine_on(WAYS[0], &[FRONT, &spec]);
                let _paged_out = paged_out(&engine, 4000, 1);
                rest();
            }
            child
        };
        let killed = of_another();
        eventually("there are objects", || server.segments() >= 2);
        kill(killed);
        // Each engine has a folder.
        let folder = server.names()[0].rsplit_once('/').unwrap().0.to_owned();
        let numbers = || {
            let names = server.names();
            let left = names.iter().filter(|name| name.starts_with(&folder)).count();
            (left, names.len() - left)
        };
        let living = of_another();
        eventually("there are more", || numbers().1 > 2);
        assert!(numbers().0 > 2, "it may be only late");
        // Longer than a lease and what is given beyond.
        std::thread::sleep(Duration::from_secs(22));
        let next = engine_on(WAYS[0], &[FRONT, &spec]);
        eventually("nothing of the killed one is left", || numbers().0 == 0);
        drop(next);
        assert!(numbers().1 > 2, "it lives");
        kill(living);
    });
}

#[test]
fn what_cannot_be_used_is_refused_with_the_way_out() {
    alone(60, || {
        let server = S3::start();
        let good = server.spec("a");
        set_variable("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent");
        assert!(refusal(&[FRONT, &good]).contains("AWS_SHARED_CREDENTIALS_FILE=/nonexistent"));
        set_variable("AWS_ACCESS_KEY_ID", "test");
        assert!(refusal(&[FRONT, &good]).contains("AWS_SECRET_ACCESS_KEY is not: set both"));
        give_keys();
        let far = "s3://bucket/a,endpoint=http://10.255.255.1,tier=1";
        let unknown = "s3://bucket/a,endpoint=http://no.such.host.invalid,tier=1";
        for (spec, named, remedy) in [
            (good.replace("s3://bucket/", "s3://another/"), "no bucket another", "create it"),
            (s3_spec(1, "a"), "127.0.0.1:1", "start the server"),
            (far.to_owned(), "10.255.255.1", "--encrypt"),
            (unknown.to_owned(), "no such host", "endpoint="),
            (good.replace(",tier=1", ""), "s3://bucket/a", "tier=1"),
            (good.replace(",tier=1", ",tier=0"), "s3://bucket/a", "tier=1"),
            (server.spec("a:1K"), "1K", "at least"),
        ] {
            let said = refusal(&[FRONT, &spec]);
            assert!(said.contains(named) && said.contains(remedy), "{said}");
        }
        assert!(refusal(&[&good]).contains("no swap device of tier 0"));
        assert!(server.names().is_empty(), "what is refused changes nothing");
        let engine = engine_on(WAYS[0], &["mem:16M"]);
        assert!(matches!(swapon(&engine, &good.replace(",tier=1", "")), Err(Error::Tiers(_))));
    });
}
