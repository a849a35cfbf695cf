//! The few lines the engine says by itself, without allocating: it may be in a signal handler.
use crate::sys::process::{decimal, hexadecimal, say};
use crate::sys::{clock, file_limit};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Lost pages that are told of one by one: a server that dies with thousands would say nothing else.
const LOST_SINGLY: u64 = 16;

/// After so long the count is told in any case: whoever looks on sees that it goes on.
const LOST_SILENT_NS: u64 = 30_000_000_000;

/// Why a page is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// The device refused to read it.
    Unreadable,
    /// What came is not what was written.
    Other,
}

/// A page that is lost.
#[derive(Clone, Copy)]
pub struct LostPage<'a> {
    /// Where the program has it.
    pub address: usize,
    /// The device's name.
    pub device: &'a str,
    /// Where the page was on it.
    pub slot: u32,
    /// Why it is lost.
    pub loss: Loss,
}

/// A page is lost. Of many the first are told of one by one, and then how many there are, at every power of two and every
/// half a minute in which there are more.
pub fn lost_page(page: LostPage<'_>) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    static SAID_NS: AtomicU64 = AtomicU64::new(0);
    let now = clock::now_ns();
    // Relaxed, both: nothing else depends on them.
    let silent_ns = now.saturating_sub(SAID_NS.load(Ordering::Relaxed));
    say_lost(page, COUNT.fetch_add(1, Ordering::Relaxed) + 1, silent_ns, |parts| {
        SAID_NS.store(now, Ordering::Relaxed);
        say(parts);
    });
}

fn say_lost(page: LostPage<'_>, count: u64, silent_ns: u64, say: impl FnOnce(&[&str])) {
    let (mut a, mut b) = ([0; 20], [0; 20]);
    if count <= LOST_SINGLY {
        let why = match page.loss {
            Loss::Unreadable => " cannot be read",
            Loss::Other => " does not hold what was written there",
        };
        let (address, slot) =
            (hexadecimal(page.address, &mut a), decimal(page.slot.into(), &mut b));
        say(&[
            "userswap: lost the page at address ",
            address,
            ": slot ",
            slot,
            " of ",
            page.device,
            why,
            "; touching it raises SIGBUS\n",
        ]);
    } else if count.is_power_of_two() || silent_ns >= LOST_SILENT_NS {
        let count = decimal(count, &mut a);
        say(&["userswap: lost ", count, " pages so far; touching one raises SIGBUS\n"]);
    }
}

/// A child's key is where the kernel's own swap can get at it.
pub fn key_not_locked(error: i32) {
    let mut a = [0; 20];
    say(&[
        "userswap: the key of encrypted swap cannot be kept in RAM: error ",
        decimal(error.unsigned_abs().into(), &mut a),
        " of mlock; the kernel's own swap could get it: raise the limit of locked memory (ulimit -l)\n",
    ]);
}

/// Why no page is to be had within the budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutOfPages {
    /// No device has room for pages.
    DevicesFull,
    /// Compressed memory is the only device, and has slots, but may take no more memory.
    CompressedFull,
    /// Devices have room, but everything in RAM is pinned, locked, or held by a device.
    NothingCanLeave,
}

impl OutOfPages {
    fn reason(self) -> &'static str {
        match self {
            Self::DevicesFull if file_limit::is_set() => {
                "all swap devices are full, and the file size limit (ulimit -f) may allow no others"
            }
            Self::DevicesFull => "all swap devices are full",
            Self::CompressedFull => "compressed memory may take no more of the RAM budget",
            Self::NothingCanLeave => "everything in RAM is locked or held by a device",
        }
    }

    const fn remedy(self) -> &'static str {
        match self {
            Self::DevicesFull => "give it a larger swap SIZE or more RAM",
            Self::CompressedFull => "give it more RAM (--ram), or a disk behind it (--swap PATH)",
            Self::NothingCanLeave => "give it more RAM",
        }
    }
}

/// The budget is exceeded from now on, and the program goes on.
pub fn exceeding(out_of: OutOfPages) {
    say(&[
        "userswap: ",
        out_of.reason(),
        ": exceeding the RAM budget from now on (--on-full stop would end the program)\n",
    ]);
}

/// No page is to be had, and the program ends.
pub fn stopping(out_of: OutOfPages) {
    say(&[
        "userswap: ",
        out_of.reason(),
        ": stopping the program, as --on-full stop asks; ",
        out_of.remedy(),
        "\n",
    ]);
}

/// The kernel refused to bind a node's frames to its memory.
pub fn not_bound(error: i32) {
    let mut digits = [0; 20];
    let error = decimal(u64::from(error.unsigned_abs()), &mut digits);
    say(&["userswap: mbind failed (errno ", error, "): pages may lie on other nodes\n"]);
}

/// Reclaim goes round and round in the little that is left of the budget.
pub fn little_can_leave(mib: u64) {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    if !is_said(&IS_SAID) {
        let mut digits = [0; 20];
        let mib = decimal(mib, &mut digits);
        let what = "M of RAM cannot leave, nearly all that it has: a device, a lock or the kernel holds it; give it more RAM\n";
        say(&["userswap: ", mib, what]);
    }
}

/// A child of a process that has given up its rights cannot have the kernel's faults served.
pub fn user_faults_only() {
    say(&[
        "userswap: a forked child may not serve faults of system calls any more: those on swapped pages can fail with \
         EFAULT; let the program's user open /dev/userfaultfd, or set vm.unprivileged_userfaultfd=1\n",
    ]);
}

/// A forked child cannot make a swap file any more.
pub fn swapped_to_memory(reason: &str) {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    if !is_said(&IS_SAID) {
        say(&["userswap: what a forked child has swapped is kept in memory: ", reason, "\n"]);
    }
}

/// Whether it was said already, by this process or the one that it was forked from.
fn is_said(said: &AtomicBool) -> bool {
    // Relaxed: nothing else depends on it.
    said.swap(true, Ordering::Relaxed)
}

/// An engine under `run` that cannot be reached goes on all the same, and so do the children of its process.
pub fn no_control(reason: &str) {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    if !is_said(&IS_SAID) {
        let what = "userswap: status, set, swapon and swapoff will not reach this program: ";
        say(&[what, reason, "\n"]);
    }
}

/// What happens to pages is not recorded, or not any more.
pub fn no_trace(option: &str, file: &str, reason: &str) {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    if !is_said(&IS_SAID) {
        say(&[
            "userswap: ",
            option,
            " ",
            file,
            ": ",
            reason,
            ": the program goes on, and nothing more is recorded\n",
        ]);
    }
}

/// Idle CPUs cannot be kept from halting.
pub fn no_idle(reason: &str) {
    say(&["userswap: ", reason, "\n"]);
}

/// A job has more processes than its budget has room for.
pub fn crowded_job(processes: u64) {
    let mut digits = [0; 20];
    let processes = decimal(processes, &mut digits);
    say(&[
        "userswap: ",
        processes,
        " processes share the RAM budget, which has no 16M for each: it is exceeded; give it more RAM\n",
    ]);
}

/// A shrinker ended its own registration by a panic.
pub fn shrinker_panicked(name: &str) {
    say(&["userswap: the shrinker ", name, " panicked and will not be asked again\n"]);
}

/// A device takes no writes for the moment, and others do.
pub fn device_is_silent(device: &str, error: i32) {
    let mut digits = [0; 20];
    let words = words(device, error);
    let error = decimal(u64::from(error.unsigned_abs()), &mut digits);
    say(&[
        "userswap: ",
        device,
        " takes no pages (",
        words,
        "errno ",
        error,
        "): they go to other devices until it does\n",
    ]);
}

/// It does again.
pub fn device_answers(device: &str) {
    say(&["userswap: ", device, " takes pages again\n"]);
}

/// A server of two does not answer.
pub fn server_is_spared(device: &str) {
    say(&[
        "userswap: a server of ",
        device,
        " does not answer: until it does pages are written to one server instead of two\n",
    ]);
}

/// It does again.
pub fn server_answers(device: &str) {
    say(&["userswap: the server of ", device, " answers again\n"]);
}

/// Hash slots of a cluster have moved: some pages have both copies on one server.
pub fn copies_are_together(device: &str, percent: u64) {
    let mut digits = [0; 20];
    let percent = decimal(percent, &mut digits);
    say(&[
        "userswap: hash slots of ",
        device,
        " have moved, and both copies of ",
        percent,
        "% of its groups of pages are on one server: swapoff and swapon of it place them anew\n",
    ]);
}

/// A device refused a write, here and at the second try.
pub fn write_error(device: &str, error: i32) {
    say_write_error(device, error, say);
}

fn say_write_error(device: &str, error: i32, say: impl FnOnce(&[&str])) {
    let mut digits = [0; 20];
    let words = words(device, error);
    let error = decimal(u64::from(error.unsigned_abs()), &mut digits);
    say(&[
        "userswap: writing to ",
        device,
        " failed (",
        words,
        "errno ",
        error,
        "): the pages stay in RAM and other slots are tried\n",
    ]);
}

/// What an error of a device means, with the way out where there is one; the C library's words are made by allocating.
fn words(device: &str, error: i32) -> &'static str {
    let is_server = ["redis://", "rediss://"].iter().any(|scheme| device.starts_with(scheme));
    match error {
        libc::ENOSPC if is_server => "it is full: raise its maxmemory; ",
        libc::EACCES if is_server => "it refuses the password, or allows its user too little; ",
        libc::EKEYREVOKED => "it has no password, and one is given; ",
        libc::EREMOTEIO => "it answers something else than was asked; ",
        libc::EPROTO => "TLS with it fails; ",
        libc::EPERM if is_server => "it is elsewhere, and the pages are not encrypted; ",
        libc::ENOSPC | libc::EDQUOT => "no space is left; ",
        libc::EIO => "input/output error; ",
        libc::ENXIO | libc::ENODEV => "it is gone; ",
        libc::EFBIG => "its file may not be so long, see ulimit -f; ",
        libc::EROFS => "it is read-only; ",
        libc::EACCES | libc::EPERM => "permission denied; ",
        libc::ENOMEM => "out of memory; ",
        libc::EAGAIN => "it is not ready; ",
        libc::ETIMEDOUT => "no answer in time; ",
        libc::ECONNREFUSED => "it refuses connections; ",
        libc::ECONNRESET | libc::EPIPE => "the connection was ended; ",
        libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EHOSTDOWN => "there is no way to it; ",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said_of(count: u64, loss: Loss) -> String {
        said_after(0, count, loss)
    }

    fn said_after(silent_ns: u64, count: u64, loss: Loss) -> String {
        let mut said = String::new();
        let page = LostPage { address: 0x7f12_3400_a000, device: "redis://h:1/a", slot: 7, loss };
        say_lost(page, count, silent_ns, |parts| said = parts.concat());
        said
    }

    #[test]
    fn a_write_error_has_words_beside_its_number() {
        for (device, error, expected) in [
            ("redis://h:1/a", libc::ENOSPC, "failed (it is full: raise its maxmemory; errno 28): "),
            ("/var/tmp/swap", libc::ENOSPC, "failed (no space is left; errno 28): "),
            ("/var/tmp/swap", libc::EIO, "failed (input/output error; errno 5): "),
            ("/var/tmp/swap", 9, "failed (errno 9): "),
        ] {
            let mut said = String::new();
            say_write_error(device, error, |parts| said = parts.concat());
            assert!(said.contains(device) && said.contains(expected), "{said}");
        }
    }

    #[test]
    fn of_many_lost_pages_the_first_are_told_of_one_by_one_and_then_how_many() {
        let line = "userswap: lost the page at address 0x7f123400a000: slot 7 of redis://h:1/a";
        assert_eq!(
            said_of(1, Loss::Unreadable),
            format!("{line} cannot be read; touching it raises SIGBUS\n")
        );
        assert_eq!(
            said_of(16, Loss::Other),
            format!("{line} does not hold what was written there; touching it raises SIGBUS\n")
        );
        let further: Vec<u64> =
            (17..10_000).filter(|count| !said_of(*count, Loss::Other).is_empty()).collect();
        assert_eq!(further, [32, 64, 128, 256, 512, 1024, 2048, 4096, 8192]);
        assert_eq!(
            said_after(LOST_SILENT_NS, 33, Loss::Other),
            "userswap: lost 33 pages so far; touching one raises SIGBUS\n"
        );
    }
}
