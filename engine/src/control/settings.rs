//! What can be set while the program runs: one row per key.
//!
//! A row reads the text, refuses what it does not allow, and changes the engine; a new setting is a new
//! row, and a line in docs/control.md.
use super::protocol::SettingValue;
use crate::base::choice::{PAGE_CLUSTERS, RA_POLICIES, VMA_RA};
use crate::base::limits::RAM_MIN_BYTES;
use crate::base::size::{ByteSize, parse_size};
use crate::device::compress::Compress;
use crate::state::core::Core;
use crate::state::watermarks::{SCALE_MAX, SECOND_CHANCE_MAX, WatermarkSettings};
use crate::sys::PAGE_BYTES;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use userswap_policy::choice::Unknown;
use userswap_policy::readahead::page_cluster_of;
use userswap_policy::servers::SERVERS_MAX;

/// One row.
struct Setting {
    key: &'static str,
    /// The values that it takes, as in "use …".
    allowed: &'static str,
    /// Reads the text and changes the engine.
    set: fn(&Core, &str) -> Result<(), Refusal>,
    /// The value at this moment, as it would be set.
    value: fn(&Core) -> String,
}

/// Why a setting stays as it is.
enum Refusal {
    /// The value is not among the allowed ones.
    Value,
    /// It is, but not now: one line with the remedy.
    Because(String),
}

impl From<Unknown> for Refusal {
    fn from(_: Unknown) -> Self {
        Self::Value
    }
}

/// In the order in which they are shown.
const SETTINGS: [Setting; 18] = [
    Setting {
        key: "ram",
        allowed: "a size of at least 16M, such as 512M",
        set: set_ram,
        value: |core| ByteSize(ram_bytes(core)).to_string(),
    },
    Setting {
        key: "compress",
        allowed: "a size of at least 8M, such as 512M, or auto, or 0 for none",
        set: set_compress,
        value: |core| core.compress().map_or_else(|| "0".to_owned(), |all| all.to_string()),
    },
    Setting {
        key: "placement",
        allowed: "near or spread",
        set: |core, value| {
            let placement = value.parse()?;
            core.inside_gate(|| core.devices.set_placement(placement));
            Ok(())
        },
        value: |core| core.status().placement,
    },
    Setting {
        key: "slot_cache",
        allowed: "cache, clusters or shared",
        set: |core, value| {
            let mode = value.parse()?;
            core.inside_gate(|| core.devices.set_mode(mode));
            Ok(())
        },
        value: |core| core.devices.mode().to_string(),
    },
    Setting {
        key: "free_order",
        allowed: "sorted, merged, unsorted or grouped",
        set: |core, value| {
            core.devices.set_free_order(value.parse()?);
            Ok(())
        },
        value: |core| core.devices.free_order().to_string(),
    },
    Setting {
        key: RA_POLICIES.key,
        allowed: RA_POLICIES.values,
        set: |core, value| {
            core.readahead.set_policy(value.parse()?);
            Ok(())
        },
        value: |core| core.readahead.settings().policy.to_string(),
    },
    Setting {
        key: PAGE_CLUSTERS.key,
        allowed: PAGE_CLUSTERS.values,
        set: |core, value| {
            let page_cluster = page_cluster_of(value).map_err(|_| Refusal::Value)?;
            core.readahead.set_page_cluster(page_cluster);
            Ok(())
        },
        value: |core| core.readahead.settings().page_cluster.to_string(),
    },
    Setting {
        key: VMA_RA.key,
        allowed: VMA_RA.values,
        set: |core, value| {
            core.readahead.set_address_order(value.parse()?);
            Ok(())
        },
        value: |core| core.readahead.settings().address_order.to_string(),
    },
    Setting {
        key: "min_free",
        allowed: "a size of at least 4K such as 2M, or auto",
        set: set_min_free,
        value: |core| {
            let kib =
                core.inside_gate(|| core.watermark_settings().min_free_kib(core.budget_pages()));
            ByteSize(kib << 10).to_string()
        },
    },
    Setting {
        key: "watermark_scale",
        allowed: "a number from 1 to 1000, the gap between two watermarks in 1/10000 of the budget",
        set: |core, value| {
            let scale = number(value, 1..=SCALE_MAX)?;
            set_watermarks(core, |watermarks| watermarks.scale = scale)
        },
        value: |core| core.inside_gate(|| core.watermark_settings()).scale.to_string(),
    },
    Setting {
        key: "second_chance",
        allowed: "a number from 0 to 50, in percent of the budget, and the watermarks with it half of that at most",
        set: |core, value| {
            let percent = number(value, 0..=SECOND_CHANCE_MAX)?;
            set_watermarks(core, |watermarks| watermarks.second_chance_percent = percent)
        },
        value: |core| {
            core.inside_gate(|| core.watermark_settings()).second_chance_percent.to_string()
        },
    },
    Setting {
        key: "reclaim_contention",
        allowed: "wait, stall, skip or stall-balanced",
        set: |core, value| {
            core.unmap_locks.set_contention(value.parse()?);
            Ok(())
        },
        value: |core| core.unmap_locks.contention().to_string(),
    },
    Setting {
        key: "reclaim_way",
        allowed: "auto, runs or blocks",
        set: |core, value| {
            core.set_reclaim_way(value.parse()?);
            Ok(())
        },
        value: |core| core.reclaim_way().to_string(),
    },
    Setting {
        key: "poll",
        allowed: "auto, off, idle or a number of microseconds from 1 to 1000",
        set: set_poll,
        value: |core| core.polling.setting().to_string(),
    },
    Setting {
        key: "servers",
        allowed: "a number from 1 to 4",
        set: |core, value| {
            let number = value.parse().ok().filter(|number| (1..=SERVERS_MAX).contains(number));
            core.threads.set_servers(number.ok_or(Refusal::Value)?);
            Ok(())
        },
        value: |core| core.threads.servers().to_string(),
    },
    Setting {
        key: "patience",
        allowed: SECONDS,
        set: |core, value| {
            core.devices.set_patience_ns(seconds(value)?);
            Ok(())
        },
        value: |core| in_seconds(&core.devices.patience_ns),
    },
    Setting {
        key: "watchdog",
        allowed: SECONDS,
        set: |core, value| {
            core.waits.limit_ns.store(seconds(value)?, Ordering::Relaxed);
            core.wake_watchdog();
            Ok(())
        },
        value: |core| in_seconds(&core.waits.limit_ns),
    },
    Setting { key: "hibernate", allowed: "1 or 0", set: set_hibernate, value: hibernation },
];

/// Changes one setting; returns its value, which may be rounded.
///
/// # Errors
/// There is no such key, or it does not take the value; nothing is changed then.
pub fn set(core: &Core, key: &str, value: &str) -> Result<String, String> {
    let Some(setting) = SETTINGS.iter().find(|setting| setting.key == key) else {
        let known: Vec<_> = SETTINGS.iter().map(|setting| setting.key).collect();
        return Err(format!("{key:?} cannot be set: use {}", known.join(" or ")));
    };
    (setting.set)(core, value).map_err(|refusal| match refusal {
        Refusal::Value => format!("{key}: {value:?} is not allowed: use {}", setting.allowed),
        Refusal::Because(reason) => format!("{key}: {reason}"),
    })?;
    Ok((setting.value)(core))
}

/// All settings with their values.
pub fn all(core: &Core) -> Vec<SettingValue> {
    let row = |setting: &Setting| SettingValue {
        key: setting.key.to_owned(),
        value: (setting.value)(core),
        allowed: setting.allowed.to_owned(),
    };
    SETTINGS.iter().map(row).collect()
}

/// A plain decimal number within bounds.
fn number(value: &str, allowed: RangeInclusive<u32>) -> Result<u32, Refusal> {
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    let number = value.parse().ok().filter(|number| digits && allowed.contains(number));
    number.ok_or(Refusal::Value)
}

/// Of the settings that are times; 0 is never.
const SECONDS: &str = "seconds from 0 to 86400, such as 40 or 0.5";

/// A decimal number of seconds, in nanoseconds.
fn seconds(value: &str) -> Result<u64, Refusal> {
    let is_plain = value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number: Option<f64> = value.parse().ok().filter(|_| is_plain);
    let number = number.filter(|seconds| (0.0..=86400.0).contains(seconds));
    number.map(|seconds| (seconds * 1e9).round() as u64).ok_or(Refusal::Value)
}

fn in_seconds(nanoseconds: &AtomicU64) -> String {
    (nanoseconds.load(Ordering::Relaxed) as f64 / 1e9).to_string()
}

fn set_watermarks(core: &Core, change: impl FnOnce(&mut WatermarkSettings)) -> Result<(), Refusal> {
    core.set_watermarks(change).map_err(|error| Refusal::Because(error.to_string()))
}

fn set_min_free(core: &Core, value: &str) -> Result<(), Refusal> {
    let kib = match value {
        "auto" => None,
        size => {
            let bytes = parse_size(size).ok().filter(|bytes| *bytes >= PAGE_BYTES as u64);
            Some(bytes.ok_or(Refusal::Value)? >> 10)
        }
    };
    set_watermarks(core, |watermarks| watermarks.min_free_kib = kib)
}

fn set_compress(core: &Core, value: &str) -> Result<(), Refusal> {
    let compress = match value {
        "0" => Compress::Most(0),
        size => size.parse().map_err(|_| Refusal::Value)?,
    };
    core.set_compress(compress).map_err(|error| Refusal::Because(error.to_string()))
}

fn set_poll(core: &Core, value: &str) -> Result<(), Refusal> {
    let poll = value.parse()?;
    // Inside the gate, as it may open a file, which a forked child replaces.
    core.inside_gate(|| core.polling.set(poll))
        .map_err(|error| Refusal::Because(error.to_string()))?;
    core.wake_watchdog();
    Ok(())
}

fn set_ram(core: &Core, value: &str) -> Result<(), Refusal> {
    let bytes = parse_size(value).ok().filter(|bytes| *bytes >= RAM_MIN_BYTES);
    let pages = bytes.ok_or(Refusal::Value)? / PAGE_BYTES as u64;
    let pages = u32::try_from(pages).unwrap_or(u32::MAX);
    let outcome = match core.member() {
        Some(member) => core.set_limit(member, pages),
        None => core.set_budget(pages),
    };
    outcome.map_err(|error| Refusal::Because(error.to_string()))
}

/// The job's budget, where there is one.
fn ram_bytes(core: &Core) -> u64 {
    let pages = core.member().map(|member| u64::from(member.ledger.limit()));
    pages.map_or_else(|| core.status().ram_bytes, |pages| pages * PAGE_BYTES as u64)
}

/// 1 swaps everything out, 0 swaps in what RAM has room for.
fn set_hibernate(core: &Core, value: &str) -> Result<(), Refusal> {
    match value {
        "1" => {
            core.page_out_all();
            Ok(())
        }
        "0" => core.prefetch_all().map_err(|error| Refusal::Because(error.to_string())),
        _ => Err(Refusal::Value),
    }
}

/// The value set last, and after a 1 how many pages are in RAM all the same.
fn hibernation(core: &Core) -> String {
    let status = core.status();
    let resident: u64 = status.nodes.iter().map(|node| node.resident_pages).sum();
    match (status.hibernated, resident) {
        (false, _) => "0".to_owned(),
        (true, 0) => "1".to_owned(),
        (true, pages) => format!("1, {pages} pages are in RAM ({} pins)", status.pins),
    }
}
