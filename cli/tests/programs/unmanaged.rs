//! What runs outside the budget is told, once; what can be managed is.

use crate::preload_support::{compile, compile_with, directory};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// `userswap run --ram 16M`, for each process, with a statistics file for each process.
fn managed(directory: &Path) -> Command {
    // Processes of other users write there too.
    fs::set_permissions(directory, Permissions::from_mode(0o777)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_userswap"));
    command.args(["run", "--ram", "16M", "--ram-per-process", "--swap", "/var/tmp", "--stats"]);
    command.arg(directory.join("stats-%p.json"));
    command
}

struct Outcome {
    printed: String,
    told: String,
    /// Of all processes.
    stats: Vec<serde_json::Value>,
}

impl Outcome {
    fn of(command: &mut Command, directory: &Path) -> Self {
        let output = command.output().expect("the command starts");
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{command:?}: {}\n{told}", output.status);
        let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let files: Vec<_> =
            files.filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
        let read = |path: &std::path::PathBuf| {
            let text = fs::read_to_string(path).unwrap();
            fs::remove_file(path).unwrap();
            serde_json::from_str(&text).unwrap()
        };
        let stats = files.iter().map(read).collect();
        Self { printed: String::from_utf8(output.stdout).unwrap(), told, stats }
    }

    fn swapped(&self) -> usize {
        let swapped = |stats: &&serde_json::Value| stats["pswpout"].as_u64().unwrap() > 4000;
        self.stats.iter().filter(swapped).count()
    }

    fn unmanaged_children(&self) -> u64 {
        let of = |stats: &serde_json::Value| stats["unmanaged_children"].as_u64().unwrap();
        self.stats.iter().map(of).max().unwrap_or(0)
    }
}

#[test]
fn a_child_with_an_environment_of_its_own_is_managed() {
    let directory = directory();
    let program = compile(directory.path(), "large.c");
    let program = program.to_str().unwrap();
    let list = compile(directory.path(), "exec_list.c");
    let bare = compile(directory.path(), "bare_exec.c");
    let bare = bare.to_str().unwrap();
    let python = format!("import subprocess; subprocess.run(['{program}'], env={{}}, check=True)");
    for command in [
        &["env", "-i", program][..],
        &["env", "LD_PRELOAD=", program],
        &[list.to_str().unwrap(), program],
        &["env", "-i", "sh", "-c", &format!("exec env -i {program}")],
        &["python3", "-c", &python],
        &[bare, "path", program],
        &[bare, "spawn", program],
        &[bare, "descriptor", program],
    ] {
        let outcome =
            Outcome::of(managed(directory.path()).arg("--").args(command), directory.path());
        assert_eq!((&*outcome.printed, &*outcome.told), ("exact\n", ""), "{command:?}");
        assert_eq!(outcome.swapped(), 1, "{command:?}");
    }
}

#[test]
fn a_child_with_a_sanitizer_is_left_alone_and_said() {
    let directory = directory();
    let other = compile(directory.path(), "large.c");
    for sanitizer in ["-fsanitize=thread", "-fsanitize=address", "-fsanitize=leak"] {
        let program = compile_with(directory.path(), "large.c", "sanitized", &[sanitizer]);
        let program = program.to_str().unwrap();
        // Also beside another library.
        let library = "/lib/x86_64-linux-gnu/libm.so.6";
        let no_leaks = "ASAN_OPTIONS=detect_leaks=0 LSAN_OPTIONS=detect_leaks=0";
        let script = format!(
            "{program}; LD_PRELOAD=$LD_PRELOAD:{library} {program}; env -i {no_leaks} {program}; {}",
            other.display()
        );
        let mut command = managed(directory.path());
        command
            .env("ASAN_OPTIONS", "detect_leaks=0:verify_asan_link_order=0")
            .env("LSAN_OPTIONS", "detect_leaks=0");
        let outcome = Outcome::of(command.args(["--", "sh", "-c", &script]), directory.path());
        assert_eq!(outcome.printed, "exact\n".repeat(4), "{sanitizer}: {}", outcome.told);
        let said = format!(
            "userswap: {program} runs outside the budget: it is built with a sanitizer, which has the address space \
             to itself; use a build without\n"
        );
        assert_eq!((&*outcome.told, outcome.swapped()), (&*said, 1), "{sanitizer}");
    }
}

#[test]
fn a_child_of_another_user_is_managed() {
    assert!(rustix::process::geteuid().is_root(), "only root can become others: run as root");
    let directory = directory();
    let program = compile(directory.path(), "large.c");
    for become_other in [
        &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"][..],
        &["runuser", "-u", "nobody", "--"],
    ] {
        let mut command = managed(directory.path());
        command.arg("--").args(become_other).arg(&program);
        let outcome = Outcome::of(&mut command, directory.path());
        assert_eq!((&*outcome.printed, outcome.swapped()), ("exact\n", 1), "{become_other:?}");
    }
}

#[test]
fn a_child_that_cannot_be_managed_is_named_once_and_counted() {
    let directory = directory();
    let one = compile_with(directory.path(), "large.c", "one", &["-static"]);
    let other = compile_with(directory.path(), "large.c", "other", &["-static"]);
    let (one, other) = (one.to_str().unwrap(), other.to_str().unwrap());
    let script = directory.path().join("script");
    fs::write(&script, format!("#!{other}\n")).unwrap();
    fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    let many = format!("{one}; env {one}; {other} & wait; {}; sh -c {one}", script.display());
    let run = |quiet: &[&str]| {
        let mut command = managed(directory.path());
        command.args(quiet).args(["--", "sh", "-c", &many]);
        Outcome::of(&mut command, directory.path())
    };
    let outcome = run(&[]);
    assert_eq!(outcome.unmanaged_children(), 5, "{:?}", outcome.stats);
    let lines: Vec<_> = outcome.told.lines().collect();
    let line = |name| {
        format!(
            "userswap: {name} runs outside the budget: it is statically linked; link it dynamically"
        )
    };
    let named = [line(one), line(other), line(script.to_str().unwrap())];
    assert_eq!(lines, named);
    let quiet = run(&["--quiet"]);
    assert_eq!((&*quiet.told, quiet.unmanaged_children()), ("", 5));
    // What a program with an engine has started, as `status` tells it meanwhile.
    let asks = format!(
        "import os, subprocess
kept = b'1' * (40 << 20)
subprocess.run(['{one}'], check=True)
subprocess.run(['{}', 'status', str(os.getpid())], check=True)",
        env!("CARGO_BIN_EXE_userswap")
    );
    let mut command = managed(directory.path());
    let asked = Outcome::of(command.args(["--", "python3", "-c", &asks]), directory.path());
    let first = asked.printed.lines().find(|line| line.contains("of RAM")).unwrap_or_default();
    assert!(first.ends_with("1 unmanaged child"), "{}", asked.printed);
}

/// A shell has no engine that could tell.
#[test]
fn unmanaged_children_of_a_job_without_an_engine_are_shown() {
    let directory = directory();
    let program = compile_with(directory.path(), "large.c", "one", &["-static"]);
    let (program, userswap) = (program.to_str().unwrap(), env!("CARGO_BIN_EXE_userswap"));
    let asks = format!(
        "echo $$; {program}; {userswap} list; {userswap} status; {userswap} status $$; {program}; {userswap} list; true"
    );
    let mut command = Command::new(userswap);
    command.args(["run", "--ram", "32M", "--swap", "/var/tmp", "--quiet", "--", "sh", "-c", &asks]);
    let asked = Outcome::of(&mut command, directory.path());
    let mut lines = asked.printed.lines().map(str::trim);
    let root = lines.next().unwrap();
    let ends =
        |line: &&str| line.ends_with("unmanaged child") || line.ends_with("unmanaged children");
    let shown: Vec<&str> = lines.filter(|line| line.contains(root)).filter(ends).collect();
    let [first, alone, last] = shown[..] else { panic!("{}", asked.printed) };
    assert!(first.starts_with(root) && first.ends_with(", 1 unmanaged child"), "{first}");
    let job = format!("job {root}: 32M for ");
    assert!(
        alone.starts_with(&job) && alone.ends_with("; no engine, 1 unmanaged child"),
        "{alone}"
    );
    assert!(last.ends_with(", 2 unmanaged children"), "{last}");
    let without = format!(
        "process {root} has no engine yet: its memory still fits its budget, 1 unmanaged child;"
    );
    assert!(asked.told.contains(&without), "{}", asked.told);
}

#[test]
fn a_static_child_by_descriptor_and_a_shell_of_the_c_librarys_without_environment_are_named() {
    let directory = directory();
    let program = compile_with(directory.path(), "large.c", "one", &["-static"]);
    let program = program.to_str().unwrap();
    let bare = compile(directory.path(), "bare_exec.c");
    let shell = |call: &str| format!("import os; os.environ.clear(); os.{call}");
    let (system, popen) =
        (shell(&format!("system('{program}')")), shell(&format!("popen('{program}').read()")));
    let inherited = "/bin/sh runs outside the budget: system() and popen() give it";
    for (command, line, counted) in [
        // It takes the place of the one that counts.
        (&[bare.to_str().unwrap(), "descriptor", program][..], "it is statically linked", 0),
        (&["python3", "-c", &system], inherited, 1),
        // Python's own, which says what is in its environment.
        (&["python3", "-c", &popen], "it is statically linked", 1),
    ] {
        let outcome =
            Outcome::of(managed(directory.path()).arg("--").args(command), directory.path());
        assert!(outcome.told.contains(line), "{command:?}: {}", outcome.told);
        assert_eq!((outcome.unmanaged_children(), outcome.swapped()), (counted, 0), "{command:?}");
    }
}

#[test]
fn a_child_that_is_asked_for_without_userswap_runs_without() {
    let directory = directory();
    let program = compile(directory.path(), "large.c");
    let mut command = managed(directory.path());
    command.args(["--", "env", "USERSWAP_OPTIONS="]).arg(&program);
    let outcome = Outcome::of(&mut command, directory.path());
    assert_eq!((&*outcome.printed, &*outcome.told, outcome.swapped()), ("exact\n", "", 0));
}

#[test]
fn a_zygote_of_chromium_with_its_sandbox_is_left_alone_and_named() {
    let directory = directory();
    let program = compile(directory.path(), "large.c");
    let program = program.to_str().unwrap();
    let run = |arguments: &str| {
        let mut command = managed(directory.path());
        command.args(["--", "sh", "-c", &format!("{program} {arguments}; :")]);
        Outcome::of(&mut command, directory.path())
    };
    let zygote = run("--type=zygote --headless");
    let line = format!(
        "userswap: {program} runs outside the budget: its sandbox lets no engine work; start it with \
         --no-sandbox\n"
    );
    assert_eq!((&*zygote.printed, &*zygote.told, zygote.swapped()), ("exact\n", &*line, 0));
    assert_eq!(zygote.unmanaged_children(), 1);
    for arguments in ["--type=renderer --headless", "--type=zygote --no-sandbox --headless"] {
        let other = run(arguments);
        assert_eq!((&*other.printed, &*other.told, other.swapped()), ("exact\n", "", 1));
    }
}

#[test]
fn a_child_whose_root_directory_lacks_the_library_is_named() {
    assert!(rustix::process::geteuid().is_root(), "only root can change its root directory");
    let directory = directory();
    let root = directory.path().join("root");
    fs::create_dir(&root).unwrap();
    let program = compile(directory.path(), "large.c");
    for file in ["/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/libc.so.6"] {
        let to = root.join(&file[1..]);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(file, to).unwrap();
    }
    fs::copy(program, root.join("large")).unwrap();
    let mut command = managed(directory.path());
    let outcome =
        Outcome::of(command.args(["--", "chroot"]).arg(&root).arg("/large"), directory.path());
    assert_eq!(outcome.printed, "exact\n");
    let ours = outcome.told.lines().filter(|line| line.starts_with("userswap: "));
    let ours: Vec<_> = ours.collect();
    assert!(ours.len() == 1 && ours[0].contains("/large runs outside the budget"), "{ours:?}");
}

#[test]
fn memory_outside_the_budget_is_told_of_once() {
    let directory = directory();
    let program = compile(directory.path(), "unmanaged.c");
    let told = |how: &str, more: &[&str]| {
        let mut command = managed(directory.path());
        let twice = format!("{0} {how}; {0} {how}", program.display());
        command.args(more).args(["--", "sh", "-c", &twice]);
        Outcome::of(&mut command, directory.path()).told
    };
    for how in ["raw", "far", "raw-gone"] {
        let told = told(how, &["--raw-calls", "pass"]);
        let line = "of its memory is outside its budget of 16M: it was mapped past userswap";
        assert!(told.lines().count() == 1 && told.contains(line), "{how}: {told}");
        // What may have been managed is not counted, where it is too late to tell.
        let much = if how == "raw-gone" { "3" } else { "4" };
        assert!(told.starts_with(&format!("userswap: unmanaged: {much}")), "{how}: {told}");
    }
    assert_eq!(told("raw", &["--raw-calls", "pass", "--quiet"]), "");
    for how in ["file", "segment"] {
        let told = told(how, &[]);
        let line = "of shared memory (memfd, shm, tmpfs) is outside its budget of 16M";
        assert!(told.lines().count() == 1 && told.contains(line), "{how}: {told}");
    }
    for how in ["raw", "sbrk", "managed"] {
        assert_eq!(told(how, &[]), "", "{how}");
    }
}

#[test]
fn a_program_under_valgrind_is_left_alone_and_its_children_are_managed() {
    let directory = directory();
    let program = compile(directory.path(), "large.c");
    // What valgrind, which is not needed for this, puts into the environment of a program that it runs itself; the linker says
    // that there is no such library.
    let script = format!(
        "LD_PRELOAD=/nowhere/vgpreload_core-amd64-linux.so:$LD_PRELOAD sh -c '{0}; LD_PRELOAD=${{LD_PRELOAD#*:}} {0}'",
        program.display()
    );
    let outcome =
        Outcome::of(managed(directory.path()).args(["--", "sh", "-c", &script]), directory.path());
    let printed = Outcome::of(&mut Command::new(&program), directory.path()).printed;
    assert_eq!(outcome.printed, printed.repeat(2), "{}", outcome.told);
    assert_eq!(outcome.swapped(), 1, "the second alone: {}", outcome.told);
}
