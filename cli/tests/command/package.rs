//! The Debian package, installed in a root of its own, and the seccomp profile of a container.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::preload_support::{compile, directory, succeed};
use serde_json::{Value, json};

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging").join(name)
}

/// Makes the package of the binary under test.
fn package(directory: &Path) -> PathBuf {
    let mut deb = Command::new(packaging("deb"));
    succeed(deb.args(["--binary", env!("CARGO_BIN_EXE_userswap")]).arg(directory));
    let mut files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files.find(|file| file.extension().is_some_and(|it| it == "deb")).expect("a package was made")
}

/// A root directory with nothing but what Debian calls libc6 and libgcc-s1, as dpkg knows it.
fn bare_root(root: &Path) {
    let known = succeed(Command::new("dpkg-query").args(["--status", "libc6", "libgcc-s1"]));
    for folder in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "proc", "tmp", "var/tmp", "run"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    fs::write(root.join("var/lib/dpkg/status"), known.replace("\nPackage: ", "\n\nPackage: "))
        .unwrap();
    let needed = succeed(Command::new("ldd").arg(env!("CARGO_BIN_EXE_userswap")));
    for library in needed.split_whitespace().filter(|word| word.starts_with('/')) {
        let copy = root.join(library.trim_start_matches('/'));
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::copy(library, copy).unwrap();
    }
}

/// Below the root, with a /proc.
fn inside(root: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "sh",
        "-c",
        "mount -t proc proc \"$1/proc\" && exec chroot \"$@\"",
        "sh",
    ]);
    command.arg(root).args(words).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command
}

/// dpkg as for another machine's root.
fn dpkg(root: &Path, act: &str, what: &Path) {
    let mut dpkg = Command::new("dpkg");
    dpkg.arg(format!("--root={}", root.display())).arg(act).arg(what);
    succeed(dpkg.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"));
}

/// Expects that pages went out and came back.
fn has_swapped(statistics: &Path) {
    let counters: Value = serde_json::from_str(&fs::read_to_string(statistics).unwrap()).unwrap();
    let swapped = ["pswpout", "pswpin"].map(|name| counters[name].as_u64() > Some(0));
    assert_eq!(swapped, [true; 2], "{counters}");
}

const CONTENT: [&str; 9] = [
    "-rwxr-xr-x root/root",
    "./usr/bin/userswap\n",
    "./usr/share/man/man1/userswap-run.1.gz\n",
    "./usr/share/bash-completion/completions/userswap\n",
    "./usr/share/zsh/vendor-completions/_userswap\n",
    "./usr/share/fish/vendor_completions.d/userswap.fish\n",
    "./usr/share/doc/userswap/copyright\n",
    "./usr/share/doc/userswap/crates.gz\n",
    "./usr/share/doc/userswap/changelog.gz\n",
];

/// A load that verifies what it reads, after `userswap`'s own name.
const RUN: &str = "run --ram 16M --swap mem:128M --stats /tmp/stats.json -- /usr/bin/userswap usemem -O -q -r 2 48M";

#[test]
fn the_package_installs_and_runs_in_a_bare_root() {
    let directory = directory();
    let file = package(&directory.path().join("package"));
    let content = succeed(Command::new("dpkg-deb").arg("--contents").arg(&file));
    for name in CONTENT {
        assert!(content.contains(name), "{name:?} is not in {content}");
    }
    let root = directory.path().join("root");
    bare_root(&root);
    dpkg(&root, "--install", &file);
    let version = succeed(&mut inside(&root, &["/usr/bin/userswap", "--version"]));
    assert_eq!(version, concat!("userswap ", env!("CARGO_PKG_VERSION"), "\n"));
    succeed(inside(&root, &["/usr/bin/userswap"]).args(RUN.split(' ')));
    has_swapped(&root.join("tmp/stats.json"));
    dpkg(&root, "--remove", Path::new("userswap"));
    assert!(!root.join("usr/bin/userswap").exists());
    assert!(!root.join("usr/share/doc/userswap").exists());
}

/// What an engine needs and default profiles forbid; another list than the script's, to be held against it.
const ADDED: [&str; 8] = [
    "get_mempolicy",
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    "mbind",
    "process_madvise",
    "set_mempolicy",
    "userfaultfd",
];

/// The calls that a profile allows whatever the capabilities and arguments are.
fn allowed(profile: &Value) -> BTreeSet<String> {
    let rules = profile["syscalls"].as_array().unwrap().iter();
    let plain = rules.filter(|rule| {
        rule["action"] == "SCMP_ACT_ALLOW"
            && rule.get("includes").is_none()
            && rule.get("args").is_none()
    });
    let names = plain.flat_map(|rule| rule["names"].as_array().unwrap());
    names.map(|name| name.as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_profile_allows_what_userswap_needs_and_nothing_else_in_addition() {
    let directory = directory();
    let path = directory.path().join("default.json");
    let default = json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "archMap": [{"architecture": "SCMP_ARCH_X86_64", "subArchitectures": []}],
        "syscalls": [
            {"names": ["read", "mmap", "madvise"], "action": "SCMP_ACT_ALLOW"},
            {"names": ["bpf", "userfaultfd"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1},
            {"names": ["process_madvise", "ptrace"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_SYS_PTRACE"]}},
            {"names": ["personality"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "value": 0, "op": "SCMP_CMP_EQ"}]},
        ],
    });
    fs::write(&path, default.to_string()).unwrap();
    let profile = succeed(Command::new(packaging("seccomp")).arg(&path));
    let profile: Value = serde_json::from_str(&profile).unwrap();
    let added: Vec<_> = allowed(&profile).difference(&allowed(&default)).cloned().collect();
    assert_eq!(added, ADDED);
    assert!(allowed(&default).is_subset(&allowed(&profile)));
    for kept in ["defaultAction", "archMap"] {
        assert_eq!(profile[kept], default[kept]);
    }
    assert_eq!(profile["syscalls"][1]["names"], json!(["bpf"]), "nothing denies what is added");
    assert_eq!(
        profile["syscalls"].as_array().unwrap()[2..4],
        default["syscalls"].as_array().unwrap()[2..]
    );

    fs::write(&path, "{}").unwrap();
    let refused = Command::new(packaging("seccomp")).arg(&path).output().unwrap();
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && error.lines().count() == 1, "{error}");
    assert!(error.contains("default.json") && error.contains("syscalls"), "{error}");
}

/// What default profiles forbid and is not added, by its number on x86-64: ptrace, mount, umount2, set and other calls of
/// administrators, add_key, request_key, keyctl, move_pages, migrate_pages, unshare, setns, open_by_handle_at,
/// process_vm_readv, process_vm_writev, kcmp, bpf, perf_event_open, pidfd_getfd.
const FORBIDDEN: &str =
    "101,165,166,167,168,169,175,176,248,249,250,256,272,279,298,304,308,310,311,312,321,438";

#[test]
fn what_is_added_is_enough_where_the_rest_is_forbidden() {
    let directory = directory();
    let mut doctor = Command::new(compile(directory.path(), "filtered.c"));
    doctor.args([FORBIDDEN, env!("CARGO_BIN_EXE_userswap"), "doctor", "--no-disk", "--json"]);
    let found: Value = serde_json::from_str(&succeed(&mut doctor)).unwrap();
    for finding in found["findings"].as_array().unwrap() {
        let fix = finding["fix"].as_str().unwrap_or_default();
        assert!(!fix.contains("seccomp"), "{finding}");
    }
    let statistics = directory.path().join("stats.json");
    let mut run = Command::new(compile(directory.path(), "filtered.c"));
    run.args([
        FORBIDDEN,
        env!("CARGO_BIN_EXE_userswap"),
        "run",
        "--ram",
        "16M",
        "--swap",
        "/var/tmp",
        "--stats",
    ]);
    run.arg(&statistics).args([
        "--",
        env!("CARGO_BIN_EXE_userswap"),
        "usemem",
        "-q",
        "-r",
        "2",
        "48M",
    ]);
    succeed(&mut run);
    has_swapped(&statistics);
}
