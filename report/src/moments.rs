//! A record's samples with their times: joined by twos, fours and so on where there are very many.
use std::collections::BTreeMap;
use userswap_trace::{Bucket, DeviceSample, Sample};

/// Moments at most: each takes some kilobytes, and pictures have room for a few hundred.
const MOMENTS_MAX: usize = 1 << 14;

/// A sample with its time.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    /// Milliseconds since the record began.
    pub at_ms: u64,
    /// What was sampled; without mappings, which have been looked at.
    pub sample: Sample,
}

impl Moment {
    /// Both together: what counts events is added up, all else is as in the later one.
    fn then(self, mut later: Self) -> Self {
        let (before, now) = (self.sample, &mut later.sample);
        for (name, growth) in before.counters {
            add(now.counters.entry(name).or_default(), growth);
        }
        now.fault_latency = joined(&before.fault_latency, &now.fault_latency);
        add(&mut now.fault_ns, before.fault_ns);
        add(&mut now.stall_ns, before.stall_ns);
        before.devices.into_iter().for_each(|device| add_device(&mut now.devices, device));
        for (key, value) in before.settings {
            now.settings.entry(key).or_insert(value);
        }
        later
    }
}

fn joined(before: &[Bucket], now: &[Bucket]) -> Vec<Bucket> {
    let mut faults = BTreeMap::new();
    for bucket in before.iter().chain(now) {
        add(faults.entry(bucket.below_ns).or_default(), bucket.faults);
    }
    faults.into_iter().map(|(below_ns, faults)| Bucket { below_ns, faults }).collect()
}

/// The traffic of a device that is gone stays, at a device that is empty.
fn add_device(devices: &mut Vec<DeviceSample>, before: DeviceSample) {
    let Some(now) = devices.iter_mut().find(|device| device.name == before.name) else {
        devices.push(DeviceSample { used_pages: 0, ..before });
        return;
    };
    for (sum, more) in [
        (&mut now.read_bytes, before.read_bytes),
        (&mut now.written_bytes, before.written_bytes),
        (&mut now.reads, before.reads),
        (&mut now.writes, before.writes),
        (&mut now.busy_ns, before.busy_ns),
    ] {
        add(sum, more);
    }
}

/// A file may say anything.
pub(crate) fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

/// Moments as they come.
#[derive(Debug)]
pub(crate) struct Moments {
    all: Vec<Moment>,
    /// Samples that are one moment.
    each: usize,
    /// Samples of the last moment.
    in_last: usize,
}

impl Default for Moments {
    fn default() -> Self {
        Self { all: Vec::new(), each: 1, in_last: 0 }
    }
}

impl Moments {
    pub fn push(&mut self, moment: Moment) {
        match self.all.pop() {
            Some(last) if self.in_last < self.each => {
                self.all.push(last.then(moment));
                self.in_last += 1;
                return;
            }
            last => self.all.extend(last),
        }
        if self.all.len() == MOMENTS_MAX {
            self.join();
        }
        self.all.push(moment);
        self.in_last = 1;
    }

    /// Of every two moments one: all have the same number of samples.
    fn join(&mut self) {
        let mut all = std::mem::take(&mut self.all).into_iter();
        while let Some(one) = all.next() {
            self.all.push(match all.next() {
                Some(next) => one.then(next),
                None => one,
            });
        }
        self.each *= 2;
    }

    pub fn into_vec(self) -> Vec<Moment> {
        self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, number: u64) -> DeviceSample {
        DeviceSample { name: name.into(), used_pages: number, read_bytes: 1, ..Default::default() }
    }

    fn moment(number: u64) -> Moment {
        let sample = Sample {
            counters: [("pgfault".to_owned(), 1), (format!("n{}", number % 2), 1)].into(),
            fault_latency: vec![Bucket { below_ns: 1 << (number % 4), faults: 1 }],
            stall_ns: 1,
            devices: vec![device("disk", number)],
            cpu_ms: number,
            ..Sample::default()
        };
        Moment { at_ms: number * 10, sample }
    }

    #[test]
    fn very_many_moments_are_few_with_the_same_sums_and_ends() {
        const SAMPLES: u64 = 70_001;
        let mut moments = Moments::default();
        (0..SAMPLES).for_each(|number| moments.push(moment(number)));
        let each = moments.each as u64;
        let all = moments.into_vec();
        assert!(each == 8 && all.len() <= MOMENTS_MAX && all.len() > MOMENTS_MAX / 2);
        let sum = |of: fn(&Sample) -> u64| all.iter().map(|moment| of(&moment.sample)).sum::<u64>();
        assert_eq!(sum(|sample| sample.counters["pgfault"]), SAMPLES);
        assert_eq!(sum(|sample| sample.counters.get("n1").copied().unwrap_or(0)), SAMPLES / 2);
        assert_eq!(sum(|sample| sample.stall_ns), SAMPLES);
        assert_eq!(sum(|sample| sample.devices[0].read_bytes), SAMPLES);
        assert_eq!(
            sum(|sample| sample.fault_latency.iter().map(|bucket| bucket.faults).sum::<u64>()),
            SAMPLES
        );
        // Each as long as any other, and the last one as it is.
        for (index, moment) in all[..all.len() - 1].iter().enumerate() {
            assert_eq!(moment.sample.cpu_ms + 1, (index as u64 + 1) * each);
            assert_eq!(moment.at_ms, moment.sample.cpu_ms * 10);
        }
        let last = all.last().unwrap();
        assert_eq!((last.at_ms, last.sample.devices[0].used_pages), (700_000, SAMPLES - 1));
    }

    #[test]
    fn a_device_that_is_gone_keeps_its_traffic_and_a_setting_its_last_value() {
        let with = |devices: &[DeviceSample], settings: &[(&str, &str)]| {
            let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
            let settings = settings.iter().map(owned).collect();
            let sample = Sample { devices: devices.to_vec(), settings, ..Sample::default() };
            Moment { at_ms: 1, sample }
        };
        let before = with(&[device("a", 5), device("b", 6)], &[("x", "1"), ("y", "1")]);
        let both = before.then(with(&[device("b", 7)], &[("x", "2")])).sample;
        let devices: Vec<_> = both.devices.iter().map(|it| (&it.name[..], it.used_pages)).collect();
        assert_eq!(devices, [("b", 7), ("a", 0)]);
        assert_eq!(both.devices[0].read_bytes, 2);
        let settings: Vec<_> = both.settings.values().map(String::as_str).collect();
        assert_eq!(settings, ["2", "1"]);
    }
}
