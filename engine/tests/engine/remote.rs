//! Servers as a device: pages in every way, what is deleted and when, forks, servers that go away, and what is refused.
use crate::support::*;
use std::sync::atomic::Ordering;
use userswap::Error;
use userswap::internals::{BORROWERS_MAX, Holding, remote};

#[test]
fn pages_come_back_as_they_were_and_nothing_stays() {
    limit(240);
    with_each_kind(|server| {
        for way in one_way() {
            for encrypt in ["", ",encrypt"] {
                let engine = engine_on(way, &[&server.spec(&format!("a:128M{encrypt}"))]);
                let (mut region, pages) = paged_out(&engine, 6000, 7);
                assert_eq!(server.slots(), used(&engine), "{way:?}: every page is there");
                write_thirds(pages, 7);
                check_thirds(pages, 0..pages.count, 7);
                audit(&engine);
                region.discard(0..region.len() / 2).unwrap();
                eventually("what is free is deleted", || server.slots() == used(&engine));
                swapoff(&engine, server.name("a")).unwrap();
                assert_eq!(
                    server.keys(),
                    0,
                    "{way:?}: nothing is left of a device that was let go of"
                );
                check_thirds(pages, pages.count / 2..pages.count, 7);
                assert_eq!(engine.counters().pages_lost, 0);
            }
            let engine = engine_on(way, &[&server.spec("b")]);
            let (region, _) = paged_out(&engine, 300, 1);
            assert!(server.keys() > 0);
            drop(region);
            drop(engine);
            assert_eq!(server.keys(), 0, "{way:?}: nothing is left of an engine");
        }
    });
}

#[test]
fn slots_that_are_given_out_again_while_they_are_deleted_keep_what_is_written() {
    limit(240);
    with_each_kind(|server| {
        for way in one_way() {
            // Little more than what is swapped: every slot is used again and again.
            let engine = engine_on(way, &[&server.spec("a:36M")]);
            churn(&engine, 40 * MIB, rounds(2), || {});
            assert!(engine.counters().pswpin > 1000, "{:?}", engine.counters());
        }
        assert_eq!(server.keys(), 0);
    });
}

#[test]
fn a_server_that_ends_connections_or_stops_for_a_while_loses_nothing() {
    limit(240);
    with_each_kind(|server| {
        for way in one_way() {
            let engine = engine_on(way, &[&server.spec("a:64M")]);
            churn(&engine, 40 * MIB, 2, || {
                for _ in 0..20 {
                    server.say("CLIENT KILL TYPE normal");
                    std::thread::sleep(std::time::Duration::from_millis(50));
                }
                // Longer than a connection is waited for: commands that it has received run after it goes on.
                send(server.pid(), libc::SIGSTOP);
                std::thread::sleep(std::time::Duration::from_secs(6));
                send(server.pid(), libc::SIGCONT);
            });
            assert!(engine.counters().pswpin > 100, "{:?}", engine.counters());
        }
    });
}

#[test]
fn what_a_broken_connection_has_still_to_say_changes_nothing_any_more() {
    limit(200);
    with_each_kind(|server| {
        let proxy = Proxy::start(server.port);
        // Slots for little more than the pages: each is used again within a few rounds.
        let engine = engine_on(WAYS[1], &[&server.spec_at(proxy.port, "a:3M")]);
        let (region, pages) = paged_out(&engine, 400, 1);
        pages.fill_all(2);
        proxy.hold();
        // It is not answered, and said once more by another connection.
        region.page_out(0..region.len()).unwrap();
        assert!(proxy.held() > 0);
        for stamp in 3..9 {
            pages.check_all(stamp - 1);
            pages.fill_all(stamp);
            region.page_out(0..region.len()).unwrap();
        }
        proxy.release(&server);
        pages.check_all(8);
        assert_eq!(engine.counters().pages_lost, 0);
        audit(&engine);
    });
}

#[test]
fn a_child_reads_its_parents_slots_and_writes_its_own() {
    alone(200, || {
        for start in STARTS {
            let server = start(&[]);
            for way in one_way() {
                let engine = engine_on(way, &[&server.spec("a:128M")]);
                let (region, pages) = paged_out(&engine, 6000, 3);
                let child = fork(&engine, || {
                    let devices = || engine.core().devices.list();
                    let borrowed =
                        devices().filter(|d| d.store().lock().holding == Holding::Borrowed);
                    assert_eq!((borrowed.count(), devices().count()), (1, 2));
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
                assert_eq!(engine.counters().fork_slots_copied, 0);
                drop(region);
                drop(engine);
                // What the children had of their own nobody keeps, as they did not end in order.
                server.say("FLUSHALL");
            }
        }
    });
}

#[test]
fn a_child_that_cannot_borrow_gets_a_copy_from_the_server() {
    alone(120, || {
        for start in STARTS {
            let server = start(&[]);
            let engine = engine_on(WAYS[0], &[&server.spec("a:64M,encrypt")]);
            let (_region, pages) = paged_out(&engine, 400, 1);
            let device = engine.core().devices.list().next().unwrap();
            let loans = device.loans().unwrap();
            let lend = |_| loans.lend([].into_iter()).ok();
            let rows: Vec<_> = (0..BORROWERS_MAX).map_while(lend).collect();
            assert_eq!(rows.len(), BORROWERS_MAX as usize);
            let child = fork(&engine, || {
                assert_eq!(engine.core().devices.list().count(), 1);
                pages.check_all(1);
                pages.fill_all(8);
                pages.check_all(8);
                audit(&engine);
            });
            join(child);
            assert_eq!(engine.counters().fork_slots_copied, 400);
            pages.check_all(1);
            audit(&engine);
        }
    });
}

#[test]
fn a_child_outlives_its_parent_that_has_let_go() {
    alone(60, || a_child_outlives(Redis::start));
}

#[test]
fn a_child_outlives_its_parent_that_has_let_go_by_tls() {
    alone(60, || a_child_outlives(Redis::start_tls));
}

fn a_child_outlives(start: fn(&[&str]) -> Redis) {
    let server = start(&[]);
    let mut engine = Some(engine_on(WAYS[0], &[&server.spec("a:128M,lease=10")]));
    let (region, pages) = paged_out(engine.as_ref().unwrap(), 6000, 3);
    let words = shared_words(2);
    let (ready, go) = (&words[0], &words[1]);
    let child = fork_away(&mut engine, |engine| {
        ready.store(1, Ordering::Release);
        eventually("the parent has let go", || go.load(Ordering::Acquire) == 1);
        // Longer than the servers keep what nobody asks for.
        std::thread::sleep(std::time::Duration::from_secs(15));
        pages.check_all(3);
        drop(engine);
    });
    eventually("the child runs", || ready.load(Ordering::Acquire) == 1);
    drop(region);
    drop(engine);
    go.store(1, Ordering::Release);
    join(child);
    eventually("what nobody keeps is gone", || server.keys() == 0);
}

#[test]
fn what_an_engine_holds_is_kept_while_it_lives_and_not_after_it_was_killed() {
    alone(100, || {
        let server = Redis::start(&[]);
        let spec = server.spec("a:64M,lease=10");
        let child = forked();
        if child == 0 {
            let engine = engine_on(WAYS[0], &[&spec]);
            let _paged_out = paged_out(&engine, 2000, 1);
            rest();
        }
        eventually("pages are there", || server.slots() >= 2000);
        let slots = server.slots();
        // Twice as long as a lease.
        std::thread::sleep(std::time::Duration::from_secs(20));
        assert_eq!(server.slots(), slots, "the lease is put off");
        kill(child);
        eventually("what nobody keeps is gone", || server.keys() == 0);
    });
}

#[test]
fn a_server_that_is_full_gets_no_more_and_nothing_is_lost() {
    limit(60);
    let server = Redis::start(&["--maxmemory", "20mb"]);
    let engine = engine_on(WAYS[0], &[&server.spec("a:64M,pri=1"), "mem:64M"]);
    let region = engine.map(40 * MIB).unwrap();
    let pages = Pages::of(&region);
    pages.fill_all(3);
    pages.check_all(3);
    assert!(engine.counters().swap_write_errors > 0, "it was full");
    assert_eq!(engine.counters().pages_lost, 0);
    audit(&engine);
}

#[test]
fn a_server_that_is_gone_loses_its_pages_one_by_one() {
    alone(120, || {
        let starts = STARTS.into_iter();
        for (way, start) in starts.flat_map(|start| [WAYS[0], WAYS[1]].map(|way| (way, start))) {
            let mut server = start(&[]);
            let engine = engine_on(way, &[&server.spec("a:64M")]);
            let (_region, pages) = paged_out(&engine, 500, 3);
            let ram = engine.map(50 * PAGE).unwrap();
            let in_ram = Pages::of(&ram);
            in_ram.fill_all(4);
            engine.core().devices.set_patience_ns(1_000_000);
            server.kill();
            assert!((0..20).all(|page| is_lost(pages, page)), "{way:?}");
            assert!(engine.counters().pages_lost >= 20);
            in_ram.check_all(4);
        }
    });
}

#[test]
fn a_server_that_was_started_anew_has_lost_its_pages_and_takes_others() {
    alone(60, || {
        let server = Redis::start(&[]);
        let engine = engine_on(WAYS[0], &[&server.spec("a:64M")]);
        let (_region, pages) = paged_out(&engine, 500, 3);
        server.say("FLUSHALL");
        assert!((0..500).all(|page| is_lost(pages, page)));
        assert_eq!(engine.counters().pages_lost, 500);
        let (_other, pages) = paged_out(&engine, 500, 4);
        pages.check_all(4);
    });
}

/// Has keys of a server hold something that never was a page: of three one has shorter fields, and one no fields at all.
fn spoil(server: &Redis) {
    let script = "if ARGV[1] == '1' then return redis.call('SET', KEYS[1], 'x') end
        for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do redis.call('HSET', KEYS[1], field, 'short') end";
    for (index, key) in server.say("KEYS *").lines().enumerate() {
        let kind = index % 3;
        if kind > 0 {
            server.say_words(["EVAL", script, "1", key, &kind.to_string()]);
        }
    }
}

#[test]
fn a_server_that_has_something_else_than_pages_has_lost_them_at_once() {
    // Were they waited for as what may come is, for seconds each, this would take minutes.
    alone(20, || {
        for way in one_way() {
            let server = Redis::start(&[]);
            let engine = engine_on(way, &[&server.spec("a:64M")]);
            let (_region, pages) = paged_out(&engine, 15 * 64, 3);
            spoil(&server);
            // Those that are there come in between: a device that answers is waited for.
            let in_turns = (0..pages.count).map(|index| index % 15 * 64 + index / 15);
            let lost = in_turns.filter(|page| {
                let is_lost = is_lost(pages, *page);
                (!is_lost).then(|| pages.check(*page, 3));
                is_lost
            });
            let lost = lost.count();
            assert!((300..900).contains(&lost), "{way:?}: {lost}");
            audit(&engine);
        }
    });
}

#[test]
fn what_cannot_be_used_is_refused_with_the_way_out() {
    limit(60);
    let server = Redis::start(&[]);
    let locked = Redis::start(&["--requirepass", "open sesame"]);
    let evicting = Redis::start(&["--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru"]);
    let unlimited = Redis::start(&["--maxmemory-policy", "volatile-lru"]);
    let replica = Redis::start(&["--replicaof", "127.0.0.1 1"]);
    let nobody = format!("redis://127.0.0.1:{}/a", {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        taken.local_addr().unwrap().port()
    });
    for (spec, named, remedy) in [
        (locked.spec("a"), "password", "USERSWAP_REDIS_PASSWORD"),
        (evicting.spec("a"), "allkeys-lru", "noeviction"),
        (unlimited.spec("a"), "volatile-lru", "noeviction"),
        (replica.spec("a"), "replica", "master"),
        (nobody.clone(), "refused", "HOST:PORT"),
        ("redis://10.255.255.1/a".to_owned(), "10.255.255.1", "--encrypt"),
        ("redis://no.such.host.invalid/a".to_owned(), "no such host", "correct"),
        (format!("redis://127.0.0.1:{},127.0.0.1:1/a", server.port), "several", "name one"),
        (server.spec("a,copies=2"), "one server", "copies=2"),
        (server.spec("a:1K"), "1K", "at least"),
    ] {
        let said = refusal(&spec);
        assert!(said.contains(named) && said.contains(remedy), "{said}");
    }
    assert_eq!(server.keys(), 0, "what is refused changes nothing");
    assert!(remote::is_meant(&nobody));
    let engine = engine_on(WAYS[0], &["mem:16M"]);
    assert!(matches!(swapon(&engine, &nobody), Err(Error::Device(_))));
}

#[test]
fn a_password_comes_from_the_environment_or_a_file() {
    alone(60, || {
        let server = Redis::start(&["--requirepass", "open sesame"]);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "open sesame\n").unwrap();
        set_variable("USERSWAP_REDIS_PASSWORD_FILE", file.path().to_str().unwrap());
        let engine = engine_on(WAYS[0], &[&server.spec("a:64M")]);
        let (_region, pages) = paged_out(&engine, 500, 4);
        pages.check_all(4);
        // The source that is used is the one that is named, and who may be wrong beside it.
        let of_file = format!("USERSWAP_REDIS_PASSWORD_FILE={}", file.path().display());
        let of_user = format!("redis://nobody@127.0.0.1:{}/a", server.port);
        std::fs::write(file.path(), "wrong\n").unwrap();
        let said = refusal(&server.spec("a"));
        assert!(said.contains(&format!("refuses the password in {of_file}, or")), "{said}");
        let said = refusal(&of_user);
        assert!(said.contains("user nobody with") && said.contains(&of_file), "{said}");
        set_variable("USERSWAP_REDIS_PASSWORD", "wrong");
        let said = refusal(&server.spec("a"));
        assert!(said.contains("refuses the password in USERSWAP_REDIS_PASSWORD, or"), "{said}");
        let said = refusal(&of_user);
        assert!(
            said.contains("user nobody with the password in USERSWAP_REDIS_PASSWORD,"),
            "{said}"
        );
        set_variable("USERSWAP_REDIS_PASSWORD", "open sesame");
        drop(engine_on(WAYS[0], &[&server.spec("a:64M")]));
        let refusal = refusal(&Redis::start(&[]).spec("a"));
        assert!(refusal.contains("has no password"), "{refusal}");
        assert!(refusal.contains("unset USERSWAP_REDIS_PASSWORD"), "{refusal}");
    });
}

/// In which of a cluster's servers there are keys.
fn spread(servers: &[Redis]) -> usize {
    servers.iter().filter(|server| server.keys() > 0).count()
}

#[test]
fn a_cluster_spreads_pages_and_moves_them_while_they_are_used() {
    limit(180);
    let servers = cluster(3);
    // Hash slots go from the first server to the third, and the same ones back.
    for (way, from, to) in [(WAYS[0], 0, 2), (WAYS[1], 2, 0)] {
        let engine = engine_on(way, &[&servers[1].spec("a:64M")]);
        churn(&engine, 40 * MIB, 1, || {
            let ids: Vec<String> =
                servers.iter().map(|server| server.say("CLUSTER MYID")).collect();
            let options = format!(
                "--cluster reshard 127.0.0.1:{} --cluster-from {} --cluster-to {} --cluster-slots 2000 --cluster-yes",
                servers[0].port, ids[from], ids[to]
            );
            assert!(servers[0].say(&options).contains("Moving slot"));
        });
        // Nearly all of the device: some of each server's keys are among them.
        let (_region, pages) = paged_out(&engine, 15_000, 2);
        assert_eq!(spread(&servers), 3, "{way:?}");
        pages.check_all(2);
        drop(_region);
        drop(engine);
        assert_eq!(spread(&servers), 0, "{way:?}: nothing is left");
    }
}

#[test]
fn a_cluster_that_grows_beyond_the_machine_gets_no_readable_page_there() {
    limit(120);
    let start = |options: &[&str]| {
        Redis::start(&[options, &["--bind", "0.0.0.0", "--protected-mode", "no"]].concat())
    };
    let servers = cluster_by(3, start);
    let plain = engine_on(WAYS[1], &[&servers[0].spec("a:64M,pri=9"), "mem:64M,pri=1"]);
    let sealed = engine_on(WAYS[1], &[&servers[0].spec("b:64M,encrypt")]);
    // From now on the third server is said to be elsewhere, and gets all that the first had.
    let route = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    route.connect("192.0.2.1:9").expect("an address beyond the loopback: connect to a network");
    let here = route.local_addr().unwrap().ip();
    servers[2].say(&format!("CONFIG SET cluster-announce-ip {here}"));
    eventually("all have heard of it", || {
        servers.iter().all(|server| server.say("CLUSTER SLOTS").contains(&here.to_string()))
    });
    let ids: Vec<String> = servers.iter().map(|server| server.say("CLUSTER MYID")).collect();
    let options = format!(
        "--cluster reshard 127.0.0.1:{} --cluster-from {} --cluster-to {} --cluster-slots 5461 --cluster-yes",
        servers[0].port, ids[0], ids[2]
    );
    assert!(servers[0].say(&options).contains("Moving slot"));
    // Of these a third would be the moved ones, beside its own.
    let (_plain, pages) = paged_out(&plain, 12_000, 2);
    assert!(servers[2].slots() < 2500, "{}", servers[2].slots());
    pages.check_all(2);
    let before = servers[2].slots();
    let (_sealed, pages) = paged_out(&sealed, 12_000, 3);
    assert!(servers[2].slots() - before > 4000, "{before}, {}", servers[2].slots());
    pages.check_all(3);
}

#[test]
fn a_server_of_a_cluster_that_dies_takes_only_its_own_pages_with_it() {
    alone(120, || {
        let mut servers = cluster(3);
        let engine = engine_on(WAYS[1], &[&servers[0].spec("a:64M")]);
        let (_region, pages) = paged_out(&engine, 12000, 2);
        let dead = servers[2].slots();
        assert!(dead > 0 && dead < 12000, "{dead}");
        engine.core().devices.set_patience_ns(1_000_000);
        servers[2].kill();
        let lost = (0..pages.count).filter(|page| match is_lost(pages, *page) {
            true => true,
            false => {
                pages.check(*page, 2);
                false
            }
        });
        let lost = lost.count() as u64;
        assert!(lost > 0 && lost <= dead, "{lost} of {dead}");
        assert!(engine.counters().pages_lost >= lost);
        audit(&engine);
    });
}
