//! Readahead: which pages to read together with one that a program waits for.
//!
//! Decides windows; reading them, skipping what is not there and marking what arrives is the caller's. The
//! kernel's policies are here as they are in Linux, with their state, their constants and their quirks, so
//! that they can be compared: [`Scaling`](crate::kernel::Scaling) and [`Fixed`](crate::kernel::Fixed) read aligned blocks in the order of the device,
//! [`Area`](crate::kernel::Area) reads in the order of addresses. [`Streams`](crate::stream::Streams) is our own. A page that
//! was read ahead carries a mark; its first use takes the mark off and is told as a *hit*, once.

use crate::choice::without_newline;
use crate::devices::NodeId;
use crate::named_choice;
use crate::stream::{self, Ahead};

/// The largest `page_cluster`: windows of 4 MiB. The kernel takes any number up to 31.
pub const PAGE_CLUSTER_MAX: u8 = 10;
/// The kernel's default: windows of up to 8 pages.
pub const PAGE_CLUSTER_DEFAULT: u8 = 3;

/// A fault on a page whose content is on a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The page, counted through all regions.
    pub page: u32,
    /// First page of its region.
    pub region_first: u32,
    /// The page after its region.
    pub region_end: u32,
    /// Its slot's number on the device.
    pub slot: u32,
    /// Slots of that device, the header (slot 0) included.
    pub slots: u32,
    /// The node whose CPU faulted.
    pub node: NodeId,
    /// When, on any clock that does not go back.
    pub now_ns: u64,
    /// What the program has said about the page.
    pub hint: Hint,
}

/// What a program has said about how it will use a page.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Hint {
    /// Nothing, or that it takes that back.
    #[default]
    Normal,
    /// It will go on with the pages after.
    Sequential,
    /// Its neighbours are no more likely to be used than any others.
    Random,
}

/// How far windows may grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Binary logarithm of the largest window of the kernel's policies.
    pub page_cluster: u8,
    /// Pages of a stream's first window once its step is known; 0 counts as 1.
    pub run_first: u32,
    /// Most pages of a stream's window at a fault; 0 counts as 1.
    pub run_max: u32,
    /// Most pages of a stream's window ahead; 0 means never to read ahead.
    pub ahead_max: u32,
}

/// What to read at a fault; the page itself always belongs to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadWindow {
    /// The page that faulted alone.
    One,
    /// Slots of the page's device, whatever pages they belong to.
    Slots {
        /// The lowest slot.
        first: u32,
        /// How many, all of them on the device.
        count: u32,
    },
    /// As `Slots`, beside a page that no stream expects ([`crate::beside`]).
    Block {
        /// The lowest slot.
        first: u32,
        /// How many, all of them on the device.
        count: u32,
        /// Whether the uses of the others are to be seen; else they are mapped at once.
        is_watched: bool,
    },
    /// Pages of the region, wherever they are swapped to.
    Pages {
        /// The lowest page.
        first: u32,
        /// How many, all of them in the region.
        count: u32,
    },
    /// Pages along a stream, with those to read without waiting for them.
    Stream(stream::Window),
}

/// A policy: told faults and hits, it answers with windows.
pub trait Readahead {
    /// The window for a fault.
    fn on_fault(&mut self, fault: &Fault, limits: &Limits) -> ReadWindow;

    /// A marked page was used for the first time, on the clock of the faults; what to read ahead because of it.
    fn on_hit(&mut self, page: u32, now_ns: u64, limits: &Limits) -> Option<Ahead>;
}

named_choice! {
    /// The policies, in the words of the file `swap_ra_policy` of 2020: `0` or `1`, or a name.
    pub enum ReadaheadPolicy, "readahead policy", read without_newline {
        /// The kernel's: in address order where that is enabled, else in device order, scaled by success.
        Scaling = "scaling" | "0",
        /// Blocks of `2^page_cluster` slots at every fault, as proposed for Linux in April 2020.
        Fixed = "fixed" | "1",
        /// The kernel's in address order.
        Vma = "vma",
        /// Our own: runs along streams of faults.
        Stream = "stream",
        /// The page alone.
        Off = "off",
    }
}

named_choice! {
    /// Whether address order is enabled, in the words of the file `vma_ra_enabled` (the kernel's
    /// `kstrtobool`, whole words only).
    pub enum AddressOrder, "answer to whether address order is enabled", read without_newline {
        /// Faults are served in address order where no device is rotational.
        Enabled = "true" | "1" | "y" | "on",
        /// In device order.
        Disabled = "false" | "0" | "n" | "off",
    }
}

/// A text that is no number, or one out of bounds: EINVAL in the kernel's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotANumber;

/// Reads a `page_cluster`: decimal digits, 0 to [`PAGE_CLUSTER_MAX`].
///
/// # Errors
/// Anything else, also a sign, a space, or a second newline.
pub fn page_cluster_of(text: &str) -> Result<u8, NotANumber> {
    let text = without_newline(text);
    // `parse` alone would take a plus sign.
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let value = text.parse().ok().filter(|value| is_plain && *value <= PAGE_CLUSTER_MAX);
    value.ok_or(NotANumber)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A fault on a page and a slot of a large region and device.
    pub(crate) fn fault(page: u32, slot: u32) -> Fault {
        Fault {
            page,
            region_first: 0,
            region_end: u32::MAX,
            slot,
            slots: u32::MAX,
            node: NodeId(0),
            now_ns: 0,
            hint: Hint::Normal,
        }
    }

    /// Limits of the kernel's policies.
    pub(crate) fn cluster(page_cluster: u8) -> Limits {
        Limits { page_cluster, run_first: 4, run_max: 64, ahead_max: 1024 }
    }

    #[test]
    fn p6_and_p7_a_policy_is_set_by_number_with_one_newline_and_by_name() {
        for (text, choice) in [
            ("0\n", ReadaheadPolicy::Scaling),
            ("1", ReadaheadPolicy::Fixed),
            ("1\n", ReadaheadPolicy::Fixed),
            ("0", ReadaheadPolicy::Scaling),
        ] {
            assert_eq!(text.parse(), Ok(choice), "{text:?}");
        }
        for text in ["2", "-1", "", "true", "0x1", "1 ", " 1", "1\n\n", "+1", "Stream", "\n", "00"]
        {
            assert!(text.parse::<ReadaheadPolicy>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn page_cluster_is_a_plain_number_up_to_ten() {
        for value in 0..=PAGE_CLUSTER_MAX {
            assert_eq!(page_cluster_of(&std::format!("{value}\n")), Ok(value));
        }
        for text in ["11", "-1", "", "+3", " 3", "3 ", "0x3", "three", "256", "3\n\n"] {
            assert_eq!(page_cluster_of(text), Err(NotANumber), "{text:?}");
        }
    }

    #[test]
    fn address_order_is_set_by_the_kernels_words() {
        for text in ["true", "1", "y", "on", "on\n"] {
            assert_eq!(text.parse(), Ok(AddressOrder::Enabled), "{text:?}");
        }
        for text in ["false", "0", "n", "off"] {
            assert_eq!(text.parse(), Ok(AddressOrder::Disabled), "{text:?}");
        }
        for text in ["", "2", "yes!", "TRUE ", "10", "truely", "o"] {
            assert!(text.parse::<AddressOrder>().is_err(), "{text:?}");
        }
    }
}
