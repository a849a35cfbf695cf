//! Sizes: the engine's grammar with a lower bound, and how reports print a size.

use thiserror::Error;
use userswap::internals::size;
use userswap::parse_size;

/// The units that the original usemem takes after a hexadecimal number, too.
const UNITS: [char; 8] = ['k', 'm', 'g', 't', 'K', 'M', 'G', 'T'];

/// Why a text is not a usable size.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum SizeError {
    #[error(transparent)]
    Grammar(#[from] size::SizeError),
    #[error("\"{0}\" is too small a size: it must be at least {1} bytes (512M, 1.5G)")]
    TooSmall(String, u64),
}

/// Reads a size of at least `least` bytes.
pub(crate) fn parse(text: &str, least: u64) -> Result<u64, SizeError> {
    let bytes = match parse_size(text) {
        // Zero is an offset; as a size it is less than `least`.
        Err(size::SizeError::Zero(_)) => 0,
        Err(error) => hexadecimal_with_unit(text).ok_or(error)?,
        Ok(bytes) => bytes,
    };
    if bytes < least {
        return Err(SizeError::TooSmall(text.to_owned(), least));
    }
    Ok(bytes)
}

/// `0x10k`, as the original usemem has it: the engine's grammar knows both halves, but not together.
fn hexadecimal_with_unit(text: &str) -> Option<u64> {
    let number = text.strip_suffix(UNITS)?;
    let unit = parse_size(&format!("1{}", &text[number.len()..])).ok()?;
    let is_hexadecimal = number.starts_with("0x") || number.starts_with("0X");
    let bytes = parse_size(number).ok().filter(|_| is_hexadecimal)?.checked_mul(unit)?;
    (bytes <= size::SIZE_MAX_BYTES).then_some(bytes)
}

/// Prints `bytes` in the largest unit that keeps it readable: `512 MiB`, `1.5 GiB`.
pub(crate) fn display(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut value = bytes as f64;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let text = format!("{value:.2}");
    format!("{} {}", text.trim_end_matches('0').trim_end_matches('.'), UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spellings_of_the_original_usemem_are_sizes() {
        for (text, bytes) in [
            ("2147483648", 2 << 30),
            ("8", 8),
            ("4k", 4096),
            ("512M", 512 << 20),
            ("1g", 1 << 30),
            ("1t", 1 << 40),
            ("0x1000", 4096),
            ("0x10k", 16 << 10),
            ("0X1G", 1 << 30),
        ] {
            assert_eq!(parse(text, 1), Ok(bytes), "{text}");
        }
        assert_eq!(parse("0", 0), Ok(0));
    }

    #[test]
    fn what_is_too_small_or_no_size_is_refused_with_its_text() {
        for text in ["12Q", "-1", "+1", "", "M", "0x", "0xk", "010kk", "0x10kk", "0x1tt", "ä"] {
            let error = parse(text, 1).unwrap_err();
            assert!(matches!(error, SizeError::Grammar(_)), "{error:?}");
            assert!(error.to_string().contains(&format!("\"{text}\"")), "{error}");
        }
        assert_eq!(parse("0", 1), Err(SizeError::TooSmall("0".to_owned(), 1)));
        parse("99999999t", 1).unwrap_err();
        parse("0x400t0", 1).unwrap_err();
        parse("0x401t", 1).unwrap_err();
    }

    #[test]
    fn sizes_are_printed_in_the_largest_fitting_unit() {
        assert_eq!(display(512 << 20), "512 MiB");
        assert_eq!(display(3 << 29), "1.5 GiB");
        assert_eq!(display(100), "100 B");
    }
}
