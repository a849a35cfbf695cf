//! What a core compresses, and unpacks again, of pages of each kind: as a store to compressed memory and a fault from there do,
//! without what is around it.
use super::{Format, Outcome, Row, in_turns};
use crate::figures::median;
use crate::usemem::{Content, Data};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::time::Instant;
use userswap::Error;
use userswap::internals::PAGE_BYTES;
use userswap::internals::codec::{Codecs, Packed};
use userswap::internals::compression::{Algorithm, Compression, Level};

/// Options of `bench store`.
#[derive(Debug, Clone, Args)]
pub struct StoreArgs {
    /// Kinds of data
    #[arg(long, value_name = "KIND", value_delimiter = ',', num_args = 1..,
          default_values = ["2:1", "4:1", "heap", "elf", "json", "sorted", "float"])]
    data: Vec<Data>,
    /// Pages of each
    #[arg(long, value_name = "N", default_value_t = 16384, value_parser = clap::value_parser!(u32).range(1..))]
    pages: u32,
    /// Runs of each variant
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    #[command(flatten)]
    pub(super) format: Format,
}

/// One kind of data by one algorithm.
#[derive(Debug, Serialize)]
pub(super) struct StoreRow {
    data: String,
    algorithm: String,
    ratio: f64,
    pack_gb_s: f64,
    unpack_gb_s: f64,
}

impl Row for StoreRow {
    const COLUMNS: &'static [&'static str] =
        &["data", "algorithm", "ratio", "compressed, GB/s", "unpacked, GB/s"];

    fn cells(&self) -> Vec<String> {
        let numbers = [self.ratio, self.pack_gb_s, self.unpack_gb_s].map(|n| format!("{n:.2}"));
        [self.data.clone(), self.algorithm.clone()].into_iter().chain(numbers).collect()
    }
}

/// What is measured once.
#[derive(Debug, Clone, Copy)]
struct Variant {
    data: Data,
    compression: Compression,
}

/// What came of it.
struct Run {
    ratio: f64,
    pack_gb_s: f64,
    unpack_gb_s: f64,
}

pub(super) fn measure(args: &StoreArgs) -> Outcome<StoreRow> {
    // As `zram:` has it, as `--compress` does, both of which that chooses from, and for what stays.
    let zstd = |level| (Algorithm::Zstd, Some(level));
    let fixed = |level| zstd(Level::Fixed(level));
    let ways = [(Algorithm::Lz4, None), zstd(Level::Auto), fixed(-1), fixed(1), fixed(9)];
    let ways = ways.map(|(algorithm, level)| Compression { algorithm, level, again: None });
    let of_data = |&data: &Data| ways.map(|compression| Variant { data, compression });
    let variants: Vec<Variant> = args.data.iter().flat_map(of_data).collect();
    let runs = in_turns(args.runs, &variants, |variant| one_run(args.pages, variant))?;
    let row = |(variant, runs): (&Variant, Vec<Run>)| {
        let Compression { algorithm, level, .. } = variant.compression;
        let level = level.map_or(String::new(), |level| format!(" {level}"));
        Some(StoreRow {
            data: variant.data.to_possible_value()?.get_name().to_owned(),
            algorithm: format!("{algorithm}{level}"),
            ratio: median(runs.iter().map(|run| run.ratio))?,
            pack_gb_s: median(runs.iter().map(|run| run.pack_gb_s))?,
            unpack_gb_s: median(runs.iter().map(|run| run.unpack_gb_s))?,
        })
    };
    Ok(variants.iter().zip(runs).filter_map(row).collect())
}

fn one_run(pages: u32, variant: Variant) -> Result<Run, Error> {
    let content = Content::new(variant.data).map_err(Error::Tables)?;
    let words = u64::from(pages) * (PAGE_BYTES / size_of::<u64>()) as u64;
    let memory: Vec<u8> = (0..words).flat_map(|at| content.word(at).to_le_bytes()).collect();
    let codecs = Codecs::new(variant.compression).map_err(Error::Tables)?;
    let gb_s = |begin: Instant| memory.len() as f64 / begin.elapsed().as_nanos() as f64;
    let mut packed = Vec::with_capacity(memory.len() + memory.len() / 8);
    let mut ends = Vec::with_capacity(pages as usize);
    let begin = Instant::now();
    for page in memory.chunks_exact(PAGE_BYTES) {
        match codecs.here().pack(page) {
            Packed::Smaller(bytes) => packed.extend_from_slice(bytes),
            Packed::Not => packed.extend_from_slice(page),
        }
        ends.push(packed.len());
    }
    let pack_gb_s = gb_s(begin);
    let (mut start, mut page) = (0, vec![0; PAGE_BYTES]);
    let begin = Instant::now();
    for (end, expected) in ends.into_iter().zip(memory.chunks_exact(PAGE_BYTES)) {
        let bytes = &packed[start..end];
        match bytes.len() {
            PAGE_BYTES => page.copy_from_slice(bytes),
            _ => {
                let fills = codecs.unpack(bytes, &mut page);
                assert!(fills, "what was packed is unpacked");
            }
        }
        assert!(page == expected, "a page comes back as it was");
        start = end;
    }
    let ratio = memory.len() as f64 / packed.len() as f64;
    Ok(Run { ratio, pack_gb_s, unpack_gb_s: gb_s(begin) })
}
