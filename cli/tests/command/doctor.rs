//! `userswap doctor` says what `run` then meets: as root, as an ordinary user, and behind a filter of system calls.

use std::path::Path;
use std::process::{Command, Output};

use crate::preload_support::{as_nobody, compile, directory};
use serde_json::Value;
use userswap::internals::OPTIONS_VARIABLE;

/// Their numbers on x86-64.
const USERFAULTFD: &str = "323";
const IO_URING_SETUP: &str = "425";
const PROCESS_MADVISE: &str = "440";
const VMSPLICE: &str = "278";

struct Doctor {
    works: bool,
    findings: Value,
}

impl Doctor {
    /// Asks, and holds the exit status against what is said.
    fn ask(command: &mut Command) -> Doctor {
        let output = command.args(["doctor", "--no-disk", "--json"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let mut all: Value = serde_json::from_str(&said)
            .unwrap_or_else(|error| panic!("{error}: {said}{}", errors(&output)));
        let works = all["works"].as_bool().unwrap();
        assert_eq!(output.status.code(), Some(i32::from(!works)), "{said}");
        Doctor { works, findings: all["findings"].take() }
    }

    fn about(&self, topic: &str) -> &Value {
        let mut all = self.findings.as_array().unwrap().iter();
        all.find(|finding| finding["topic"] == topic)
            .unwrap_or_else(|| panic!("nothing about {topic}: {}", self.findings))
    }

    /// Expects a state, and a fix that contains each of `parts`.
    fn says(&self, topic: &str, state: &str, parts: &[&str]) {
        let finding = self.about(topic);
        assert_eq!(finding["state"], state, "{finding}");
        let fix = finding["fix"].as_str().unwrap_or_default();
        parts.iter().for_each(|part| assert!(fix.contains(part), "{part:?} is not in {finding}"));
    }
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn userswap() -> Command {
    Command::new(env!("CARGO_BIN_EXE_userswap"))
}

/// The binary alone, of `as_nobody`'s command that has options of `run` as well.
fn nobody(directory: &Path) -> Command {
    let run = as_nobody(directory, "16M", "thread");
    let mut command = Command::new(run.get_program());
    command.args(run.get_args().take_while(|word| *word != "run")).env_remove("XDG_RUNTIME_DIR");
    command
}

/// The same as `command`, with these system calls forbidden.
fn filtered(directory: &Path, calls: &[&str], command: &Command) -> Command {
    let mut words: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    let program = words.pop().filter(|_| command.get_program() == "setpriv");
    let mut filtered = match &program {
        Some(_) => Command::new("setpriv"),
        None => Command::new(compile(directory, "filtered.c")),
    };
    match program {
        Some(program) => filtered
            .args(words)
            .arg(compile(directory, "filtered.c"))
            .arg(calls.join(","))
            .arg(program),
        None => filtered.arg(calls.join(",")).arg(command.get_program()),
    };
    filtered
}

#[test]
fn where_run_works_doctor_says_so() {
    let doctor = Doctor::ask(&mut userswap());
    let ran = userswap().args(["run", "--ram", "16M", "--", "true"]).output().unwrap();
    assert_eq!(doctor.works, ran.status.success(), "{}", errors(&ran));
    assert!(doctor.works, "the tests need userfaultfd");
    for topic in
        ["MOVE", "io_uring", "batched drop", "block reclaim", "memory", "limits", "container"]
    {
        assert!(doctor.about(topic)["found"].is_string());
    }
    let said = userswap().args(["doctor", "--no-disk"]).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(said.ends_with("`userswap run` works here.\n"), "{said}");
    assert!(!said.contains("disk speed"), "{said}");
}

#[test]
fn an_ordinary_user_is_told_what_would_serve_all_faults() {
    let directory = directory();
    let doctor = Doctor::ask(&mut nobody(directory.path()));
    assert!(doctor.works, "{}", doctor.findings);
    let ran = as_nobody(directory.path(), "16M", "thread").arg("true").output().unwrap();
    match errors(&ran).contains("this user needs CAP_SYS_PTRACE") {
        true => doctor.says(
            "userfaultfd",
            "limited",
            &["/dev/userfaultfd", "vm.unprivileged_userfaultfd=1"],
        ),
        false => doctor.says("userfaultfd", "OK", &[]),
    }
}

#[test]
fn what_a_filter_forbids_is_named_with_the_profile_that_permits_it() {
    let directory = directory();
    let path = directory.path();
    let calls = [IO_URING_SETUP, PROCESS_MADVISE];
    let doctor = Doctor::ask(&mut filtered(path, &calls, &userswap()));
    assert!(doctor.works);
    doctor.says("io_uring", "limited", &["seccomp"]);
    doctor.says("batched drop", "limited", &["seccomp"]);
    doctor.says("block reclaim", "OK", &[]);
    let doctor = Doctor::ask(&mut filtered(path, &[VMSPLICE], &userswap()));
    doctor.says("block reclaim", "limited", &["seccomp", "vmsplice"]);

    let doctor = Doctor::ask(&mut filtered(path, &[USERFAULTFD], &nobody(path)));
    let mut run = filtered(path, &[USERFAULTFD], &nobody(path));
    let ran = run.args(["run", "--ram", "16M", "--", "true"]).output().unwrap();
    assert_eq!(doctor.works, ran.status.success(), "{}", errors(&ran));
    match Path::new("/dev/userfaultfd").exists() && doctor.works {
        true => doctor.says("userfaultfd", "OK", &[]),
        false => doctor.says("userfaultfd", "missing", &["seccomp"]),
    }
}

#[test]
fn programs_are_told_which_filters_were_tried() {
    let directory = directory();
    let told = |calls: &[&str], command: &Command| {
        let mut run = filtered(directory.path(), calls, command);
        let ran = run.args(["run", "--ram", "16M", "--", "printenv", OPTIONS_VARIABLE]).output();
        String::from_utf8(ran.unwrap().stdout).unwrap()
    };
    for command in [userswap(), nobody(directory.path())] {
        assert!(told(&[PROCESS_MADVISE], &command).contains("\nfilters=1\n"), "{command:?}");
        assert!(told(&[VMSPLICE], &command).contains("\nfilters=0\n"), "{command:?}");
    }
}

#[test]
fn a_swap_directory_in_memory_and_one_that_is_not_there_are_told_apart() {
    let doctor = Doctor::ask(userswap().env("USERSWAP_SWAP", "/dev/shm"));
    assert!(doctor.works);
    doctor.says("swap", "limited", &["on a disk"]);
    let doctor = Doctor::ask(userswap().env("USERSWAP_SWAP", "/no/such/directory"));
    assert!(!doctor.works);
    doctor.says("swap", "missing", &[]);
    assert!(doctor.about("swap")["found"].as_str().unwrap().contains("/no/such"));
}
