//! What can be set while the program runs: one row per key.
//!
//! A row reads the text, refuses what it does not allow, and changes the engine; a new setting is a new
//! row, and a line in docs/control.md.
use super::protocol::SettingValue;
use crate::core::Core;
use crate::device::SlotMode;
use crate::options::{PlacementChoice, RAM_MIN_BYTES};
use crate::size::{ByteSize, parse_size};
use crate::sys::PAGE_BYTES;
use userswap_policy::free_batch::FreeOrder;

/// One setting.
struct Setting {
    key: &'static str,
    /// What it can be, as in "use …".
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

/// In the order in which they are shown.
const SETTINGS: [Setting; 5] = [
    Setting {
        key: "ram",
        allowed: "a size of at least 16M, such as 512M",
        set: set_ram,
        value: |core| ByteSize(core.status().ram_bytes).to_string(),
    },
    Setting {
        key: "placement",
        allowed: "near or spread",
        set: |core, value| {
            let placement: PlacementChoice = value.parse().map_err(|_| Refusal::Value)?;
            inside_gate(core, || core.devices.set_placement(placement.into()));
            Ok(())
        },
        value: |core| core.status().placement,
    },
    Setting {
        key: "slot_cache",
        allowed: "cache, clusters or shared",
        set: |core, value| {
            let (_, mode) = named(&MODES, value)?;
            inside_gate(core, || core.devices.set_mode(*mode));
            Ok(())
        },
        value: |core| name_of(&MODES, core.devices.mode()),
    },
    Setting {
        key: "free_order",
        allowed: "sorted, merged or unsorted",
        set: |core, value| {
            let (_, order) = named(&ORDERS, value)?;
            core.devices.set_free_order(*order);
            Ok(())
        },
        value: |core| name_of(&ORDERS, core.devices.free_order()),
    },
    Setting { key: "hibernate", allowed: "1 or 0", set: set_hibernate, value: hibernation },
];

const MODES: [(&str, SlotMode); 3] =
    [("cache", SlotMode::Cache), ("clusters", SlotMode::Clusters), ("shared", SlotMode::Shared)];

const ORDERS: [(&str, FreeOrder); 3] = [
    ("sorted", FreeOrder::Sorted),
    ("merged", FreeOrder::Merged),
    ("unsorted", FreeOrder::Unsorted),
];

fn named<'a, T>(names: &'a [(&str, T)], value: &str) -> Result<&'a (&'a str, T), Refusal> {
    names.iter().find(|(name, _)| *name == value).ok_or(Refusal::Value)
}

fn name_of<T: PartialEq>(names: &[(&str, T)], value: T) -> String {
    let found = names.iter().find(|(_, named)| *named == value);
    found.map_or_else(String::new, |(name, _)| (*name).to_owned())
}

/// A fork meanwhile would copy a lock that nobody in the child gives back.
fn inside_gate(core: &Core, act: impl FnOnce()) {
    core.gate.enter();
    act();
    core.gate.leave();
}

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

fn set_ram(core: &Core, value: &str) -> Result<(), Refusal> {
    let bytes = parse_size(value).ok().filter(|bytes| *bytes >= RAM_MIN_BYTES);
    let pages = bytes.ok_or(Refusal::Value)? / PAGE_BYTES as u64;
    let pages = u32::try_from(pages).unwrap_or(u32::MAX);
    core.set_budget(pages).map_err(|error| Refusal::Because(error.to_string()))
}

/// 1 takes everything out, 0 brings back what RAM has room for.
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

/// What was set last, and what is in RAM all the same.
fn hibernation(core: &Core) -> String {
    let status = core.status();
    let resident: u64 = status.nodes.iter().map(|node| node.resident_pages).sum();
    match (status.hibernated, resident) {
        (false, _) => "0".to_owned(),
        (true, 0) => "1".to_owned(),
        (true, pages) => format!("1, {pages} pages are in RAM ({} pins)", status.pins),
    }
}
