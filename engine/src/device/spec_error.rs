//! Why a text is not a swap specification: each reason a line that names the text and says what is allowed.
use crate::base::size::SizeError;
use std::borrow::Cow;

/// Why a text is not a swap specification; the message names the text and says what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// There is no path before the size and the options.
    #[error(
        "\"{0}\" names no device: write PATH[:SIZE][,pri=N][,tier=N][,node=N][,encrypt], zram:SIZE, redis://HOST/PREFIX or mem:SIZE"
    )]
    NoPath(String),
    /// `mem` without a size.
    #[error("\"{0}\" needs a size: write mem:SIZE, such as mem:512M")]
    MemoryNeedsSize(String),
    /// `zram` without a size.
    #[error(
        "\"{0}\" needs a size, that of the pages before they are compressed: write zram:SIZE, such as zram:2G"
    )]
    CompressedNeedsSize(String),
    /// `zram`, encrypted.
    #[error(
        "\"{0}\": compressed memory is RAM already, which no device shows: leave \"encrypt\" out"
    )]
    CompressedNeedsNoKey(String),
    /// A remote store that is named wrongly.
    #[error("\"{spec}\": {reason}")]
    Remote {
        /// The whole text, without what should not be in it.
        spec: String,
        /// What is wrong, and the way out.
        reason: Cow<'static, str>,
    },
    /// What begins as an address of a kind that there is none of.
    #[error(
        "\"{spec}\": \"{scheme}\" is no kind of swap device: write redis:// or rediss:// for servers of Redis or Valkey, s3:// for a bucket, or ./{scheme} for a path"
    )]
    UnknownScheme {
        /// The whole text, without what should not be in it.
        spec: String,
        /// What it begins with.
        scheme: String,
    },
    /// An option that means nothing without another.
    #[error("\"{spec}\": \"{option}\" needs {other}: add that, or leave it out")]
    OptionNeeds {
        /// The whole text.
        spec: String,
        /// The option with its value.
        option: String,
        /// The other.
        other: &'static str,
    },
    /// What follows the last colon is meant as a size but is none.
    #[error("\"{spec}\": {error}")]
    Size {
        /// The whole text.
        spec: String,
        /// What is wrong with its size.
        error: SizeError,
    },
    /// An option that does not exist.
    #[error(
        "\"{spec}\": unknown option \"{option}\": after the size are allowed pri=N, tier=N, node=N, encrypt, throttle=MB/s, latency=us{more}"
    )]
    UnknownOption {
        /// The whole text.
        spec: String,
        /// The option with its value.
        option: String,
        /// What is allowed beside the usual.
        more: String,
    },
    /// An option with a value out of its range.
    #[error("\"{spec}\": \"{option}\" {}: {allowed}", fault_of(option))]
    OptionValue {
        /// The whole text.
        spec: String,
        /// The option with its value.
        option: String,
        /// What would be accepted.
        allowed: &'static str,
    },
    /// Nothing between two commas, or after the last.
    #[error("\"{0}\" has an empty option: leave the comma out that is too many")]
    EmptyOption(String),
    /// An option given twice.
    #[error("\"{spec}\": \"{option}\" is given twice: give it once")]
    OptionTwice {
        /// The whole text.
        spec: String,
        /// The name of the option.
        option: &'static str,
    },
    /// No tier, where others have one.
    #[error(
        "\"{0}\" has no tier, and other swap devices have one: give each of them one, such as tier=0 to the first, or none"
    )]
    TierMissing(String),
    /// A tier, where others have none.
    #[error(
        "\"{0}\" has a tier, and the swap devices in use have none: leave tier= out, or swap those off first"
    )]
    TierUnlike(String),
    /// Compressed memory, where there is some in front of all devices.
    #[error(
        "\"{0}\": compressed memory is in front of all devices already: leave it out, or leave out compress"
    )]
    CompressedTwice(String),
    /// The tier of the compressed memory in front.
    #[error(
        "\"{0}\": tier 0 is that of the compressed memory in front of all devices: number the others from 1 on"
    )]
    TierTaken(String),
    /// A store of objects with nothing in front of it.
    #[error(
        "\"{0}\" is for pages that are hardly ever used, and needs a tier in front: give another swap device tier=0, and this one tier=1"
    )]
    TierInFrontMissing(String),
    /// A tier with none before it.
    #[error(
        "\"{spec}\" is of tier {tier}, and no swap device of tier {missing}: number tiers from 0 on without a gap"
    )]
    TierGap {
        /// The whole text.
        spec: String,
        /// Its tier.
        tier: u8,
        /// The one that is missing.
        missing: u8,
    },
    /// A control character, which one-line messages and option lists cannot carry.
    #[error("{0:?} has a control character in its name: use a path without one")]
    ControlCharacter(String),
}

/// What is wrong with an option that cannot be read.
fn fault_of(option: &str) -> &'static str {
    let has_value = option.split_once('=').is_some_and(|(_, value)| !value.is_empty());
    if has_value { "is out of range" } else { "needs a value" }
}

impl SpecError {
    /// Of an address of servers or of a bucket.
    pub(super) fn remote(spec: &str, reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Remote { spec: spec.to_owned(), reason: reason.into() }
    }
}
