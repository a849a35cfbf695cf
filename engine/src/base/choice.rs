//! Settings that are one of a few words, and what their messages say.
use std::fmt;
use std::str::FromStr;
use userswap_policy::devices::Placement;

/// The policies.
pub const RA_POLICIES: Allowed =
    ("swap_ra_policy", "scaling (or 0), fixed (or 1), vma, stream or off");

/// The largest windows of the kernel's policies.
pub const PAGE_CLUSTERS: Allowed = ("page_cluster", "a whole number from 0 to 10");

/// Whether in address order.
pub const VMA_RA: Allowed = ("vma_ra_enabled", "true or false (also 1, y, on, 0, n, off)");

/// A word that is not among those a choice has; the message says what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{value}\" is not a {key}: use {}", allowed.join(" or "))]
pub struct ChoiceError {
    /// The word.
    pub value: String,
    /// What it was meant to be.
    pub key: &'static str,
    /// The words that exist.
    pub allowed: &'static [&'static str],
}

/// Declares an enum whose values have names that are read and printed.
macro_rules! named_choice {
    ($(#[$about:meta])* $name:ident, $key:literal,
     { $($(#[$doc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$doc])* $variant),+ }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $($name::$variant => $text),+ })
            }
        }

        impl FromStr for $name {
            type Err = ChoiceError;

            fn from_str(text: &str) -> Result<Self, ChoiceError> {
                match text {
                    $($text => Ok($name::$variant),)+
                    _ => Err(ChoiceError {
                        value: text.to_owned(),
                        key: $key,
                        allowed: &[$($text),+],
                    }),
                }
            }
        }
    };
}

named_choice!(
    /// How page faults reach the engine.
    FaultMode, "fault mode", {
        /// As messages to handler threads: system calls on managed memory work.
        Thread = "thread",
        /// As a signal in the thread that faults: less latency, but system calls see EFAULT.
        Signal = "signal",
    }
);

named_choice!(
    /// What happens when every swap device is full.
    OnFull, "answer to a full device", {
        /// The budget is exceeded, with a warning and a counter.
        Exceed = "exceed",
        /// The program is stopped with a message.
        Stop = "stop",
    }
);

named_choice!(
    /// How pages get from frames to the program and back.
    Transfer, "transfer", {
        /// Moved where the kernel can, else copied.
        Auto = "auto",
        /// Moved only.
        Move = "move",
        /// Copied only.
        Copy = "copy",
    }
);

named_choice!(
    /// How requests reach the swap devices.
    IoBackend, "I/O backend", {
        /// io_uring where it is allowed, else threads.
        Auto = "auto",
        /// io_uring only.
        Uring = "uring",
        /// Threads with plain reads and writes only.
        Threads = "threads",
    }
);

named_choice!(
    /// Which of the devices without a priority is asked first.
    PlacementChoice, "placement", {
        /// Each node asks its own devices first.
        Near = "near",
        /// All are equal and take turns.
        Spread = "spread",
    }
);

impl From<PlacementChoice> for Placement {
    fn from(choice: PlacementChoice) -> Self {
        match choice {
            PlacementChoice::Near => Self::Near,
            PlacementChoice::Spread => Self::Spread,
        }
    }
}

/// A key of readahead, and its values as in "use …".
pub type Allowed = (&'static str, &'static str);
