//! Sizes as people write them: `512M`, `1.5G`, `0x1000`.
//!
//! One grammar serves every option, swap specification and report, so that what is printed can be
//! typed back. Units are powers of 1024; `K`, `KB` and `KiB` mean the same. What a size is good for
//! (a smallest budget, a largest device) is for the caller to judge.
use std::fmt;
use std::str::FromStr;

/// The largest size that is accepted: more than a 47-bit address space, and far enough from the end
/// of `u64` that sixteen times a size still fits.
pub const SIZE_MAX_BYTES: u64 = 1 << 50;

/// Unit letters from the largest down, with the power of two each stands for.
const UNITS: [(char, u32); 5] = [('P', 50), ('T', 40), ('G', 30), ('M', 20), ('K', 10)];

/// More decimals than this cannot change a size below `SIZE_MAX_BYTES` by a byte.
const DECIMALS_MAX: usize = 18;

/// A number of bytes that reads and prints as `512M`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

/// Why a text is not a usable size; the message names the text and says what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// The text is neither a number nor a number with a known unit.
    #[error("{0:?} is not a size: write a number of bytes, or one with K, M, G or T (512M, 1.5G)")]
    Malformed(String),
    /// The size is zero, or less than one byte.
    #[error("{0:?} is no size to work with: it must be more than zero (512M, 1.5G)")]
    Zero(String),
    /// The size is beyond `SIZE_MAX_BYTES`.
    #[error("{0:?} is too large: a size is at most {max}", max = ByteSize(SIZE_MAX_BYTES))]
    TooLarge(String),
}

impl ByteSize {
    /// The size for the eye: rounded down to one decimal of its largest unit (`3.1G`), not exact.
    pub fn rounded(self) -> String {
        match UNITS.iter().find(|(_, shift)| self.0 >> shift > 0) {
            None => self.0.to_string(),
            Some((letter, shift)) => {
                let tenths = (u128::from(self.0) * 10) >> shift;
                match (tenths / 10, tenths % 10) {
                    (whole, 0) => format!("{whole}{letter}"),
                    (whole, tenth) => format!("{whole}.{tenth}{letter}"),
                }
            }
        }
    }
}

impl fmt::Display for ByteSize {
    /// Exact: the largest unit that divides the size, so that reading it back gives the same size.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let divides = |shift: u32| self.0 != 0 && self.0.trailing_zeros() >= shift;
        match UNITS.iter().skip(1).find(|(_, shift)| divides(*shift)) {
            Some((letter, shift)) => f.pad(&format!("{}{letter}", self.0 >> shift)),
            None => f.pad(&self.0.to_string()),
        }
    }
}

impl FromStr for ByteSize {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        parse_size(text).map(ByteSize)
    }
}

/// Reads a size in bytes.
///
/// # Errors
/// Text that is not a size, zero, and sizes beyond [`SIZE_MAX_BYTES`].
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let malformed = || SizeError::Malformed(text.to_owned());
    let too_large = || SizeError::TooLarge(text.to_owned());
    let bytes = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => {
            if digits.is_empty() || !digits.chars().all(|c| c.is_ascii_hexdigit()) {
                return Err(malformed());
            }
            u128::from_str_radix(digits, 16).map_err(|_| too_large())?
        }
        None => {
            let end = text.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(text.len());
            let (number, unit) = text.split_at(end);
            let shift = unit_shift(unit).ok_or_else(malformed)?;
            let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
            if whole.is_empty() || decimals.contains('.') || number.ends_with('.') {
                return Err(malformed());
            }
            // Half a byte is a typing error, half a gigabyte is not.
            if shift == 0 && !decimals.is_empty() {
                return Err(malformed());
            }
            scaled(whole, decimals, shift).ok_or_else(too_large)?
        }
    };
    match u64::try_from(bytes) {
        Ok(0) => Err(SizeError::Zero(text.to_owned())),
        Ok(bytes) if bytes <= SIZE_MAX_BYTES => Ok(bytes),
        _ => Err(too_large()),
    }
}

/// The power of two that a unit stands for, `None` for an unknown unit.
fn unit_shift(unit: &str) -> Option<u32> {
    let unit = unit.to_ascii_uppercase();
    if unit.is_empty() || unit == "B" {
        return Some(0);
    }
    let (letter, rest) = unit.split_at_checked(1)?;
    if !matches!(rest, "" | "B" | "IB") {
        return None;
    }
    UNITS.iter().find(|(name, _)| letter.starts_with(*name)).map(|(_, shift)| *shift)
}

/// `whole.decimals << shift`, `None` when it does not fit.
fn scaled(whole: &str, decimals: &str, shift: u32) -> Option<u128> {
    let decimals = &decimals[..decimals.len().min(DECIMALS_MAX)];
    let unit = 1u128 << shift;
    let whole = whole.parse::<u64>().ok()?;
    let part = if decimals.is_empty() { 0 } else { decimals.parse::<u64>().ok()? };
    let of = 10u128.pow(decimals.len() as u32);
    Some(u128::from(whole) * unit + u128::from(part) * unit / of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_units() {
        for (text, bytes) in [
            ("4096", 4096),
            ("1", 1),
            ("512M", 512 << 20),
            ("2G", 2 << 30),
            ("64k", 64 << 10),
            ("1.5G", 3 << 29),
            ("0.5K", 512),
            ("1T", 1 << 40),
            ("0x1000", 4096),
            ("0XfF", 255),
            ("16MiB", 16 << 20),
            ("16MB", 16 << 20),
            ("16mb", 16 << 20),
            ("100B", 100),
            ("1024T", 1 << 50),
            ("1P", 1 << 50),
            ("0.1G", 107_374_182),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn a_text_that_is_no_size_is_named_in_the_refusal() {
        for text in [
            "12Q", "", "-1", "+1", "M", ".5G", "1.G", "1..5G", "1.5", "0x", "0xG", "5 M", "1MM",
            "1KiBs", "ä", "1é", "1e9",
        ] {
            let error = parse_size(text).unwrap_err();
            assert_eq!(error, SizeError::Malformed(text.to_owned()));
            assert!(error.to_string().contains(&format!("\"{text}\"")), "{error}");
            assert!(error.to_string().contains("512M"), "{error}");
        }
    }

    #[test]
    fn zero_is_refused_in_every_spelling() {
        for text in ["0", "0K", "0.0G", "0x0", "00", "0.0001K"] {
            assert_eq!(parse_size(text), Err(SizeError::Zero(text.to_owned())));
        }
    }

    #[test]
    fn a_size_beyond_the_limit_is_refused_without_wrapping_around() {
        for text in
            ["1025T", "18446744073709551617", "999999999999999999999999P", "0xfffffffffffffffff"]
        {
            assert_eq!(parse_size(text), Err(SizeError::TooLarge(text.to_owned())), "{text}");
        }
        assert_eq!(
            parse_size("2P").unwrap_err().to_string(),
            "\"2P\" is too large: a size is at most 1024T"
        );
    }

    #[test]
    fn a_printed_size_reads_back_as_the_same_size() {
        for bytes in [1, 4095, 4096, 4097, 512 << 20, 3 << 29, 1 << 40, 5 << 40, 1 << 50] {
            assert_eq!(parse_size(&ByteSize(bytes).to_string()), Ok(bytes));
        }
        assert_eq!(ByteSize(512 << 20).to_string(), "512M");
        assert_eq!(ByteSize(0).to_string(), "0");
        assert_eq!(format!("{:>6}", ByteSize(2 << 30)), "    2G");
    }

    #[test]
    fn a_rounded_size_never_promises_more_than_there_is() {
        assert_eq!(ByteSize((3 << 30) + 12_345).rounded(), "3G");
        assert_eq!(ByteSize((3 << 30) + (1 << 30) / 5).rounded(), "3.1G");
        assert_eq!(ByteSize(1023).rounded(), "1023");
        assert_eq!(ByteSize(0).rounded(), "0");
    }
}
