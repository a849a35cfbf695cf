//! What a program did between two answers of its engine, in numbers per second.

use std::time::Duration;

use userswap::internals::status::Status;

use crate::memory::PAGE_BYTES;

/// Rates between two answers, and what there was at the second one.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    pub resident_bytes: u64,
    pub swapped_bytes: u64,
    pub faults_per_second: f64,
    pub in_bytes_per_second: f64,
    pub out_bytes_per_second: f64,
}

impl Figures {
    /// From an answer to one that came `apart` later.
    pub fn between(before: &Status, after: &Status, apart: Duration) -> Self {
        let rate = |name| grown(before, after, name) as f64 / apart.as_secs_f64().max(1e-3);
        Self {
            resident_bytes: resident_bytes(after),
            swapped_bytes: swapped_bytes(after),
            faults_per_second: rate("pgfault"),
            in_bytes_per_second: rate("pswpin") * PAGE_BYTES as f64,
            out_bytes_per_second: rate("pswpout") * PAGE_BYTES as f64,
        }
    }
}

/// Memory that is mapped in regions, on all nodes.
pub fn resident_bytes(status: &Status) -> u64 {
    status.nodes.iter().map(|node| node.resident_pages).sum::<u64>().saturating_mul(PAGE_BYTES)
}

/// What the slots in use hold, on all devices.
pub fn swapped_bytes(status: &Status) -> u64 {
    status.devices.iter().map(|device| device.used_bytes).sum()
}

/// The share of the pages read ahead that were not read for nothing; None when none were.
///
/// What is wasted shows late and is counted with every policy, what is hit only with the kernel's.
pub fn hit_rate(before: &Status, after: &Status) -> Option<f64> {
    let ahead = grown(before, after, "swap_ra");
    let wasted = grown(before, after, "swap_ra_wasted").min(ahead);
    (ahead > 0).then(|| 1.0 - wasted as f64 / ahead as f64)
}

fn grown(before: &Status, after: &Status, name: &str) -> u64 {
    let counter = |status: &Status| status.counters.get(name).copied().unwrap_or(0);
    counter(after).saturating_sub(counter(before))
}

#[cfg(test)]
mod tests {
    use super::super::examples::status;
    use super::*;

    #[test]
    fn rates_are_what_has_grown_by_the_time_between() {
        let before = status();
        let mut after = before.clone();
        for (name, more) in [("pgfault", 100), ("pswpin", 500), ("pswpout", 50)] {
            *after.counters.get_mut(name).unwrap() += more;
        }
        let figures = Figures::between(&before, &after, Duration::from_millis(500));
        assert_eq!(figures.faults_per_second, 200.0);
        assert_eq!(figures.in_bytes_per_second, 4096.0 * 1000.0);
        assert_eq!(figures.out_bytes_per_second, 4096.0 * 100.0);
        assert_eq!(figures.resident_bytes, resident_bytes(&before));
    }

    #[test]
    fn what_was_read_ahead_and_not_wasted_is_hit() {
        let before = status();
        let mut after = before.clone();
        assert_eq!(hit_rate(&before, &after), None);
        *after.counters.get_mut("swap_ra").unwrap() += 100;
        *after.counters.get_mut("swap_ra_wasted").unwrap() += 25;
        assert_eq!(hit_rate(&before, &after), Some(0.75));
        *after.counters.get_mut("swap_ra_wasted").unwrap() += 100;
        assert_eq!(
            hit_rate(&before, &after),
            Some(0.0),
            "what is wasted may have been read before"
        );
    }
}
