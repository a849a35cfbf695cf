//! How a compressed device compresses: `algo=`, `level=` and `recompress=` of `zram:`.
//!
//! What a codec works with is allocated when the device is taken into use: a fault that has to write out itself may do
//! so in a signal handler. What it keeps of the last page is in no core dump.
use crate::device::spec::{SpecError, set_once};
use crate::device::spec_parts::digits;
use crate::device::zram::words;
use crate::sys::PAGE_BYTES;
use crate::sys::lock::{Guard, Lock};
use crate::sys::mapping::Mapping;
use crate::sys::zstd::Zstd;
use crate::sys::{clock, numa, pages};
use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into};
use std::fmt;
use std::io;
use std::str::FromStr;
use userswap_policy::cells::COMPRESSED_BYTES_MAX;
use userswap_policy::named_choice;

/// Whole pages of memory, and more than one page becomes at its worst, with either algorithm.
const PACKED_BYTES_MAX: usize = 2 * PAGE_BYTES;

/// Levels of zstd, from the fastest to one that takes hundreds of microseconds for a page.
const LEVEL_MIN: i32 = -7;
const LEVEL_MAX: i32 = 12;
/// Half the time of level 1, for a twentieth more memory (docs/tiers.md).
const LEVEL_DEFAULT: i32 = -1;
const LEVELS: &str = "a level of zstd is -7 (fastest) to 12, and lz4 has none";
const AGAIN: &str = "use recompress=LEVEL or recompress=LEVEL:SECONDS, a level of zstd, -7 (fastest) to 12, and at least 1 s";

/// Pages have been there for so many seconds when they are compressed once more.
const COLD_SECONDS: u32 = 30;

const ALGORITHMS: &str = "use algo=lz4 or algo=zstd";

named_choice! {
    /// An algorithm.
    #[derive(Default)]
    pub enum Algorithm, "algorithm" {
        /// Fast.
        #[default]
        Lz4 = "lz4",
        /// Smaller.
        Zstd = "zstd",
    }
}

/// How pages are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Compression {
    /// With which algorithm.
    pub algorithm: Algorithm,
    /// As the algorithm understands it; left out, its default.
    pub level: Option<i32>,
    /// How what stays is compressed once more.
    pub again: Option<Again>,
}

/// Compressing once more by zstd what stays.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Again {
    /// A level of zstd.
    pub level: i32,
    /// For how long a page must have been there.
    pub seconds: u32,
}

impl fmt::Display for Again {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.level)?;
        if self.seconds != COLD_SECONDS {
            write!(f, ":{}", self.seconds)?;
        }
        Ok(())
    }
}

impl FromStr for Again {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (level, seconds) =
            text.split_once(':').map_or((text, None), |(level, seconds)| (level, Some(seconds)));
        let seconds = seconds.map_or(Some(COLD_SECONDS), digits).filter(|seconds| *seconds > 0);
        Ok(Self { level: level_of(level).ok_or(())?, seconds: seconds.ok_or(())? })
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.algorithm != Algorithm::default() {
            write!(f, ",algo={}", self.algorithm)?;
        }
        self.level.map_or(Ok(()), |level| write!(f, ",level={level}"))?;
        self.again.map_or(Ok(()), |again| write!(f, ",recompress={again}"))
    }
}

/// What the options of `zram:` say, as far as they are read.
#[derive(Clone, Copy, Default)]
pub struct Options {
    algorithm: Option<Algorithm>,
    level: Option<i32>,
    again: Option<Again>,
}

impl Options {
    /// Takes one option; None when it is none of them.
    ///
    /// # Errors
    /// Its value cannot be read, or it is given twice.
    pub fn read(&mut self, spec: &str, option: &str) -> Option<Result<(), SpecError>> {
        let (name, value) = option.split_once('=')?;
        let refused = |allowed| refused(spec, option, allowed);
        let twice = |option| SpecError::OptionTwice { spec: spec.to_owned(), option };
        Some(match name {
            "algo" => value
                .parse()
                .map_err(|_| refused(ALGORITHMS))
                .and_then(|algorithm| set_once(&mut self.algorithm, algorithm, || twice("algo"))),
            "level" => level_of(value)
                .ok_or_else(|| refused(LEVELS))
                .and_then(|level| set_once(&mut self.level, level, || twice("level"))),
            "recompress" => value
                .parse()
                .map_err(|()| refused(AGAIN))
                .and_then(|again| set_once(&mut self.again, again, || twice("recompress"))),
            _ => return None,
        })
    }

    /// All of them, once the text is read.
    ///
    /// # Errors
    /// A level for an algorithm that has none.
    pub fn done(self, spec: &str) -> Result<Compression, SpecError> {
        let algorithm = self.algorithm.unwrap_or_default();
        match (algorithm, self.level) {
            (Algorithm::Lz4, Some(level)) => Err(SpecError::OptionNeeds {
                spec: spec.to_owned(),
                option: format!("level={level}"),
                other: "algo=zstd",
            }),
            (_, level) => Ok(Compression { algorithm, level, again: self.again }),
        }
    }
}

fn level_of(text: &str) -> Option<i32> {
    text.parse().ok().filter(|level| (LEVEL_MIN..=LEVEL_MAX).contains(level))
}

fn refused(spec: &str, option: &str, allowed: &'static str) -> SpecError {
    SpecError::OptionValue { spec: spec.to_owned(), option: option.to_owned(), allowed }
}

/// What one CPU compresses with.
pub struct Codec {
    method: Method,
    /// What compresses once more.
    again: Option<Zstd>,
    /// What a page becomes, and before it what a page of numbers is compressed as.
    memory: Mapping,
}

enum Method {
    /// Its table holds positions, and nothing of a page.
    Lz4(Box<CompressTable>),
    Zstd(Zstd),
}

/// What the first byte of a packed page says: what the others are.
const PLAIN: u8 = 0;
const WORDS: u8 = 1;
/// Added to it: they were packed by what compresses once more.
const BY_AGAIN: u8 = 2;

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
            Algorithm::Lz4 => Method::Lz4(Box::new(CompressTable::small())),
            Algorithm::Zstd => Method::Zstd(Zstd::new(compression.level.unwrap_or(LEVEL_DEFAULT))?),
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
        packed[0] = form | if effort == Effort::Again { BY_AGAIN } else { 0 };
        let rest = &mut packed[1..];
        let bytes = match (effort, &mut self.method) {
            (Effort::Again, _) => self.again.as_mut().and_then(|zstd| zstd.pack(from, rest)),
            (_, Method::Lz4(table)) => compress_into_with_table(from, rest, table).ok(),
            (_, Method::Zstd(zstd)) => zstd.pack(from, rest),
        };
        match bytes.map(|bytes| bytes + 1) {
            Some(bytes) if bytes <= COMPRESSED_BYTES_MAX => Packed::Smaller(&packed[..bytes]),
            _ => Packed::Not,
        }
    }

    /// Fills a page from what was packed, whatever its form.
    pub(super) fn unpack(&mut self, packed: &[u8], page: &mut [u8]) -> bool {
        let Some((&form, bytes)) = packed.split_first() else { return false };
        let effort = if form & BY_AGAIN == 0 { Effort::First } else { Effort::Again };
        match form & !BY_AGAIN {
            PLAIN => self.expand(effort, bytes, page),
            WORDS => {
                let spread = self.spread();
                let fills = self.expand(effort, bytes, spread);
                if fills {
                    words::gather(spread, page);
                }
                fills
            }
            _ => false,
        }
    }

    fn expand(&mut self, effort: Effort, bytes: &[u8], page: &mut [u8]) -> bool {
        let filled = match (effort, &mut self.method) {
            (Effort::Again, _) => self.again.as_mut().and_then(|zstd| zstd.unpack(bytes, page)),
            (_, Method::Lz4(_)) => return unpack_lz4(bytes, page),
            (_, Method::Zstd(zstd)) => zstd.unpack(bytes, page),
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
            (Algorithm::Lz4, Some((&PLAIN, bytes))) => unpack_lz4(bytes, page),
            _ => self.here().unpack(packed, page),
        }
    }
}

fn unpack_lz4(bytes: &[u8], page: &mut [u8]) -> bool {
    decompress_into(bytes, page).is_ok_and(|filled| filled == page.len())
}
