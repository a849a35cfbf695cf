//! Sizes as people write them, and as this crate prints them.

use thiserror::Error;

/// Powers of 1024 in the order of their suffixes.
const SUFFIXES: [char; 4] = ['k', 'm', 'g', 't'];

/// Why a text is not a usable size.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum SizeError {
    #[error("'{0}' is not a size: write a number with k, m, g or t (powers of 1024), such as 512M")]
    NotASize(String),
    #[error("'{0}' is too small a size: it must be at least {1} bytes, such as 512M")]
    TooSmall(String, u64),
    #[error("'{0}' is too large a size: it must be below 2^63 bytes, such as 512M")]
    TooLarge(String),
}

/// Reads a size such as `512M`, `4096` or `0x1000` that is at least `least` bytes.
pub(crate) fn parse(text: &str, least: u64) -> Result<u64, SizeError> {
    let not_a_size = || SizeError::NotASize(text.to_owned());
    let last = text.chars().last().ok_or_else(not_a_size)?.to_ascii_lowercase();
    let power = SUFFIXES.iter().position(|&suffix| suffix == last);
    let digits = if power.is_some() { &text[..text.len() - 1] } else { text };
    let number = parse_number(digits).ok_or_else(not_a_size)?;
    let shift = power.map_or(0, |power| 10 * (power + 1));
    let bytes = u128::from(number) << shift;
    // The address space ends well below, and sums of two sizes must not overflow.
    let bytes = u64::try_from(bytes).ok().filter(|&bytes| bytes < 1 << 63);
    let bytes = bytes.ok_or_else(|| SizeError::TooLarge(text.to_owned()))?;
    if bytes < least {
        return Err(SizeError::TooSmall(text.to_owned(), least));
    }
    Ok(bytes)
}

fn parse_number(digits: &str) -> Option<u64> {
    let (digits, radix) = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None => (digits, 10),
    };
    // `from_str_radix` accepts a sign, a size does not have one.
    let plain = digits.chars().all(|digit| digit.is_digit(radix));
    plain.then(|| u64::from_str_radix(digits, radix).ok()).flatten()
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
    fn suffixes_are_powers_of_1024_in_either_case() {
        for (text, bytes) in
            [("8", 8), ("4k", 4096), ("4K", 4096), ("512M", 512 << 20), ("2g", 2 << 30)]
        {
            assert_eq!(parse(text, 1), Ok(bytes), "{text}");
        }
        assert_eq!(parse("1t", 1), Ok(1 << 40));
        assert_eq!(parse("0x1000", 1), Ok(4096));
    }

    #[test]
    fn what_is_not_a_size_is_refused_with_its_text() {
        for text in ["12Q", "-1", "+1", "", "M", "1.5G", "0x", "ä"] {
            assert_eq!(parse(text, 1), Err(SizeError::NotASize(text.to_owned())), "{text}");
        }
        assert_eq!(parse("0", 1), Err(SizeError::TooSmall("0".to_owned(), 1)));
        assert_eq!(parse("99999999t", 1), Err(SizeError::TooLarge("99999999t".to_owned())));
    }

    #[test]
    fn sizes_are_printed_in_the_largest_fitting_unit() {
        assert_eq!(display(512 << 20), "512 MiB");
        assert_eq!(display(3 << 29), "1.5 GiB");
        assert_eq!(display(100), "100 B");
    }
}
