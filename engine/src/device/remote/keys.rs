//! The keys of a device: a hash for each group of slots, with a field for each slot.
//!
//! A group is one key, so it lies on one server whole, has one expiry, and slots that follow each other are one command for
//! each group that they touch. What is in braces decides the server of a cluster: groups that follow each other share it,
//! so that a large request goes to one server. The engine's number is not in them, so that a server can copy a group to
//! another engine's key. A hash that loses its last field is gone.
//!
//! The second copy of a group has other braces, with which it is on another server than the first (`seconds`).
use super::seconds::Seconds;
use std::fmt::Arguments;
use std::io::{Cursor, Write};

/// Groups that share a server: 4 MiB of slots.
pub const TOGETHER: usize = 16;

/// The longest prefix, numbers of a group, and one of an engine, and what is between.
const KEY_BYTES_MAX: usize = 128;

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
    pub fn new(prefix: &str, group: usize, engine: u64, copy: Copy, seconds: &Seconds) -> Self {
        let together = group / TOGETHER;
        let first = Self::of(format_args!("{{{prefix}:{together}}}:{group}:{engine:016x}"));
        if copy == Copy::First {
            return first;
        }
        let number = seconds.number(first.sum());
        Self::of(format_args!("{{{prefix}:{together}:{number}}}:{group}:{engine:016x}"))
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
        slot_of(self.sum())
    }

    /// The checksum of what it has in braces.
    fn sum(&self) -> u16 {
        let tag = &self.text()[1..];
        let end = tag.iter().position(|byte| *byte == b'}').expect("a key has braces");
        sum_on(0, &tag[..end])
    }
}

/// The hash slot of a checksum.
pub fn slot_of(sum: u16) -> usize {
    usize::from(sum) % HASH_SLOTS
}

/// CRC-16/XMODEM, by which clusters spread keys, of what has a checksum so far and goes on so.
pub fn sum_on(sum: u16, bytes: &[u8]) -> u16 {
    let next = |sum: u16, byte: &u8| sum << 8 ^ OF_BYTES[usize::from((sum >> 8) as u8 ^ byte)];
    bytes.iter().fold(sum, next)
}

/// The checksum of each byte.
const OF_BYTES: [u16; 256] = {
    let mut sums = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 0x8000 == 0 { sum << 1 } else { sum << 1 ^ 0x1021 };
            bit += 1;
        }
        sums[byte] = sum;
        byte += 1;
    }
    sums
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_key_fits() {
        let seconds = Seconds::place(|slot| Some((slot % 2) as u8));
        let key = |copy| Key::new(&"p".repeat(64), u32::MAX as usize, u64::MAX, copy, &seconds);
        assert!(key(Copy::First).text().ends_with(b":268435455}:4294967295:ffffffffffffffff"));
        assert!(key(Copy::Second).text().len() > key(Copy::First).text().len());
        let short = Key::new("a", 7, 10, Copy::First, &Seconds::default());
        assert_eq!(short.text(), b"{a:0}:7:000000000000000a");
    }

    #[test]
    fn keys_are_spread_as_a_cluster_does() {
        // From the specification of clusters, and from a server's CLUSTER KEYSLOT.
        assert_eq!(sum_on(0, b"123456789"), 0x31c3);
        assert_eq!(sum_on(sum_on(0, b"1234"), b"56789"), 0x31c3);
        let none = Seconds::default();
        let slot = |group, engine| Key::new("us", group, engine, Copy::First, &none).hash_slot();
        assert_eq!(slot(15, 1), slot(0, 2));
    }
}
