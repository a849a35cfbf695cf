//! What can go wrong when an engine is built or asked for something.
use crate::device::open::OpenError;
use std::io;
use std::path::PathBuf;

/// An engine's error; the message is one line that names the value and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel does not let this process have a userfaultfd.
    #[error(
        "userfaultfd is not allowed here ({0}): it needs CAP_SYS_PTRACE, or vm.unprivileged_userfaultfd=1, \
         or access to /dev/userfaultfd; in a container also a seccomp profile that permits userfaultfd"
    )]
    Userfaultfd(#[source] io::Error),
    /// MOVE was asked for by name.
    #[error(
        "this kernel has no UFFDIO_MOVE (it came with Linux 6.8): use transfer \"auto\" or \"copy\""
    )]
    NoMove,
    /// The engine's own memory.
    #[error("no memory for the engine's tables: {0}")]
    Books(#[source] io::Error),
    /// A swap device.
    #[error(transparent)]
    Device(#[from] OpenError),
    /// Every engine with signal delivery is looked at by each fault.
    #[error(
        "a process can have {0} engines with fault delivery by signal: drop one, or use \"thread\""
    )]
    TooManyEngines(usize),
    /// No directory for the control socket.
    #[error(
        "no private directory for the control socket ({0}); set XDG_RUNTIME_DIR to a directory of yours"
    )]
    ControlDirectory(String),
    /// No control socket.
    #[error("no control socket in {}: {source}", directory.display())]
    ControlSocket {
        /// Where it was to be.
        directory: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Something that this build cannot do.
    #[error("{0}: this build cannot do that while the program runs; start the program with it")]
    NotYet(String),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    /// What is swapped could not be copied for a child.
    #[error(
        "cannot copy swapped pages for a forked process: {0}; give the swap directory more room"
    )]
    ForkCopy(#[source] io::Error),
    /// A budget too small to work with.
    #[error("a budget of {0} bytes is too small: use at least {min} bytes", min = crate::options::RAM_MIN_BYTES)]
    BudgetTooSmall(u64),
    /// A budget larger than the engine can name frames for.
    #[error("a budget of {0} bytes is too large for this engine: use at most {1} bytes")]
    BudgetTooLarge(u64, u64),
    /// A budget that pinned memory would not leave enough of.
    #[error(
        "a budget of {0} bytes is too small while {1} bytes are pinned: unpin some, or use half as much again"
    )]
    BudgetPinned(u64, u64),
    /// The arena is used up.
    #[error(
        "no address space left for a region of {0} bytes: drop regions or build with a larger arena"
    )]
    ArenaFull(u64),
    /// A range outside the region.
    #[error("bytes {0}..{1} lie outside the region of {2} bytes")]
    OutOfRange(usize, usize, usize),
    /// Pinning more than the budget can hold.
    #[error(
        "cannot pin {0} pages: the budget has room for {1} more pinned ones; unpin others or raise it"
    )]
    PinTooLarge(u32, u32),
}
