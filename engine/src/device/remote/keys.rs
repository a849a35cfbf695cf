//! The keys of a device: a hash for each group of slots, with a field for each slot.
//!
//! A group is one key, so it lies on one server whole, has one expiry, and slots that follow each other are one command for
//! each group that they touch. What is in braces decides the server of a cluster: groups that follow each other share it,
//! so that a large request goes to one server. The engine's number is not in them, so that a server can copy a group to
//! another engine's key. A hash that loses its last field is gone.
//!
//! The second copy of a group has other braces, with which it is about half of all hash slots away from the first: servers
//! that have ranges of them, as after `redis-cli --cluster create`, never have both.
use std::fmt::Arguments;
use std::io::{Cursor, Write};

/// Groups that share a server: 4 MiB of slots.
const TOGETHER: usize = 16;

/// The longest prefix, numbers of a group, and one of an engine, and what is between.
const KEY_BYTES_MAX: usize = 128;

/// How far from half of all hash slots the copies of a group may be: every eighth name will do.
const NEARLY: usize = HASH_SLOTS / 16;

/// Which of the copies of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Copy {
    /// The one that is read.
    First,
    /// The one that is read where the first is not to be had.
    Second,
}

/// The hash slots of a cluster.
pub const HASH_SLOTS: usize = 1 << 14;

/// A key's text, without allocation.
pub struct Key {
    bytes: [u8; KEY_BYTES_MAX],
    length: usize,
}

impl Key {
    /// The key of a copy of a group.
    pub fn new(prefix: &str, group: usize, engine: u64, copy: Copy) -> Self {
        let together = group / TOGETHER;
        let first = Self::of(format_args!("{{{prefix}:{together}}}:{group}:{engine:016x}"));
        if copy == Copy::First {
            return first;
        }
        let other = |number: u32| {
            Self::of(format_args!("{{{prefix}:{together}:{number}}}:{group}:{engine:016x}"))
        };
        let wanted = first.hash_slot() + HASH_SLOTS / 2 - NEARLY;
        let is_far =
            |key: &Self| (key.hash_slot() + HASH_SLOTS * 2 - wanted) % HASH_SLOTS <= 2 * NEARLY;
        (0..).map(other).find(is_far).expect("checksums of numbers are everywhere")
    }

    fn of(text: Arguments) -> Self {
        let mut bytes = Cursor::new([0; KEY_BYTES_MAX]);
        bytes.write_fmt(text).expect("a prefix has a longest length");
        Self { length: bytes.position() as usize, bytes: bytes.into_inner() }
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
        let key = |copy| Key::new(&"p".repeat(64), u32::MAX as usize, u64::MAX, copy);
        assert!(key(Copy::First).text().ends_with(b":268435455}:4294967295:ffffffffffffffff"));
        assert!(key(Copy::Second).text().len() > key(Copy::First).text().len());
        assert_eq!(Key::new("a", 7, 10, Copy::First).text(), b"{a:0}:7:000000000000000a");
    }

    #[test]
    fn keys_are_spread_as_a_cluster_does() {
        // From the specification of clusters, and from a server's CLUSTER KEYSLOT.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        let slot = |group, engine| Key::new("us", group, engine, Copy::First).hash_slot();
        assert_eq!(slot(15, 1), slot(0, 2));
    }

    #[test]
    fn the_copies_of_a_group_are_far_from_each_other() {
        for group in (0..20_000).step_by(7) {
            let slot = |copy| Key::new("us", group, 3, copy).hash_slot();
            let distance = slot(Copy::First).abs_diff(slot(Copy::Second));
            let distance = distance.min(HASH_SLOTS - distance);
            // Three servers have a third each.
            assert!(distance > HASH_SLOTS / 3, "{group}: {distance}");
        }
    }
}
