//! `--ram`: one budget, or one for each node.
use std::str::FromStr;
use userswap::internals::{Options, RAM_MAX_BYTES, RAM_MIN_BYTES, check_nodes};
use userswap::{ByteSize, Error, parse_size};

use crate::failure::Failure;
use crate::memory::{self, PAGE_BYTES};

/// A RAM budget as typed: `512M`, or `0:2G,1:2G`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ram {
    total_bytes: u64,
    by_node: Vec<(u32, u64)>,
}

impl Ram {
    /// One budget for all nodes together.
    pub fn total(total_bytes: u64) -> Self {
        Self { total_bytes, by_node: Vec::new() }
    }

    /// What the engine is built with.
    pub fn options(self) -> Options {
        let mut options = Options::new(self.total_bytes);
        options.ram_by_node = self.by_node;
        options
    }
}

impl FromStr for Ram {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if !text.contains(':') {
            return parse_ram(text).map(Self::total);
        }
        let mut by_node: Vec<(u32, u64)> = Vec::new();
        for part in text.split(',') {
            let (node, size) = part.split_once(':').ok_or_else(|| {
                format!("\"{part}\" names no node: write NODE:SIZE for each, such as 0:2G,1:2G")
            })?;
            let node = node.parse().map_err(|_| {
                format!("\"{node}\" is no node number: write NODE:SIZE, such as 0:2G,1:2G")
            })?;
            if by_node.iter().any(|(other, _)| *other == node) {
                return Err(format!("node {node} is named twice: give each node one size"));
            }
            by_node.push((node, parse_size(size).map_err(|error| error.to_string())?));
        }
        let total = by_node.iter().try_fold(0u64, |sum, (_, bytes)| sum.checked_add(*bytes));
        let total_bytes = enough(text, total.ok_or_else(|| format!("\"{text}\" is too large"))?)?;
        Ok(Self { total_bytes, by_node })
    }
}

/// Reads a RAM budget.
///
/// # Errors
/// Text that is no size, and budgets that are too small.
pub fn parse_ram(text: &str) -> Result<u64, String> {
    enough(text, parse_size(text).map_err(|error| error.to_string())?)
}

/// Half of what is available, as far as an engine can have it.
///
/// # Errors
/// The machine does not say what is available.
pub fn default_ram() -> Result<u64, Failure> {
    let available = memory::available_bytes().ok_or_else(|| {
        Failure::unavailable("/proc/meminfo does not say what is available: give --ram SIZE")
    })?;
    Ok(half_of(available))
}

fn half_of(available: u64) -> u64 {
    let half = available / 2;
    (half - half % PAGE_BYTES).clamp(RAM_MIN_BYTES, RAM_MAX_BYTES)
}

/// Whether an engine can have the budget, its most included.
///
/// # Errors
/// The option that asks for too much, and why.
pub fn check(options: &Options) -> Result<(), Failure> {
    check_nodes(options).map_err(|error| {
        let is_most = options.ram_max_bytes > options.ram_bytes;
        let option = match error {
            Error::BudgetTooLarge(..) if is_most => "--ram-max",
            _ => "--ram",
        };
        Failure::usage(format!("{option}: {error}"))
    })
}

fn enough(text: &str, bytes: u64) -> Result<u64, String> {
    match bytes {
        RAM_MIN_BYTES.. => Ok(bytes),
        _ => Err(format!(
            "\"{text}\" is too small a budget: give at least {}",
            ByteSize(RAM_MIN_BYTES)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_below_the_minimum_are_refused_with_the_minimum() {
        assert_eq!(parse_ram("16M"), Ok(RAM_MIN_BYTES));
        assert_eq!(
            parse_ram("1M"),
            Err("\"1M\" is too small a budget: give at least 16M".to_owned())
        );
        assert!(parse_ram("12Q").unwrap_err().contains("\"12Q\""));
    }

    #[test]
    fn half_of_a_large_machine_is_a_budget_that_an_engine_can_have() {
        assert_eq!(half_of(8 << 30), 4 << 30);
        assert_eq!(half_of((8 << 30) + 4096), 4 << 30);
        assert_eq!(half_of(1 << 20), RAM_MIN_BYTES);
        let largest = half_of(2 << 40);
        assert_eq!(largest, 256 << 30);
        assert_eq!(check(&Options::new(largest)), Ok(()));
    }

    #[test]
    fn a_budget_that_is_too_large_names_its_option_and_sizes() {
        for (ram, most, said) in [
            (
                300 << 30,
                0,
                "--ram: a budget of 300G is too large for this engine: use at most 256G",
            ),
            (1 << 30, 1 << 40, "--ram-max: a budget of 1T is too large"),
        ] {
            let mut options = Options::new(ram);
            options.ram_max_bytes = most;
            let refusal = check(&options).unwrap_err().message;
            assert!(refusal.starts_with(said), "{refusal}");
        }
    }

    #[test]
    fn a_budget_may_be_given_for_each_node() {
        assert_eq!("512M".parse(), Ok(Ram::total(512 << 20)));
        let ram: Ram = "0:2G,3:64M".parse().unwrap();
        assert_eq!(
            (ram.total_bytes, ram.by_node.clone()),
            ((2 << 30) + (64 << 20), vec![(0, 2 << 30), (3, 64 << 20)])
        );
        for (text, named) in [
            ("0:2G,1G", "\"1G\""),
            ("a:2G", "\"a\""),
            ("0:2G,0:1G", "named twice"),
            ("0:12Q", "\"12Q\""),
            ("0:1M,1:2M", "\"0:1M,1:2M\""),
        ] {
            let refusal = text.parse::<Ram>().unwrap_err();
            assert!(refusal.contains(named), "{text}: {refusal}");
        }
    }
}
