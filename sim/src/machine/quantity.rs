//! Quantities with their units, as scenario files have them: `"48 GiB"`, `"115 ns"`; and numbers within bounds.

use serde::de::{Deserialize, Deserializer, Error};

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;

const SIZES: [(&str, u64); 5] =
    [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];
const TIMES: [(&str, u64); 4] = [("ns", 1), ("us", 1000), ("ms", 1_000_000), ("s", 1_000_000_000)];

/// The longest time: an hour, as long as a run may take.
pub const TIME_MAX: u64 = 3_600_000_000_000;

/// A size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bytes(pub u64);

impl Bytes {
    /// Whole pages.
    pub fn pages(self) -> u64 {
        self.0 / PAGE_BYTES
    }
}

/// A duration in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Time(pub u64);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        read(&text, &SIZES).map(Bytes).ok_or_else(|| refuse(&text, "size", &SIZES))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        match read(&text, &TIMES) {
            Some(ns @ 0..=TIME_MAX) => Ok(Time(ns)),
            Some(_) => {
                Err(D::Error::custom(format!("{text:?} is too long: use \"3600 s\" at most")))
            }
            None => Err(refuse(&text, "time", &TIMES)),
        }
    }
}

/// A whole number from `LEAST` to `MOST`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Whole<const LEAST: u32, const MOST: u32>(u32);

impl<const LEAST: u32, const MOST: u32> Whole<LEAST, MOST> {
    /// The number.
    pub fn get(self) -> u32 {
        self.0
    }
}

impl<const MOST: u32> Default for Whole<0, MOST> {
    fn default() -> Self {
        Self(0)
    }
}

impl<const LEAST: u32, const MOST: u32> std::fmt::Display for Whole<LEAST, MOST> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de, const LEAST: u32, const MOST: u32> Deserialize<'de> for Whole<LEAST, MOST> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = u64::deserialize(from)?;
        let within = u32::try_from(number).ok().filter(|number| (LEAST..=MOST).contains(number));
        within.map(Self).ok_or_else(|| {
            D::Error::custom(format!("{number}: use a whole number from {LEAST} to {MOST}"))
        })
    }
}

fn read(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, unit) = text.split_once(' ')?;
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

fn refuse<E: Error>(text: &str, what: &str, units: &[(&str, u64)]) -> E {
    let names: Vec<_> = units.iter().map(|(name, _)| *name).collect();
    E::custom(format!(
        "{text:?} is no {what}: use a whole number, a space and one of {}",
        names.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantity_is_a_whole_number_and_a_unit() {
        assert_eq!(read("48 GiB", &SIZES), Some(48 << 30));
        assert_eq!(read("3 us", &TIMES), Some(3000));
        for wrong in ["48GiB", "48", "1.5 GiB", "-1 GiB", "4 GB", "99999999999999 TiB"] {
            assert_eq!(read(wrong, &SIZES), None, "{wrong}");
        }
    }
}
