//! Whatever is wrong with a `run` is said in one line before the program starts, with the exit
//! status that env(1) would have, and leaves nothing behind.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// On a disk, where O_DIRECT works.
fn directory() -> TempDir {
    tempfile::tempdir_in("/var/tmp").unwrap()
}

fn userswap(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_userswap")).args(arguments).output().unwrap()
}

fn error_of(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Expects `status` and one line that has all of `parts`; the program must not have run.
fn refused(arguments: &[&str], status: i32, parts: &[&str]) {
    let output = userswap(arguments);
    let error = error_of(&output);
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {error}");
    assert!(error.starts_with("userswap: "), "{arguments:?}: {error}");
    assert_eq!(error.lines().count(), 1, "{arguments:?}: {error}");
    for part in parts {
        assert!(error.contains(part), "{arguments:?}: {part:?} is not in: {error}");
    }
    assert!(output.stdout.is_empty(), "{arguments:?}: the program ran");
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn executable(directory: &TempDir, name: &str, content: &str) -> PathBuf {
    let path = directory.path().join(name);
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// A C program with the given compiler options.
fn compiled(directory: &TempDir, options: &[&str]) -> PathBuf {
    let (source, program) = (directory.path().join("main.c"), directory.path().join("main"));
    fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let gcc = Command::new("gcc").args(options).arg("-o").args([&program, &source]).output();
    let gcc = gcc.expect("this test needs gcc");
    assert!(gcc.status.success(), "gcc {options:?} failed: {}", error_of(&gcc));
    program
}

#[test]
fn a_file_that_is_to_be_two_things_is_refused_under_whatever_names() {
    let directory = directory();
    let [first, second, linked] =
        ["first", "./first", "linked"].map(|name| directory.path().join(name));
    let [first, second, linked] = [&first, &second, &linked].map(|path| text(path));
    let sized = |path: &str| format!("{path}:64M");
    let run = ["run", "--ram", "24M"];
    let with = |more: &[&str], parts: &[&str]| {
        refused(&[&run[..], more, &["--", "echo", "ran"]].concat(), 2, parts);
    };
    with(&["--swap", &sized(first), "--swap", &sized(second)], &[second, first, "name another"]);
    with(&["--swap", &sized(first), "--stats", second], &["--stats", "--swap", "name another"]);
    with(&["--stats", first, "--trace", first], &["--trace", "--stats", "name another"]);
    assert!(!Path::new(first).exists());
    fs::write(first, "").unwrap();
    fs::hard_link(first, linked).unwrap();
    with(&["--stats", first, "--record", linked], &["--record", linked, "name another"]);
    // What the program prints would be gone.
    let printed = Command::new(env!("CARGO_BIN_EXE_userswap"))
        .args(run)
        .args(["--stats", "/dev/stdout", "--", "echo", "ran"])
        .stdout(fs::File::create(first).unwrap())
        .output()
        .unwrap();
    assert_eq!(printed.status.code(), Some(2), "{}", error_of(&printed));
    assert!(error_of(&printed).contains("the program's own output"), "{}", error_of(&printed));
}

#[test]
fn a_program_that_is_not_whole_is_said_to_be_that() {
    let directory = directory();
    let program = executable(&directory, "program", "\x7fELF");
    refused(&["run", "--ram", "24M", text(&program)], 126, &[text(&program), "is not whole"]);
}

#[test]
fn what_is_no_usage_is_said_on_one_line_with_the_usage() {
    for (arguments, parts) in [
        (
            &["run", "--readahead", "x", "--", "true"][..],
            &["'--readahead'", "usage: userswap run"][..],
        ),
        (&["run", "--ram", "64M"], &["<PROGRAM ARGS>", "usage: userswap run"]),
        (&["swapon", "1"], &["<SPEC>", "usage: userswap swapon <PID> <SPEC>"]),
        (&["frobnicate"], &["'frobnicate'", "usage: userswap"]),
        (&["status", "--jso"], &["'--jso'", "'--json'"]),
        (&["run", "--ram", "64M", "--ram", "65M", "true"], &["'--ram <SIZE>'", "multiple times"]),
    ] {
        refused(arguments, 2, parts);
    }
    for help in [&["--help"][..], &["run", "--help"], &["--version"]] {
        let output = userswap(help);
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        assert!(output.stdout.starts_with(b"userswap") || output.stdout.len() > 200, "{output:?}");
    }
}

#[test]
fn readahead_that_does_not_exist_is_named_together_with_what_does() {
    for (option, value, allowed) in [
        ("--swap-ra-policy", "2", "use scaling (or 0), fixed (or 1), vma, stream or off"),
        ("--swap-ra-policy", "0x1", "use scaling (or 0)"),
        ("--page-cluster", "11", "use a whole number from 0 to 10"),
        ("--page-cluster", "-1", "use a whole number from 0 to 10"),
        ("--vma-ra-enabled", "maybe", "use true or false"),
    ] {
        refused(&["run", option, value, "--", "echo", "ran"], 2, &[option, value, allowed]);
    }
}

#[test]
fn a_size_that_is_none_is_named_together_with_what_is_allowed() {
    for size in ["12Q", "0", "-1", "", "1.5", "9999P"] {
        let quoted = format!("\"{size}\"");
        refused(&["run", "--ram", size, "--", "echo", "ran"], 2, &["--ram: ", &quoted]);
        refused(&["run", "--min-region", size, "--", "echo", "ran"], 2, &["--min-region", &quoted]);
        refused(&["demo", "--ram", size], 2, &["--ram: ", &quoted]);
        if !size.is_empty() {
            let swap = format!("/var/tmp:{size}");
            refused(&["run", "--swap", &swap, "--", "echo", "ran"], 2, &["--swap: ", size]);
        }
    }
}

#[test]
fn a_budget_below_the_minimum_is_refused_with_the_minimum() {
    refused(&["run", "--ram", "1M", "--", "echo", "ran"], 2, &["--ram: \"1M\"", "at least 16M"]);
}

#[test]
fn words_that_do_not_exist_are_refused_with_those_that_do() {
    for (option, allowed) in [
        ("--fault", "thread or signal"),
        ("--on-full", "exceed or stop"),
        ("--transfer", "auto, move or copy"),
        ("--io", "auto, uring or threads"),
        ("--poll", "auto, off, idle or a number of microseconds from 1 to 1000"),
    ] {
        refused(&["run", option, "fast", "--", "echo", "ran"], 2, &[option, "\"fast\"", allowed]);
    }
    refused(&["run", "--ram"], 2, &["--ram needs a value"]);
    refused(&["run", "--swap", "mem", "--", "echo", "ran"], 2, &["mem:512M"]);
    refused(&["run", "--swap", "/var/tmp,pri=x", "--", "echo", "ran"], 2, &["pri=x", "32767"]);
    for (words, allowed) in [
        (&["--compress", "-5M"][..], &["\"-5M\"", "at least 8M", "auto"][..]),
        (&["--compress", "1M"][..], &["\"1M\"", "at least 8M", "auto"][..]),
        (&["--compress", "auto", "--swap", "zram:1G"], &["\"zram:1G\"", "leave it out"]),
        (&["--compress", "64M", "--swap", "/var/tmp,tier=0"], &["/var/tmp,tier=0", "from 1 on"]),
        (&["--swap", "zram:1G,tier=0", "--swap", "/var/tmp"], &["\"/var/tmp\" has no tier"]),
        (&["--swap", "/var/tmp,tier=1"], &["/var/tmp,tier=1", "of tier 0", "without a gap"]),
        (&["--swap", "/var/tmp,tier=16"], &["tier=16", "0 to 15"]),
        (&["--swap", "zram:1G,algo=lzo"], &["algo=lzo", "use algo=lz4 or algo=zstd"]),
    ] {
        let all: Vec<&str> =
            ["run"].iter().chain(words).chain(&["--", "echo", "ran"]).copied().collect();
        refused(&all, 2, allowed);
    }
    // A file of that name would not be encrypted.
    for (swap, remedy) in [
        ("/var/tmp,encrypted", "node=N, encrypt,"),
        ("/var/tmp,encrypt=yes", "node=N, encrypt,"),
        ("/var/tmp,encrypt:1G", "after the size"),
        ("zram:1G,encrypt", "leave \"encrypt\" out"),
    ] {
        refused(&["run", "--swap", swap, "--", "echo", "ran"], 2, &["--swap", swap, remedy]);
    }
}

#[test]
fn a_measurement_of_nothing_or_of_too_much_is_refused_before_anything_is_measured() {
    for (line, parts) in [
        ("bench contention --size 600T", ["--size", "600T"]),
        ("bench contention --runs 0", ["--runs", "0 is not in 1..=1000"]),
        ("bench placement --size 1P", ["--size", "1P"]),
        ("bench placement --near 0", ["--near", "0 is not in 1..="]),
        ("bench placement --runs 1001", ["--runs", "1001"]),
        ("bench slot-free --size 1P", ["--size", "1P"]),
        ("bench slot-free --runs 0", ["--runs", "0 is not in"]),
        ("bench slot-alloc --runs 0", ["--runs", "0 is not in"]),
        ("bench slot-alloc --slots 1000 --threads 1 256 --batch 256", ["--slots 1000", "65536"]),
        ("bench readahead --dev mem:8M --size 32M", ["--dev mem:8M", "32M"]),
        ("bench readahead --dev zram:64M --size 32M", ["--dev zram:64M", "mem:SIZE"]),
        ("stress --minutes 18446744073709551615", ["--minutes", "18446744073709551615"]),
    ] {
        refused(&line.split(' ').collect::<Vec<_>>(), 2, &parts);
    }
}

#[test]
fn usage_errors_end_with_status_two() {
    for arguments in
        [&["run"][..], &["run", "--no-such-option", "--", "echo", "ran"], &["walk"], &[]]
    {
        let output = userswap(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{arguments:?}");
    }
    assert_eq!(userswap(&["--help"]).status.code(), Some(0));
    assert_eq!(userswap(&["--version"]).status.code(), Some(0));
}

#[test]
fn a_swap_directory_that_does_not_exist_is_refused() {
    let directory = directory();
    let swap = directory.path().join("no/such/directory");
    let swap = text(&swap);
    refused(
        &["run", "--swap", swap, "--", "echo", "ran"],
        2,
        &[swap, "no such directory", "create"],
    );
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_server_that_never_answers_is_refused_within_a_minute() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let swap = format!("redis://{address}/a:64M");
    let is_waited_for = || {
        let started = Instant::now();
        let parts = ["timed out", "start the server"];
        refused(&["run", "--swap", &swap, "--", "echo", "ran"], 2, &parts);
        assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
    };
    // The kernel connects, and nobody says a word.
    is_waited_for();
    // From now on the kernel does not answer either: nobody takes the connections that there are.
    let connect = || TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok();
    let waiting: Vec<_> = std::iter::from_fn(connect).collect();
    assert!(!waiting.is_empty());
    is_waited_for();
}

#[test]
fn a_users_file_is_refused_as_swap_and_left_as_it_was() {
    let directory = directory();
    let file = directory.path().join("thesis");
    let content = "to be or not to be\n".repeat(1000);
    fs::write(&file, &content).unwrap();
    let before = fs::metadata(&file).unwrap().modified().unwrap();
    let swap = format!("{}:64M", text(&file));
    refused(
        &["run", "--swap", &swap, "--", "echo", "ran"],
        2,
        &[text(&file), "not swap", "mkswap"],
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), content);
    assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), before);
}

#[test]
fn more_swap_than_the_disk_has_free_is_refused() {
    refused(
        &["run", "--swap", "/var/tmp:1024T", "--", "echo", "ran"],
        2,
        &["1024T asked for", "free"],
    );
}

#[test]
fn a_refused_run_leaves_no_new_swap_file_behind() {
    let directory = directory();
    let swap = format!("{}:64M", text(&directory.path().join("swapfile")));
    refused(&["run", "--swap", &swap, "--", "no-such-program"], 127, &["no-such-program"]);
    refused(&["run", "--swap", &swap, "--swap", &swap, "--", "echo", "ran"], 2, &["twice"]);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_directory_in_memory_works_with_a_warning() {
    let output = userswap(&["run", "--swap", "/dev/shm:64M", "--", "echo", "ran"]);
    let error = error_of(&output);
    assert_eq!(output.status.code(), Some(0), "{error}");
    assert_eq!(output.stdout, b"ran\n");
    assert!(error.starts_with("userswap: warning: /dev/shm"), "{error}");
    assert!(error.contains("no direct I/O") && error.lines().count() == 1, "{error}");
}

#[test]
fn a_program_that_does_not_exist_is_status_127() {
    refused(&["run", "--", "no-such-program"], 127, &["\"no-such-program\"", "PATH"]);
    refused(&["run", "--", "/no/such/program"], 127, &["/no/such/program"]);
    refused(&["run", "--", ""], 127, &["\"\""]);
}

#[test]
fn what_cannot_be_run_is_status_126() {
    let directory = directory();
    let data = directory.path().join("data");
    fs::write(&data, "echo ran\n").unwrap();
    refused(&["run", "--", text(&data)], 126, &[text(&data), "not executable", "chmod +x"]);
    refused(&["run", "--", text(directory.path())], 126, &["is a directory"]);
    let broken = executable(&directory, "broken", "\x7fELF\0\0\0");
    refused(&["run", "--", text(&broken)], 126, &[text(&broken)]);
}

#[test]
fn a_static_program_is_refused_and_not_run_unmanaged() {
    let directory = directory();
    for options in [&["-static"][..], &["-static-pie"]] {
        let program = compiled(&directory, options);
        let line = format!(
            "userswap: {} is statically linked: userswap cannot serve it; relink it dynamically or \
             run it without userswap\n",
            text(&program)
        );
        refused(&["run", "--", text(&program)], 126, &[&line]);
        let script = executable(&directory, "script", &format!("#!{}\n", text(&program)));
        refused(&["run", "--", text(&script)], 126, &[text(&script), "statically linked"]);
    }
}

#[test]
fn programs_that_the_library_cannot_enter_are_refused() {
    let directory = directory();
    let musl = compiled(&directory, &["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"]);
    refused(&["run", "--", text(&musl)], 126, &["musl", "glibc"]);
    let gone = compiled(&directory, &["-Wl,--dynamic-linker=/no/such/linker"]);
    refused(&["run", "--", text(&gone)], 127, &["/no/such/linker"]);
    for sanitizer in ["-fsanitize=thread", "-fsanitize=address", "-fsanitize=leak"] {
        let sanitized = compiled(&directory, &[sanitizer]);
        refused(
            &["run", "--", text(&sanitized)],
            126,
            &["is built with a sanitizer", "a build without"],
        );
    }
    let setuid = compiled(&directory, &[]);
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&setuid, Some(12345), None).unwrap();
        fs::set_permissions(&setuid, fs::Permissions::from_mode(0o4755)).unwrap();
        refused(&["run", "--", text(&setuid)], 126, &["is setuid", "owner"]);
    }
}

#[test]
fn a_statistics_file_that_cannot_be_written_is_refused_before_the_program_runs() {
    let directory = directory();
    let nowhere = directory.path().join("no/stats.json");
    refused(&["run", "--stats", text(&nowhere), "--", "echo", "ran"], 2, &["--stats", "directory"]);
    refused(&["run", "--stats", text(directory.path()), "--", "echo"], 2, &["is a directory"]);
}

#[test]
fn a_trace_that_cannot_be_written_is_refused_before_the_program_runs() {
    let directory = directory();
    let nowhere = directory.path().join("no/a.trace");
    refused(&["run", "--trace", text(&nowhere), "--", "echo", "ran"], 2, &["--trace", "directory"]);
    refused(&["run", "--trace", text(directory.path()), "--", "echo"], 2, &["is a directory"]);
    refused(&["run", "--trace", "/dev/null", "--", "echo", "ran"], 2, &["is no plain file"]);
    // An older trace is not touched by a run that is refused.
    let older = directory.path().join("older");
    fs::write(&older, "older").unwrap();
    refused(&["run", "--trace", text(&older), "--", "/no/such"], 127, &["/no/such"]);
    assert_eq!(fs::read_to_string(&older).unwrap(), "older");
}

#[test]
fn devices_that_cannot_be_used_together_are_refused_before_the_program_runs() {
    let run = |swaps: &[&str], parts: &[&str]| {
        let named = swaps.iter().flat_map(|swap| ["--swap", swap]);
        let all: Vec<&str> =
            ["run", "--ram", "16M"].into_iter().chain(named).chain(["--", "echo", "ran"]).collect();
        refused(&all, 2, parts);
    };
    run(&["mem:64M,node=999"], &["mem:64M,node=999", "no node 999"]);
    run(&["mem:64M"; 70], &["70 swap devices", "64"]);
    run(&["mem:512G"; 40], &["mem:512G", "512G"]);
    refused(
        &["run", "--compress", "8M", "--swap", "mem:64M,node=999", "--", "echo", "ran"],
        2,
        &["no node 999"],
    );
    run(&["--"], &["--swap: \"--\"", "./--"]);
    run(&["-x:1G"], &["./-x:1G"]);
}

#[test]
fn a_budget_that_no_engine_can_have_names_its_option() {
    refused(&["run", "--ram", "300G", "--", "echo", "ran"], 2, &["--ram: ", "300G", "256G"]);
    let most = ["run", "--ram", "16M", "--ram-max", "1T", "--", "echo", "ran"];
    refused(&most, 2, &["--ram-max: ", "1T", "256G"]);
}

#[test]
fn statistics_are_not_written_over_what_is_no_plain_file() {
    let directory = directory();
    let (pipe, link) = (directory.path().join("pipe"), directory.path().join("link"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::os::unix::fs::symlink(&pipe, &link).unwrap();
    for file in [&pipe, &link] {
        for option in ["--stats", "--trace", "--record"] {
            let run = ["run", option, text(file), "--", "echo", "ran"];
            refused(&run, 2, &[option, text(file), "plain file"]);
        }
        refused(&["metrics", "--textfile", text(file)], 1, &["--textfile", "plain file"]);
    }
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
}

#[test]
fn statistics_go_where_a_link_leads() {
    let directory = directory();
    let (file, link) = (directory.path().join("file"), directory.path().join("link"));
    std::os::unix::fs::symlink("file", &link).unwrap();
    assert!(userswap(&["run", "--stats", text(&link), "--", "true"]).status.success());
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(fs::read_to_string(&file).unwrap().contains("\"engaged\""));
}

#[test]
fn a_writable_file_in_a_directory_that_is_not_is_refused_before_the_program_runs() {
    assert!(rustix::process::geteuid().is_root(), "this test needs root, to become another user");
    let directory = directory();
    let (file, program) = (directory.path().join("stats"), directory.path().join("userswap"));
    fs::write(&file, "old").unwrap();
    fs::copy(env!("CARGO_BIN_EXE_userswap"), &program).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"])
        .arg(&program)
        .args(["run", "--stats", text(&file), "--", "echo", "ran"])
        .output()
        .unwrap();
    let error = error_of(&output);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("--stats") && error.contains("writable directory"), "{error}");
    assert!(output.stdout.is_empty(), "the program ran");
}

#[test]
fn record_takes_no_trace() {
    refused(&["record", "--trace", "t", "--", "echo", "ran"], 2, &["--trace", "run --trace"]);
}

/// A shell's `script`, with the program as `$0` and `argument` as `$1`.
fn in_a_shell(mut shell: Command, script: &str, argument: &Path) -> Output {
    let program = env!("CARGO_BIN_EXE_userswap");
    shell.args(["sh", "-c", script, program]).arg(argument).output().unwrap()
}

#[test]
fn a_limit_that_leaves_no_room_is_named() {
    let directory = directory();
    let run = |limits: &str, command: &str| {
        let script = format!("{limits}; exec \"$0\" run --ram 16M --swap \"$1\" -- {command}");
        let output = in_a_shell(Command::new("env"), &script, directory.path());
        (output.status.success(), error_of(&output))
    };
    let (succeeded, error) = run("ulimit -f 0", "echo ran");
    assert!(!succeeded && error.contains("too small") && error.contains("(ulimit -f)"), "{error}");
    // Room for the shell, but not for an engine's files.
    for files in 5..16 {
        let (succeeded, error) = run(&format!("ulimit -n {files}"), "\"$0\" demo-load 32M");
        assert!(!succeeded && error.contains("(ulimit -n)"), "{files}: {error}");
    }
}

#[test]
fn a_runtime_directory_that_has_become_read_only_is_passed_over() {
    let directory = directory();
    let runtime = directory.path().join("userswap");
    fs::create_dir(&runtime).unwrap();
    fs::set_permissions(&runtime, fs::Permissions::from_mode(0o700)).unwrap();
    let mut unshare = Command::new("unshare");
    unshare.arg("--mount").env("XDG_RUNTIME_DIR", directory.path());
    let script = "mount --bind \"$1\" \"$1\" && mount -o remount,ro,bind \"$1\" && exec \"$0\" run -- echo ran";
    let output = in_a_shell(unshare, script, directory.path());
    assert_eq!((error_of(&output).as_str(), output.stdout.as_slice()), ("", b"ran\n".as_slice()));
}
