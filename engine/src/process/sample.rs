//! How an engine is doing, for a record: what has changed since the sample before.
use crate::device::record::Device;
use crate::device::traffic::Traffic;
use crate::process::origins::{Numbers, Unknown};
use crate::state::core::Core;
use crate::sys::process;
use std::collections::BTreeMap;
use std::mem::{replace, take};
use std::sync::atomic::{AtomicU64, Ordering};
use userswap_policy::lru::ListId;
use userswap_policy::readahead::AddressOrder;
use userswap_trace::{Bucket, DeviceSample, MAPPINGS_MAX, Mapping, Pages, Sample};

/// Samples between two looks at the mappings: there can be very many.
const MAPPINGS_EVERY: u32 = 4;

/// What the last sample had.
#[derive(Default)]
pub(super) struct Sampler {
    samples: u32,
    counters: BTreeMap<&'static str, u64>,
    latency: Vec<u64>,
    fault_ns: u64,
    stall_ns: u64,
    traffic: BTreeMap<u32, DeviceSample>,
    settings: BTreeMap<String, String>,
    mappings: Vec<Mapping>,
    origins: Numbers,
}

impl Sampler {
    /// Counts from here on: a forked child has its parent's counters.
    pub(super) fn from_now(core: &Core) -> Self {
        let latency = core.counters.latency.buckets();
        Self {
            counters: core.counters.snapshot().values().into_iter().collect(),
            latency: latency.into_iter().map(|(_, faults)| faults).collect(),
            fault_ns: core.counters.latency.sum_ns(),
            stall_ns: core.waits.stalled.ns(),
            traffic: core
                .devices
                .list()
                .map(|known| (known.id().0.into(), traffic(known)))
                .collect(),
            ..Self::default()
        }
    }

    /// None while a fork keeps everybody out.
    pub(super) fn sample(&mut self, core: &Core) -> Option<Sample> {
        let inside = core.gate.try_enter()?;
        let (pages, devices) = (pages(core), self.devices(core));
        let settings = changed(&mut self.settings, settings(core));
        let is_turn = self.samples.is_multiple_of(MAPPINGS_EVERY);
        let mappings = if is_turn { self.mappings(core) } else { None };
        drop(inside);
        let Unknown { objects, origins } = self.origins.take_unknown();
        self.samples += 1;
        let mut counters = core.counters.snapshot().values().into_iter().collect();
        let growth = grown(&counters, &take(&mut self.counters));
        self.counters.append(&mut counters);
        let cpu = process::cpu_time();
        Some(Sample {
            pages,
            counters: growth,
            fault_latency: self.latency(core),
            fault_ns: since(&mut self.fault_ns, core.counters.latency.sum_ns()),
            stall_ns: since(&mut self.stall_ns, core.waits.stalled.ns()),
            devices,
            settings,
            mappings,
            objects,
            origins,
            cpu_ms: cpu.all_ms,
            user_ms: cpu.user_ms,
            exec: String::new(),
        })
    }

    fn devices(&mut self, core: &Core) -> Vec<DeviceSample> {
        core.devices.list().map(|device| self.device(device)).collect()
    }

    fn device(&mut self, device: &Device) -> DeviceSample {
        let now = traffic(device);
        let before = self.traffic.insert(device.id().0.into(), now.clone()).unwrap_or_default();
        // Less than before is another device under the same number.
        let grown =
            |of: fn(&DeviceSample) -> u64| of(&now).checked_sub(of(&before)).unwrap_or(of(&now));
        DeviceSample {
            name: device.label().map(|label| label.name.clone()).unwrap_or_default(),
            used_pages: device.store().lock().used().into(),
            read_bytes: grown(|device| device.read_bytes),
            written_bytes: grown(|device| device.written_bytes),
            reads: grown(|device| device.reads),
            writes: grown(|device| device.writes),
            busy_ns: grown(|device| device.busy_ns),
        }
    }

    fn latency(&mut self, core: &Core) -> Vec<Bucket> {
        let now = core.counters.latency.buckets();
        let before = replace(&mut self.latency, now.iter().map(|(_, faults)| *faults).collect());
        let before = before.into_iter().chain(std::iter::repeat(0));
        let buckets = now.into_iter().zip(before);
        let grown =
            buckets.map(|((below_ns, now), before)| Bucket { below_ns, faults: now - before });
        grown.filter(|bucket| bucket.faults > 0).collect()
    }

    /// The largest, by address; None if they are the same as before.
    fn mappings(&mut self, core: &Core) -> Option<Vec<Mapping>> {
        let mut mapped = core.arena.mapped();
        mapped.retain(|(range, _)| !core.arena.is_foreign(range.first));
        if mapped.len() > MAPPINGS_MAX {
            mapped.select_nth_unstable_by_key(MAPPINGS_MAX, |(range, _)| u32::MAX - range.count);
            mapped.truncate(MAPPINGS_MAX);
            mapped.sort_unstable_by_key(|(range, _)| range.first);
        }
        let mut number =
            |origin: Option<_>| origin.map_or(0, |origin| self.origins.number(&origin));
        let mappings = mapped.into_iter().map(|(range, origin)| Mapping {
            first: range.first,
            count: range.count,
            origin: number(origin),
        });
        let mappings: Vec<_> = mappings.collect();
        if mappings == self.mappings {
            return None;
        }
        self.mappings.clone_from(&mappings);
        Some(mappings)
    }
}

fn since(before: &mut u64, now: u64) -> u64 {
    now.saturating_sub(replace(before, now))
}

fn pages(core: &Core) -> Pages {
    let mut pages = Pages::default();
    for node in &core.nodes {
        let state = node.lock();
        pages.budget += u64::from(state.budget);
        pages.resident += u64::from(state.resident);
        pages.cached += u64::from(state.lists.len(ListId::Cached));
        pages.free += u64::from(state.pool.free());
        pages.writing += u64::from(state.writing);
        pages.charged += u64::from(state.charged + state.stored);
    }
    pages
}

fn traffic(device: &Device) -> DeviceSample {
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let Traffic { reads, writes, busy, .. } = &device.traffic;
    DeviceSample {
        read_bytes: read(&reads.bytes),
        written_bytes: read(&writes.bytes),
        reads: read(&reads.requests),
        writes: read(&writes.requests),
        busy_ns: busy.ns(),
        ..DeviceSample::default()
    }
}

/// Those settings that say how a record is to be read.
fn settings(core: &Core) -> BTreeMap<String, String> {
    let readahead = core.readahead.settings();
    let vma_ra_enabled = readahead.address_order == AddressOrder::Enabled;
    let settings = [
        ("swap_ra_policy", readahead.policy.to_string()),
        ("page_cluster", readahead.page_cluster.to_string()),
        ("vma_ra_enabled", vma_ra_enabled.to_string()),
        ("placement", core.devices.table().placement().to_string()),
        ("reclaim_way", core.reclaim_way().to_string()),
        ("poll", core.polling.setting().to_string()),
    ];
    settings.map(|(key, value)| (key.to_owned(), value)).into()
}

/// What is not as it was before.
fn changed(
    before: &mut BTreeMap<String, String>,
    now: BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut changed = now.clone();
    changed.retain(|key, value| before.get(key) != Some(value));
    *before = now;
    changed
}

fn grown(
    now: &BTreeMap<&'static str, u64>,
    before: &BTreeMap<&'static str, u64>,
) -> BTreeMap<String, u64> {
    let growth = |name: &&str, value: &u64| value - before.get(*name).copied().unwrap_or(0);
    let all = now.iter().map(|(name, value)| ((*name).to_owned(), growth(name, value)));
    all.filter(|(_, growth)| *growth > 0).collect()
}
