//! A device made slower than it is, to measure placement: a bandwidth and a latency, worse from far away.
//!
//! Requests are served one after the other, as over one link: each begins when the link is free and takes
//! its bytes' time; the latency comes on top and overlaps with other requests.
use super::spec::SpecError;
use crate::sys::clock;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// How fast a device is for some CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Speed {
    /// Megabytes (10^6 bytes) per second; 0 is unlimited.
    pub mb_per_s: u32,
    /// Microseconds until the first byte.
    pub latency_us: u32,
}

/// How slow a device is made to be, for near and far CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Throttle {
    /// For CPUs of its own node, or for all if it has none.
    pub local: Speed,
    /// For CPUs of other nodes.
    pub remote: Speed,
}

/// A number for the device's own node and one for the others, as a user gives them.
#[derive(Clone, Copy, Default)]
pub(super) struct NearFar {
    near: u32,
    far: u32,
}

impl Throttle {
    /// With megabytes per second, microseconds, or both.
    pub(super) fn of(bandwidth: Option<NearFar>, latency: Option<NearFar>) -> Option<Self> {
        bandwidth.or(latency)?;
        let (bandwidth, latency) = (bandwidth.unwrap_or_default(), latency.unwrap_or_default());
        Some(Self {
            local: Speed { mb_per_s: bandwidth.near, latency_us: latency.near },
            remote: Speed { mb_per_s: bandwidth.far, latency_us: latency.far },
        })
    }
}

/// One number for all nodes, or NEAR:FAR.
pub(super) fn parse_near_far(spec: &str, option: &str, value: &str) -> Result<NearFar, SpecError> {
    let (near, far) = value.split_once(':').unwrap_or((value, value));
    let number = |text: &str| text.parse::<u32>().ok().filter(|number| *number > 0);
    let pair = number(near).zip(number(far)).map(|(near, far)| NearFar { near, far });
    pair.ok_or_else(|| SpecError::OptionValue {
        spec: spec.to_owned(),
        option: option.to_owned(),
        allowed: "write a whole number above 0, or NEAR:FAR (throttle in MB/s, latency in us)",
    })
}

/// How far a CPU is from a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Distance {
    /// The same node, or the device belongs to none.
    Local,
    /// Another node.
    Remote,
}

/// The link to a throttled device.
#[derive(Debug)]
pub struct Link {
    throttle: Throttle,
    free_at_ns: AtomicU64,
}

impl Link {
    /// A link on which nothing is under way.
    pub fn new(throttle: Throttle) -> Self {
        Self { throttle, free_at_ns: AtomicU64::new(0) }
    }

    /// How slow it is.
    pub fn throttle(&self) -> Throttle {
        self.throttle
    }

    /// Reserves the link for a request of `bytes`; returns the moment before which it has not ended.
    pub fn reserve(&self, bytes: usize, distance: Distance) -> u64 {
        let speed = match distance {
            Distance::Local => self.throttle.local,
            Distance::Remote => self.throttle.remote,
        };
        let takes = match speed.mb_per_s {
            0 => 0,
            mb_per_s => bytes as u64 * 1000 / u64::from(mb_per_s),
        };
        let now = clock::now_ns();
        let ends = |free_at: u64| free_at.max(now) + takes;
        let before = self
            .free_at_ns
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |free_at| Some(ends(free_at)));
        let free_at = before.expect("the update always has a value");
        ends(free_at) + u64::from(speed.latency_us) * 1000
    }
}

impl fmt::Display for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pair = |f: &mut fmt::Formatter<'_>, name: &str, local: u32, remote: u32| match () {
            () if local == remote && local == 0 => Ok(()),
            () if local == remote => write!(f, ",{name}={local}"),
            () => write!(f, ",{name}={local}:{remote}"),
        };
        pair(f, "throttle", self.local.mb_per_s, self.remote.mb_per_s)?;
        pair(f, "latency", self.local.latency_us, self.remote.latency_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_queue_on_the_link_and_latencies_overlap() {
        let local = Speed { mb_per_s: 1000, latency_us: 50 };
        let remote = Speed { mb_per_s: 100, latency_us: 500 };
        let link = Link::new(Throttle { local, remote });
        let start = clock::now_ns();
        let first = link.reserve(1_000_000, Distance::Local);
        let second = link.reserve(1_000_000, Distance::Local);
        assert!(first >= start + 1_050_000);
        assert_eq!(second, first + 1_000_000);
        assert_eq!(link.reserve(1_000_000, Distance::Remote), second + 10_450_000);
    }

    #[test]
    fn without_a_bandwidth_only_the_latency_counts() {
        let speed = Speed { mb_per_s: 0, latency_us: 10 };
        let link = Link::new(Throttle { local: speed, remote: speed });
        let (start, due) = (clock::now_ns(), link.reserve(1 << 30, Distance::Local));
        assert!(due >= start + 10_000 && due < start + 1_000_000_000);
    }
}
