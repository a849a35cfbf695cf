//! The library for C, as it is installed: its header, its symbols, and every function, called by programs in C and C++ under
//! the address and undefined-behaviour sanitizers.
#[path = "../examples/header.rs"]
mod header;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

const HERE: &str = env!("CARGO_MANIFEST_DIR");
/// What every program is compiled with.
const STRICT: [&str; 6] = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-g", "-O1"];
const SANITIZERS: [&str; 2] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

/// What a program is linked with.
#[derive(Clone, Copy, Debug)]
enum Linked {
    Shared,
    Static,
}

/// Where all tests of this process have the library.
fn installed() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        // Beside what cargo builds, and there to be looked at afterwards.
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("prefix");
        let _ = std::fs::remove_dir_all(&prefix);
        install(&prefix, None);
        prefix
    })
}

/// `capi/install`, of the library that cargo has built for this test.
fn install(prefix: &Path, destination: Option<&Path>) {
    let mut install = Command::new(format!("{HERE}/install"));
    install.arg("--prefix").arg(prefix).arg("--archive").arg(archive());
    install.env_remove("DESTDIR");
    destination.map(|directory| install.env("DESTDIR", directory));
    succeeded(&mut install);
}

/// The library that cargo has built for this test, under a name of its choice: the newest beside the test.
fn archive() -> PathBuf {
    let tests = std::env::current_exe().expect("a test knows where it is");
    let files = std::fs::read_dir(tests.parent().expect("it is in deps/")).unwrap();
    let paths = files.map(|file| file.unwrap().path()).filter(|path| {
        let name = path.file_name().and_then(OsStr::to_str);
        name.is_some_and(|name| name.starts_with("libuserswap_c-") && name.ends_with(".a"))
    });
    let built = paths.max_by_key(|path| path.metadata().unwrap().modified().unwrap());
    built.expect("cargo builds the library before its tests")
}

/// What a command prints, which must succeed.
fn succeeded(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("the program is installed");
    let said = String::from_utf8_lossy(&stdout);
    assert!(status.success(), "{command:?}: {status}\n{said}{}", String::from_utf8_lossy(&stderr));
    said.into_owned()
}

/// The flags that userswap.pc has for a line, as pkg-config would print them.
fn flags(prefix: &Path, lines: &[&str]) -> Vec<String> {
    let text = std::fs::read_to_string(prefix.join("lib/pkgconfig/userswap.pc")).unwrap();
    let value = |name: &str, mark: char| {
        let start = format!("{name}{mark}");
        let line = text.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap_or_else(|| panic!("userswap.pc has no {start}")).trim().to_owned()
    };
    let resolved = lines.iter().map(|line| {
        let mut flags = value(line, ':');
        for variable in ["includedir", "libdir", "prefix"] {
            flags = flags.replace(&format!("${{{variable}}}"), &value(variable, '='));
        }
        flags
    });
    resolved.collect::<Vec<_>>().join(" ").split_whitespace().map(str::to_owned).collect()
}

/// Compiles a program against the installed library, with the flags of userswap.pc.
fn compile(source: &str, linked: Linked, options: &[&str]) -> PathBuf {
    let prefix = installed();
    let source = Path::new(HERE).join(source);
    let name = source.file_stem().and_then(OsStr::to_str).expect("a plain name");
    let program = prefix.join(format!("{name}-{linked:?}"));
    let is_cpp = source.extension() == Some(OsStr::new("cpp"));
    let mut compiler = Command::new(if is_cpp { "g++" } else { "gcc" });
    compiler.arg(if is_cpp { "-std=c++11" } else { "-std=gnu11" });
    compiler.args(STRICT).args(options).arg(&source).arg("-o").arg(&program);
    compiler.args(flags(prefix, &["Cflags"]));
    match linked {
        Linked::Shared => {
            compiler.args(flags(prefix, &["Libs"]));
            compiler.arg(format!("-Wl,-rpath,{}", prefix.join("lib").display()));
        }
        Linked::Static => {
            compiler.arg(prefix.join("lib/libuserswap.a"));
            compiler.args(flags(prefix, &["Libs.private"]));
        }
    }
    compiler.arg("-pthread");
    succeeded(&mut compiler);
    program
}

/// Runs a program with each way of delivering faults, shared and static, under the sanitizers; returns what it prints.
fn run_all(source: &str, arguments: &[&str]) -> Vec<String> {
    run_with(&SANITIZERS, source, arguments)
}

fn run_with(flags: &[&str], source: &str, arguments: &[&str]) -> Vec<String> {
    let mut said = Vec::new();
    for (linked, fault) in [(Linked::Shared, "thread"), (Linked::Static, "signal")] {
        let program = compile(source, linked, flags);
        let mut command = Command::new("timeout");
        command.arg("120").arg(program).args(arguments).arg(fault);
        said.push(succeeded(&mut command));
    }
    said
}

fn test_program(name: &str) {
    test_program_with(&SANITIZERS, name);
}

fn test_program_with(flags: &[&str], name: &str) {
    let said = run_with(flags, &format!("tests/programs/{name}"), &[]);
    assert!(said.iter().all(|said| said.ends_with("ok\n")), "{said:?}");
}

#[test]
fn regions_do_what_the_header_says() {
    test_program("regions.c");
}

#[test]
fn options_do_what_the_header_says() {
    test_program("options.c");
}

#[test]
fn heaps_do_what_the_header_says() {
    test_program("heaps.c");
}

#[test]
fn caches_do_what_the_header_says() {
    test_program("caches.c");
}

#[test]
fn forks_do_what_the_header_says() {
    // A child hangs in the sanitizer's malloc where a thread of its parent was in it.
    test_program_with(&[], "forks.c");
}

#[test]
fn bad_input_is_an_error_and_never_a_crash() {
    test_program("refusals.c");
}

#[test]
fn the_sort_sorts_four_times_its_budget() {
    for said in run_all("examples/sort.c", &["16"]) {
        assert!(said.starts_with("64 MiB sorted in 16 MiB of RAM: right"), "{said}");
    }
}

#[test]
fn the_cache_gives_way() {
    assert!(run_all("examples/cache.c", &[]).iter().all(|said| said.ends_with(" 0 pages wrong\n")));
}

#[test]
fn containers_of_cpp_live_in_a_heap() {
    assert!(
        run_all("examples/heap.cpp", &[])
            .iter()
            .all(|said| said.ends_with(" 0 slots left in use\n"))
    );
}

#[test]
fn the_program_of_the_documentation_runs() {
    let page = std::fs::read_to_string(format!("{HERE}/../docs/c.md")).unwrap();
    let program = page.split("```c\n").nth(1).and_then(|rest| rest.split("```").next());
    let source = installed().join("first.c");
    std::fs::write(&source, program.expect("docs/c.md has a program")).unwrap();
    let program = compile(source.to_str().unwrap(), Linked::Shared, &SANITIZERS);
    let said = succeeded(&mut Command::new(program));
    let pages =
        said.strip_suffix(" pages swapped out\n").and_then(|pages| pages.parse::<u64>().ok());
    assert!(pages.is_some_and(|pages| pages > 40_000), "{said}");
}

#[test]
fn the_header_is_what_the_source_says() {
    let kept = std::fs::read_to_string(format!("{HERE}/include/userswap.h")).unwrap();
    let remedy = "cargo run -p userswap-capi --example header >capi/include/userswap.h";
    assert!(header::header() == kept, "include/userswap.h is not that of the source: {remedy}");
}

#[test]
fn the_header_is_c99_and_cpp11() {
    let header = installed().join("include/userswap.h");
    for (compiler, language) in [("gcc", "c99"), ("gcc", "c11"), ("g++", "c++11"), ("g++", "c++20")]
    {
        let kind = if compiler == "gcc" { "c" } else { "c++" };
        let mut command = Command::new(compiler);
        command.args(STRICT).args(["-fsyntax-only", "-x", kind, &format!("-std={language}")]);
        succeeded(command.arg(&header));
    }
}

#[test]
fn exported_are_the_functions_of_the_header_and_nothing_else() {
    let prefix = installed();
    let header = std::fs::read_to_string(prefix.join("include/userswap.h")).unwrap();
    let code = header.lines().filter(|line| !line.trim_start().starts_with("//"));
    let before = code.filter_map(|line| line.split_once('(')).map(|(name, _)| name);
    let declared: BTreeSet<_> = before
        .filter_map(|line| line.rsplit([' ', '*']).next())
        .filter(|name| name.starts_with("us_"))
        .collect();
    assert!(declared.len() > 50, "{declared:?}");

    let of = |options: &[&str], library: &str| {
        succeeded(Command::new("nm").args(options).arg(prefix.join("lib").join(library)))
    };
    let shared = of(&["-D", "--defined-only"], "libuserswap.so");
    let exported: Vec<_> = shared.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    let functions: Vec<_> = exported.iter().filter(|name| **name != "USERSWAP_0.1").collect();
    let versioned: BTreeSet<_> =
        functions.iter().map(|name| name.strip_suffix("@@USERSWAP_0.1").expect(name)).collect();
    assert_eq!(versioned, declared);

    let archive = of(&["-g", "--defined-only"], "libuserswap.a");
    let global: BTreeSet<_> = archive.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    assert_eq!(global, declared);
}

#[test]
fn an_installation_honours_destdir_and_says_where_it_is() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    install(Path::new("/opt/userswap"), Some(directory.path()));
    let root = directory.path().join("opt/userswap");
    let package = std::fs::read_to_string(root.join("lib/pkgconfig/userswap.pc")).unwrap();
    assert!(package.starts_with("prefix=/opt/userswap\nlibdir=/opt/userswap/lib\n"), "{package}");
    assert!(package.contains("\nVersion: 0.1.0\n"), "{package}");
    for file in ["include/userswap.h", "lib/libuserswap.a", "lib/libuserswap.so"] {
        assert!(root.join(file).metadata().unwrap().len() > 1000, "{file}");
    }
    let link = std::fs::read_link(root.join("lib/libuserswap.so")).unwrap();
    assert_eq!(link, Path::new("libuserswap.so.0"));
}

#[test]
fn an_installation_refuses_what_it_does_not_know() {
    for (arguments, line) in [
        (
            ["--colour", "red"],
            "install: --colour is no option: use --prefix, --libdir, --features or --archive\n",
        ),
        (["--prefix", "here"], "install: here is no absolute path\n"),
    ] {
        let output = Command::new(format!("{HERE}/install")).args(arguments).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), line);
        assert_eq!(output.status.code(), Some(2));
    }
}
