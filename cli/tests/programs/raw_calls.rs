//! System calls in a program's own code, past every function of the C library.

use crate::preload_support::{
    as_nobody, compile, compile_with, directory, run, succeed, users, with, with_an_allocator_in_it,
};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How a program is run.
struct Setup {
    managed: Command,
    which: String,
    /// Its own, where everybody may write; it is run there.
    directory: PathBuf,
}

/// As root and as a user without rights.
fn setups(directory: &Path) -> Vec<Setup> {
    let everybody = Permissions::from_mode(0o777);
    let setup = |user: &str, fault: &str, managed: Command| {
        let own = directory.join(format!("{user}-{fault}"));
        std::fs::create_dir_all(&own).expect("a directory of its own");
        std::fs::set_permissions(&own, everybody.clone()).expect("the directory is ours");
        Setup { managed, which: format!("{user}, {fault}"), directory: own }
    };
    let of = |(user, fault)| match user {
        "root" => setup(user, fault, run("16M", fault)),
        _ => setup(user, fault, as_nobody(directory, "16M", fault)),
    };
    users(0).map(of).collect()
}

/// What a program that has written its statistics has counted.
struct Counted(serde_json::Value);

impl Counted {
    fn take(file: &Path) -> Self {
        let text = std::fs::read_to_string(file).expect("the program has written its statistics");
        std::fs::remove_file(file).expect("the file can be removed");
        Self(serde_json::from_str(&text).expect("statistics are JSON"))
    }

    fn of(&self, name: &str) -> u64 {
        self.0[name].as_u64().expect("the counter is there")
    }
}

/// Runs a program that prints "exact" in every set-up, all at once, and looks at what each run has counted.
fn exact_everywhere(program: &[PathBuf], directory: &Path, check: impl Fn(&Counted, &str) + Sync) {
    std::thread::scope(|scope| {
        for Setup { managed, which, directory } in setups(directory) {
            let check = &check;
            scope.spawn(move || {
                let statistics = directory.join("statistics");
                let words = ["--stats", statistics.to_str().expect("a UTF-8 path")];
                let mut managed = with(&managed, &words);
                let printed = succeed(managed.current_dir(&directory).args(program));
                assert_eq!(printed, "exact\n", "{which}");
                check(&Counted::take(&statistics), &which);
            });
        }
    });
}

#[test]
fn memory_processes_threads_and_signals_are_served_by_raw_calls_too() {
    let directory = directory();
    let program = [compile(directory.path(), "raw.c"), "file".into()];
    exact_everywhere(&program, directory.path(), |counted, which| {
        assert!(counted.of("pswpout") > 20_000, "{which}: the raw mappings are managed");
        assert!(counted.of("raw_calls_trapped") > 100, "{which}");
    });
}

#[test]
fn children_of_every_clone_have_their_parents_memory_and_a_server() {
    let directory = directory();
    let program = [compile(directory.path(), "clones.c")];
    exact_everywhere(&program, directory.path(), |counted, which| {
        assert!(counted.of("forks") > 30, "{which}: the children are forked");
        assert!(counted.of("pswpin") > 5000, "{which}: what they read was swapped out");
    });
}

#[test]
fn requests_of_static_libraries_reach_memory_that_is_swapped_out() {
    let directory = directory();
    let program = compile(directory.path(), "raw_io.c");
    let file = directory.path().join("file");
    exact_everywhere(
        &[program.clone(), "aio".into(), "file".into()],
        directory.path(),
        |counted, which| {
            assert!(counted.of("pswpin") > 5000, "{which}: the buffers were swapped out");
            assert!(counted.of("raw_calls_trapped") > 700, "{which}");
        },
    );
    // Where the kernel's faults are served.
    let mut managed = run("16M", "thread");
    assert_eq!(succeed(managed.arg(&program).arg("ring").arg(&file)), "exact\n");
}

#[test]
fn rings_do_no_wrong_where_the_kernel_cannot_bring_memory_in_and_registered_buffers_work() {
    let directory = directory();
    let program = compile(directory.path(), "raw_io.c");
    let words = [program, "limited-ring".into(), "file".into()];
    exact_everywhere(&words, directory.path(), |counted, which| {
        assert!(counted.of("pswpin") > 5000, "{which}: the buffers were swapped out");
    });
    // Said at the start, with what helps.
    let output = run("16M", "signal").arg("true").output().expect("it starts");
    let told = String::from_utf8(output.stderr).expect("text");
    assert!(
        told.contains("requests of io_uring fail") && told.contains("--fault thread"),
        "{told}"
    );
}

#[test]
fn raw_calls_are_caught_where_they_matter_or_as_told() {
    let directory = directory();
    let statistics = directory.path().join("statistics");
    let raw = compile_with(directory.path(), "unmanaged.c", "raw", &["-pthread"]);
    let trapped = |options: &[&str], words: &[&str]| {
        let managed = with(&run("64M", "thread"), &["--stats", statistics.to_str().unwrap()]);
        succeed(with(&managed, options).args(words));
        Counted::take(&statistics).of("raw_calls_trapped")
    };
    let raw = [raw.to_str().unwrap(), "raw"];
    assert!(trapped(&[], &raw) > 0);
    assert!(trapped(&["--raw-calls", "trap"], &raw) > 0);
    assert_eq!(trapped(&["--raw-calls", "pass"], &raw), 0);
    // Python makes none: what the dynamic linker does for it later is what is caught.
    let none = ["python3", "-c", "import zlib, ctypes"];
    assert!(trapped(&["--raw-calls", "trap"], &none) > 0);
    assert_eq!(trapped(&[], &none), 0);
}

#[test]
fn what_is_loaded_later_has_its_calls_caught_too() {
    let directory = directory();
    let library = |source, name| {
        compile_with(
            directory.path(),
            source,
            name,
            &["-shared", "-fPIC", "-pthread", "-Dmain=program"],
        )
    };
    let later = compile_with(directory.path(), "later.c", "later", &["-pthread", "-ldl"]);
    let (raw, clones) = (library("raw.c", "raw.so"), library("clones.c", "clones.so"));
    let words = [later.clone(), "here".into(), raw, "file".into()];
    exact_everywhere(&words, directory.path(), |counted, which| {
        assert!(counted.of("pswpout") > 20_000, "{which}: the raw mappings are managed");
        assert!(counted.of("raw_calls_trapped") > 100, "{which}");
    });
    for where_it_runs in ["here", "thread"] {
        let words = [later.clone(), where_it_runs.into(), clones.clone(), "few".into()];
        exact_everywhere(&words, directory.path(), |counted, which| {
            assert!(counted.of("forks") > 20, "{which}, {where_it_runs}: the children are forked");
        });
    }
}

#[test]
fn a_process_of_one_thread_beside_ours_may_have_a_user_namespace_and_lose_its_root() {
    let directory = directory();
    let program = compile_with(directory.path(), "alone.c", "alone", &["-pthread"]);
    assert_eq!(succeed(&mut Command::new(&program)), "exact\n", "natively");
    exact_everywhere(std::slice::from_ref(&program), directory.path(), |counted, which| {
        assert!(counted.of("pswpout") > 5000, "{which}");
    });
    let program = with_an_allocator_in_it(directory.path(), "alone.c");
    exact_everywhere(std::slice::from_ref(&program), directory.path(), |_, _| {});
    exact_everywhere(&[program, "small".into()], directory.path(), |_, _| {});
}

#[test]
fn a_call_by_number_does_what_the_program_asked_for() {
    let directory = directory();
    let program = compile(directory.path(), "by_number.c");
    exact_everywhere(std::slice::from_ref(&program), directory.path(), |counted, which| {
        assert!(counted.of("pswpout") > 4000, "{which}");
    });
    // Its swap is where only root can make files; what is needed is taken before it is another user.
    let private = directory.path().join("private");
    std::fs::create_dir(&private).unwrap();
    std::fs::set_permissions(&private, Permissions::from_mode(0o700)).unwrap();
    let mut managed = with(&run("16M", "thread"), &["--swap", private.to_str().unwrap()]);
    assert_eq!(succeed(managed.arg(&program).arg("user")), "exact\n");
}

#[test]
fn functions_that_a_library_has_taken_over_are_served_by_number() {
    let directory = directory();
    let program = compile(directory.path(), "patched.c");
    exact_everywhere(std::slice::from_ref(&program), directory.path(), |counted, which| {
        assert!(counted.of("pswpout") > 4000, "{which}");
    });
}

#[test]
fn a_child_that_a_raw_execve_starts_unmanaged_is_named() {
    let directory = directory();
    let program = compile(directory.path(), "raw_exec.c");
    let child = compile_with(directory.path(), "large.c", "static", &["-static"]);
    let output = run("16M", "thread").arg(&program).arg(&child).output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    let told = String::from_utf8(output.stderr).expect("text");
    assert!(told.contains("static runs outside the budget: it is statically linked"), "{told}");
    assert_eq!(output.stdout, b"exact\n");
}
