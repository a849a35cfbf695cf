//! ListLru beside one list with one lock, and beside two well-known crates' caches: operations per second,
//! how much of their time threads wait for locks, and what the container costs where there is only one node.
//!
//! Nodes are made up: a thread uses the node of its number. Variants take turns; of each the median over
//! the runs is shown, with the range. The last column compares the processor time of the threads in runs of
//! the same turn: on a busy machine it says more than the time that has passed.
mod containers;
mod loads;

use super::{Format, Outcome as Rows, Row};
use crate::figures::{Spread, median};
use clap::Args;
use containers::{Container, LruCrate, PerNode, Plain, QuickCache, Size};
use loads::{Find, Mixed, Outcome};
use serde::Serialize;
use userswap::Error;
use userswap::list_lru::NODES_MAX;

/// Options of `bench list-lru`.
#[derive(Debug, Clone, Args)]
pub struct ListLruArgs {
    /// Numbers of threads that add, delete and walk
    #[arg(long, value_name = "N", value_delimiter = ',', num_args = 1.., default_values_t = [1, 2, 4, 8],
          value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: Vec<u32>,
    /// Numbers of made-up nodes
    #[arg(long, value_name = "N", value_delimiter = ',', num_args = 1.., default_values_t = [1, 2, 4],
          value_parser = clap::value_parser!(u32).range(1..=NODES_MAX as i64))]
    nodes: Vec<u32>,
    /// Operations by all threads together
    #[arg(long, value_name = "N", default_value_t = 4_000_000,
          value_parser = clap::value_parser!(u64).range(1000..=1_000_000_000))]
    operations: u64,
    /// Items of all threads together, half of which are there
    #[arg(long, value_name = "N", default_value_t = 65_536,
          value_parser = clap::value_parser!(u32).range(1024..=16_000_000))]
    items: u32,
    /// Threads that look at files, as find and stat do; 0 leaves that load out
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u32).range(0..=64))]
    walkers: u32,
    /// Files that all of them look at
    #[arg(long, value_name = "N", default_value_t = 4_000_000,
          value_parser = clap::value_parser!(u64).range(1000..=1_000_000_000))]
    files: u64,
    /// Runs of each variant
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    #[command(flatten)]
    pub(super) format: Format,
}

/// Operations of one turn, where the plain list and ListLru take turns: about a millisecond.
const TURN_OPERATIONS: u64 = 50_000;
/// Turns, after which more say nothing new.
const TURNS_MAX: u32 = 400;

/// One container under one load.
#[derive(Debug, Serialize)]
pub(super) struct ListLruRow {
    load: &'static str,
    container: String,
    threads: u32,
    operations_per_s: f64,
    operations_per_s_min: f64,
    operations_per_s_max: f64,
    lock_wait_share: Option<f64>,
    cpu_over_plain: f64,
}

impl Row for ListLruRow {
    const COLUMNS: &'static [&'static str] = &[
        "load",
        "container",
        "threads",
        "million/s",
        "range",
        "waiting for locks",
        "CPU time over plain list",
    ];

    fn cells(&self) -> Vec<String> {
        let waiting = self.lock_wait_share.map(|share| format!("{:.1} %", share * 100.0));
        vec![
            self.load.to_owned(),
            self.container.clone(),
            self.threads.to_string(),
            format!("{:.2}", self.operations_per_s / 1e6),
            format!(
                "{:.2}-{:.2}",
                self.operations_per_s_min / 1e6,
                self.operations_per_s_max / 1e6
            ),
            waiting.unwrap_or_else(|| "unknown".to_owned()),
            format!("{:+.1} %", self.cpu_over_plain * 100.0),
        ]
    }
}

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Variant {
    Plain,
    PerNode(u32),
    LruCrate,
    QuickCache,
}

impl Variant {
    fn all(args: &ListLruArgs) -> Vec<Self> {
        let nodes = args.nodes.iter().map(|nodes| Self::PerNode(*nodes));
        [Self::Plain].into_iter().chain(nodes).chain([Self::LruCrate, Self::QuickCache]).collect()
    }

    fn name(self) -> String {
        match self {
            Self::Plain => "one list, one lock".to_owned(),
            Self::PerNode(1) => "ListLru, 1 node".to_owned(),
            Self::PerNode(nodes) => format!("ListLru, {nodes} nodes"),
            Self::LruCrate => "crate lru, one lock".to_owned(),
            Self::QuickCache => "crate quick_cache".to_owned(),
        }
    }

    fn run(self, load: Load) -> Result<Outcome, Error> {
        match self {
            Self::Plain => load.run::<Plain>(1),
            Self::PerNode(nodes) => load.run::<PerNode>(nodes),
            Self::LruCrate => load.run::<LruCrate>(1),
            Self::QuickCache => load.run::<QuickCache>(1),
        }
    }
}

/// What they are loaded with.
#[derive(Debug, Clone, Copy)]
enum Load {
    Mixed(Mixed),
    Find(Find),
}

impl Load {
    fn all(args: &ListLruArgs) -> Vec<Self> {
        let mixed = |threads: &u32| {
            Self::Mixed(Mixed {
                threads: *threads,
                items: args.items / threads,
                operations: args.operations / u64::from(*threads),
            })
        };
        let find = (args.walkers > 0).then(|| {
            Self::Find(Find {
                walkers: args.walkers,
                reclaimers: args.nodes.iter().copied().max().unwrap_or(1).min(args.walkers),
                items: args.items / args.walkers * 4,
                objects: args.files / u64::from(args.walkers),
                limit: args.items.into(),
            })
        });
        args.threads.iter().map(mixed).chain(find).collect()
    }

    fn name(self) -> &'static str {
        match self {
            Self::Mixed(_) => "add, delete, walk",
            Self::Find(_) => "find and stat",
        }
    }

    fn threads(self) -> u32 {
        match self {
            Self::Mixed(mixed) => mixed.threads,
            Self::Find(find) => find.walkers,
        }
    }

    fn run<C: Container>(self, nodes: u32) -> Result<Outcome, Error> {
        Ok(match self {
            Self::Mixed(mixed) => {
                mixed.run(&C::new(Size { items: mixed.items * mixed.threads, nodes })?)
            }
            Self::Find(find) => {
                find.run(&C::new(Size { items: find.items * find.walkers, nodes })?)
            }
        })
    }
}

pub(super) fn measure(args: &ListLruArgs) -> Rows<ListLruRow> {
    let variants = Variant::all(args);
    let mut rows = Vec::new();
    for load in Load::all(args) {
        let turns = (0..args.runs).map(|turn| one_turn(load, &variants, turn));
        let turns: Vec<Vec<Outcome>> = turns.collect::<Result<_, _>>()?;
        let row = |(index, variant): (usize, &Variant)| summary(load, *variant, &turns, index);
        rows.extend(variants.iter().enumerate().filter_map(row));
    }
    rows.extend(cost_of_one_node(args)?);
    Ok(rows)
}

/// Every variant once; returns their outcomes in the order of the variants.
fn one_turn(load: Load, variants: &[Variant], turn: u32) -> Rows<Outcome> {
    let run = |variant: &Variant| variant.run(load);
    if turn.is_multiple_of(2) {
        return variants.iter().map(run).collect();
    }
    // Back and forth, so that none always comes after the same one.
    let mut outcomes: Vec<Outcome> = variants.iter().rev().map(run).collect::<Result<_, _>>()?;
    outcomes.reverse();
    Ok(outcomes)
}

/// What the container costs where there is only one node, by one thread that nothing disturbs.
fn cost_of_one_node(args: &ListLruArgs) -> Rows<ListLruRow> {
    let turns = (args.operations / TURN_OPERATIONS).clamp(3, TURNS_MAX.into()) as u32;
    let mixed = Mixed { threads: 1, items: args.items, operations: TURN_OPERATIONS };
    let size = Size { items: args.items, nodes: 1 };
    let turns = mixed.run_in_turns(&Plain::new(size)?, &PerNode::new(size)?, turns);
    let row = |(index, variant): (usize, Variant)| {
        let row = summary(Load::Mixed(mixed), variant, &turns, index)?;
        Some(ListLruRow { load: "in short turns", ..row })
    };
    Ok([Variant::Plain, Variant::PerNode(1)].into_iter().enumerate().filter_map(row).collect())
}

/// The row of the variant whose outcome is at `index` in each turn; the plain list's is the first.
fn summary(
    load: Load,
    variant: Variant,
    turns: &[Vec<Outcome>],
    index: usize,
) -> Option<ListLruRow> {
    let outcomes = || turns.iter().map(|turn| turn[index]);
    let rates = outcomes().map(|outcome| outcome.operations as f64 / outcome.seconds);
    let rate = Spread::of(rates)?;
    let waits = outcomes().map(|outcome| {
        outcome.waited_s.map(|waited| waited / outcome.seconds / f64::from(load.threads()))
    });
    let over_plain = turns.iter().map(|turn| turn[index].cpu_s / turn[0].cpu_s - 1.0);
    Some(ListLruRow {
        load: load.name(),
        container: variant.name(),
        threads: load.threads(),
        operations_per_s_min: rate.least,
        operations_per_s_max: rate.most,
        operations_per_s: rate.median,
        lock_wait_share: waits.collect::<Option<Vec<f64>>>().and_then(median),
        cpu_over_plain: median(over_plain)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use containers::Fate;
    use userswap::NodeId;

    const NODE: NodeId = NodeId(0);

    #[test]
    fn every_container_keeps_the_newest_and_gives_up_the_oldest() {
        fn check<C: Container>(nodes: u32) -> C {
            let container = C::new(Size { items: 64, nodes }).unwrap();
            (0..32).for_each(|item| container.add(NODE, item));
            assert!(container.del(NODE, 31) && !container.del(NODE, 31));
            container.walk(NODE, 8, |item| match item {
                0 => Fate::Rotated,
                _ => Fate::Removed,
            });
            container
        }
        let plain = check::<Plain>(1);
        let ours = check::<PerNode>(2);
        let crates = check::<LruCrate>(1);
        assert_eq!([plain.len(NODE), ours.len(NODE), crates.len(NODE)], [24; 3]);
        assert_eq!((ours.len(ours.node_of(1)), check::<QuickCache>(1).len(NODE) < 31), (0, true));
        let is_there =
            |item: u32| [plain.del(NODE, item), ours.del(NODE, item), crates.del(NODE, item)];
        assert_eq!([is_there(0), is_there(7), is_there(8)], [[true; 3], [false; 3], [true; 3]]);
    }

    #[test]
    fn a_small_run_has_a_row_for_each_container_and_load() {
        let args = ListLruArgs {
            threads: vec![1, 2],
            nodes: vec![1, 2],
            operations: 20_000,
            items: 1024,
            walkers: 2,
            files: 20_000,
            runs: 3,
            format: Format { json: true },
        };
        let rows = measure(&args).unwrap();
        assert_eq!(rows.len(), 3 * 5 + 2);
        for row in &rows {
            let (least, most) = (row.operations_per_s_min, row.operations_per_s_max);
            assert!((least..=most).contains(&row.operations_per_s) && least > 0.0, "{row:?}");
            let plain = row.container == "one list, one lock";
            assert!(!plain || row.cpu_over_plain == 0.0, "{row:?}");
            let unknown = row.container == "crate quick_cache" || row.load == "in short turns";
            assert_eq!(row.lock_wait_share.is_none(), unknown, "{row:?}");
            assert_eq!(row.cells().len(), ListLruRow::COLUMNS.len());
        }
        assert_eq!(rows.iter().filter(|row| row.load == "find and stat").count(), 5);
    }
}
