//! An engine's nodes: their shares of the budget, the sizes of their frame pools.
use crate::base::error::Error;
use crate::base::index::NodeId;
use crate::base::limits::{FRAMES_MAX, NODE_MIN_PAGES, RUN_MAX};
use crate::base::topology::Topology;
use crate::state::node::Node;
use crate::state::watermarks::WatermarkSettings;
use crate::sys::PAGE_BYTES;
use userswap_policy::frames::FrameRun;

/// Frames of a pool beyond what its budget asks for, so that there are holes in whole runs.
const FRAMES_EXTRA: u32 = RUN_MAX * 64;

/// Builds the nodes with their shares of the budget, which can come to `most` pages together later; their frames follow each
/// other.
///
/// # Errors
/// No memory for the nodes' tables.
pub fn build(budgets: &[u32], most: u32, pages: u32) -> Result<Vec<Node>, Error> {
    let weights: Vec<u64> = budgets.iter().map(|budget| u64::from(*budget)).collect();
    let later = crate::base::topology::shares(most, &weights);
    let mut first = 0;
    let mut nodes = Vec::new();
    for (index, budget) in budgets.iter().enumerate() {
        let frames = pool_frames(*budget, later[index], budgets.len() as u32);
        let (wanted, most) = (u64::from(*budget), budget_most(frames.into()));
        if wanted > most {
            return Err(Error::BudgetTooLarge(
                wanted * PAGE_BYTES as u64,
                most * PAGE_BYTES as u64,
            ));
        }
        let run = FrameRun { first, count: frames };
        first += run.count;
        let id = NodeId(index as u16);
        let watermarks = WatermarkSettings::default().of_node(*budget, budgets.iter().sum());
        nodes.push(Node::new(id, run, *budget, watermarks, pages).map_err(Error::Tables)?);
    }
    Ok(nodes)
}

/// Frames that a node can have: four times as many as pages, so that there are always holes in whole runs, and
/// room for a budget three times as large later, or for that which it may come to. A frame without a page is only address space.
fn pool_frames(budget: u32, later: u32, nodes: u32) -> u32 {
    let frames = u64::from(budget).max(later.into()) * 4 + u64::from(FRAMES_EXTRA);
    frames.min(FRAMES_MAX / u64::from(nodes)) as u32 / RUN_MAX * RUN_MAX
}

/// Pages that so many frames are enough for: with a quarter more of these whole runs of holes can be found.
pub(crate) fn budget_most(frames: u64) -> u64 {
    frames * 4 / 5
}

/// Divides a budget among the nodes of a machine: as asked for by node, or by their CPUs.
///
/// # Errors
/// A node that does not exist, or a share too small to work with.
pub fn budgets(topology: &Topology, total: u32, by_node: &[(u32, u64)]) -> Result<Vec<u32>, Error> {
    let nodes = topology.nodes();
    let weights: Vec<u64> = if by_node.is_empty() {
        nodes.iter().map(|node| node.cpus.len().max(1) as u64).collect()
    } else {
        let mut weights = vec![0; nodes.len()];
        for (number, bytes) in by_node {
            let id =
                topology.find(*number).ok_or_else(|| Error::NoNode(*number, topology.numbers()))?;
            weights[id.0 as usize] += bytes;
        }
        weights
    };
    let shares = crate::base::topology::shares(total, &weights);
    match shares.iter().position(|share| *share < NODE_MIN_PAGES) {
        Some(index) if nodes.len() > 1 => Err(Error::NodeBudgetTooSmall(
            nodes[index].number,
            u64::from(shares[index]) * PAGE_BYTES as u64,
        )),
        _ => Ok(shares),
    }
}
