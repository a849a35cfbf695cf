//! Builds the shared object that `userswap run` injects, so that one installed binary is enough.
//!
//! Cargo cannot make a package's cdylib an input of another package, so a second cargo builds it in
//! a target directory of its own (`<target>/preload`, shared by debug and release builds of the
//! command; always optimised, because every page fault goes through it). Who has built that library already names it in
//! `LIBUSERSWAP_PRELOAD`, and it is taken as it is: check.sh takes that of the tests' profile, which has its
//! assertions.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The file that the package `userswap-preload` builds.
const LIBRARY: &str = "libuserswap_preload.so";

/// The variable that names such a file which is there already.
const READY: &str = "LIBUSERSWAP_PRELOAD";

/// What the shared object is made of, relative to the workspace.
const INPUTS: [&str; 11] = [
    "Cargo.toml",
    "Cargo.lock",
    "policy/Cargo.toml",
    "policy/src",
    "trace/Cargo.toml",
    "trace/src",
    "engine/Cargo.toml",
    "engine/src",
    "preload/Cargo.toml",
    "preload/src",
    "preload/build.rs",
];

fn main() {
    let workspace = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let workspace = workspace.parent().expect("the package lies in its workspace");
    let out = PathBuf::from(variable("OUT_DIR"));
    println!("cargo::rerun-if-env-changed={READY}");
    let library = match env::var_os(READY) {
        Some(library) => ready(PathBuf::from(library)),
        None => build(workspace, &target_directory(&out).join("preload")),
    };
    let bytes = fs::read(&library)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", library.display()));
    fs::write(out.join(LIBRARY), &bytes).expect("OUT_DIR is writable");
    println!("cargo::rustc-env=USERSWAP_PRELOAD_HASH={:016x}", fnv1a(&bytes));
}

fn ready(library: PathBuf) -> PathBuf {
    assert!(
        library.is_absolute() && library.is_file(),
        "{READY}={}: not a file by its absolute path: build the package userswap-preload and name its {LIBRARY}",
        library.display()
    );
    println!("cargo::rerun-if-changed={}", library.display());
    library
}

fn build(workspace: &Path, target_directory: &Path) -> PathBuf {
    // Relative to this package: a target directory may have seen a clone of the workspace elsewhere.
    for input in INPUTS.iter().filter(|input| workspace.join(input).exists()) {
        println!("cargo::rerun-if-changed=../{input}");
    }
    let mut cargo = Command::new(variable("CARGO"));
    cargo.current_dir(workspace);
    cargo.args(["build", "--release", "--package", "userswap-preload", "--target-dir"]);
    cargo.arg(target_directory);
    if env::var_os("CARGO_FEATURE_S3").is_some() {
        cargo.args(["--features", "s3"]);
    }
    let mut output = target_directory.to_owned();
    if variable("TARGET") != variable("HOST") {
        cargo.args(["--target", &variable("TARGET")]);
        output.push(variable("TARGET"));
    }
    if workspace.join("Cargo.lock").exists() {
        cargo.arg("--locked");
    }
    // The outer cargo may be running a linter in the compiler's place.
    for name in ["RUSTC_WORKSPACE_WRAPPER", "CLIPPY_ARGS", "CLIPPY_CONF_DIR", "CARGO_TARGET_DIR"] {
        cargo.env_remove(name);
    }
    // Every start of a program reads and compares the whole file: symbols for a back trace, no more.
    cargo.env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo");
    let status = cargo.status().expect("cargo can be started");
    assert!(status.success(), "building userswap-preload failed: {cargo:?}");
    output.join("release").join(LIBRARY)
}

/// The workspace's target directory: the output directory is `<target>/…/build/<package>/out`.
fn target_directory(out: &Path) -> PathBuf {
    let build = out.ancestors().find(|path| path.ends_with("build"));
    let profile = build.and_then(Path::parent);
    profile.and_then(Path::parent).unwrap_or(out).to_owned()
}

/// Names the file after its content, so that two versions can be in use side by side.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}
