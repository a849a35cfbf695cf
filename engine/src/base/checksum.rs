//! Page checksums: what tells a clean page from a changed one and a good slot from a damaged one.
//!
//! Keyed 64-bit xxh3: two different pages pass for the same once in 2^64, and a program cannot aim for that
//! without the key, which is drawn anew for each engine.
use std::hash::{BuildHasher, Hasher, RandomState};
use twox_hash::XxHash3_64;

/// Computes checksums under one engine's key.
#[derive(Clone, Copy, Debug)]
pub struct Checksums {
    key: u64,
}

impl Checksums {
    /// With a new random key.
    pub fn new() -> Self {
        Self { key: RandomState::new().build_hasher().finish() }
    }

    /// The checksum of a page's bytes under this key.
    pub fn of(self, page: &[u8]) -> u64 {
        XxHash3_64::oneshot_with_seed(self.key, page)
    }
}

/// Whether a page holds only zeros; stops at the first word that is not.
pub fn is_zero(page: &[u8]) -> bool {
    // Sixty-four bytes at a time: the compiler makes vector instructions of it.
    page.chunks_exact(64).all(|line| line.iter().fold(0, |seen, byte| seen | byte) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_changed_bit_changes_the_checksum() {
        let checksums = Checksums::new();
        let mut page = vec![7u8; 4096];
        let before = checksums.of(&page);
        page[4095] ^= 1;
        assert_ne!(checksums.of(&page), before);
    }

    #[test]
    fn a_page_with_one_set_bit_is_not_zero() {
        let mut page = vec![0u8; 4096];
        assert!(is_zero(&page));
        for index in [0, 63, 64, 2048, 4095] {
            page[index] = 1;
            assert!(!is_zero(&page), "byte {index} is set");
            page[index] = 0;
        }
    }
}
