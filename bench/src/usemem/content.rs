//! What a load writes: each word follows from its index and the kind of data alone, so that any word can be verified.
//!
//! The default is usemem's, a word holds its index. The others are for devices that compress: parts of noise in known
//! proportions, and imitations of what programs keep, which compress like their models (docs/tiers.md).

use clap::ValueEnum;
use serde::Serialize;
use std::fs;
use std::io;
use userswap::internals::PAGE_BYTES;

/// Words of a page.
pub(super) const PAGE_WORDS: u64 = (PAGE_BYTES / 8) as u64;
/// Words of noise in a page that compresses to half: the rest of a half is what says where the noise ends.
const HALF_WORDS: u64 = 252;
/// The same for a quarter.
const QUARTER_WORDS: u64 = 125;
/// Bytes of the running program that `elf` repeats.
const PROGRAM_BYTES: usize = 1 << 20;

/// What words hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Data {
    /// Each word its index
    #[default]
    Index,
    /// Pages of which lz4 leaves half
    #[value(name = "2:1")]
    #[serde(rename = "2:1")]
    Half,
    /// Pages of which lz4 leaves a quarter
    #[value(name = "4:1")]
    #[serde(rename = "4:1")]
    Quarter,
    /// Of 16 pages 3 of a single value, 5 of 4:1, 5 of 2:1 and 3 of noise
    Mixed,
    /// Noise
    Random,
    /// Objects as Python has them: counts, types, pointers, small numbers
    Heap,
    /// The program's own code
    Elf,
    /// Records of text
    Json,
    /// 64-bit numbers in order
    Sorted,
    /// Floating-point numbers of like size
    Float,
}

/// A kind of data, ready to be written.
#[derive(Debug, Clone)]
pub(crate) struct Content {
    data: Data,
    /// The words of `elf`.
    program: Vec<u64>,
}

impl Content {
    /// Reads what the kind repeats.
    pub(crate) fn new(data: Data) -> io::Result<Self> {
        let program = if data == Data::Elf { program()? } else { Vec::new() };
        Ok(Self { data, program })
    }

    /// Whether each word is its index, as usemem has it.
    pub(super) fn is_index(&self) -> bool {
        self.data == Data::Index
    }

    /// What the word at `index` holds.
    #[inline]
    pub(crate) fn word(&self, index: u64) -> u64 {
        match self.data {
            Data::Index => index,
            Data::Half => noise_up_to(HALF_WORDS, index),
            Data::Quarter => noise_up_to(QUARTER_WORDS, index),
            Data::Mixed => mixed(index),
            Data::Random => noise(index),
            Data::Heap => heap(index),
            Data::Elf => self.program[index as usize % self.program.len()],
            Data::Json => json(index),
            Data::Sorted => index * 16 + noise(index) % 16,
            Data::Float => f64::to_bits(1.0) | noise(index) >> 12,
        }
    }
}

/// A word without a pattern: the splitmix64 generator at this step.
#[inline]
fn noise(index: u64) -> u64 {
    let mut word = index.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// The first words of each page are noise, the others the page's number, so that pages differ everywhere.
#[inline]
fn noise_up_to(words: u64, index: u64) -> u64 {
    if index % PAGE_WORDS < words { noise(index) } else { index / PAGE_WORDS }
}

fn mixed(index: u64) -> u64 {
    let page = index / PAGE_WORDS;
    match noise(page) % 16 {
        0..2 => 0,
        2 => page,
        3..8 => noise_up_to(QUARTER_WORDS, index),
        8..13 => noise_up_to(HALF_WORDS, index),
        _ => noise(index),
    }
}

/// Objects of six words, near which those lie to which they point.
fn heap(index: u64) -> u64 {
    const OBJECT_WORDS: u64 = 6;
    const BASE: u64 = 0x7f3a_5c00_0000;
    const TYPES: u64 = 0x55d1_8e40_1000;
    let object = index / OBJECT_WORDS;
    let chance = noise(object);
    let pointer = |object: u64| BASE + object * OBJECT_WORDS * 8;
    match index % OBJECT_WORDS {
        0 => 1 + chance % 16 / 13,
        1 => TYPES + (chance >> 8) % 4 * 416,
        2 => chance >> 16 & 3,
        3 => pointer(object + 1),
        4 => pointer(object.saturating_sub(chance >> 24 & 0xff)),
        _ => u64::MAX,
    }
}

/// Records of 64 characters, in which a `#` is any digit.
fn json(index: u64) -> u64 {
    const RECORD: &[u8; 64] =
        b"{\"id\":########,\"user\":\"u########\",\"score\":0.############,\"n\":#},";
    const RECORD_WORDS: u64 = (RECORD.len() / 8) as u64;
    let first = (index % RECORD_WORDS) as usize * 8;
    let mut chance = noise(index);
    let mut character = |template: u8| {
        if template != b'#' {
            return template;
        }
        let digit = b'0' + (chance % 10) as u8;
        chance /= 10;
        digit
    };
    u64::from_le_bytes(std::array::from_fn(|byte| character(RECORD[first + byte])))
}

/// The middle of the running program's file, most of which is code.
fn program() -> io::Result<Vec<u64>> {
    let file = fs::read("/proc/self/exe")?;
    let bytes = PROGRAM_BYTES.min(file.len());
    let first = (file.len() - bytes) / 2;
    let words = file[first..first + bytes].chunks_exact(8);
    Ok(words.map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes"))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const PAGES: u64 = 512;

    fn pages(data: Data) -> Vec<Vec<u8>> {
        let content = Content::new(data).unwrap();
        let page = |page: u64| {
            let words = page * PAGE_WORDS..(page + 1) * PAGE_WORDS;
            words.flat_map(|index| content.word(index).to_le_bytes()).collect()
        };
        (0..PAGES).map(page).collect()
    }

    /// How many times smaller lz4 makes pages of this kind, each alone.
    fn ratio(data: Data) -> f64 {
        let packed = |page: &Vec<u8>| lz4_flex::block::compress(page).len().min(PAGE_BYTES);
        let bytes: usize = pages(data).iter().map(packed).sum();
        PAGES as f64 * PAGE_BYTES as f64 / bytes as f64
    }

    #[test]
    fn each_kind_compresses_like_its_model() {
        for (data, least, most) in [
            (Data::Half, 1.97, 2.03),
            (Data::Quarter, 3.94, 4.06),
            (Data::Mixed, 2.2, 2.6),
            (Data::Random, 0.99, 1.0),
            (Data::Heap, 2.6, 3.3),
            (Data::Elf, 1.2, 4.0),
            (Data::Json, 1.6, 1.9),
            (Data::Sorted, 1.8, 2.1),
            (Data::Float, 0.99, 1.1),
        ] {
            let ratio = ratio(data);
            assert!((least..=most).contains(&ratio), "{data:?}: {ratio}");
        }
    }

    #[test]
    fn no_page_of_a_kind_is_that_of_another_place_unless_kinds_repeat() {
        for data in Data::value_variants() {
            let different: HashSet<Vec<u8>> = pages(*data).into_iter().collect();
            let least = match data {
                Data::Elf => PROGRAM_BYTES as u64 / PAGE_BYTES as u64 / 2,
                Data::Mixed => PAGES / 4 * 3,
                _ => PAGES,
            };
            assert!(different.len() as u64 >= least, "{data:?}: {}", different.len());
        }
    }
}
