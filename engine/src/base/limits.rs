//! Bounds that several rooms share, each with its reason.
use crate::sys::PAGE_BYTES;

/// Pages served at once to a sequential program, and mapped by one call.
pub const RUN_MAX: u32 = 64;

/// Pages of zeros for one sequential first touch: the program goes on after the first run while the server
/// maps the others.
pub const ZERO_RUN_MAX: u32 = 256;

/// Pages of the largest asynchronous readahead window: 4 MiB.
pub const AHEAD_MAX: u32 = 1024;

/// Slots that are read over between two wanted ones.
pub const GAP_MAX: u32 = 3;

/// Pages that only reclaim may use: one run, so that reclaim by copying can always begin.
pub const RESERVE: u32 = 64;

/// Pages of one batch: the largest write, 1 MiB.
pub const BATCH: usize = 256;

/// The smallest share of a node: below it one window and one batch would be a large part of everything.
pub const NODE_MIN_PAGES: u32 = 1024;

/// Nodes an engine can have: six bits of a page word.
pub const NODES_MAX: usize = 64;

/// Frames a word can name: 512 GiB.
pub const FRAMES_MAX: u64 = 1 << 27;

/// Pins one page can have: sixteen bits of its word, of which one value says that the page is clean.
pub const PINS_MAX: u32 = (1 << 16) - 2;

/// The smallest budget: below it the frames of one reclaim batch and one readahead window of every
/// thread would be a large part of everything.
pub const RAM_MIN_BYTES: u64 = 16 << 20;

/// The largest budget: half of the frames that words can name, as there are more frames than pages.
pub const RAM_MAX_BYTES: u64 = FRAMES_MAX / 2 * PAGE_BYTES as u64;

/// A temporary swap file is this many times the budget, at least [`SWAP_BYTES_MIN`]; it takes only the
/// space that is used.
const SWAP_PER_RAM: u64 = 16;

/// See [`SWAP_PER_RAM`].
const SWAP_BYTES_MIN: u64 = 64 << 30;

/// How far a swap file may grow for which no size was given, by the budget.
pub fn default_swap_bytes(ram_bytes: u64) -> u64 {
    ram_bytes.saturating_mul(SWAP_PER_RAM).max(SWAP_BYTES_MIN)
}

/// The smallest device, in bytes: ten pages, as for mkswap(8).
pub const DEVICE_MIN_BYTES: u64 = 10 * PAGE_BYTES as u64;
