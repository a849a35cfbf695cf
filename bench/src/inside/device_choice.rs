//! What choosing a swap device costs on machines of many nodes, and what per-node lists cost when a device leaves them.
use super::{Format, Outcome, Row, in_turns};
use crate::figures::Spread;
use clap::Args;
use serde::Serialize;
use std::hint::black_box;
use std::time::Instant;
use userswap::NodeId;
use userswap::internals::lock::{Lock, LockUse};
use userswap_policy::devices::{
    DEVICES_MAX, DeviceId, DeviceTable, MACHINE_NODES_MAX, Placement, Search,
};

/// Options of `bench device-choice`.
#[derive(Debug, Clone, Args)]
pub struct DeviceChoiceArgs {
    /// Numbers of nodes, with a device each as long as there are numbers for devices
    #[arg(long, value_name = "N", value_delimiter = ',', num_args = 1.., default_values_t = [1, 2, 4, 8, 16, 32, 64],
          value_parser = clap::value_parser!(u16).range(1..=i64::from(MACHINE_NODES_MAX)))]
    nodes: Vec<u16>,
    /// Choices that are timed together
    #[arg(long, value_name = "N", default_value_t = 100_000,
          value_parser = clap::value_parser!(u32).range(1000..))]
    choices: u32,
    /// Runs of each variant
    #[arg(long, value_name = "N", default_value_t = 15,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    #[command(flatten)]
    pub(super) format: Format,
}

/// One machine; times are medians, with the least.
#[derive(Debug, Serialize)]
pub(super) struct ChoiceRow {
    nodes: u16,
    devices: u32,
    placement: &'static str,
    choose_ns: f64,
    choose_ns_least: f64,
    relist_ns: f64,
    list_entries: u32,
}

impl Row for ChoiceRow {
    const COLUMNS: &'static [&'static str] = &[
        "nodes",
        "devices",
        "placement",
        "ns/choice",
        "least",
        "off all lists and on, ns",
        "list entries",
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.nodes.to_string(),
            self.devices.to_string(),
            self.placement.to_owned(),
            format!("{:.1}", self.choose_ns),
            format!("{:.1}", self.choose_ns_least),
            format!("{:.0}", self.relist_ns),
            self.list_entries.to_string(),
        ]
    }
}

/// A machine, and which lists it has.
#[derive(Debug, Clone, Copy)]
struct Variant {
    nodes: u16,
    placement: Placement,
}

/// Nanoseconds of one run.
struct Times {
    choose_ns: f64,
    relist_ns: f64,
    list_entries: u32,
}

pub(super) fn measure(args: &DeviceChoiceArgs) -> Outcome<ChoiceRow> {
    let of_nodes =
        |&nodes: &u16| Placement::ALL.map(|placement| Variant { nodes, placement }).into_iter();
    let variants: Vec<Variant> = args.nodes.iter().flat_map(of_nodes).collect();
    let runs = in_turns(args.runs, &variants, |variant| Ok(one_run(args, variant)))?;
    let row = |(variant, runs): (&Variant, Vec<Times>)| {
        let choose = Spread::of(runs.iter().map(|run| run.choose_ns))?;
        Some(ChoiceRow {
            nodes: variant.nodes,
            devices: devices_of(variant.nodes),
            placement: variant.placement.name(),
            choose_ns: choose.median,
            choose_ns_least: choose.least,
            relist_ns: Spread::of(runs.iter().map(|run| run.relist_ns))?.median,
            list_entries: runs.first()?.list_entries,
        })
    };
    Ok(variants.iter().zip(runs).filter_map(row).collect())
}

fn devices_of(nodes: u16) -> u32 {
    u32::from(nodes).min(DEVICES_MAX as u32)
}

fn one_run(args: &DeviceChoiceArgs, variant: Variant) -> Times {
    let mut table = DeviceTable::new(variant.nodes, variant.placement);
    for device in 0..devices_of(variant.nodes) {
        table.swapon(Some(NodeId(device as u16)), None, 1 << 20).expect("there is such a node");
    }
    let lists = match variant.placement {
        Placement::Near => variant.nodes,
        Placement::Spread => 1,
    };
    let entries = |node| table.listed(NodeId(node)).count() as u32;
    let list_entries = (0..lists).map(entries).sum();
    let (table, used) = (Lock::new(table), LockUse::default());
    let begin = Instant::now();
    for choice in 0..args.choices {
        let near = NodeId((choice % u32::from(variant.nodes)) as u16);
        let chosen = table.lock_counted(&used).next(near, &mut Search::new());
        black_box(chosen.expect("a device has room"));
    }
    let choose_ns = begin.elapsed().as_nanos() as f64 / f64::from(args.choices);
    let times = args.choices / 100;
    let begin = Instant::now();
    for _ in 0..times {
        table.lock().on_full(DeviceId(0));
        table.lock().on_not_full(DeviceId(0));
    }
    let relist_ns = begin.elapsed().as_nanos() as f64 / f64::from(times);
    Times { choose_ns, relist_ns, list_entries }
}
