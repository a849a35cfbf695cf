//! Compressed memory in front of all devices: what `--compress` asks for.
//!
//! It is a compressed device like any other, of tier 0, and all others are of later tiers; what its memory may come to is
//! said, not how many pages it has room for.
use crate::base::size::{ByteSize, parse_size};
use crate::device::DEVICE_SLOTS;
use crate::device::spec::{SpecError, SwapPath, SwapSpec};
use crate::device::zram::options::{Algorithm, Compression, Level};
use crate::sys::PAGE_BYTES;
use std::fmt;
use std::str::FromStr;

/// With less a slab for each size of cells would be most of it.
const BYTES_MIN: u64 = 8 << 20;

/// It has room for pages that compress to this part of themselves; those of one value take none.
const RATIO: u64 = 8;

/// Denser than lz4 by so much that what is saved of a disk is worth more than the time (docs/tiers.md).
const COMPRESSION: Compression =
    Compression { algorithm: Algorithm::Zstd, level: Some(Level::Auto), again: None };

/// How much memory compressed pages may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compress {
    /// So many bytes of the budget at most.
    Most(u64),
    /// As much as it brings.
    Auto,
}

/// Not such an amount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is no amount of compressed memory: use a size of at least 8M, such as 512M, or auto"
)]
pub struct CompressError(String);

impl FromStr for Compress {
    type Err = CompressError;

    fn from_str(text: &str) -> Result<Self, CompressError> {
        match (text, parse_size(text)) {
            ("auto", _) => Ok(Self::Auto),
            (_, Ok(bytes)) if bytes >= BYTES_MIN => Ok(Self::Most(bytes)),
            _ => Err(CompressError(text.to_owned())),
        }
    }
}

impl fmt::Display for Compress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Most(bytes) => ByteSize(*bytes).fmt(f),
            Self::Auto => f.write_str("auto"),
        }
    }
}

impl Compress {
    /// Pages of memory, where it is said.
    pub fn pages(self) -> Option<u32> {
        match self {
            Self::Most(bytes) => Some((bytes / PAGE_BYTES as u64).min(u32::MAX.into()) as u32),
            Self::Auto => None,
        }
    }

    /// The devices with compressed memory in front of them.
    ///
    /// # Errors
    /// One is compressed itself, or of the tier that is taken.
    pub fn in_front_of(
        self,
        specs: &[SwapSpec],
        ram_bytes: u64,
    ) -> Result<Vec<SwapSpec>, SpecError> {
        let bytes_max = u64::from(DEVICE_SLOTS) * PAGE_BYTES as u64;
        let front = SwapSpec {
            path: SwapPath::Compressed(COMPRESSION),
            size: Some(ram_bytes.saturating_mul(RATIO).min(bytes_max)),
            tier: Some(0),
            ..SwapSpec::at("")
        };
        let have_tiers = specs.iter().any(|spec| spec.tier.is_some());
        let behind = |spec: &SwapSpec| match have_tiers {
            true => spec.clone().not_compressed(),
            false => spec.clone().behind_compressed(),
        };
        std::iter::once(Ok(front)).chain(specs.iter().map(behind)).collect()
    }
}

impl SwapSpec {
    /// The device beside such compressed memory: of the tier after it, unless another is given.
    ///
    /// # Errors
    /// It is compressed itself, or of the tier that is taken.
    pub fn behind_compressed(self) -> Result<SwapSpec, SpecError> {
        let given = self.not_compressed()?;
        Ok(SwapSpec { tier: given.tier.or(Some(1)), ..given })
    }

    fn not_compressed(self) -> Result<SwapSpec, SpecError> {
        match (&self.path, self.tier) {
            (SwapPath::Compressed(_), _) => Err(SpecError::CompressedTwice(self.to_string())),
            (_, Some(0)) => Err(SpecError::TierTaken(self.to_string())),
            _ => Ok(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_a_size_or_auto() {
        for text in ["auto", "8M", "1536M", "64G"] {
            assert_eq!(text.parse::<Compress>().unwrap().to_string(), text);
        }
        for text in ["", "0", "4M", "Auto", "half", "-1", "50%"] {
            let refusal = text.parse::<Compress>().unwrap_err().to_string();
            assert!(refusal.contains(&format!("\"{text}\"")) && refusal.contains("or auto"));
        }
    }

    #[test]
    fn it_is_in_front_of_all_others_whatever_these_say() {
        let specs = |texts: &[&str]| -> Vec<SwapSpec> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let all = |texts: &[&str]| {
            let all = Compress::Most(64 << 20).in_front_of(&specs(texts), 1 << 30);
            all.map(|all| all.iter().map(|spec| spec.to_string()).collect::<Vec<_>>())
        };
        let plain = all(&["/a,pri=7", "mem:1G"]).unwrap();
        assert_eq!(
            plain,
            ["zram:8G,algo=zstd,level=auto,tier=0", "/a,pri=7,tier=1", "mem:1G,tier=1"]
        );
        let tiers = all(&["/a,tier=2", "mem:1G,tier=1"]).unwrap();
        assert_eq!(tiers, ["zram:8G,algo=zstd,level=auto,tier=0", "/a,tier=2", "mem:1G,tier=1"]);
        for (texts, named) in [(&["zram:1G"][..], "zram:1G"), (&["/a,tier=0"], "/a,tier=0")] {
            let refusal = all(texts).unwrap_err().to_string();
            assert!(refusal.contains(named) && refusal.lines().count() == 1, "{refusal}");
        }
    }
}
