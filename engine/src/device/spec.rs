//! What a user writes to name a swap device: `PATH[:SIZE][,pri=N][,tier=N][,node=N][,encrypt]`, `zram:SIZE[,algo=NAME][,level=N][,recompress=LEVEL]`
//! (`zram/codec.rs`), `redis[s]://HOST[:PORT]/PREFIX[:SIZE][,lease=SECONDS]` (`remote/address.rs`) or `mem:SIZE`, for tests with `faulty:` before it (`faulty.rs`).
//!
//! Only the text is judged here; whether the device exists and may be used is for
//! [`open`](super::open). Because a path may contain colons and commas, the text is read from its
//! end: known options first, then a size, and what is left is the path. A tail that looks like a
//! misspelt size (`:12Q`) is refused rather than taken for a part of the name, or a typing error
//! would create a file.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::faulty;
use super::remote::{self, Address};
use super::s3::address as s3;
pub use super::spec_error::SpecError;
use super::spec_parts::{is_meant_as_option, is_needless_comma, is_word, shown_of, split_size};
use super::throttle::{NearFar, Throttle, parse_near_far};
use super::zram::options::{Compression, Options as CompressionOptions};
use crate::base::size::ByteSize;
use userswap_policy::devices::{MACHINE_NODES_MAX, TIER_MAX};
use userswap_policy::faulty::Plan;

/// The highest priority a device can be given, as for `swapon(8)`.
pub const PRIORITY_MAX: i16 = 32767;

/// The word that stands for memory in place of a path.
pub(super) const MEMORY_WORD: &str = "mem";

/// The option that has pages encrypted.
pub(super) const ENCRYPT_WORD: &str = "encrypt";

/// The word that stands for compressed memory.
pub(super) const COMPRESSED_WORD: &str = "zram";

/// Where a swap device keeps its slots.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SwapPath {
    /// A directory, a file or a block device.
    Path(PathBuf),
    /// Plain memory: for tests and for measuring without a disk.
    Memory,
    /// Memory in which pages are compressed, part of the budget.
    Compressed(Compression),
    /// The memory of servers.
    Remote(Box<Address>),
    /// Objects of a store.
    S3(Box<s3::Address>),
}

/// A swap device as a user names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SwapSpec {
    /// Where the slots are.
    pub path: SwapPath,
    /// How many bytes to use; left out, the device or the caller's default decides.
    pub size: Option<u64>,
    /// 0 to 32767, higher is used first; left out, priorities are given automatically.
    pub priority: Option<i16>,
    /// 0 to 15: all of a lower tier are asked before, and its pages move on to this one; all devices have one, or none.
    pub tier: Option<u8>,
    /// The NUMA node the device is near to; left out, the block device is asked.
    pub node: Option<u16>,
    /// Made slower than it is, for measuring.
    pub throttle: Option<Throttle>,
    /// Fails by this plan, for tests.
    pub faulty: Option<Plan>,
    /// Nobody can read on it what was swapped, nor change it unnoticed.
    pub encrypt: bool,
}

impl SwapSpec {
    /// The directory or device at `path`, everything else left to be decided.
    pub fn at(path: impl Into<PathBuf>) -> SwapSpec {
        SwapSpec {
            path: SwapPath::Path(path.into()),
            size: None,
            priority: None,
            tier: None,
            node: None,
            throttle: None,
            faulty: None,
            encrypt: false,
        }
    }

    /// The same device, encrypted; compressed memory stays as it is, which is RAM.
    #[must_use]
    pub fn encrypted(self) -> SwapSpec {
        let encrypt = !matches!(self.path, SwapPath::Compressed(_));
        SwapSpec { encrypt, ..self }
    }

    /// The same device named from the root, so that it stays the same when the working directory
    /// changes.
    pub fn absolute(mut self, working_directory: &Path) -> SwapSpec {
        match &mut self.path {
            SwapPath::Path(path) => *path = working_directory.join(&*path),
            SwapPath::Remote(address) => address.options.files.make_absolute(working_directory),
            SwapPath::S3(address) => address.options.files.make_absolute(working_directory),
            SwapPath::Memory | SwapPath::Compressed(_) => {}
        }
        self
    }

    /// The same for a program that opens it later: what is a directory now ends in `/`, so that no file of its name is made
    /// should it be gone by then.
    pub fn handed_on(mut self) -> SwapSpec {
        if let SwapPath::Path(path) = &mut self.path
            && path.is_dir()
        {
            path.push("");
        }
        self
    }
}

/// Judges the tiers of devices that are used together.
///
/// # Errors
/// Some have one and others do not, or there is one with none before it.
pub fn check_tiers(specs: &[SwapSpec]) -> Result<(), SpecError> {
    let tiers = || specs.iter().filter_map(|spec| spec.tier);
    for spec in specs {
        spec.check_front()?;
        let Some(tier) = spec.tier else {
            match tiers().next() {
                Some(_) => return Err(SpecError::TierMissing(spec.to_string())),
                None => continue,
            }
        };
        if let Some(missing) = (0..tier).find(|lower| tiers().all(|other| other != *lower)) {
            return Err(SpecError::TierGap { spec: spec.to_string(), tier, missing });
        }
    }
    Ok(())
}

impl FromStr for SwapSpec {
    type Err = SpecError;

    fn from_str(spec: &str) -> Result<Self, SpecError> {
        if spec.contains(|c: char| c.is_control()) {
            return Err(SpecError::ControlCharacter(spec.to_owned()));
        }
        let faulty = spec.strip_prefix(faulty::PREFIX);
        let mut rest = faulty.unwrap_or(spec);
        let shown = shown_of(spec, rest)?;
        let spec = shown.as_str();
        let mut options = SpecOptions::of(rest);
        options.faulty = faulty.map(|_| Plan::default());
        while let Some((before, option)) = rest.rsplit_once(',') {
            if !options.may_have(before, option) {
                break;
            }
            options.read(spec, option)?;
            rest = before;
        }
        let (path, size) = split_size(spec, rest)?;
        let path = match (path, size, options.compression) {
            ("", ..) => return Err(SpecError::NoPath(spec.to_owned())),
            (MEMORY_WORD, None, _) => return Err(SpecError::MemoryNeedsSize(spec.to_owned())),
            (MEMORY_WORD, Some(_), _) => SwapPath::Memory,
            (COMPRESSED_WORD, Some(_), Some(_)) if options.encrypt.is_some() => {
                return Err(SpecError::CompressedNeedsNoKey(spec.to_owned()));
            }
            (COMPRESSED_WORD, Some(_), Some(named)) => SwapPath::Compressed(named.done(spec)?),
            (.., Some(_)) => return Err(SpecError::CompressedNeedsSize(spec.to_owned())),
            (path, ..) => options.place(spec, path)?,
        };
        let (encrypt, throttle) =
            (options.encrypt.is_some(), Throttle::of(options.bandwidth, options.latency));
        let SpecOptions { priority, tier, node, faulty, .. } = options;
        Ok(SwapSpec { path, size, priority, tier, node, throttle, faulty, encrypt })
    }
}

/// What the options say, as far as they are read.
#[derive(Default)]
struct SpecOptions {
    priority: Option<i16>,
    tier: Option<u8>,
    node: Option<u16>,
    /// In megabytes per second.
    bandwidth: Option<NearFar>,
    /// In microseconds.
    latency: Option<NearFar>,
    /// That pages are encrypted.
    encrypt: Option<()>,
    /// What fails, after the word for that.
    faulty: Option<Plan>,
    /// That it is plain memory, by the word for that and a size.
    is_memory: bool,
    /// How pages are compressed, after the word for that.
    compression: Option<CompressionOptions>,
    /// How servers keep pages, after what names them.
    remote: Option<remote::Options>,
    /// Where a bucket is, and how it is used, after what names it.
    s3: Option<s3::Options>,
}

impl SpecOptions {
    /// None yet, of a device that is named so.
    fn of(text: &str) -> Self {
        let named = text.split([':', ',']).next();
        Self {
            remote: remote::is_meant(text).then(remote::Options::default),
            s3: s3::is_meant(text).then(s3::Options::default),
            is_memory: text.strip_prefix(MEMORY_WORD).is_some_and(|rest| rest.starts_with(':')),
            compression: (named == Some(COMPRESSED_WORD)).then(CompressionOptions::default),
            ..Self::default()
        }
    }

    /// Whether what follows the last comma is meant as an option.
    fn may_have(&self, before: &str, option: &str) -> bool {
        let is_of_servers = self.remote.is_some()
            && (remote::names_file(option) || remote::has_prefix(before) && option.contains('='));
        let is_of_store = self.s3.is_some() && s3::names_path(option);
        let is_after_word = self.is_no_path(before) && is_word(option);
        let is_meant = is_meant_as_option(option) || is_of_servers || is_of_store;
        is_meant || is_after_word || option.is_empty() && is_needless_comma(before)
    }

    /// Whether what is before a comma names no file, whose name may have commas.
    fn is_no_path(&self, before: &str) -> bool {
        let is_of_servers = self.remote.is_some() && remote::has_prefix(before);
        self.is_memory || self.compression.is_some() || self.s3.is_some() || is_of_servers
    }

    /// What is named by more than a word.
    fn place(&self, spec: &str, path: &str) -> Result<SwapPath, SpecError> {
        if let Some(options) = &self.s3 {
            let address = s3::Address::parse(spec, path, options.clone())?;
            return Ok(SwapPath::S3(Box::new(address)));
        }
        let Some(address) = Address::parse(spec, path)? else {
            return Ok(SwapPath::Path(PathBuf::from(path)));
        };
        let options = self.remote.clone().unwrap_or_default();
        options.check(spec, address.scheme)?;
        Ok(SwapPath::Remote(Box::new(Address { options, ..address })))
    }

    /// Reads an option of what only some devices have, if it is one of these.
    fn read_own(&mut self, spec: &str, option: &str) -> Option<Result<(), SpecError>> {
        let plan = self.faulty.as_mut();
        let of_plan = plan.and_then(|plan| faulty::read_option(plan, spec, option));
        of_plan
            .or_else(|| self.compression.as_mut()?.read(spec, option))
            .or_else(|| self.remote.as_mut()?.read(spec, option))
            .or_else(|| self.s3.as_mut()?.read(spec, option))
    }

    fn read(&mut self, spec: &str, option: &str) -> Result<(), SpecError> {
        if option.is_empty() {
            return Err(SpecError::EmptyOption(spec.to_owned()));
        }
        if let Some(outcome) = self.read_own(spec, option) {
            return outcome;
        }
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let twice = |option| SpecError::OptionTwice { spec: spec.to_owned(), option };
        match name {
            _ if option == ENCRYPT_WORD => set_once(&mut self.encrypt, (), || twice(ENCRYPT_WORD)),
            "pri" => set_once(&mut self.priority, parse_priority(spec, value)?, || twice("pri")),
            "tier" => set_once(&mut self.tier, parse_tier(spec, value)?, || twice("tier")),
            "node" => set_once(&mut self.node, parse_node(spec, value)?, || twice("node")),
            "throttle" => {
                let speeds = parse_near_far(spec, option, value)?;
                set_once(&mut self.bandwidth, speeds, || twice("throttle"))
            }
            "latency" => {
                let latencies = parse_near_far(spec, option, value)?;
                set_once(&mut self.latency, latencies, || twice("latency"))
            }
            _ => {
                let mut more = String::new();
                more.push_str(
                    self.compression.map_or("", |_| ", algo=NAME, level=N, recompress=LEVEL"),
                );
                more.push_str(self.remote.as_ref().map_or("", |_| remote::ALLOWED));
                more.push_str(self.s3.as_ref().map_or("", |_| s3::ALLOWED));
                more.push_str(self.faulty.map_or("", |_| ", "));
                more.push_str(self.faulty.map_or("", |_| faulty::ALLOWED));
                let (spec, option) = (spec.to_owned(), option.to_owned());
                Err(SpecError::UnknownOption { spec, option, more })
            }
        }
    }
}

pub(in crate::device) fn set_once<T>(
    option: &mut Option<T>,
    value: T,
    twice: impl FnOnce() -> SpecError,
) -> Result<(), SpecError> {
    option.replace(value).map_or(Ok(()), |_| Err(twice()))
}

fn parse_priority(spec: &str, value: &str) -> Result<i16, SpecError> {
    value.parse().ok().filter(|priority| (0..=PRIORITY_MAX).contains(priority)).ok_or_else(|| {
        SpecError::OptionValue {
            spec: spec.to_owned(),
            option: format!("pri={value}"),
            allowed: "a priority is 0 to 32767",
        }
    })
}

fn parse_tier(spec: &str, value: &str) -> Result<u8, SpecError> {
    let tier = value.parse().ok().filter(|tier| *tier <= TIER_MAX);
    tier.ok_or_else(|| SpecError::OptionValue {
        spec: spec.to_owned(),
        option: format!("tier={value}"),
        allowed: "a tier is 0 to 15",
    })
}

fn parse_node(spec: &str, value: &str) -> Result<u16, SpecError> {
    let node = value.parse().ok().filter(|node| *node < MACHINE_NODES_MAX);
    node.ok_or_else(|| SpecError::OptionValue {
        spec: spec.to_owned(),
        option: format!("node={value}"),
        allowed: "a node is 0 to 1023",
    })
}

impl fmt::Display for SwapSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.faulty.is_some() {
            f.write_str(faulty::PREFIX)?;
        }
        match &self.path {
            SwapPath::Path(path) => write!(f, "{}", path.display())?,
            SwapPath::Memory => f.write_str(MEMORY_WORD)?,
            SwapPath::Compressed(_) => f.write_str(COMPRESSED_WORD)?,
            SwapPath::Remote(address) => write!(f, "{address}")?,
            SwapPath::S3(address) => write!(f, "{address}")?,
        }
        if let Some(bytes) = self.size {
            write!(f, ":{}", ByteSize(bytes))?;
        }
        match &self.path {
            SwapPath::Compressed(compression) => write!(f, "{compression}")?,
            SwapPath::Remote(address) => write!(f, "{}", address.options)?,
            SwapPath::S3(address) => write!(f, "{}", address.options)?,
            SwapPath::Path(_) | SwapPath::Memory => {}
        }
        if let Some(priority) = self.priority {
            write!(f, ",pri={priority}")?;
        }
        if let Some(tier) = self.tier {
            write!(f, ",tier={tier}")?;
        }
        if let Some(node) = self.node {
            write!(f, ",node={node}")?;
        }
        if let Some(throttle) = self.throttle {
            write!(f, "{throttle}")?;
        }
        if self.encrypt {
            write!(f, ",{ENCRYPT_WORD}")?;
        }
        self.faulty.map_or(Ok(()), |plan| faulty::write_options(&plan, f))
    }
}

#[cfg(test)]
mod tests;
