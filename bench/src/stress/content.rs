//! What is in a page: every word tells its stamp and its place, and the stamp who wrote it and when.

/// A stamp: zeros for 0; else who wrote it and which write that was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stamp(pub u64);

/// The bit of what a forked child wrote into its own copy.
const OF_CHILD: u64 = 1 << 62;

/// The bit of what was read from the file; below is the page of it.
const OF_FILE: u64 = 1 << 61;

impl Stamp {
    /// A page of zeros.
    pub const ZEROS: Self = Self(0);

    /// The write with this number, by a worker.
    pub fn by(worker: usize, version: u64) -> Self {
        Self((worker as u64 + 1) << 48 | version)
    }

    /// A page of the file.
    pub fn of_file(page: usize) -> Self {
        Self(OF_FILE | page as u64)
    }

    /// The same, written by a child.
    pub fn in_child(self) -> Self {
        Self(self.0 | OF_CHILD)
    }

    /// The word with this index of a page with this stamp. The first is the stamp itself.
    pub fn word(self, index: usize) -> u64 {
        match (self, index) {
            (Self::ZEROS, _) => 0,
            (stamp, 0) => stamp.0,
            (stamp, index) => {
                let mixed = (stamp.0 ^ (index as u64) << 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                mixed ^ mixed >> 29
            }
        }
    }

    /// In words, for a report.
    pub fn describe(self) -> String {
        let Self(stamp) = self;
        match stamp {
            0 => "zeros".to_owned(),
            _ if stamp & OF_FILE != 0 => format!("page {} of the file", stamp & !OF_FILE),
            _ => {
                let child = if stamp & OF_CHILD != 0 { " in a child" } else { "" };
                let owner = (stamp & !OF_CHILD) >> 48;
                format!("write {} of worker {}{child}", stamp & 0xFFFF_FFFF_FFFF, owner as i64 - 1)
            }
        }
    }
}
