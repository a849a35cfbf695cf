//! Servers as a device of programs under `run`: how they begin, fork, exec and end, and what is refused before they begin.

use std::collections::HashSet;

use crate::preload_support::deliveries;
use crate::preload_support::served::{
    Served, eventually, filler, is_refusal, printed, runtime, userswap_in,
};
use crate::redis::{Redis, STARTS};

fn start(runtime: &tempfile::TempDir, options: &[&str]) -> Served {
    let mut served = Served::start(runtime, &[&["--ram", "16M"], options].concat(), &filler(48));
    assert_eq!(served.hear(), "filled");
    served
}

/// How many engines have keys.
fn engines(server: &Redis) -> usize {
    let keys = server.say("KEYS *");
    keys.lines().filter_map(|key| key.rsplit(':').next()).collect::<HashSet<_>>().len()
}

#[test]
fn a_program_swaps_to_a_server_forks_and_ends_and_nothing_stays() {
    std::thread::scope(|scope| {
        for (case, start) in STARTS.into_iter().enumerate() {
            for fault in deliveries(case) {
                scope.spawn(move || swaps_forks_and_ends(&start(&[]), fault));
            }
        }
    });
}

fn swaps_forks_and_ends(server: &Redis, fault: &str) {
    let runtime = runtime();
    // What is kept for a child ends by it: its parent has no connection to this server any more then.
    let spec = server.spec("job:256M,lease=10");
    let mut served = start(&runtime, &["--fault", fault, "--swap", &spec]);
    assert!(server.slots() > 6000, "{spec} {fault}: {}", server.slots());
    assert!(printed(&runtime, &["status", &served.pid()]).contains(&server.name("job")));
    assert_eq!(served.ask("look"), "right", "{fault}");
    for word in ["fork", "child", "keep"] {
        assert_eq!(served.ask(word), "right", "{fault}: {word}");
    }
    assert!(engines(server) >= 2, "a forked child has keys of its own");
    let pid = served.pid();
    printed(&runtime, &["swapon", &pid, &spec.replace("127.0.0.1", "localhost")]);
    printed(&runtime, &["swapoff", &pid, &server.name("job")]);
    // What the child has there is its own, and stays.
    for word in ["look", "kept"] {
        assert_eq!(served.ask(word), "right", "{fault}: {word}");
    }
    assert_eq!(served.ask("end"), "");
    assert!(served.child.wait().unwrap().success());
    eventually("what a program and its children have left is gone", || engines(server) == 0);
}

#[test]
fn pages_come_from_a_server_where_raw_calls_are_caught() {
    for server in STARTS.map(|start| start(&[])) {
        let (runtime, spec) = (runtime(), server.spec("job:256M"));
        let options = ["--fault", "signal", "--raw-calls", "trap", "--swap", &spec];
        let mut served = start(&runtime, &options);
        assert!(server.slots() > 6000, "{spec}");
        assert_eq!([served.ask("look"), served.ask("look")], ["right", "right"], "{spec}");
        assert_eq!(served.ask("end"), "");
        assert!(served.child.wait().unwrap().success());
    }
}

#[test]
fn what_a_program_had_goes_with_it_when_it_is_killed_or_becomes_another() {
    let server = Redis::start(&[]);
    let runtime = runtime();
    let spec = server.spec("job:256M,lease=10");
    let mut served = start(&runtime, &["--swap", &spec]);
    assert!(server.keys() > 0);
    served.child.kill().unwrap();
    served.child.wait().unwrap();
    eventually("what a killed program has left is gone", || server.keys() == 0);
    let mut served = start(&runtime, &["--swap", &server.spec("job:256M")]);
    assert_eq!(served.ask("exec"), "gone");
    assert!(served.child.wait().unwrap().success());
    eventually("what the program before had is gone", || server.keys() == 0);
}

#[test]
fn a_password_reaches_programs_whose_environment_is_cleared() {
    let server = Redis::start(&["--requirepass", "open sesame"]);
    let runtime = runtime();
    let spec = server.spec("job:256M");
    let run = |password: Option<&str>| {
        let mut command = userswap_in(&runtime, &["run", "--ram", "16M", "--swap", &spec, "--"]);
        command.args(["env", "-i"]).args(filler(48)).arg("child");
        password.iter().for_each(|password| _ = command.env("USERSWAP_REDIS_PASSWORD", password));
        command.output().unwrap()
    };
    let output = run(Some("open sesame"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    is_refusal(&run(None), 2, &["wants a password", "USERSWAP_REDIS_PASSWORD"]);
    is_refusal(&run(Some("sesame")), 2, &["refuses the password"]);
}

#[test]
fn certificates_of_the_environment_reach_programs_whose_own_is_cleared() {
    let server = Redis::start_tls(&["--tls-auth-clients", "yes"]);
    let some = server.certificates.as_ref().unwrap();
    let runtime = runtime();
    // By its name, which the program cannot ask for.
    let spec = format!("rediss://localhost:{}/job:256M", server.port);
    let run = |files: &[(&str, &str)]| {
        let mut command = userswap_in(&runtime, &["run", "--ram", "16M", "--swap", &spec, "--"]);
        command.args(["env", "-i"]).args(filler(48)).arg("child");
        files.iter().for_each(|(name, file)| _ = command.env(name, some.path(file)));
        command.output().unwrap()
    };
    let cacert = ("USERSWAP_REDIS_CACERT", "ca.pem");
    let (cert, key) = (("USERSWAP_REDIS_CERT", "server.pem"), ("USERSWAP_REDIS_KEY", "server.key"));
    let output = run(&[cacert, cert, key]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    eventually("what it had is gone", || server.keys() == 0);
    is_refusal(&run(&[cacert]), 2, &["wants a certificate", "cert=FILE"]);
    is_refusal(&run(&[cert, key]), 2, &["the system's certificates", "cacert=FILE"]);
}

#[test]
fn what_cannot_be_used_is_refused_before_the_program_starts() {
    let runtime = runtime();
    for (spec, parts) in [
        ("redis://me:secret@127.0.0.1/a", ["me:…@127.0.0.1", "USERSWAP_REDIS_PASSWORD"]),
        ("redis://127.0.0.1:1/a", ["redis://127.0.0.1:1/a", "start the server"]),
        ("redis://10.255.255.1/a", ["10.255.255.1", "--encrypt"]),
        ("rediss://127.0.0.1:1/a", ["rediss://127.0.0.1:1/a", "start the server"]),
        ("rediss://127.0.0.1/a,cacert=missing.pem", ["/missing.pem", "name a file in PEM"]),
        ("redis://127.0.0.1", ["redis://127.0.0.1", "/PREFIX"]),
        ("redis://127.0.0.1/a,lease=1", ["lease=1", "604800"]),
    ] {
        let output =
            userswap_in(&runtime, &["run", "--swap", spec, "--", "echo", "run"]).output().unwrap();
        is_refusal(&output, 2, &parts);
        assert!(output.stdout.is_empty(), "{spec}: nothing is run");
    }
}
