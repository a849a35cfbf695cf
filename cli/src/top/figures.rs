//! What a program did between two answers of its engine, in numbers per second.

use std::time::Duration;

use userswap::internals::status::{DeviceStatus, Status};

use super::latency;
use crate::memory::PAGE_BYTES;

/// Rates between two answers, and what there was at the second one.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    pub resident_bytes: u64,
    pub swapped_bytes: u64,
    pub faults_per_second: f64,
    pub in_bytes_per_second: f64,
    pub out_bytes_per_second: f64,
    /// Of the time in which a thread waited; None from an engine that does not tell.
    pub stall_share: Option<f64>,
    /// Those that both answers have; none from an engine that does not tell.
    pub devices: Vec<DeviceFigures>,
}

/// What went from and to a device.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceFigures {
    pub index: u32,
    pub in_bytes_per_second: f64,
    pub out_bytes_per_second: f64,
    /// Of the time in which it had a request under way.
    pub busy_share: f64,
}

impl Figures {
    /// From an answer to one that came `apart` later.
    pub fn between(before: &Status, after: &Status, apart: Duration) -> Self {
        let per_second = |count: u64| count as f64 / apart.as_secs_f64().max(1e-3);
        let rate = |name| per_second(grown(before, after, name));
        let share =
            |earlier: u64, later: u64| (per_second(later.saturating_sub(earlier)) / 1e9).min(1.0);
        let device = |later: &DeviceStatus| {
            let earlier = before.devices.iter().find(|device| device.index == later.index)?;
            Some(DeviceFigures {
                index: later.index,
                in_bytes_per_second: per_second(
                    later.reads.bytes.saturating_sub(earlier.reads.bytes),
                ),
                out_bytes_per_second: per_second(
                    later.writes.bytes.saturating_sub(earlier.writes.bytes),
                ),
                busy_share: share(earlier.busy_ns, later.busy_ns),
            })
        };
        let told = latency::is_told(after).then_some(after);
        Self {
            resident_bytes: resident_bytes(after),
            swapped_bytes: swapped_bytes(after),
            faults_per_second: rate("pgfault"),
            in_bytes_per_second: rate("pswpin") * PAGE_BYTES as f64,
            out_bytes_per_second: rate("pswpout") * PAGE_BYTES as f64,
            stall_share: told.map(|after| share(before.stall_ns, after.stall_ns)),
            devices: told
                .iter()
                .flat_map(|after| after.devices.iter().filter_map(device))
                .collect(),
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
    use super::super::examples::{status, with_latency};
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
        assert_eq!(
            (figures.stall_share, figures.devices.len()),
            (None, 0),
            "an engine of an older build"
        );
    }

    #[test]
    fn stalls_and_devices_are_shares_and_rates_of_their_own() {
        let before = with_latency(&[1]);
        let mut after = before.clone();
        after.stall_ns += 500_000_000;
        let device = &mut after.devices[0];
        (device.reads.bytes, device.writes.bytes, device.busy_ns) = (8000, 2000, 9_000_000_000);
        let figures = Figures::between(&before, &after, Duration::from_secs(2));
        assert_eq!(figures.stall_share, Some(0.25));
        let device = &figures.devices[0];
        assert_eq!((device.in_bytes_per_second, device.out_bytes_per_second), (4000.0, 1000.0));
        assert_eq!(device.busy_share, 1.0, "no more than always");
        after.devices[0].index = 3;
        assert_eq!(Figures::between(&before, &after, Duration::from_secs(2)).devices, []);
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
