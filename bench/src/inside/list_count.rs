//! What counting all items of a container by node costs on machines of up to a thousand nodes: looking at every node's
//! counter, as Linux does since 4.0, or at a mask of the nodes that have any first, as in 2013.
use super::{Format, Outcome, Row, in_turns};
use crate::figures::median;
use clap::Args;
use serde::Serialize;
use std::hint::black_box;
use std::time::Instant;
use userswap::list_lru::{ListLru, NODES_MAX};
use userswap::{Error, NodeId};

/// Larger than the caches of a CPU: going through it, they forget all else.
const FORGET_BYTES: usize = 64 << 20;

/// Options of `bench list-count`.
#[derive(Debug, Clone, Args)]
pub struct ListCountArgs {
    /// Numbers of nodes
    #[arg(long, value_name = "N", value_delimiter = ',', num_args = 1.., default_values_t = [1, 4, 16, 64, 256, 1024],
          value_parser = clap::value_parser!(u32).range(1..=NODES_MAX as i64))]
    nodes: Vec<u32>,
    /// Counts that are timed together where the caches are warm
    #[arg(long, value_name = "N", default_value_t = 10_000,
          value_parser = clap::value_parser!(u32).range(1..))]
    counts: u32,
    /// Runs of each variant
    #[arg(long, value_name = "N", default_value_t = 9,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    #[command(flatten)]
    pub(super) format: Format,
}

/// How all items are counted.
#[derive(Debug, Clone, Copy)]
enum How {
    Every,
    Mask,
}

/// One way of counting on one machine, of whose nodes so many have items.
#[derive(Debug, Serialize)]
pub(super) struct CountRow {
    nodes: u32,
    in_use: u32,
    how: &'static str,
    warm_ns: f64,
    cold_ns: f64,
}

impl Row for CountRow {
    const COLUMNS: &'static [&'static str] =
        &["nodes", "with items", "looks at", "ns/count", "caches cold, ns"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.nodes.to_string(),
            self.in_use.to_string(),
            self.how.to_owned(),
            format!("{:.0}", self.warm_ns),
            format!("{:.0}", self.cold_ns),
        ]
    }
}

/// What is measured once.
#[derive(Debug, Clone, Copy)]
struct Variant {
    nodes: u32,
    in_use: u32,
    how: How,
}

/// Nanoseconds of one count.
struct Times {
    warm_ns: f64,
    cold_ns: f64,
}

pub(super) fn measure(args: &ListCountArgs) -> Outcome<CountRow> {
    let of_nodes = |&nodes: &u32| {
        let all = [(1, How::Every), (1, How::Mask), (nodes, How::Every), (nodes, How::Mask)];
        let all = all.map(|(in_use, how)| Variant { nodes, in_use, how });
        all.into_iter().take(if nodes == 1 { 2 } else { 4 })
    };
    let variants: Vec<Variant> = args.nodes.iter().flat_map(of_nodes).collect();
    let runs = in_turns(args.runs, &variants, |variant| one_run(args, variant))?;
    let row = |(variant, runs): (&Variant, Vec<Times>)| {
        Some(CountRow {
            nodes: variant.nodes,
            in_use: variant.in_use,
            how: match variant.how {
                How::Every => "every counter",
                How::Mask => "mask, then counters",
            },
            warm_ns: median(runs.iter().map(|run| run.warm_ns))?,
            cold_ns: median(runs.iter().map(|run| run.cold_ns))?,
        })
    };
    Ok(variants.iter().zip(runs).filter_map(row).collect())
}

fn one_run(args: &ListCountArgs, variant: Variant) -> Result<Times, Error> {
    let list = ListLru::new(variant.nodes as usize, 1).map_err(Error::Tables)?;
    for node in (0..variant.in_use as u16).map(NodeId) {
        assert!(list.add(node, 0), "the item is new");
    }
    let count = || items(&list, variant.how);
    assert_eq!(count(), u64::from(variant.in_use), "every item is counted");
    let begin = Instant::now();
    (0..args.counts).for_each(|_| _ = black_box(count()));
    let warm_ns = begin.elapsed().as_nanos() as f64 / f64::from(args.counts);
    let mut forgotten = vec![1u8; FORGET_BYTES];
    forgotten.iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_add(1));
    black_box(&forgotten);
    let begin = Instant::now();
    black_box(count());
    Ok(Times { warm_ns, cold_ns: begin.elapsed().as_nanos() as f64 })
}

fn items(list: &ListLru, how: How) -> u64 {
    match how {
        How::Every => (0..list.nodes()).map(|node| list.count_node(NodeId(node as u16))).sum(),
        How::Mask => list.count(),
    }
}
