//! Defaults of `run`: which of them wins, what is refused, and who is left alone.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use tempfile::TempDir;

/// A user's own directory of configuration, with a file of defaults.
fn configured(text: &str) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("userswap.toml"), text).unwrap();
    directory
}

/// `userswap run OPTIONS env`, whose output has the options that the program was given.
fn run(configuration: &TempDir, options: &[&str], variables: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_userswap"))
        .arg("run")
        .args(options)
        .args(["--", "env"])
        .env("XDG_CONFIG_HOME", configuration.path())
        // Cargo's own, from the build of this package.
        .env_remove("USERSWAP_PRELOAD_HASH")
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

fn succeeded(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn the_command_line_wins_over_the_environment_and_that_over_the_file() {
    let file = configured("ram = \"32M\"\nfault = \"signal\"\npage-cluster = 5\nquiet = true\n");
    let variables = [("USERSWAP_RAM", "48M"), ("USERSWAP_SWAP", "/var/tmp;mem:64M")];
    let said = |options: &[&str]| succeeded(&run(&file, options, &variables));
    let has = |said: &str, line: &str| said.lines().any(|found| found.ends_with(line));
    let all = said(&["--page-cluster", "4"]);
    for line in [
        "ram=50331648",
        "fault=signal",
        "page_cluster=4",
        "quiet=true",
        "swap=/var/tmp/",
        "swap=mem:64M",
    ] {
        assert!(has(&all, line), "{line}: {all}");
    }
    assert!(has(&said(&["--ram", "16M"]), "ram=16777216"));
    let bare = said(&["--no-defaults", "--ram", "16M"]);
    assert!(has(&bare, "fault=thread") && has(&bare, "page_cluster=3"), "{bare}");
}

#[test]
fn a_bad_default_is_one_line_with_its_place_and_the_remedy() {
    let refused = |output: Output, parts: &[&str]| {
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(output.stdout.is_empty(), "the program ran");
        assert!(error.starts_with("userswap: ") && error.lines().count() == 1, "{error}");
        parts.iter().for_each(|part| assert!(error.contains(part), "{part:?} is not in {error}"));
    };
    let file = configured("# mine\nram = \"5\"\n");
    refused(run(&file, &[], &[]), &["userswap.toml:2: ", "\"5\"", "at least 16M"]);
    // What the command line says does not make the file better.
    refused(run(&file, &["--ram", "16M"], &[]), &["userswap.toml:2: "]);
    let bare = configured("");
    refused(
        run(&bare, &[], &[("USERSWAP_FAULT", "both")]),
        &["USERSWAP_FAULT: ", "\"both\"", "thread or signal"],
    );
    let path = bare.path().join("userswap.toml");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    refused(run(&bare, &[], &[]), &[path.to_str().unwrap(), "chmod go-w"]);
    std::os::unix::fs::chown(&path, Some(65534), None)
        .expect("this test needs root, for a file of another user");
    refused(run(&bare, &[], &[]), &[path.to_str().unwrap(), "belongs to user 65534"]);
}

#[test]
fn commands_that_measure_and_the_program_are_left_alone() {
    let file = configured("ram = \"5\"\n");
    let mut demo = Command::new(env!("CARGO_BIN_EXE_userswap"));
    demo.args(["demo", "--ram", "16M", "--no-kernel"]).env("XDG_CONFIG_HOME", file.path());
    let said = succeeded(&demo.env("USERSWAP_FAULT", "both").output().unwrap());
    assert!(said.contains("no byte wrong"), "{said}");
    let good = configured("ram = \"32M\"\n");
    let said = succeeded(&run(&good, &[], &[]));
    let ours: Vec<_> = said.lines().filter(|line| line.starts_with("USERSWAP_")).collect();
    assert_eq!(ours, ["USERSWAP_OPTIONS=ram=33554432"]);
}

#[test]
fn an_explicit_trace_or_record_drops_the_default_of_the_other() {
    let bare = configured("");
    let files = tempfile::tempdir_in("/var/tmp").unwrap();
    let name = |name: &str| files.path().join(name).to_str().unwrap().to_owned();
    let (trace, record) = (name("t"), name("r"));
    fs::write(&record, "older").unwrap();
    let default = [("USERSWAP_RECORD", &record[..])];
    let all = succeeded(&run(&bare, &["--trace", &trace], &default));
    assert!(all.contains(&format!("trace={trace}")), "{all}");
    assert!(!all.contains(&format!("record={record}")), "{all}");
    assert_eq!(fs::read_to_string(&record).unwrap(), "older");
    let both = [("USERSWAP_RECORD", &record[..]), ("USERSWAP_TRACE", &trace[..])];
    let refused = run(&bare, &[], &both);
    let error = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{error}");
    assert!(error.contains("USERSWAP_TRACE") && error.contains("USERSWAP_RECORD"), "{error}");
    // One that is there is removed, as is a record.
    fs::write(&record, "").unwrap();
    assert!(succeeded(&run(&bare, &["--record", &record], &both)).contains("record="));
}
