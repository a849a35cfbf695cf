//! What a user writes to name a swap device: `PATH[:SIZE][,pri=N][,tier=N][,node=N][,encrypt]`, `zram:SIZE[,algo=NAME][,level=N]`
//! (`zram/codec.rs`) or `mem:SIZE`, for tests with `faulty:` before it (`faulty.rs`).
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
use super::throttle::{NearFar, Throttle, parse_near_far};
use super::zram::codec::{self, Compression};
use crate::base::size::{ByteSize, SizeError, parse_size};
use userswap_policy::devices::{MACHINE_NODES_MAX, TIER_MAX};
use userswap_policy::faulty::Plan;

/// The highest priority a device can be given, as for `swapon(8)`.
pub const PRIORITY_MAX: i16 = 32767;

/// The word that stands for memory in place of a path.
const MEMORY_WORD: &str = "mem";

/// The option that has pages encrypted.
const ENCRYPT_WORD: &str = "encrypt";

/// The word that stands for compressed memory.
const COMPRESSED_WORD: &str = "zram";

/// Where a swap device keeps its slots.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SwapPath {
    /// A directory, a file or a block device.
    Path(PathBuf),
    /// Plain memory: for tests and for measuring without a disk.
    Memory,
    /// Memory in which pages are compressed, part of the budget.
    Compressed(Compression),
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

/// Why a text is not a swap specification; the message names the text and says what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// There is no path before the size and the options.
    #[error(
        "\"{0}\" names no device: write PATH[:SIZE][,pri=N][,tier=N][,node=N][,encrypt], zram:SIZE or mem:SIZE"
    )]
    NoPath(String),
    /// `mem` without a size.
    #[error("\"{0}\" needs a size: write mem:SIZE, such as mem:512M")]
    MemoryNeedsSize(String),
    /// `zram` without a size.
    #[error(
        "\"{0}\" needs a size, that of the pages before they are compressed: write zram:SIZE, such as zram:2G"
    )]
    CompressedNeedsSize(String),
    /// `zram`, encrypted.
    #[error(
        "\"{0}\": compressed memory is RAM already, which no device shows: leave \"encrypt\" out"
    )]
    CompressedNeedsNoKey(String),
    /// What follows the last colon is meant as a size but is none.
    #[error("\"{spec}\": {error}")]
    Size {
        /// The whole text.
        spec: String,
        /// What is wrong with its size.
        error: SizeError,
    },
    /// An option that does not exist.
    #[error(
        "\"{spec}\": unknown option \"{option}\": after the size are allowed pri=N, tier=N, node=N, encrypt, throttle=MB/s, latency=us{more}"
    )]
    UnknownOption {
        /// The whole text.
        spec: String,
        /// The option with its value.
        option: String,
        /// What is allowed beside the usual.
        more: String,
    },
    /// An option with a value out of its range.
    #[error("\"{spec}\": \"{option}\" is out of range: {allowed}")]
    OptionValue {
        /// The whole text.
        spec: String,
        /// The option with its value.
        option: String,
        /// What would be accepted.
        allowed: &'static str,
    },
    /// An option given twice.
    #[error("\"{spec}\": \"{option}\" is given twice: give it once")]
    OptionTwice {
        /// The whole text.
        spec: String,
        /// The name of the option.
        option: &'static str,
    },
    /// No tier, where others have one.
    #[error(
        "\"{0}\" has no tier, and other swap devices have one: give each of them one, such as tier=0 to the first, or none"
    )]
    TierMissing(String),
    /// A tier, where others have none.
    #[error(
        "\"{0}\" has a tier, and the swap devices in use have none: leave tier= out, or swap those off first"
    )]
    TierUnlike(String),
    /// Compressed memory, where there is some in front of all devices.
    #[error(
        "\"{0}\": compressed memory is in front of all devices already: leave it out, or leave out compress"
    )]
    CompressedTwice(String),
    /// The tier of the compressed memory in front.
    #[error(
        "\"{0}\": tier 0 is that of the compressed memory in front of all devices: number the others from 1 on"
    )]
    TierTaken(String),
    /// A tier with none before it.
    #[error(
        "\"{spec}\" is of tier {tier}, and no swap device of tier {missing}: number tiers from 0 on without a gap"
    )]
    TierGap {
        /// The whole text.
        spec: String,
        /// Its tier.
        tier: u8,
        /// The one that is missing.
        missing: u8,
    },
    /// A control character, which one-line messages and option lists cannot carry.
    #[error("{0:?} has a control character in its name: use a path without one")]
    ControlCharacter(String),
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
        if let SwapPath::Path(path) = &mut self.path {
            *path = working_directory.join(&*path);
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
        let mut options = SpecOptions::default();
        let mut rest = spec;
        if let Some(named) = spec.strip_prefix(faulty::PREFIX) {
            options.faulty = Some(Plan::default());
            rest = named;
        }
        let named = rest.split([':', ',']).next();
        options.compression = (named == Some(COMPRESSED_WORD)).then(codec::Options::default);
        while let Some((before, option)) = rest.rsplit_once(',') {
            if !is_meant_as_option(option) {
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
            (path, ..) => SwapPath::Path(PathBuf::from(path)),
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
    /// How pages are compressed, after the word for that.
    compression: Option<codec::Options>,
}

impl SpecOptions {
    fn read(&mut self, spec: &str, option: &str) -> Result<(), SpecError> {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        if let Some(plan) = &mut self.faulty
            && let Some(outcome) = faulty::read_option(plan, spec, option)
        {
            return outcome;
        }
        if let Some(compression) = &mut self.compression
            && let Some(outcome) = compression.read(spec, option)
        {
            return outcome;
        }
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
                more.push_str(self.compression.map_or("", |_| ", algo=NAME, level=N"));
                more.push_str(self.faulty.map_or("", |_| ", "));
                more.push_str(self.faulty.map_or("", |_| faulty::ALLOWED));
                let (spec, option) = (spec.to_owned(), option.to_owned());
                Err(SpecError::UnknownOption { spec, option, more })
            }
        }
    }
}

fn set_once<T>(
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

/// A value with a name; or `encrypt`, also when that is misspelt: a file of that name would not be encrypted. A comma in
/// a directory's or file's name is not ours.
fn is_meant_as_option(text: &str) -> bool {
    let start = text.get(..3).unwrap_or_default();
    !text.contains('/') && (text.contains('=') || start.eq_ignore_ascii_case(&ENCRYPT_WORD[..3]))
}

/// Separates a trailing `:SIZE` from the path.
fn split_size<'a>(spec: &str, text: &'a str) -> Result<(&'a str, Option<u64>), SpecError> {
    let Some((path, tail)) = text.rsplit_once(':') else { return Ok((text, None)) };
    match parse_size(tail) {
        Ok(bytes) => Ok((path, Some(bytes))),
        Err(error) if [MEMORY_WORD, COMPRESSED_WORD].contains(&path) || is_meant_as_size(tail) => {
            Err(SpecError::Size { spec: spec.to_owned(), error })
        }
        Err(_) => Ok((text, None)),
    }
}

/// Nothing, or a number with a short word after it. Names below `/dev/disk/by-path` end in
/// `:1f.2-ata-1` and the like; those are paths.
fn is_meant_as_size(tail: &str) -> bool {
    let number = tail.trim_start_matches(['+', '-']);
    let unit = number.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    let starts_with_digit = number.starts_with(|c: char| c.is_ascii_digit());
    tail.is_empty()
        || starts_with_digit && unit.len() <= 3 && unit.chars().all(|c| c.is_ascii_alphabetic())
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
        }
        if let Some(bytes) = self.size {
            write!(f, ":{}", ByteSize(bytes))?;
        }
        if let SwapPath::Compressed(compression) = &self.path {
            write!(f, "{compression}")?;
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
mod tests {
    use super::*;

    fn spec(text: &str) -> SwapSpec {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn refusal(text: &str) -> String {
        text.parse::<SwapSpec>().expect_err(text).to_string()
    }

    #[test]
    fn a_path_alone_leaves_everything_else_open() {
        assert_eq!(spec("/var/tmp"), SwapSpec::at("/var/tmp"));
    }

    #[test]
    fn size_priority_and_node_are_read_in_any_order_of_options() {
        let all = SwapSpec {
            path: SwapPath::Path("/var/tmp".into()),
            size: Some(3 << 29),
            priority: Some(7),
            tier: Some(2),
            node: Some(1),
            throttle: None,
            faulty: None,
            encrypt: true,
        };
        assert_eq!(spec("/var/tmp:1.5G,pri=7,encrypt,tier=2,node=1"), all);
        assert_eq!(spec("/var/tmp:1.5G,tier=2,encrypt,node=1,pri=7"), all);
        assert_eq!(spec("mem:64M,pri=0").path, SwapPath::Memory);
        assert_eq!(spec("/a,pri=32767").priority, Some(32767));
    }

    #[test]
    fn a_path_may_contain_colons_and_commas() {
        for path in [
            "/dev/disk/by-path/pci-0000:00:1f.2-ata-1",
            "/a:b",
            "/a,b",
            "/a,encrypt/",
            "/x,y=z/w",
            "./mem",
        ] {
            assert_eq!(spec(path), SwapSpec::at(path));
        }
        assert_eq!(spec("/a:b:2G").path, SwapPath::Path("/a:b".into()));
        assert_eq!(spec("/a:1G:2G").size, Some(2 << 30));
    }

    #[test]
    fn printing_gives_the_canonical_text_back() {
        for text in [
            "/var/tmp",
            "/var/tmp:1536M,pri=7,node=1",
            "mem:64M",
            "/a:b,node=3",
            "zram:2G,pri=5,tier=0",
            "/a,tier=15,node=3,encrypt",
            "/a,b:4K",
            "mem:64M,node=1,throttle=1000:400,latency=20",
            "mem:64M,latency=20:60",
            "mem:64M,pri=3,latency=20:60,encrypt",
            "faulty:/a:b:64M,encrypt,flip=0.1,seed=0",
            "zram:2G",
            "zram:2G,algo=zstd,level=-1,pri=5,node=0",
            "faulty:zram:64M,algo=zstd,flip=0.5,seed=3",
            "faulty:mem:64M,seed=0",
            "faulty:/a:b:64M,pri=3,read=0.001,write=1,late=0.25:9,error=ENOMEM,outage=4:5,seed=7",
            "faulty:/a,bad=0.000001,torn=0.5,flip=0.1,short=0.2,full=8,gone=9,seed=18446744073709551615",
        ] {
            assert_eq!(spec(text).to_string(), text);
        }
        assert_eq!(spec("/a:1.5G,node=1,pri=2").to_string(), "/a:1536M,pri=2,node=1");
    }

    #[test]
    fn tiers_are_given_to_all_devices_and_without_a_gap_or_to_none() {
        let check = |texts: &[&str]| {
            let specs: Vec<SwapSpec> = texts.iter().map(|text| spec(text)).collect();
            check_tiers(&specs).map_err(|error| error.to_string())
        };
        for fine in [
            &[][..],
            &["/a", "zram:1G,pri=3"],
            &["/a,tier=1", "zram:1G,tier=0", "/b,tier=1", "/c,tier=2"],
        ] {
            assert_eq!(check(fine), Ok(()));
        }
        for (texts, named, remedy) in [
            (&["/a,tier=0", "/b"][..], "\"/b\"", "tier=0 to the first, or none"),
            (&["/a,tier=1"], "\"/a,tier=1\"", "no swap device of tier 0"),
            (
                &["/a,tier=0", "/b,tier=3", "/c,tier=1"],
                "\"/b,tier=3\"",
                "of tier 2: number tiers from 0",
            ),
        ] {
            let refusal = check(texts).unwrap_err();
            assert!(refusal.contains(named) && refusal.contains(remedy), "{refusal}");
            assert_eq!(refusal.lines().count(), 1);
        }
    }

    #[test]
    fn a_misspelt_size_is_not_taken_for_a_file_name() {
        for text in ["/tmp:12Q", "/tmp:0", "/tmp:-1", "/tmp:", "/tmp:5GBs", "mem:x", "zram:x"] {
            let refusal = refusal(text);
            assert!(refusal.starts_with(&format!("\"{text}\": ")), "{refusal}");
            assert!(refusal.contains("512M"), "{refusal}");
        }
    }

    #[test]
    fn every_refusal_names_the_value_and_the_remedy() {
        for (text, named, remedy) in [
            ("", "\"\"", "PATH"),
            (":1G", "\":1G\"", "PATH"),
            (",pri=1", "\",pri=1\"", "PATH"),
            ("mem", "\"mem\"", "mem:512M"),
            ("zram", "\"zram\"", "zram:2G"),
            ("zram:1G:2G,algo=zstd", "zram:1G:2G", "zram:2G"),
            ("zram,algo=lz4", "\"zram,algo=lz4\"", "zram:2G"),
            ("zram:1G,algo=lzo", "algo=lzo", "algo=zstd"),
            ("zram:1G,algo=zstd,level=13", "level=13", "-7"),
            ("zram:1G,level=3", "level=3", "lz4 has none"),
            ("zram:1G,algo=lz4,algo=zstd", "algo", "once"),
            ("zram:1G,size=3", "size=3", "level=N"),
            ("mem:1G,algo=lz4", "algo=lz4", "pri=N"),
            ("/a,pri=-1", "pri=-1", "0 to 32767"),
            ("/a,pri=32768", "pri=32768", "0 to 32767"),
            ("/a,pri=", "pri=", "0 to 32767"),
            ("/a,node=1024", "node=1024", "0 to 1023"),
            ("/a,tier=16", "tier=16", "0 to 15"),
            ("/a,tier=-1", "tier=-1", "0 to 15"),
            ("/a,tier=1,tier=1", "tier", "once"),
            ("/a,ter=1", "ter=1", "tier=N"),
            ("mem:1G,throttle=0", "throttle=0", "above 0"),
            ("mem:1G,latency=5:x", "latency=5:x", "NEAR:FAR"),
            ("/a,prio=1", "prio=1", "pri=N"),
            ("/a,read=0.1", "read=0.1", "pri=N"),
            ("faulty:/a,reads=0.1", "reads=0.1", "outage=FIRST:COUNT"),
            ("faulty:/a,read=1.1", "read=1.1", "to 1"),
            ("faulty:/a,write=0", "write=0", "to 1"),
            ("faulty:/a,late=0.1:0", "late=0.1:0", "P:MS"),
            ("faulty:/a,error=EWHY", "error=EWHY", "ETIMEDOUT"),
            ("faulty:/a,gone=-1", "gone=-1", "whole number"),
            ("faulty:", "faulty:", "PATH"),
            ("/a,pri=1,pri=2", "pri", "once"),
            ("/a\nb", "\\n", "without"),
        ] {
            let refusal = refusal(text);
            assert!(refusal.contains(named) && refusal.contains(remedy), "{refusal}");
            assert_eq!(refusal.lines().count(), 1);
        }
    }

    #[test]
    fn what_looks_like_encrypt_is_never_a_file_that_is_not() {
        for (text, named, remedy) in [
            ("zram:1G,encrypt", "zram:1G,encrypt", "leave"),
            ("/a,encrypted", "encrypted", "node=N, encrypt,"),
            ("/a,Encrypt", "Encrypt", "node=N, encrypt,"),
            ("/a,encrypt=no", "encrypt=no", "node=N, encrypt,"),
            ("/a,encrypt:4G", "encrypt:4G", "after the size"),
            ("/a,encrypt,encrypt", "encrypt", "once"),
        ] {
            let refusal = refusal(text);
            assert!(refusal.contains(named) && refusal.contains(remedy), "{refusal}");
        }
    }

    #[test]
    fn a_relative_path_is_pinned_to_the_directory_it_was_named_in() {
        let here = Path::new("/home/me");
        assert_eq!(spec("swap:1G").absolute(here).to_string(), "/home/me/swap:1G");
        assert_eq!(spec("/swap").absolute(here), spec("/swap"));
        assert_eq!(spec("mem:1G").absolute(here), spec("mem:1G"));
    }
}
