//! The table of the RFC on the real engine: writes over devices of different nodes, of which the far ones
//! are slower, with one list, equal priorities, and per-node lists.
use super::{Format, Outcome, RUNS_MAX, Row, in_turns, median, memory_device, parse_memory};
use clap::Args;
use serde::Serialize;
use std::time::Instant;
use userswap::Placement;
use userswap::internals::Topology;
use userswap::internals::numa;
use userswap::{Builder, Error, Speed, SwapSpec, Throttle};

/// The fastest device that a number can ask for, far beyond memory.
const MB_PER_S_MAX: i64 = 1_000_000;

/// Options of `bench placement`.
#[derive(Debug, Clone, Args)]
pub struct PlacementArgs {
    /// Made-up nodes, one device each
    #[arg(long, value_name = "N", default_value_t = 2,
          value_parser = clap::value_parser!(u32).range(1..=8))]
    nodes: u32,
    /// Bandwidth of a device from its own node, in MB/s
    #[arg(long, value_name = "MB/S", default_value_t = 200,
          value_parser = clap::value_parser!(u32).range(1..=MB_PER_S_MAX))]
    near: u32,
    /// Bandwidth of a device from other nodes, in MB/s
    #[arg(long, value_name = "MB/S", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=MB_PER_S_MAX))]
    far: u32,
    /// Numbers of threads
    #[arg(long, value_name = "N", value_delimiter = ',', num_args = 1.., default_values_t = [1, 16],
          value_parser = clap::value_parser!(u32).range(1..=256))]
    tasks: Vec<u32>,
    /// RAM budget
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_memory, allow_hyphen_values = true)]
    ram: u64,
    /// Memory of all threads together
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_memory, allow_hyphen_values = true)]
    size: u64,
    /// Runs of each variant
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=RUNS_MAX))]
    runs: u32,
    #[command(flatten)]
    pub(super) format: Format,
}

/// How devices are arranged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Lists {
    /// One list for all: what was before 2017. The first device takes everything.
    One,
    /// Equal priorities, in turns.
    Spread,
    /// A list per node.
    Near,
}

/// One arrangement of the devices under one load.
#[derive(Debug, Serialize)]
pub(super) struct PlacementRow {
    lists: Lists,
    tasks: u32,
    seconds: f64,
    mb_per_s: f64,
    predicted_mb_per_s: f64,
    near_share: f64,
}

impl Row for PlacementRow {
    const COLUMNS: &'static [&'static str] =
        &["lists", "tasks", "time", "MB/s", "links allow MB/s", "written near"];

    fn cells(&self) -> Vec<String> {
        let lists = match self.lists {
            Lists::One => "one list",
            Lists::Spread => "equal priorities",
            Lists::Near => "per node",
        };
        vec![
            lists.to_owned(),
            self.tasks.to_string(),
            format!("{:.2} s", self.seconds),
            format!("{:.0}", self.mb_per_s),
            format!("{:.0}", self.predicted_mb_per_s),
            format!("{:.0} %", self.near_share * 100.0),
        ]
    }
}

pub(super) fn measure(args: &PlacementArgs) -> Outcome<PlacementRow> {
    let mut rows = Vec::new();
    for &tasks in &args.tasks {
        let variants = [Lists::One, Lists::Spread, Lists::Near];
        let runs = in_turns(args.runs, &variants, |lists| one_run(args, tasks, lists))?;
        rows.extend(runs.into_iter().filter_map(|of_lists| of_medians(args, of_lists)));
    }
    Ok(rows)
}

/// The row of a variant: medians of what was measured.
fn of_medians(args: &PlacementArgs, runs: Vec<PlacementRow>) -> Option<PlacementRow> {
    let middle = |of: fn(&PlacementRow) -> f64| median(runs.iter().map(of));
    let PlacementRow { lists, tasks, .. } = *runs.first()?;
    let seconds = middle(|run| run.seconds)?;
    Some(PlacementRow {
        lists,
        tasks,
        seconds,
        mb_per_s: written_mb(args) / seconds,
        predicted_mb_per_s: middle(|run| run.predicted_mb_per_s)?,
        near_share: middle(|run| run.near_share)?,
    })
}

/// Megabytes that do not fit the budget.
fn written_mb(args: &PlacementArgs) -> f64 {
    args.size.saturating_sub(args.ram) as f64 / 1e6
}

/// What the links let through. Also a program on one node uses the frames of all, and each node's reclaimer
/// writes for its own: every node is a writer.
fn predicted_mb_per_s(args: &PlacementArgs, lists: Lists) -> f64 {
    let (near, far) = (f64::from(args.near), f64::from(args.far));
    let nodes = f64::from(args.nodes);
    // Seconds that a megabyte takes on a link when each node sends it the same share.
    let mixed = (1.0 / near + (nodes - 1.0) / far) / nodes;
    match lists {
        // Only the first node's device is used.
        Lists::One => 1.0 / mixed,
        Lists::Spread => nodes / mixed,
        Lists::Near => nodes * near,
    }
}

fn one_run(args: &PlacementArgs, tasks: u32, lists: Lists) -> Result<PlacementRow, Error> {
    let mut builder = Builder::new(args.ram).fake_numa(args.nodes);
    let speed = |mb_per_s| Speed { mb_per_s, latency_us: 0 };
    let throttle = Some(Throttle { local: speed(args.near), remote: speed(args.far) });
    for node in 0..args.nodes as u16 {
        // One list: distinct priorities, so that every node asks the first device first.
        let priority = (lists == Lists::One).then_some(100 - node as i16);
        let device = memory_device(args.size + (64 << 20));
        builder = builder.swap(SwapSpec { priority, node: Some(node), throttle, ..device });
    }
    let spread = lists == Lists::Spread;
    let placement = if spread { Placement::Spread } else { Placement::Near };
    let engine = builder.placement(placement).build()?;
    let share = (args.size / u64::from(tasks)) as usize;
    let mut regions = (0..tasks).map(|_| engine.map(share)).collect::<Result<Vec<_>, _>>()?;
    let topology = Topology::fake(args.nodes);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for (task, region) in regions.iter_mut().enumerate() {
            let cpus = topology.nodes()[task % topology.nodes().len()].cpus.clone();
            scope.spawn(move || {
                numa::run_on(&cpus);
                region.as_typed_mut::<u64>().iter_mut().for_each(|word| *word = 1 + task as u64);
            });
        }
    });
    let seconds = begin.elapsed().as_secs_f64();
    let placed = engine.core().devices.slots_placed();
    Ok(PlacementRow {
        lists,
        tasks,
        seconds,
        mb_per_s: written_mb(args) / seconds,
        predicted_mb_per_s: predicted_mb_per_s(args, lists),
        near_share: placed.near as f64 / placed.all.max(1) as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predictions_follow_the_links() {
        let args = PlacementArgs {
            nodes: 2,
            near: 200,
            far: 100,
            tasks: vec![1],
            ram: 1 << 28,
            size: 1 << 30,
            runs: 1,
            format: Format { json: false },
        };
        let predicted = |lists| predicted_mb_per_s(&args, lists).round() as u32;
        assert_eq!(predicted(Lists::One), 133);
        assert_eq!(predicted(Lists::Spread), 267);
        assert_eq!(predicted(Lists::Near), 400);
    }
}
