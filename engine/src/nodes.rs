//! The nodes of an engine: which one serves a fault, and who helps when it has nothing left.
//!
//! A page belongs to the node whose CPU touches it. When that node is short, a page of the nearest other
//! node is better than waiting (as the kernel's zone lists have it): first every node above its low
//! watermark is asked, then every node down to its minimum, then the faulting thread reclaims itself.
use crate::core::Core;
use crate::error::Error;
use crate::node::{Asker, Grant, Node};
use crate::page::{FRAMES_MAX, FrameIndex, NodeId};
use crate::sys::{PAGE_BYTES, numa};
use crate::topology::Topology;
use crate::watermarks::Marks;
use std::sync::atomic::Ordering;
use userswap_policy::frames::FrameRun;
use userswap_policy::watermark::Pressure;

/// The smallest share of a node: below it one window and one batch would be a large part of everything.
pub const NODE_MIN_PAGES: u32 = 1024;
/// Places of a pool beyond what its budget asks for, so that there are holes in whole runs.
const PLACES_EXTRA: u32 = crate::core::RUN_MAX * 64;

/// Builds the nodes with their shares of the budget; their frames follow each other.
///
/// # Errors
/// No memory for the books.
pub fn build(budgets: &[u32], pages: u32) -> Result<Vec<Node>, Error> {
    let mut first = 0;
    let mut nodes = Vec::new();
    for (place, budget) in budgets.iter().enumerate() {
        let run = FrameRun { first, count: pool_places(*budget, budgets.len() as u32) };
        first += run.count;
        let id = NodeId(place as u8);
        let marks = Marks::default().of_node(*budget, budgets.iter().sum());
        nodes.push(Node::new(id, run, (*budget, marks), pages).map_err(Error::Books)?);
    }
    Ok(nodes)
}

/// Places in a node's pool: four times as many as pages, so that there are always holes in whole runs, and
/// room for a budget three times as large later. Places are only address space.
fn pool_places(budget: u32, nodes: u32) -> u32 {
    let places = u64::from(budget) * 4 + u64::from(PLACES_EXTRA);
    places.min(FRAMES_MAX / u64::from(nodes)) as u32 / crate::core::RUN_MAX * crate::core::RUN_MAX
}

impl Core {
    /// Makes each node's frames come from its memory.
    pub(crate) fn bind_frames(&self) {
        for node in &self.nodes {
            let Some(memory) = self.topology.memory_of(node.id) else { continue };
            let first = self.frame_address(node.first_frame());
            let bytes = node.positions() as usize * PAGE_BYTES;
            if let Err(error) = numa::prefer(first, bytes, memory) {
                crate::log::not_bound(error.raw_os_error().unwrap_or(0));
            }
        }
    }

    /// The node of a frame.
    pub fn node_of_frame(&self, frame: FrameIndex) -> &Node {
        self.nodes.iter().find(|node| node.owns(frame)).expect("every frame belongs to a node")
    }

    /// A node by number.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// The node of the running CPU.
    pub fn node_here(&self) -> &Node {
        match self.nodes.as_slice() {
            [only] => only,
            _ => self.node(self.topology.node_of_cpu(numa::cpu())),
        }
    }

    /// Gets pages for a fault, reclaiming if it must; never fails: at last the budget is exceeded or the
    /// program stopped, as the option says.
    pub fn obtain(&self, node: &Node, want: u32) -> (&Node, Grant) {
        for attempt in 0u32.. {
            let seen = self.freed.load(Ordering::Acquire);
            let nearest = self.topology.nearest(node.id);
            let nearby = if nearest.len() > 1 {
                &[Asker::FaultNearby, Asker::Fault][..]
            } else {
                &[Asker::Fault]
            };
            for asker in nearby {
                for id in nearest {
                    let other = self.node(*id);
                    if let Some(grant) = self.ask(other, want, *asker) {
                        return (other, grant);
                    }
                }
            }
            self.make_room(node, seen, attempt);
        }
        unreachable!("the attempts do not run out")
    }

    /// One node's answer; its reclaimer is woken when it is low.
    pub(crate) fn ask(&self, node: &Node, want: u32, asker: Asker) -> Option<Grant> {
        let mut state = node.lock();
        let grant = state.grant(want, asker, &self.pages);
        let pressure = state.pressure();
        let unused = std::mem::take(&mut state.unused);
        drop(state);
        crate::counters::count(&self.counters.swap_ra_wasted, unused);
        self.end_turn_if_balanced(node, pressure);
        if pressure >= Pressure::Low {
            self.wake_reclaim(node);
        }
        grant
    }

    /// Wakes a node's reclaimer if it sleeps, unless that is hopeless.
    pub fn wake_reclaim(&self, node: &Node) {
        if node.hopeless.load(Ordering::Relaxed) {
            return;
        }
        if !node.reclaim_awake.swap(true, Ordering::AcqRel) {
            crate::counters::count(&self.counters.pageoutrun, 1);
            node.reclaim_wanted.signal();
        }
    }

    /// The kernel takes what it allocates for this thread from the node's memory, as long as this is held.
    pub(crate) fn prefer_node(&self, node: &Node) -> Option<numa::Preferred> {
        self.topology.memory_of(node.id).and_then(numa::Preferred::new)
    }
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
                topology.find(*number).ok_or_else(|| Error::NoNode(*number, numbers(topology)))?;
            weights[id.0 as usize] += bytes;
        }
        weights
    };
    let shares = crate::topology::shares(total, &weights);
    match shares.iter().position(|share| *share < NODE_MIN_PAGES) {
        Some(place) if nodes.len() > 1 => Err(Error::NodeBudgetTooSmall(
            nodes[place].number,
            u64::from(shares[place]) * PAGE_BYTES as u64,
        )),
        _ => Ok(shares),
    }
}

/// The nodes there are, for a message.
pub fn numbers(topology: &Topology) -> String {
    let numbers: Vec<String> =
        topology.nodes().iter().map(|node| node.number.to_string()).collect();
    numbers.join(", ")
}
