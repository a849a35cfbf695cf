//! Sleeping on a 32-bit word. Private futexes, but for the few words that processes share.
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Sleeps while `word` still holds `seen`; returns early on a signal or a spurious wake-up.
pub fn wait(word: &AtomicU32, seen: u32) {
    wait_at(word.as_ptr(), seen, None, libc::FUTEX_PRIVATE_FLAG);
}

/// As [`wait`], for at most `timeout_ns`.
pub fn wait_for(word: &AtomicU32, seen: u32, timeout_ns: u64) {
    wait_at(word.as_ptr(), seen, Some(timeout_ns), libc::FUTEX_PRIVATE_FLAG);
}

/// As [`wait_for`], for a word in memory that other processes share.
pub fn wait_shared(word: &AtomicU32, seen: u32, timeout_ns: u64) {
    wait_at(word.as_ptr(), seen, Some(timeout_ns), 0);
}

/// Wakes all threads of all processes that sleep on `word`.
pub fn wake_shared(word: &AtomicU32) {
    wake_at(word.as_ptr(), i32::MAX, 0);
}

/// Sleeps while the low half of `word` still holds `seen`: a page word's state lives there.
pub fn wait_low(word: &AtomicU64, seen: u32) {
    wait_at(word.as_ptr().cast::<u32>(), seen, None, libc::FUTEX_PRIVATE_FLAG);
}

/// Wakes all threads that sleep on `word`.
pub fn wake_all(word: &AtomicU32) {
    wake_at(word.as_ptr(), i32::MAX, libc::FUTEX_PRIVATE_FLAG);
}

/// Wakes one of the threads that sleep on `word`.
pub fn wake_one(word: &AtomicU32) {
    wake_at(word.as_ptr(), 1, libc::FUTEX_PRIVATE_FLAG);
}

/// Wakes all threads that sleep on the low half of `word`.
pub fn wake_low(word: &AtomicU64) {
    wake_at(word.as_ptr().cast::<u32>(), i32::MAX, libc::FUTEX_PRIVATE_FLAG);
}

/// Writes the word at `address` as it is, in one step; false where that would fault, which is not waited for.
///
/// FUTEX_WAKE_OP changes a word on the way, here by OR with 0. The kernel brings the page in without the right to
/// retry the fault, and userfaultfd refuses that.
pub fn rewrite(address: usize) -> bool {
    // Nobody sleeps on this word. The other's sleepers are woken when it is less than -2048: they look again.
    static NOBODY: AtomicU32 = AtomicU32::new(0);
    let operation = libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG;
    let or_0 = libc::FUTEX_OP(libc::FUTEX_OP_OR, 0, libc::FUTEX_OP_CMP_LT, -2048);
    // SAFETY: the kernel checks the address, and its write keeps the value against any other.
    let outcome = unsafe {
        libc::syscall(libc::SYS_futex, NOBODY.as_ptr(), operation, 0, 0usize, address, or_0)
    };
    outcome >= 0
}

fn wait_at(word: *mut u32, seen: u32, timeout_ns: Option<u64>, scope: i32) {
    let time = timeout_ns.map(|ns| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    });
    let timeout = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let operation = libc::FUTEX_WAIT | scope;
    // SAFETY: `word` points into a live atomic (x86-64 is little endian: the low half comes first) and
    // `timeout` is null or points to `time`, which outlives the call.
    unsafe { libc::syscall(libc::SYS_futex, word, operation, seen, timeout) };
}

fn wake_at(word: *mut u32, sleepers: i32, scope: i32) {
    let operation = libc::FUTEX_WAKE | scope;
    // SAFETY: the kernel uses the address only as a key.
    unsafe { libc::syscall(libc::SYS_futex, word, operation, sleepers) };
}
