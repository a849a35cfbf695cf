//! What can go wrong when an engine is built or asked for something.
use crate::base::memory_limit;
use crate::base::open_error::{OpenError, more_descriptors};
use crate::base::size::ByteSize;
use std::io;
use std::os::fd::RawFd;
use std::path::PathBuf;
use userswap_policy::devices::SwaponError;

/// An engine's error; the message is one line that names the value and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel does not let this process have a userfaultfd.
    #[error("{}", without_userfaultfd(.0))]
    Userfaultfd(#[source] io::Error),
    /// MOVE was asked for by name.
    #[error(
        "this kernel has no UFFDIO_MOVE (it came with Linux 6.8): use transfer \"auto\" or \"copy\""
    )]
    NoMove,
    /// Pages are copied, and their bytes cannot be read without faulting.
    #[error(
        "cannot read this process's own memory by /proc/self/mem ({0}), which copying pages needs: mount /proc, or \
         use Linux 6.8 or later, which moves pages"
    )]
    OwnMemory(#[source] io::Error),
    /// No memory, address space or descriptor for the engine itself.
    #[error("no memory or descriptor for the engine itself: {0}{remedy}", remedy = remedy(.0))]
    Tables(#[source] io::Error),
    /// The key of encrypted devices cannot be had, or not be kept in RAM.
    #[error(
        "no page of locked memory for the key of encrypted swap: {0}; raise the limit of locked memory (ulimit -l)"
    )]
    Key(#[source] io::Error),
    /// A swap device was refused.
    #[error(transparent)]
    Device(#[from] OpenError),
    /// Each fault looks at every engine with delivery by signal, so their number is bounded.
    #[error(
        "a process can have {0} engines with fault delivery by signal: drop one, or use \"thread\""
    )]
    TooManyEngines(usize),
    /// No directory that only this user can reach.
    #[error(
        "no private directory for the control socket ({0}); set XDG_RUNTIME_DIR to a directory of yours"
    )]
    ControlDirectory(String),
    /// The control socket could not be made.
    #[error("no control socket in {}: {source}", directory.display())]
    ControlSocket {
        /// Where it was to be.
        directory: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The system refused a thread.
    #[error("cannot start a thread: {0}{remedy}", remedy = remedy(.0))]
    Thread(#[source] io::Error),
    /// What is swapped could not be copied for a child.
    #[error(
        "cannot copy swapped pages for a forked process: {0}; {remedy}",
        remedy = memory_limit::remedy(.0).unwrap_or_else(|| "give the swap directory more room".to_owned())
    )]
    ForkCopy(#[source] io::Error),
    /// A child would take another file for the engine's: the program's, or one that the engine has let go of.
    #[error(
        "a thread with a table of descriptors of its own (unshare with CLONE_FILES) forks, and has another file at number {0} than \
         the engine, whose are mostly those from 900 on: have it close that before it forks"
    )]
    ForkNumber(RawFd),
    /// A budget too small to work with.
    #[error(
        "a budget of {} is too small: use at least {}", ByteSize(*.0), ByteSize(crate::base::limits::RAM_MIN_BYTES)
    )]
    BudgetTooSmall(u64),
    /// A budget larger than the engine can name frames for.
    #[error("a budget of {} is too large for this engine: use at most {}", ByteSize(*.0), ByteSize(*.1))]
    BudgetTooLarge(u64, u64),
    /// As many devices as there are records for are in use.
    #[error("there are {0} swap devices already: swap one off first")]
    TooManyDevices(usize),
    /// The devices in use leave no numbers for the slots of one of that many bytes.
    #[error(
        "no room for a device of {}: all devices may have 16T together, in parts of 256G: give it a SIZE of 256G or less, or swap one off",
        ByteSize(*.0)
    )]
    NoSlotNumbers(u64),
    /// The table of devices refused one.
    #[error("the device cannot be used: {}", swapon_reason(.0))]
    Swapon(SwaponError),
    /// Another thread is in the middle of a swapon or swapoff.
    #[error("another swapon or swapoff of this program is under way: wait for it to end")]
    DevicesChanging,
    /// The device to be swapped off is not in use.
    #[error("{0} is not a swap device of this program: its devices are {1}")]
    NoSuchDevice(String, String),
    /// More pages than there is room for without the device.
    #[error(
        "{0} holds {1} pages, and without it there is room for {2}: swap another device on first, or raise \
         the budget"
    )]
    NoRoomToSwapoff(String, u64, u64),
    /// RAM and the other devices filled up during a swapoff.
    #[error("no room for the pages that are left: the device stays in use")]
    NoRoomInRam,
    /// So many pages were in transition at every look of a swapoff.
    #[error("{0} pages could not be brought back: the device stays in use, try again")]
    SwapoffStuck(u64),
    /// The caller's watcher ended the swapoff.
    #[error("cancelled: the device stays in use")]
    SwapoffCancelled,
    /// A node that the machine does not have.
    #[error("this machine has no node {0}: its nodes are {1}")]
    NoNode(u32, String),
    /// A share of a node that is too small to work with.
    #[error(
        "node {} would get {} of the budget: give every node at least {}, with a larger --ram or with --ram NODE:SIZE for each",
        .0, ByteSize(*.1),
        ByteSize(u64::from(crate::base::limits::NODE_MIN_PAGES) * crate::sys::PAGE_BYTES as u64)
    )]
    NodeBudgetTooSmall(u32, u64),
    /// Pinned memory would leave too little of the budget.
    #[error(
        "a budget of {} is too small while {} is pinned: unpin some, or use half as much again",
        ByteSize(*.0), ByteSize(*.1)
    )]
    BudgetPinned(u64, u64),
    /// Compressed pages would leave too little of the budget.
    #[error(
        "a budget of {} is too small while compressed pages take {} of it, and no device behind has room for them: \
         add one with swapon, swapoff the zram device, or use at least 12M more than that and what is pinned",
        ByteSize(*.0), ByteSize(*.1)
    )]
    BudgetStored(u64, u64),
    /// There is no compressed memory in front of the devices.
    #[error(
        "the engine was started without compressed memory: start it with --compress auto, or --compress 8M or more"
    )]
    CompressMissing,
    /// The compressed memory in front of the devices was swapped off.
    #[error(
        "the compressed memory in front of the devices was swapped off: add some with swapon zram:SIZE,tier=0 first"
    )]
    CompressGone,
    /// Compressed pages cannot move on.
    #[error(
        "{0} bytes are compressed and no device behind has room for them: add one with swapon first"
    )]
    CompressStuck(u64),
    /// Tiers that devices cannot have together.
    #[error("{0}")]
    Tiers(String),
    /// A setting that does not exist or does not take the value.
    #[error("{0}")]
    Setting(String),
    /// The watermarks would keep too much of a node available.
    #[error(
        "the high watermark would be {0} bytes of a node's {1}: at most half may be kept available, use a \
         smaller value or a larger budget"
    )]
    WatermarksTooHigh(u64, u64),
    /// The arena is used up.
    #[error(
        "no address space left for a region of {0} bytes: drop regions or build with a larger arena"
    )]
    ArenaFull(u64),
    /// An address that a heap has not given out, or has taken back already.
    #[error(
        "{0:#x} is not the address of a block of this heap: free a block once, in the heap that it came from"
    )]
    NotABlock(usize),
    /// Memory that is in no region or heap of the engine: its address, and the length in bytes.
    #[error(
        "{1} bytes at {0:#x} are not memory of this engine: pass what one of its regions or heaps gave out"
    )]
    NotManaged(usize, usize),
    /// A range that reaches beyond its region: first byte, end, the region's length.
    #[error("bytes {0}..{1} lie outside the region of {2} bytes")]
    OutOfRange(usize, usize, usize),
    /// Pages to pin, and how many more the budget has room for.
    #[error(
        "cannot pin {0} pages: the budget has room for {1} more pinned ones; unpin others or raise it"
    )]
    PinTooLarge(u32, u32),
    /// A page to pin, by its address, that is protected from being read.
    #[error(
        "the page at {0:#x} may not be read, so it cannot be pinned: protect it for reading first"
    )]
    NotReadable(usize),
    /// The kernel refused to protect pages.
    #[error(
        "cannot protect pages: {0}; protect longer stretches in the same way, or raise vm.max_map_count"
    )]
    Protect(#[source] io::Error),
    /// This process was forked past the engine, and has nothing of it.
    #[error(
        "this process was forked without the engine and has none of its memory: call fork_prepare and its two relatives around \
         fork, in pthread_atfork handlers, or build another engine"
    )]
    ForkedWithout,
}

/// What to do about a limit, or about a /proc that is not there, if that is why the kernel refuses.
fn remedy(error: &io::Error) -> String {
    let other = match error.raw_os_error() {
        Some(libc::EAGAIN) => {
            Some("raise the limit on processes (ulimit -u, or pids.max of the control group)")
        }
        Some(libc::ENOENT) => Some("mount /proc"),
        _ => None,
    };
    let known = more_descriptors(error).or(other).map(str::to_owned);
    let remedies: Vec<String> = known.into_iter().chain(memory_limit::remedy(error)).collect();
    remedies.iter().map(|remedy| format!("; {remedy}")).collect()
}

fn without_userfaultfd(error: &io::Error) -> String {
    match more_descriptors(error) {
        Some(_) => format!("cannot open a userfaultfd: {error}{}", remedy(error)),
        None => format!(
            "userfaultfd is not allowed here ({error}): it needs CAP_SYS_PTRACE, or vm.unprivileged_userfaultfd=1, \
             or access to /dev/userfaultfd; in a container also a seccomp profile that permits userfaultfd, which \
             packaging/seccomp makes and --security-opt seccomp=FILE names"
        ),
    }
}

impl Error {
    /// The kernel's number for what was wrong, where it has one for the same refusal.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Setting(_) | Self::Tiers(_) => Some(libc::EINVAL),
            _ => None,
        }
    }
}

fn swapon_reason(error: &SwaponError) -> String {
    match error {
        SwaponError::TooManyDevices => "there are too many: swap one off first".to_owned(),
        SwaponError::Empty => "it has no usable slot: give it a larger size".to_owned(),
        SwaponError::NoSuchNode(node) => format!("there is no node {}", node.0),
        SwaponError::PriorityTooHigh(priority) => {
            format!("priority {priority} is too high: use at most 32767")
        }
        SwaponError::TierTooHigh(tier) => format!("tier {tier} is too high: use at most 15"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_refuses_is_named() {
        let of = io::Error::from_raw_os_error;
        for (error, remedy) in [
            (Error::Userfaultfd(of(libc::EMFILE)), "(ulimit -n)"),
            (Error::Tables(of(libc::EMFILE)), "(ulimit -n)"),
            (Error::Tables(of(libc::ENFILE)), "fs.file-max"),
            (Error::Tables(of(libc::ENOENT)), "mount /proc"),
            (Error::Thread(of(libc::EAGAIN)), "ulimit -u"),
            (Error::Userfaultfd(of(libc::EPERM)), "CAP_SYS_PTRACE"),
            (Error::ForkCopy(of(libc::ENOSPC)), "more room"),
        ] {
            let said = error.to_string();
            assert!(said.contains(remedy), "{said}");
        }
        let said = Error::Userfaultfd(of(libc::EMFILE)).to_string();
        assert!(!said.contains("CAP_SYS_PTRACE"), "{said}");
    }
}
