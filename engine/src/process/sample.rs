//! How an engine is doing, for a record: what has changed since the sample before.
use crate::base::index::PageRange;
use crate::state::core::Core;
use crate::sys::process;
use std::collections::BTreeMap;
use std::mem::replace;
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
    settings: BTreeMap<String, String>,
    mappings: Vec<Mapping>,
}

impl Sampler {
    /// None while a fork keeps everybody out.
    pub(super) fn sample(&mut self, core: &Core) -> Option<Sample> {
        let inside = core.gate.try_enter()?;
        let (pages, devices) = (pages(core), devices(core));
        let settings = changed(&mut self.settings, settings(core));
        let is_turn = self.samples.is_multiple_of(MAPPINGS_EVERY);
        let mappings = if is_turn { self.mappings(core) } else { None };
        drop(inside);
        self.samples += 1;
        let mut counters = core.counters.snapshot().values().into_iter().collect();
        let growth = grown(&counters, &replace(&mut self.counters, BTreeMap::new()));
        self.counters.append(&mut counters);
        Some(Sample {
            pages,
            counters: growth,
            fault_latency: self.latency(core),
            devices,
            settings,
            mappings,
            cpu_ms: process::cpu_ms(),
            ..Sample::default()
        })
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
        let all = core.arena.allocated(PageRange { first: 0, count: core.arena.pages() });
        let plain = all.into_iter().filter(|range| !core.arena.is_foreign(range.first));
        let mut mappings: Vec<_> = plain
            .map(|range| Mapping { first: range.first, count: range.count, name: String::new() })
            .collect();
        if mappings.len() > MAPPINGS_MAX {
            mappings.select_nth_unstable_by_key(MAPPINGS_MAX, |mapping| u32::MAX - mapping.count);
            mappings.truncate(MAPPINGS_MAX);
            mappings.sort_unstable_by_key(|mapping| mapping.first);
        }
        if mappings == self.mappings {
            return None;
        }
        self.mappings.clone_from(&mappings);
        Some(mappings)
    }
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
        pages.charged += u64::from(state.charged);
    }
    pages
}

fn devices(core: &Core) -> Vec<DeviceSample> {
    let sample = |device: &crate::device::record::Device| {
        let name = device.label().map(|label| label.name.clone());
        let used_pages = u64::from(device.store().lock().used());
        DeviceSample { name: name.unwrap_or_default(), used_pages, ..DeviceSample::default() }
    };
    core.devices.list().map(sample).collect()
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
