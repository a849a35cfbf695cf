//! Numbers for the eye: short, with their unit, and a dash for what an engine does not tell.

use userswap::ByteSize;

use crate::memory::PAGE_BYTES;

/// What an engine of an older build does not tell, or what there is nothing to tell about.
pub const ABSENT: &str = "–";

/// At most five characters: `3.1G`, `512M`, `1023M`.
pub fn size(bytes: u64) -> String {
    let text = ByteSize(bytes).rounded();
    match text.find('.') {
        Some(point) if text.len() > 5 => format!("{}{}", &text[..point], &text[text.len() - 1..]),
        _ => text,
    }
}

/// As [`size`], of so many pages.
pub fn pages(count: u64) -> String {
    size(count.saturating_mul(PAGE_BYTES))
}

/// Megabytes per second without their unit, which the title has: `0.4`, `1234`.
pub fn megabytes(bytes_per_second: f64) -> String {
    let megabytes = bytes_per_second / 1e6;
    if megabytes < 99.95 { format!("{megabytes:.1}") } else { format!("{megabytes:.0}") }
}

/// Events per second: `831`, `12.4k`, `2.1M`.
pub fn events(per_second: f64) -> String {
    match per_second {
        ..9999.5 => format!("{per_second:.0}"),
        ..999_950.0 => format!("{:.1}k", per_second / 1e3),
        _ => format!("{:.1}M", per_second / 1e6),
    }
}

/// A share of 1 in percent: `3.1%`, `100%`.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 9.95 { format!("{percent:.1}%") } else { format!("{percent:.0}%") }
}

/// A value that may not be there.
pub fn or_dash<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| ABSENT.to_owned(), show)
}

/// A duration with its unit: `820 ns`, `57 µs`, `1.3 ms`, `2.0 s`.
pub fn duration(nanoseconds: u64) -> String {
    if nanoseconds < 1000 {
        return format!("{nanoseconds} ns");
    }
    let units = ["µs", "ms", "s"];
    let unit = (nanoseconds.ilog10() / 3).min(units.len() as u32);
    let value = nanoseconds as f64 / 1000f64.powi(unit as i32);
    let unit = units[unit as usize - 1];
    if value < 9.95 { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
}

/// The text, or its beginning and an ellipsis where it is wider than `width` characters.
pub fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).take(width).collect()
}

/// As [`cut`], after a whole word.
pub fn cut_after_word(text: &str, width: usize) -> String {
    let short = cut(text, width);
    match short.strip_suffix('…').and_then(|kept| kept.rsplit_once(' ')) {
        Some((words, _)) => format!("{} …", words.trim_end_matches(',')),
        None => short,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_to_their_column() {
        assert_eq!(
            [0, 1023, 4096, (1 << 30) - 1, 3 << 30, 3333 << 20].map(size),
            ["0", "1023", "4K", "1023M", "3G", "3.2G"]
        );
        assert_eq!(
            [0.0, 99.94e6, 99.96e6, 1.2345e9].map(megabytes),
            ["0.0", "99.9", "100", "1234"]
        );
        assert_eq!(
            [0.4, 9999.0, 9999.9, 1e6, 2.54e6].map(events),
            ["0", "9999", "10.0k", "1.0M", "2.5M"]
        );
        assert_eq!([0.0, 0.0994, 0.0996, 1.0].map(percent), ["0.0%", "9.9%", "10%", "100%"]);
        assert_eq!(
            [7, 57_400, 1_340_000, 2_000_000_000].map(duration),
            ["7 ns", "57 µs", "1.3 ms", "2.0 s"]
        );
        assert_eq!(or_dash(None, percent), "–");
    }

    #[test]
    fn what_is_too_long_ends_in_an_ellipsis() {
        assert_eq!(["abc", "abcd", "äöüß"].map(|text| cut(text, 3)), ["abc", "ab…", "äö…"]);
        assert_eq!(cut("abc", 0), "");
        assert_eq!(cut_after_word("one, two three", 14), "one, two three");
        assert_eq!(cut_after_word("one, two three", 13), "one, two …");
        assert_eq!(cut_after_word("one, two three", 8), "one …");
        assert_eq!(cut_after_word("three", 3), "th…");
    }
}
