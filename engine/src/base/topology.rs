//! Which nodes there are, which CPUs belong to them, and how far they are from each other.
//!
//! Read from sysfs, or made up (`--fake-numa N` deals the CPUs out), so that every mechanism that looks at
//! nodes runs and is tested on machines with one. Nodes are numbered by the engine from 0 without gaps;
//! the kernel's number is kept beside.
use crate::base::index::NodeId;
use crate::base::limits::NODES_MAX;
use std::io;
use std::path::{Path, PathBuf};

/// Where the kernel describes the machine.
pub const SYSFS: &str = "/sys";

/// Distance between nodes of a made-up machine; the kernel says 10 for a node itself.
const FAKE_DISTANCE: u32 = 20;

/// One node of the machine, or a made-up one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopologyNode {
    /// The kernel's number of it, where its memory really lies; None on a made-up machine.
    pub memory: Option<u32>,
    /// The number that users know: the kernel's, or the made-up one.
    pub number: u32,
    /// The numbers of its CPUs.
    pub cpus: Vec<u32>,
    /// All nodes, the nearest first, itself before all others.
    nearest: Vec<NodeId>,
}

/// The machine as the engine sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology {
    nodes: Vec<TopologyNode>,
    node_of_cpu: Vec<NodeId>,
    sysfs: PathBuf,
}

impl Topology {
    /// The machine that a directory in the form of `/sys` describes. One node when it says nothing.
    pub fn of_machine(sysfs: &Path) -> Self {
        let read = Self::read(&sysfs.join("devices/system/node"));
        Self { sysfs: sysfs.to_owned(), ..read.unwrap_or_else(|_| Self::one()) }
    }

    /// `count` made-up nodes over the CPUs of this machine: CPU c belongs to node c modulo `count`.
    pub fn fake(count: u32) -> Self {
        let cpus = crate::sys::clock::cpus();
        let nodes = (0..count.clamp(1, NODES_MAX as u32)).map(|number| Described {
            memory: None,
            number,
            cpus: (0..cpus).filter(|cpu| cpu % count == number).collect(),
            distances: Vec::new(),
        });
        Self::new(nodes.collect())
    }

    /// One node with all CPUs, whose memory is wherever the kernel puts it.
    pub fn one() -> Self {
        Self::fake(1)
    }

    /// Reads a description in the form of `/sys/devices/system/node`; nodes without CPUs have no part in
    /// the budget: no thread faults there.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(directory: &Path) -> io::Result<Self> {
        let text = |name: &str| std::fs::read_to_string(directory.join(name));
        let mut nodes = Vec::new();
        let numbers = parse_list(&text("online")?).ok_or(io::ErrorKind::InvalidData)?;
        for (index, number) in numbers.into_iter().enumerate() {
            let cpus = parse_list(&text(&format!("node{number}/cpulist"))?)
                .ok_or(io::ErrorKind::InvalidData)?;
            let distances = text(&format!("node{number}/distance"))?;
            let distances: Vec<u32> =
                distances.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            if !cpus.is_empty() {
                nodes.push((index, Described { memory: Some(number), number, cpus, distances }));
            }
        }
        if nodes.is_empty() || nodes.len() > NODES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // A node's distances name every online node; those without CPUs are left out.
        let indexes: Vec<usize> = nodes.iter().map(|(index, _)| *index).collect();
        let nodes = nodes.into_iter().map(|(_, mut node)| {
            node.distances = indexes
                .iter()
                .map(|index| node.distances.get(*index).copied().unwrap_or(FAKE_DISTANCE))
                .collect();
            node
        });
        Ok(Self::new(nodes.collect()))
    }

    fn new(described: Vec<Described>) -> Self {
        let cpus = described.iter().flat_map(|node| &node.cpus).max().map_or(1, |cpu| cpu + 1);
        let mut node_of_cpu = vec![NodeId(0); cpus as usize];
        for (index, node) in described.iter().enumerate() {
            for cpu in &node.cpus {
                node_of_cpu[*cpu as usize] = NodeId(index as u16);
            }
        }
        let count = described.len();
        let nodes = described.into_iter().enumerate().map(|(index, node)| {
            let mut nearest: Vec<NodeId> = (0..count as u16).map(NodeId).collect();
            nearest.sort_by_key(|other| {
                let distance = node.distances.get(other.0 as usize).copied();
                (other.0 as usize != index, distance.unwrap_or(FAKE_DISTANCE), other.0)
            });
            TopologyNode { memory: node.memory, number: node.number, cpus: node.cpus, nearest }
        });
        Self { nodes: nodes.collect(), node_of_cpu, sysfs: SYSFS.into() }
    }

    /// Where the machine is described, its block devices too.
    pub fn sysfs(&self) -> &Path {
        &self.sysfs
    }

    /// The nodes, by the engine's number.
    pub fn nodes(&self) -> &[TopologyNode] {
        &self.nodes
    }

    /// The node of a CPU; the first one's for a CPU that came later.
    pub fn node_of_cpu(&self, cpu: u32) -> NodeId {
        self.node_of_cpu.get(cpu as usize).copied().unwrap_or(NodeId(0))
    }

    /// All nodes from `node`'s point of view, the nearest first.
    pub fn nearest(&self, node: NodeId) -> &[NodeId] {
        &self.nodes[node.0 as usize].nearest
    }

    /// The engine's number for the node that users call `number`.
    pub fn find(&self, number: u32) -> Option<NodeId> {
        let index = self.nodes.iter().position(|node| node.number == number)?;
        Some(NodeId(index as u16))
    }

    /// The numbers that users know of all nodes, for a message.
    pub fn numbers(&self) -> String {
        let numbers: Vec<String> = self.nodes.iter().map(|node| node.number.to_string()).collect();
        numbers.join(", ")
    }

    /// Where pages of a node must physically lie; None when there is only one node anyway.
    pub fn memory_of(&self, node: NodeId) -> Option<u32> {
        (self.nodes.len() > 1).then(|| self.nodes[node.0 as usize].memory).flatten()
    }
}

/// A node before its neighbours are sorted.
struct Described {
    memory: Option<u32>,
    number: u32,
    cpus: Vec<u32>,
    distances: Vec<u32>,
}

/// `0-3,8,10-11`, as sysfs writes lists; empty for an empty list.
fn parse_list(text: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        numbers.extend(first.parse::<u32>().ok()?..=last.parse().ok()?);
    }
    Some(numbers)
}

/// Divides `total` pages among nodes in proportion to `weights`; the rest of the division goes to the first.
pub fn shares(total: u32, weights: &[u64]) -> Vec<u32> {
    let sum = weights.iter().map(|weight| u128::from(*weight)).sum::<u128>().max(1);
    let share = |weight: &u64| (u128::from(total) * u128::from(*weight) / sum) as u32;
    let mut shares: Vec<u32> = weights.iter().map(share).collect();
    let left = total - shares.iter().sum::<u32>();
    if let Some(first) = shares.first_mut() {
        *first += left;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn describe(directory: &Path, nodes: &[(u32, &str, &str)]) {
        let online: Vec<String> = nodes.iter().map(|node| node.0.to_string()).collect();
        std::fs::write(directory.join("online"), online.join(",") + "\n").unwrap();
        for (number, cpus, distances) in nodes {
            let node = directory.join(format!("node{number}"));
            std::fs::create_dir(&node).unwrap();
            std::fs::write(node.join("cpulist"), format!("{cpus}\n")).unwrap();
            std::fs::write(node.join("distance"), format!("{distances}\n")).unwrap();
        }
    }

    #[test]
    fn a_machine_is_read_with_gaps_and_nodes_without_cpus() {
        let directory = tempfile::tempdir().unwrap();
        describe(
            directory.path(),
            &[
                (0, "0-1,4", "10 31 21 40"),
                (2, "", "31 10 20 20"),
                (3, "2-3", "21 20 10 17"),
                (5, "5", "40 20 17 10"),
            ],
        );
        let topology = Topology::read(directory.path()).unwrap();
        let numbers: Vec<u32> = topology.nodes().iter().map(|node| node.number).collect();
        assert_eq!(numbers, [0, 3, 5]);
        assert_eq!(topology.nodes()[0].cpus, [0, 1, 4]);
        let nodes: Vec<u16> = (0..7).map(|cpu| topology.node_of_cpu(cpu).0).collect();
        assert_eq!(nodes, [0, 0, 1, 1, 0, 2, 0]);
        assert_eq!(topology.nearest(NodeId(0)), [NodeId(0), NodeId(1), NodeId(2)]);
        assert_eq!(topology.nearest(NodeId(2)), [NodeId(2), NodeId(1), NodeId(0)]);
        assert_eq!((topology.find(5), topology.find(2)), (Some(NodeId(2)), None));
        assert_eq!(topology.memory_of(NodeId(1)), Some(3));
    }

    #[test]
    fn made_up_nodes_share_the_cpus_and_have_no_memory_of_their_own() {
        let topology = Topology::fake(2);
        assert_eq!(topology.nodes().len(), 2);
        assert_eq!(topology.node_of_cpu(0), NodeId(0));
        assert_eq!(topology.memory_of(NodeId(1)), None);
        assert_eq!(topology.nearest(NodeId(1)), [NodeId(1), NodeId(0)]);
        assert_eq!(Topology::one().nodes().len(), 1);
    }

    #[test]
    fn this_machine_has_a_node_for_every_cpu() {
        let topology = Topology::of_machine(Path::new(SYSFS));
        assert!(topology.nodes().iter().map(|node| node.cpus.len()).sum::<usize>() > 0);
    }

    #[test]
    fn shares_add_up() {
        assert_eq!(shares(100, &[1, 1]), [50, 50]);
        assert_eq!(shares(10, &[1, 1, 1]), [4, 3, 3]);
        assert_eq!(shares(7, &[0, 2]), [0, 7]);
        assert_eq!(shares(7, &[0]), [7], "whatever the weights, the budget is given out");
    }
}
