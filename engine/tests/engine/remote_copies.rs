//! Clusters of which servers fall silent, die, take each other's place, hand slots over or hold something wrong, with one
//! copy and with two.
use crate::support::*;
use std::time::Duration;
use userswap::internals::PAGE_BYTES;

#[test]
fn two_copies_need_three_masters_that_own_slots() {
    limit(60);
    for (masters, said) in [(1, "one master"), (2, "2 masters")] {
        let servers = cluster_of_masters(masters);
        // Also with a third one that is named and owns nothing.
        let spec = format!("redis://127.0.0.1:{},127.0.0.1:{}/a", servers[0].port, servers[2].port);
        let refusal = refusal(&format!("{spec},copies=2"));
        assert!(refusal.contains(said) && refusal.contains("three such masters"), "{refusal}");
        drop(engine_on(WAYS[0], &[&format!("{spec}:64M")]));
    }
}

#[test]
fn with_two_copies_a_server_of_a_cluster_can_die() {
    alone(120, || {
        for way in one_way() {
            let mut servers = cluster(3);
            let engine = engine_on(way, &[&servers[0].spec("a:64M,copies=2")]);
            let (mut region, pages) = paged_out(&engine, 6000, 2);
            let slots = |servers: &[Redis]| servers.iter().map(Redis::slots).sum::<u64>();
            assert_eq!(slots(&servers), 2 * used(&engine), "{way:?}");
            region.discard(0..2000 * PAGE).unwrap();
            eventually("both copies are deleted", || slots(&servers) == 2 * used(&engine));
            assert!(servers[1].slots() > 0);
            servers[1].kill();
            (2000..pages.count).for_each(|page| pages.check(page, 2));
            assert_eq!(engine.counters().pages_lost, 0);
            audit(&engine);
        }
    });
}

/// Hash slots that are not a third each in a row.
const UNEVEN: [&str; 3] = ["4500 5460", "0 4499 5461 10922", "10923 16383"];

#[test]
fn with_two_copies_a_server_can_die_that_has_most_hash_slots_here_and_there() {
    // A read of groups of which it has the first copy here and the second there is not waited for.
    alone(20, || {
        for way in one_way() {
            let mut servers = cluster_laid_out(&UNEVEN);
            let engine = engine_on(way, &[&servers[0].spec("a:64M,copies=2")]);
            let (_region, pages) = paged_out(&engine, 6000, 2);
            // A page of the same slot is never twice on a server.
            assert!(servers.iter().all(|server| server.slots() <= used(&engine)), "{way:?}");
            let child = fork(&engine, || {
                pages.fill_all(3);
                pages.check_all(3);
                audit(&engine);
            });
            join(child);
            servers[1].kill();
            assert!((0..pages.count).all(|page| !is_lost(pages, page)), "{way:?}");
            pages.check_all(2);
            assert_eq!(engine.counters().pages_lost, 0);
            audit(&engine);
        }
    });
}

#[test]
fn copies_that_come_together_when_slots_move_are_told_of_and_placed_anew_by_swapon() {
    let output = in_child(150, || {
        let mut servers = cluster(3);
        let spec = servers[0].spec("a:64M,copies=2,pri=9");
        let engine = engine_on(WAYS[1], &[&spec, "mem:64M,pri=1"]);
        let (region, pages) = paged_out(&engine, 6000, 2);
        let surveys = || servers.iter().map(|server| server.calls("cluster|slots")).sum::<u64>();
        let before = surveys();
        // All that the third has but a few: half of the pages are on the first twice.
        let ids = [0, 2].map(|index: usize| servers[index].say("CLUSTER MYID"));
        let options = format!(
            "--cluster reshard 127.0.0.1:{} --cluster-from {} --cluster-to {} --cluster-slots 5300 --cluster-yes",
            servers[0].port, ids[1], ids[0]
        );
        assert!(servers[0].say(&options).contains("Moving slot"));
        // redis-cli has asked as well.
        let before = surveys().max(before);
        pages.check_all(2);
        eventually("it has looked twice", || surveys() >= before + 2);
        pages.fill_all(3);
        region.page_out(0..region.len()).unwrap();
        // What is said twice would be said by now.
        std::thread::sleep(Duration::from_secs(8));
        swapoff(&engine, servers[0].name("a")).unwrap();
        swapon(&engine, &spec).unwrap();
        pages.fill_all(4);
        region.page_out(0..region.len()).unwrap();
        servers[0].kill();
        assert!((0..pages.count).all(|page| !is_lost(pages, page)));
        pages.check_all(4);
        audit(&engine);
    });
    let Some(output) = output else { return };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let told: Vec<_> = said.lines().filter(|line| line.contains("on one server:")).collect();
    assert_eq!(told.len(), 1, "{said}");
    assert!(
        told[0].contains("% of its groups") && told[0].contains("swapoff and swapon"),
        "{said}"
    );
}

#[test]
fn with_two_copies_a_server_of_a_cluster_can_die_while_pages_are_written() {
    alone(120, || {
        for way in [WAYS[1], WAYS[0]] {
            let mut servers = cluster(3);
            let engine = engine_on(way, &[&servers[0].spec("a:64M,copies=2")]);
            churn(&engine, 40 * MIB, 8, || {
                eventually("pages are on it", || servers[1].slots() > 500);
                servers[1].kill();
            });
            let counters = engine.counters();
            assert!(counters.pswpin > 100 && counters.pswpout > 100, "{way:?}: {counters:?}");
            assert_eq!((counters.swap_bad_slots, counters.budget_exceeded), (0, 0), "{way:?}");
        }
    });
}

#[test]
fn with_two_copies_a_server_can_be_silent_for_a_while_and_have_old_pages_then() {
    alone(200, || {
        for way in one_way() {
            let servers = cluster(3);
            let engine = engine_on(way, &[&servers[0].spec("a:96M,copies=2")]);
            let silent = &servers[1];
            churn(&engine, 40 * MIB, 2, || {
                eventually("pages are on it", || silent.slots() > 500);
                send(silent.pid(), libc::SIGSTOP);
                // Longer than a command is waited for, and then some seconds of writing to one server only.
                std::thread::sleep(Duration::from_secs(12));
                send(silent.pid(), libc::SIGCONT);
            });
            assert_eq!(engine.counters().swap_bad_slots, 0, "{way:?}");
            let before = silent.calls("hset");
            let (_region, pages) = paged_out(&engine, 4000, 2);
            assert!(silent.calls("hset") > before + 10, "{way:?}: it gets pages again");
            pages.check_all(2);
            audit(&engine);
        }
    });
}

#[test]
fn an_old_copy_is_not_taken_for_the_page_while_the_server_with_the_new_one_is_silent() {
    alone(200, || {
        for way in one_way() {
            let servers = cluster(3);
            // Hardly more slots than pages: they are given out again.
            let engine = engine_on(way, &[&servers[0].spec("a:24M,copies=2")]);
            let (region, pages) = paged_out(&engine, 5000, 2);
            send(servers[1].pid(), libc::SIGSTOP);
            pages.fill_all(3);
            region.page_out(0..region.len()).unwrap();
            send(servers[1].pid(), libc::SIGCONT);
            // It is found to answer within a second.
            std::thread::sleep(Duration::from_secs(3));
            // One: two of three would be needed for a cluster.
            send(servers[0].pid(), libc::SIGSTOP);
            std::thread::scope(|scope| {
                for part in 0..4 {
                    let part = part * 1250..(part + 1) * 1250;
                    scope.spawn(move || part.for_each(|page| pages.check(page, 3)));
                }
                // Longer than a command is waited for.
                std::thread::sleep(Duration::from_secs(8));
                send(servers[0].pid(), libc::SIGCONT);
            });
            pages.check_all(3);
            assert_eq!(engine.counters().pages_lost, 0, "{way:?}");
            audit(&engine);
        }
    });
}

#[test]
fn with_two_copies_nothing_is_lost_while_all_servers_are_silent_for_a_while() {
    alone(200, || {
        let servers = cluster(3);
        let engine = engine_on(WAYS[1], &[&servers[0].spec("a:64M,copies=2")]);
        let (_region, pages) = paged_out(&engine, 6000, 2);
        servers.iter().for_each(|server| send(server.pid(), libc::SIGSTOP));
        std::thread::scope(|scope| {
            for part in 0..8 {
                scope.spawn(move || {
                    (part * 700..part * 700 + 400).for_each(|page| pages.check(page, 2))
                });
            }
            // Longer than two commands in a row are waited for.
            std::thread::sleep(Duration::from_secs(12));
            servers.iter().for_each(|server| send(server.pid(), libc::SIGCONT));
        });
        pages.check_all(2);
        assert_eq!(engine.counters().pages_lost, 0);
        audit(&engine);
    });
}

#[test]
fn the_dead_server_of_a_cluster_keeps_no_lease_on_others_from_being_put_off() {
    alone(200, || {
        let mut servers = cluster(3);
        let spec = servers[0].spec("a:128M,copies=2,lease=10");
        let engine = engine_on(WAYS[1], &[&spec]);
        // More groups on each server than one conversation is about.
        let (_region, pages) = paged_out(&engine, 20_000, 2);
        servers[1].kill();
        std::thread::sleep(Duration::from_secs(25));
        pages.check_all(2);
        assert_eq!(engine.counters().pages_lost, 0);
        audit(&engine);
    });
}

#[test]
fn of_two_copies_the_right_one_is_found() {
    alone(120, || {
        for way in one_way() {
            let servers = cluster(3);
            let engine = engine_on(way, &[&servers[0].spec("a:64M,copies=2")]);
            let (_region, pages) = paged_out(&engine, 3000, 2);
            let script = format!(
                "for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do \
                 redis.call('HSET', KEYS[1], field, string.rep('x', {PAGE_BYTES})) end"
            );
            for key in servers[1].say("KEYS *").lines() {
                servers[1].eval(&script, key);
            }
            pages.check_all(2);
            assert!(engine.counters().swap_read_errors > 0, "{way:?}: some were wrong");
            assert_eq!(engine.counters().pages_lost, 0, "{way:?}");
            audit(&engine);
        }
    });
}

#[test]
fn a_replica_that_takes_a_dead_masters_place_has_its_pages() {
    alone(120, || {
        let mut servers = cluster_with_replicas(3);
        let engine = engine_on(WAYS[1], &[&servers[0].spec("a:64M")]);
        let (region, pages) = paged_out(&engine, 6000, 2);
        assert!(servers[1].slots() > 0);
        eventually("its replica has all of it", || servers[1].is_replicated());
        let masters =
            |servers: &[Redis]| servers.iter().filter(|server| server.is_master()).count();
        assert_eq!(masters(&servers[3..]), 0);
        servers[1].kill();
        pages.check_all(2);
        assert_eq!(masters(&servers[3..]), 1, "one has taken its place");
        pages.fill_all(3);
        region.page_out(0..region.len()).unwrap();
        pages.check_all(3);
        let counters = engine.counters();
        assert_eq!((counters.swap_bad_slots, counters.pages_lost), (0, 0));
        audit(&engine);
    });
}

#[test]
fn slots_are_written_where_they_are_on_their_way_to() {
    alone(120, || {
        let servers = cluster(3);
        let engine = engine_on(WAYS[1], &[&servers[0].spec("a:64M")]);
        let (region, pages) = paged_out(&engine, 6000, 2);
        let (from, to) = (&servers[0], &servers[2]);
        let keys = from.say("KEYS *");
        let key = keys.lines().next().expect("it has some");
        let slot = from.say(&format!("CLUSTER KEYSLOT {key}"));
        let (here, there) = (from.say("CLUSTER MYID"), to.say("CLUSTER MYID"));
        assert_eq!(to.say(&format!("CLUSTER SETSLOT {slot} IMPORTING {here}")), "OK");
        assert_eq!(from.say(&format!("CLUSTER SETSLOT {slot} MIGRATING {there}")), "OK");
        for key in from.say(&format!("CLUSTER GETKEYSINSLOT {slot} 1000")).lines() {
            assert_eq!(from.say(&format!("MIGRATE 127.0.0.1 {} {key} 0 5000", to.port)), "OK");
        }
        pages.fill_all(3);
        region.page_out(0..region.len()).unwrap();
        pages.check_all(3);
        let counters = engine.counters();
        assert_eq!((counters.swap_write_errors, counters.pages_lost), (0, 0));
        audit(&engine);
    });
}

#[test]
fn threads_that_talk_to_servers_are_there_before_a_page_needs_them() {
    alone(60, || {
        let talkers = || {
            let names = std::fs::read_dir("/proc/self/task").unwrap().flatten();
            let names =
                names.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
            names.filter(|name| name.trim_end() == "userswap-io").count()
        };
        let server = Redis::start(&[]);
        let of_two_queues = {
            let _engine = engine_on(WAYS[0], &[&server.spec("a:16M")]);
            talkers()
        };
        assert!(of_two_queues > 0);
        eventually("they end with their engine", || talkers() == 0);
        let engine = engine_on(WAYS[0], &["mem:16M"]);
        assert_eq!(talkers(), 0, "no server, no talker");
        engine.swapon(&server.spec("b:16M").parse().unwrap()).unwrap();
        assert_eq!(talkers(), of_two_queues);
    });
}
