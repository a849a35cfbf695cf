//! The keys of a device: a hash for each group of slots, with a field for each slot.
//!
//! A group is one key, so it lies on one server whole, has one expiry, and slots that follow each other are one command for
//! each group that they touch. What is in braces decides the server of a cluster: groups that follow each other share it,
//! so that a large request goes to one server. The engine's number is not in them, so that a server can copy a group to
//! another engine's key. A hash that loses its last field is gone.
use std::io::{Cursor, Write};

/// Groups that share a server: 4 MiB of slots.
const TOGETHER: usize = 16;

/// The longest prefix, numbers of a group, and one of an engine, and what is between.
const KEY_BYTES_MAX: usize = 120;

/// The hash slots of a cluster.
pub const HASH_SLOTS: usize = 1 << 14;

/// A key's text, without allocation.
pub struct Key {
    bytes: [u8; KEY_BYTES_MAX],
    length: usize,
}

impl Key {
    /// The key of a group.
    pub fn new(prefix: &str, group: usize, engine: u64) -> Self {
        let mut text = Cursor::new([0; KEY_BYTES_MAX]);
        let together = group / TOGETHER;
        write!(text, "{{{prefix}:{together}}}:{group}:{engine:016x}")
            .expect("a prefix has a longest length");
        Self { length: text.position() as usize, bytes: text.into_inner() }
    }

    /// Its text.
    pub fn text(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The hash slot that a cluster keeps it in.
    pub fn hash_slot(&self) -> usize {
        let tag = &self.text()[1..];
        let end = tag.iter().position(|byte| *byte == b'}').expect("a key has braces");
        usize::from(crc16(&tag[..end])) % HASH_SLOTS
    }
}

/// CRC-16/XMODEM, by which clusters spread keys.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |sum: u16, byte| {
        (0..8).fold(sum ^ u16::from(*byte) << 8, |sum, _| {
            if sum & 0x8000 == 0 { sum << 1 } else { sum << 1 ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_key_fits() {
        let key = Key::new(&"p".repeat(64), u32::MAX as usize, u64::MAX);
        assert!(key.text().ends_with(b":268435455}:4294967295:ffffffffffffffff"));
        assert_eq!(Key::new("a", 7, 10).text(), b"{a:0}:7:000000000000000a");
    }

    #[test]
    fn keys_are_spread_as_a_cluster_does() {
        // From the specification of clusters, and from a server's CLUSTER KEYSLOT.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(Key::new("us", 15, 1).hash_slot(), Key::new("us", 0, 2).hash_slot());
    }
}
