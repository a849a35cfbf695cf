//! Flags for the linker.

/// Functions that code of this library (Rust's standard library, mimalloc) must not get from the program; it
/// calls `__wrap_` of that name instead.
const WRAPPED: [&str; 12] = [
    "malloc",
    "calloc",
    "realloc",
    "posix_memalign",
    "free",
    "realpath",
    "__cxa_thread_atexit_impl",
    "__tls_get_addr",
    "pthread_mutex_lock",
    "pthread_mutex_unlock",
    "pthread_sigmask",
    "syscall",
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The constructor runs before those of the libraries that the program needs: their fork handlers are
    // registered after ours then, and run while the engine still serves faults.
    link("-z,initfirst");
    // What this library calls and defines itself is its own, whatever the program defines.
    link("-Bsymbolic-functions");
    for function in WRAPPED {
        link(&format!("--wrap={function}"));
    }
}

fn link(flag: &str) {
    println!("cargo::rustc-cdylib-link-arg=-Wl,{flag}");
}
