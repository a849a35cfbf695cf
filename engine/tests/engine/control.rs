//! The control socket of an engine: what it answers, whom it answers, and that it leaves nothing.
use crate::support::*;
use serde_json::Value;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;
use userswap::{Builder, Engine, Error};

const RAM: u64 = 16 << 20;

/// A directory of its own: engines of all tests are in one process.
pub fn directory() -> TempDir {
    tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir().unwrap()
}

pub fn builder_in(directory: &Path) -> Builder {
    let mut options = Options::new(RAM);
    options.control = Some(directory.to_owned());
    Builder::from_options(options).arena_bytes(1 << 30)
}

fn engine_in(directory: &Path) -> Engine {
    builder_in(directory).build().expect("root, or a permitted userfaultfd, and room in /var/tmp")
}

fn socket_in(directory: &Path, number: u32) -> PathBuf {
    directory.join(match number {
        1 => format!("{}.sock", std::process::id()),
        number => format!("{}-{number}.sock", std::process::id()),
    })
}

struct Client(BufReader<UnixStream>);

impl Client {
    fn of(engine: &Engine) -> Self {
        Self::at(&engine.control_socket().expect("the engine has a socket"))
    }

    fn at(socket: &Path) -> Self {
        Self(BufReader::new(UnixStream::connect(socket).unwrap()))
    }

    /// As [`Self::at`], and served: clients that have just gone may still count.
    fn served_at(socket: &Path) -> Self {
        for _ in 0..2000 {
            let mut client = Self::at(socket);
            // Refused clients find their connection closed, maybe while they ask.
            if writeln!(client.0.get_mut(), r#"{{"request":"status"}}"#).is_ok()
                && client.hear()["answer"] == "status"
            {
                return client;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        panic!("no client was served any more");
    }

    fn say(&mut self, line: &str) {
        writeln!(self.0.get_mut(), "{line}").unwrap();
    }

    /// The next answer; null when there is no more.
    fn hear(&mut self) -> Value {
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Ok(0) | Err(_) => Value::Null,
            Ok(_) => serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}")),
        }
    }

    fn ask(&mut self, line: &str) -> Value {
        self.say(line);
        self.hear()
    }

    /// Expects a refusal in one line that has all of `parts`.
    fn refused(&mut self, line: &str, parts: &[&str]) {
        let answer = self.ask(line);
        assert_eq!(answer["answer"], "error", "{line}: {answer}");
        let message = answer["message"].as_str().unwrap();
        assert_eq!(message.lines().count(), 1, "{message}");
        for part in parts {
            assert!(message.contains(part), "{line}: {part:?} is not in: {message}");
        }
    }

    fn status(&mut self) -> Status {
        let answer = self.ask(r#"{"request":"status"}"#);
        assert_eq!(answer["answer"], "status", "{answer}");
        serde_json::from_value(answer["status"].clone()).unwrap()
    }
}

#[test]
fn the_status_shows_the_engine_as_it_is() {
    limit(50);
    let directory = directory();
    let engine = engine_in(directory.path());
    let region = engine.map(6 * MIB).unwrap();
    let pages = Pages::of(&region);
    pages.fill_all(5);
    region.page_out(0..region.len()).unwrap();
    let mut client = Client::of(&engine);
    let status = client.status();
    assert_eq!((status.pid, status.ram_bytes), (std::process::id(), RAM));
    assert!(std::env::current_exe().unwrap().ends_with(&status.program), "{}", status.program);
    assert_eq!(status.fault, "thread");
    // Slots in a CPU's buffer count as used, as in the kernel.
    let buffered = 2 * 64 * u64::from(clock::cpus());
    let used = status.total_slots - status.free_slots;
    assert!((pages.count as u64..=pages.count as u64 + buffered).contains(&used), "{used}");
    assert_eq!(status.devices[0].kind, "temporary");
    assert_eq!(status.devices[0].used_bytes, used * PAGE as u64);
    let budget: u64 = status.nodes.iter().map(|node| node.budget_pages).sum();
    assert_eq!(budget * PAGE as u64, RAM);
    assert_eq!(status.nodes[0].swap_list[0].device, status.devices[0].index);
    assert!(status.counters["pswpout"] >= pages.count as u64, "{:?}", status.counters);
    assert_eq!(client.status().devices, status.devices, "and again on the same connection");
    pages.check_all(5);
}

#[test]
fn the_budget_is_set_while_the_engine_runs() {
    limit(50);
    let directory = directory();
    let engine = engine_in(directory.path());
    let mut client = Client::of(&engine);
    let answer = client.ask(r#"{"request":"set","key":"ram","value":"20M"}"#);
    assert_eq!((&answer["answer"], &answer["value"]), (&"set".into(), &"20M".into()), "{answer}");
    assert_eq!(engine.usage().budget, 20 << 8);
    let settings = client.ask(r#"{"request":"settings"}"#);
    assert_eq!(settings["settings"][0]["key"], "ram");
    assert_eq!(settings["settings"][0]["value"], "20M");
    for (value, parts) in [
        ("1M", ["\"1M\"", "16M"]),
        ("12Q", ["\"12Q\"", "is not allowed: use a size"]),
        ("", ["\"\"", "512M"]),
        ("900T", ["too large", "at most"]),
    ] {
        let request = format!(r#"{{"request":"set","key":"ram","value":"{value}"}}"#);
        client.refused(&request, &parts);
    }
    assert_eq!(engine.usage().budget, 20 << 8, "a refusal changes nothing");
    audit(&engine);
}

#[test]
fn a_program_is_parked_and_brought_back_by_a_setting() {
    limit(50);
    let directory = directory();
    let engine = engine_in(directory.path());
    let region = engine.map(8 << 20).unwrap();
    let pages = Pages::of(&region);
    pages.fill_all(5);
    region.pin(0..3 * PAGE).unwrap();
    let mut client = Client::of(&engine);
    let answer = client.ask(r#"{"request":"set","key":"hibernate","value":"1"}"#);
    assert_eq!(answer["value"], "1, 3 pages are in RAM (3 pins)", "{answer}");
    assert_eq!(engine.usage().resident, 3);
    assert_eq!((client.status().hibernated, client.status().pins), (true, 3));
    region.unpin(0..3 * PAGE).unwrap();
    let answer = client.ask(r#"{"request":"set","key":"hibernate","value":"1"}"#);
    assert_eq!(answer["value"], "1", "{answer}");
    let answer = client.ask(r#"{"request":"set","key":"hibernate","value":"0"}"#);
    assert_eq!(answer["value"], "0", "{answer}");
    assert_eq!(engine.usage().resident as usize, pages.count);
    client.refused(r#"{"request":"set","key":"hibernate","value":"2"}"#, &["\"2\"", "1 or 0"]);
    pages.check_all(5);
    audit(&engine);
}

#[test]
fn what_is_not_understood_is_refused_and_the_connection_goes_on() {
    limit(50);
    let directory = directory();
    let engine = engine_in(directory.path());
    let mut client = Client::of(&engine);
    client.refused(r#"{"request":"set","key":"speed","value":"9"}"#, &["\"speed\"", "ram"]);
    client.refused(r#"{"request":"reboot"}"#, &["reboot", "status"]);
    client.refused("hello", &["no request"]);
    client.refused("", &["no request"]);
    client.refused(r#"{"request":"cancel"}"#, &["no swapoff"]);
    client.refused(r#"{"request":"swapon","spec":"mem"}"#, &["\"mem\"", "mem:512M"]);
    client.refused(r#"{"request":"swapon","spec":"here:1G"}"#, &["here:1G", "from /"]);
    client.refused(r#"{"request":"swapoff","path":"/no/such"}"#, &["/no/such"]);
    assert_eq!(client.status().pid, std::process::id());
    // Half a line: another client is served meanwhile.
    write!(client.0.get_mut(), "{{\"request\":").unwrap();
    assert_eq!(Client::of(&engine).status().pid, std::process::id());
    writeln!(client.0.get_mut(), "\"status\"}}").unwrap();
    assert_eq!(client.hear()["answer"], "status");
}

#[test]
fn a_line_without_an_end_ends_the_connection() {
    limit(50);
    let directory = directory();
    let engine = engine_in(directory.path());
    let mut client = Client::of(&engine);
    let long = vec![b'x'; REQUEST_BYTES_MAX + 1];
    client.0.get_mut().write_all(&long).unwrap();
    let answer = client.hear();
    assert!(answer["message"].as_str().unwrap().contains("at most"), "{answer}");
    assert_eq!(client.hear(), Value::Null);
    assert_eq!(Client::of(&engine).status().pid, std::process::id());
}

#[test]
fn stalled_clients_take_connections_and_no_time_from_others() {
    limit(50);
    let directory = directory();
    let engine = engine_in(directory.path());
    let mut first = Client::of(&engine);
    assert_eq!(first.status().pid, std::process::id());
    let mut stalled: Vec<_> = (1..CONNECTIONS_MAX).map(|_| Client::of(&engine)).collect();
    // Clients come in one after the other: this one is one too many.
    let answer = Client::of(&engine).hear();
    let message = answer["message"].as_str().unwrap();
    assert!(message.contains("clients are connected"), "{message}");
    assert_eq!(first.status().pid, std::process::id());
    // When a client has gone, another is served.
    stalled.pop();
    Client::served_at(&engine.control_socket().unwrap());
}

#[test]
fn only_a_private_directory_is_used() {
    limit(50);
    let parent = directory();
    let open = parent.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, Permissions::from_mode(0o755)).unwrap();
    let link = parent.path().join("link");
    std::os::unix::fs::symlink(parent.path(), &link).unwrap();
    for (directory, reason) in [(&open, "open to others"), (&link, "not a directory")] {
        match builder_in(directory).build() {
            Err(error @ Error::ControlDirectory(_)) => {
                assert!(error.to_string().contains(reason), "{error}");
                assert!(error.to_string().contains(directory.to_str().unwrap()), "{error}");
            }
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("{} was used", directory.display()),
        }
    }
    assert_eq!(fs::read_dir(&open).unwrap().count(), 0);
    let new = parent.path().join("new");
    let engine = engine_in(&new);
    assert_eq!(fs::metadata(&new).unwrap().permissions().mode() & 0o777, 0o700);
    let socket = engine.control_socket().unwrap();
    assert_eq!(socket, socket_in(&new, 1));
    assert_eq!(fs::metadata(socket).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn without_being_asked_an_engine_has_no_socket() {
    limit(50);
    assert_eq!(engine(WAYS[0]).control_socket(), None);
}

#[test]
fn two_engines_of_a_process_are_told_apart_and_a_dropped_one_leaves_nothing() {
    limit(50);
    let directory = directory();
    let path = |number| socket_in(directory.path(), number);
    let first = engine_in(directory.path());
    let second = builder_in(directory.path()).build().unwrap();
    assert_eq!(first.control_socket().unwrap(), path(1));
    assert_eq!(second.control_socket().unwrap(), path(2));
    second.set_budget(2 * RAM).unwrap();
    assert_eq!(Client::at(&path(2)).status().ram_bytes, 2 * RAM);
    assert_eq!(Client::at(&path(1)).status().ram_bytes, RAM);
    // A client that is connected, and one that is half through its request, do not hold the end up.
    let mut idle = Client::at(&path(1));
    assert_eq!(idle.status().ram_bytes, RAM);
    write!(idle.0.get_mut(), "{{").unwrap();
    drop(first);
    assert_eq!(idle.hear(), Value::Null);
    assert!(!path(1).exists() && path(2).exists());
    let third = engine_in(directory.path());
    assert_eq!(third.control_socket().unwrap(), path(1));
    drop((second, third));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_starting_engine_cleans_up_after_those_that_were_killed() {
    limit(50);
    let directory = directory();
    // No process has the largest number.
    let stale = directory.path().join(format!("{}.sock", i32::MAX));
    drop(UnixListener::bind(&stale).unwrap());
    // One of this number that ended, or this one before it became another program.
    drop(UnixListener::bind(socket_in(directory.path(), 1)).unwrap());
    let engine = engine_in(directory.path());
    assert!(!stale.exists());
    assert_eq!(engine.control_socket().unwrap(), socket_in(directory.path(), 1));
    assert_eq!(Client::of(&engine).status().pid, std::process::id());
}

/// Another user, on this thread only: credentials are a thread's own, as far as the kernel is concerned.
fn become_nobody() {
    let nobody = rustix::process::Uid::from_raw(65534);
    let changed = rustix::thread::set_thread_res_uid(nobody, nobody, nobody);
    assert_eq!(changed, Ok(()), "this test needs root, to become another user: run it as root");
}

#[test]
fn a_stranger_is_refused_even_where_the_directory_lets_it_in() {
    alone(50, || {
        let directory = directory();
        let engine = engine_in(directory.path());
        let socket = engine.control_socket().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o711)).unwrap();
        fs::set_permissions(&socket, Permissions::from_mode(0o666)).unwrap();
        let answer = std::thread::spawn(move || {
            become_nobody();
            Client::at(&socket).hear()
        });
        let answer = answer.join().unwrap();
        let message = answer["message"].as_str().unwrap();
        assert!(message.contains("belongs to user") && message.contains("root"), "{message}");
        assert_eq!(Client::of(&engine).status().pid, std::process::id());
    });
}

fn own_sockets() -> usize {
    let of = |fd| fs::read_link(format!("/proc/self/fd/{fd}")).unwrap();
    let own = own_fd::own_within(0..=u32::MAX);
    own.filter(|fd| of(*fd).to_string_lossy().starts_with("socket:")).count()
}

/// The child of a fork: its own socket, and nothing of its parent's.
fn serve_in_child(engine: &Engine, directory: &Path, parents: &Path) -> i32 {
    fork(engine, || {
        assert_eq!(own_sockets(), 1, "its listener: the parent's client stays the parent's");
        let socket = engine.control_socket().unwrap();
        assert_eq!(socket, socket_in(directory, 1));
        assert_ne!(socket, parents);
        assert_eq!(Client::served_at(&socket).status().pid, std::process::id());
        let of_parent = Client::served_at(parents).status();
        assert_eq!(of_parent.pid, std::os::unix::process::parent_id());
        engine.withdraw_control();
        assert!(!socket.exists() && parents.exists());
    })
}

#[test]
fn a_forked_child_has_a_socket_of_its_own_and_no_hold_on_its_parents() {
    alone(50, || {
        let directory = directory();
        let engine = engine_in(directory.path());
        let parents = engine.control_socket().unwrap();
        for _ in 0..20 {
            let mut client = Client::of(&engine);
            assert_eq!(client.status().pid, std::process::id());
            let status = ended(serve_in_child(&engine, directory.path(), &parents));
            assert_eq!(status, 0, "the child ended with {status:#x}");
            assert_eq!(
                client.status().pid,
                std::process::id(),
                "and the parent's client is served on"
            );
        }
        drop(engine);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    });
}

#[test]
fn a_child_of_a_fork_past_the_engine_that_drops_it_leaves_its_parent_the_socket() {
    alone(30, || {
        let directory = directory();
        let mut engine = Some(engine_in(directory.path()));
        let parents = engine.as_ref().unwrap().control_socket().unwrap();
        join(apart(|| {
            limit(20);
            assert_eq!(engine.as_ref().unwrap().control_socket(), None);
            drop(engine.take());
        }));
        assert_eq!(Client::served_at(&parents).status().pid, std::process::id());
        audit(engine.as_ref().unwrap());
    });
}

#[test]
fn forks_among_many_requests_neither_hang_nor_leak() {
    alone(100, || {
        let directory = directory();
        let engine = engine_in(directory.path());
        let parents = engine.control_socket().unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let mut client = Client::served_at(&parents);
                        assert_eq!(client.status().pid, std::process::id());
                        let set = client.ask(r#"{"request":"set","key":"ram","value":"16M"}"#);
                        assert_eq!(set["answer"], "set", "{set}");
                    }
                });
            }
            let outcomes: Vec<_> = (0..rounds(50))
                .map(|_| ended(serve_in_child(&engine, directory.path(), &parents)))
                .collect();
            done.store(true, Ordering::Relaxed);
            assert!(outcomes.iter().all(|status| *status == 0), "{outcomes:?}");
        });
        audit(&engine);
    });
}
