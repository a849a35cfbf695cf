//! Sizes, times and shares as people read them.

/// Bytes of a page, by which records count.
pub const PAGE_BYTES: u64 = 4096;

/// Bytes as `512M`, with a digit after the point below ten.
pub fn bytes(bytes: u64) -> String {
    let units = [("T", 40), ("G", 30), ("M", 20), ("K", 10)];
    let fitting = units.into_iter().find(|(_, shift)| bytes >= 1 << shift);
    match fitting {
        None => format!("{bytes}"),
        Some((unit, shift)) => {
            let value = bytes as f64 / (1u64 << shift) as f64;
            let is_round = value >= 10.0 || value.fract() == 0.0;
            if is_round { format!("{value:.0}{unit}") } else { format!("{value:.1}{unit}") }
        }
    }
}

/// Pages as bytes.
pub fn pages(pages: u64) -> String {
    bytes(pages.saturating_mul(PAGE_BYTES))
}

/// Nanoseconds in the unit that fits.
pub fn time(ns: f64) -> String {
    match ns {
        1e9.. => format!("{:.2} s", ns / 1e9),
        1e6.. => format!("{:.1} ms", ns / 1e6),
        1e3.. => format!("{:.0} µs", ns / 1e3),
        _ => format!("{ns:.0} ns"),
    }
}

/// A share in percent, with a digit after the point where it is small.
pub fn share(share: f64) -> String {
    match share * 100.0 {
        percent if percent > 0.0 && percent < 9.95 => format!("{percent:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

/// Large numbers with the unit of their thousands.
pub fn count(count: u64) -> String {
    match count {
        10_000_000.. => format!("{:.0} million", count as f64 / 1e6),
        1_000_000.. => format!("{:.1} million", count as f64 / 1e6),
        _ => count.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_tell_something() {
        assert_eq!([bytes(512 << 20), bytes(3 << 29), bytes(100)], ["512M", "1.5G", "100"]);
        assert_eq!([time(1.5e9), time(12e3), time(7.0)], ["1.50 s", "12 µs", "7 ns"]);
        assert_eq!([share(0.5), share(0.012), share(0.0)], ["50 %", "1.2 %", "0 %"]);
        assert_eq!([count(999), count(2_500_000)], ["999", "2.5 million"]);
    }
}
