//! Words without an order: what is written to see whether it comes back, and which page of a file is read next.

/// A word that no neighbour shares and no compressor shrinks (the finaliser of splitmix64).
pub fn pattern(index: u64) -> u64 {
    let mut word = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
