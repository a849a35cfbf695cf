//! What a load writes to memory: words, of which no page has the same as another.

use userswap::internals::PAGE_BYTES;

/// Words of a page.
pub(super) const PAGE_WORDS: usize = PAGE_BYTES / size_of::<u64>();

/// The word at `index`: never zero, so that no page is one of zeros.
pub(super) fn word_at(index: usize) -> u64 {
    // Odd, and so large that neighbours differ in all bytes.
    (index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1
}
