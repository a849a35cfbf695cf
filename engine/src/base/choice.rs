//! Settings that are one of a few words, and what their messages say.
use userswap_policy::named_choice;

named_choice! {
    /// How page faults reach the engine.
    pub enum FaultMode, "fault mode" {
        /// As messages to handler threads: system calls on managed memory work.
        Thread = "thread",
        /// As a signal in the thread that faults: less latency, but system calls see EFAULT.
        Signal = "signal",
    }
}

named_choice! {
    /// What happens when every swap device is full.
    pub enum OnFull, "answer to a full device" {
        /// The budget is exceeded, with a warning and a counter.
        Exceed = "exceed",
        /// The program is stopped with a message.
        Stop = "stop",
    }
}

named_choice! {
    /// How pages get from frames to the program and back.
    pub enum Transfer, "transfer" {
        /// Moved where the kernel can, else copied.
        Auto = "auto",
        /// Moved only.
        Move = "move",
        /// Copied only.
        Copy = "copy",
    }
}

named_choice! {
    /// How requests reach the swap devices.
    pub enum IoBackend, "I/O backend" {
        /// io_uring where it is allowed, else threads.
        Auto = "auto",
        /// io_uring only.
        Uring = "uring",
        /// Threads with plain reads and writes only.
        Threads = "threads",
    }
}

named_choice! {
    /// What becomes of system calls in a program's own code.
    pub enum RawCalls, "answer to raw calls" {
        /// Caught where something that is loaded makes such a call and it matters.
        Auto = "auto",
        /// Caught always.
        Trap = "trap",
        /// Never caught.
        Pass = "pass",
    }
}

/// A setting of readahead, and what its refusal says.
#[derive(Clone, Copy, Debug)]
pub struct Allowed {
    /// The setting's name, as an option without its dashes.
    pub key: &'static str,
    /// Its values, as in "use …".
    pub values: &'static str,
}

/// Values of `swap_ra_policy`: the words and, for the kernel's two, its numbers.
pub const RA_POLICIES: Allowed =
    Allowed { key: "swap_ra_policy", values: "scaling (or 0), fixed (or 1), vma, stream or off" };
/// Values of `page_cluster`: the binary logarithm of the largest window in pages.
pub const PAGE_CLUSTERS: Allowed =
    Allowed { key: "page_cluster", values: "a whole number from 0 to 10" };
/// Values of `vma_ra_enabled`: whether `scaling` may read in address order.
pub const VMA_RA: Allowed =
    Allowed { key: "vma_ra_enabled", values: "true or false (also 1, y, on, 0, n, off)" };
