//! How a compressed device compresses, as its options say.
//!
//! What a codec works with is allocated when the device is taken into use: a fault that has to write out itself may do
//! so in a signal handler. What it keeps of the last page is in no core dump.
use crate::device::zram::levels::{By, Levels};
use crate::device::zram::options::{Algorithm, Compression};
use crate::device::zram::words;
use crate::sys::PAGE_BYTES;
use crate::sys::lock::{Guard, Lock};
use crate::sys::lz4::{self, Lz4};
use crate::sys::mapping::Mapping;
use crate::sys::zstd::Zstd;
use crate::sys::{clock, numa, pages};
use std::io;
use userswap_policy::cells::COMPRESSED_BYTES_MAX;

/// Whole pages of memory, and more than one page becomes at its worst, with either algorithm.
const PACKED_BYTES_MAX: usize = 2 * PAGE_BYTES;

/// What one CPU compresses with.
pub struct Codec {
    method: Method,
    /// What compresses once more.
    again: Option<Zstd>,
    /// What a page becomes, and before it what a page of numbers is compressed as.
    memory: Mapping,
}

enum Method {
    Lz4(Lz4),
    Zstd(Levels),
}

/// What the first byte of a packed page says: what the others are.
const PLAIN: u8 = 0;
const WORDS: u8 = 1;
/// Added to it: they were packed by what compresses once more.
const BY_AGAIN: u8 = 2;
/// Added to it: they were packed by lz4, where others are by zstd.
const BY_LZ4: u8 = 4;

/// With what a page is packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Effort {
    /// As it leaves RAM.
    First,
    /// Once more, as it stays.
    Again,
}

/// What became of a page.
pub enum Packed<'a> {
    /// It got so small.
    Smaller(&'a [u8]),
    /// It is not worth it.
    Not,
}

impl Codec {
    /// With all that it will need.
    ///
    /// # Errors
    /// No memory.
    pub fn new(compression: Compression) -> io::Result<Self> {
        let method = match compression.algorithm {
            Algorithm::Lz4 => Method::Lz4(Lz4::new()?),
            Algorithm::Zstd => Method::Zstd(Levels::new(compression.level.unwrap_or_default())?),
        };
        let again = compression.again.map(|again| Zstd::new(again.level)).transpose()?;
        let memory = Mapping::undumped(PAGE_BYTES + PACKED_BYTES_MAX)?;
        let mut codec = Self { method, again, memory };
        // The first page is what zstd makes its tables for, all others are of its size.
        let mut page = [0; PAGE_BYTES];
        page.iter_mut().enumerate().for_each(|(index, byte)| *byte = (index / 7 * 31) as u8);
        if let Packed::Smaller(bytes) = codec.pack(&page) {
            let packed = bytes.to_vec();
            codec.unpack(&packed, &mut page);
        }
        Ok(codec)
    }

    fn spread(&mut self) -> &'static mut [u8] {
        pages::view_mut(self.memory.address(), PAGE_BYTES)
    }

    /// Compresses a page.
    pub fn pack(&mut self, page: &[u8]) -> Packed<'_> {
        self.pack_by(Effort::First, page)
    }

    /// Compresses a page once more, with what that takes; without, not at all.
    pub fn pack_again(&mut self, page: &[u8]) -> Packed<'_> {
        self.pack_by(Effort::Again, page)
    }

    fn pack_by(&mut self, effort: Effort, page: &[u8]) -> Packed<'_> {
        let packed = pages::view_mut(self.memory.address() + PAGE_BYTES, PACKED_BYTES_MAX);
        let spread = self.spread();
        let (form, from) = match words::follow(page) {
            true => {
                words::spread(page, spread);
                (WORDS, &*spread)
            }
            false => (PLAIN, page),
        };
        let rest = &mut packed[1..];
        let mut by = if effort == Effort::Again { BY_AGAIN } else { 0 };
        let bytes = match (effort, &mut self.method) {
            (Effort::Again, _) => self.again.as_mut().and_then(|zstd| zstd.pack(from, rest)),
            (_, Method::Lz4(lz4)) => lz4.pack(from, rest),
            (_, Method::Zstd(levels)) => levels.pack(from, rest).map(|shrunk| {
                by = if shrunk.by == By::Lz4 { BY_LZ4 } else { 0 };
                shrunk.bytes
            }),
        };
        packed[0] = form | by;
        match bytes.map(|bytes| bytes + 1) {
            Some(bytes) if bytes <= COMPRESSED_BYTES_MAX => Packed::Smaller(&packed[..bytes]),
            _ => Packed::Not,
        }
    }

    /// Fills a page from what was packed, whatever its form.
    pub(super) fn unpack(&mut self, packed: &[u8], page: &mut [u8]) -> bool {
        let Some((&form, bytes)) = packed.split_first() else { return false };
        let by = form & !WORDS;
        match form & WORDS {
            PLAIN => self.expand(by, bytes, page),
            _ => {
                let spread = self.spread();
                let fills = self.expand(by, bytes, spread);
                if fills {
                    words::gather(spread, page);
                }
                fills
            }
        }
    }

    fn expand(&mut self, by: u8, bytes: &[u8], page: &mut [u8]) -> bool {
        let filled = match (by, &mut self.method) {
            (BY_AGAIN, _) => self.again.as_mut().and_then(|zstd| zstd.unpack(bytes, page)),
            (0, Method::Lz4(_)) | (BY_LZ4, Method::Zstd(_)) => lz4::unpack(bytes, page),
            (0, Method::Zstd(levels)) => levels.unpack(bytes, page),
            _ => None,
        };
        filled == Some(page.len())
    }
}

/// What all CPUs compress with: one codec for each.
pub struct Codecs {
    /// What they pack with.
    compression: Compression,
    of_cpus: Box<[Lock<Codec>]>,
}

impl Codecs {
    /// With all that they will need.
    ///
    /// # Errors
    /// No memory.
    pub fn new(compression: Compression) -> io::Result<Self> {
        let codec = |_| Codec::new(compression).map(Lock::new);
        let of_cpus = (0..clock::cpus()).map(codec).collect::<io::Result<_>>()?;
        Ok(Self { compression, of_cpus })
    }

    /// Whether they unpack all that these others pack.
    pub fn unpack_all_of(&self, others: &Self) -> bool {
        let [own, other] = [self.compression, others.compression];
        own.algorithm == other.algorithm && (own.again.is_some() || other.again.is_none())
    }

    /// That of this CPU; a thread may move on at once, the lock keeps that safe.
    pub fn here(&self) -> Guard<'_, Codec> {
        self.of_cpus[numa::cpu() as usize % self.of_cpus.len()].lock()
    }

    /// Fills a page from what was packed; false if that does not make one. Whatever the bytes are, nothing else is touched.
    pub fn unpack(&self, packed: &[u8], page: &mut [u8]) -> bool {
        match (self.compression.algorithm, packed.split_first()) {
            // Without a codec, which others may be waiting for.
            (Algorithm::Lz4, Some((&PLAIN, bytes))) | (Algorithm::Zstd, Some((&BY_LZ4, bytes))) => {
                lz4::unpack(bytes, page) == Some(page.len())
            }
            _ => self.here().unpack(packed, page),
        }
    }
}
