//! What a simulated machine is made of, and the files that describe it. Knows no page.

mod device;
mod distances;
mod file;
mod quantity;

use std::rc::Rc;

use serde::Deserialize;
use userswap_policy::devices::MACHINE_NODES_MAX;

use crate::clock::{Cpus, Distances, Reach};

pub use device::{Device, DeviceKind, Drive, Fault, IoError};
pub use file::{BadFile, Set, Source};
pub use quantity::{Bytes, PAGE_BYTES, TIME_MAX, Time, Whole};

/// Most CPUs of a node.
const CPUS_MAX: u32 = 1024;

/// Nodes, CPUs and memory.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// NUMA nodes.
    pub nodes: toml::Spanned<u32>,
    /// CPUs of each node.
    pub cpus_per_node: toml::Spanned<u32>,
    /// Memory of each node that swapping programs may use.
    pub memory_per_node: toml::Spanned<Bytes>,
    /// To get a cache line from another CPU of the node.
    pub line_same_node: Time,
    /// To get a cache line from a CPU of another node.
    pub line_other_node: Time,
    /// How far each node is from each, as `numactl -H` prints it; without it all others are at 20. What costs more on
    /// another node is given for 20.
    pub distances: Option<toml::Spanned<distances::Matrix>>,
    /// Watermarks are those of the real machine divided by this; without it by `scale`.
    pub marks_scale: Option<u64>,
    /// By how many thousandths what takes time takes more or less.
    #[serde(default)]
    pub jitter_permille: Whole<0, 1000>,
    /// Sizes of memory, programs and devices are divided by this, costs are not: a rate does not depend on size.
    #[serde(default = "one")]
    pub scale: toml::Spanned<u64>,
}

fn one() -> toml::Spanned<u64> {
    toml::Spanned::new(0..0, 1)
}

impl Machine {
    /// What cannot be: the bytes of the file that say so, and why.
    ///
    /// # Errors
    /// A machine without nodes, CPUs or memory, or with more than can be numbered.
    pub fn check(&self) -> Result<(), Impossible> {
        let between = |value: &toml::Spanned<u32>, most: u32, what: &str| match *value.get_ref() {
            count if (1..=most).contains(&count) => Ok(()),
            count => Err(Impossible::new(value.span(), format!("{count} {what}: use 1 to {most}"))),
        };
        between(&self.nodes, MACHINE_NODES_MAX.into(), "nodes")?;
        between(&self.cpus_per_node, CPUS_MAX, "CPUs per node")?;
        self.distances()?;
        if *self.scale.get_ref() == 0 {
            return Err(Impossible::new(self.scale.span(), "scale 0: use 1 or more".to_owned()));
        }
        let frames = self.frames_per_node();
        if !(64..=1 << 26).contains(&frames) {
            let message = format!("{frames} pages per node after scaling: use 64 to {}", 1 << 26);
            return Err(Impossible::new(self.memory_per_node.span(), message));
        }
        Ok(())
    }

    /// NUMA nodes.
    pub fn nodes(&self) -> u32 {
        *self.nodes.get_ref()
    }

    /// A size in pages, scaled.
    pub fn pages(&self, size: Bytes) -> u64 {
        size.pages() / *self.scale.get_ref()
    }

    /// Page frames of a node, scaled.
    pub fn frames_per_node(&self) -> u64 {
        self.pages(*self.memory_per_node.get_ref())
    }

    /// Its CPUs, all idle.
    pub fn cpus(&self) -> Rc<Cpus> {
        let distances = self.distances().expect("the machine was checked");
        let line = Reach { own: self.line_same_node.0, other: self.line_other_node.0 };
        Rc::new(Cpus::new(distances, *self.cpus_per_node.get_ref(), line))
    }

    fn distances(&self) -> Result<Distances, Impossible> {
        let Some(matrix) = &self.distances else { return Ok(Distances::equal(self.nodes())) };
        Ok(Distances::new(matrix.get_ref().check(matrix.span(), self.nodes())?))
    }
}

/// A description of what cannot be.
#[derive(Debug)]
pub struct Impossible {
    /// The bytes of the file.
    pub at: std::ops::Range<usize>,
    /// The value, and what would do.
    pub message: String,
}

impl Impossible {
    /// With the bytes that say so.
    pub fn new(at: std::ops::Range<usize>, message: String) -> Self {
        Self { at, message }
    }
}
