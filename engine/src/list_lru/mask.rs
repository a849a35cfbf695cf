//! Which nodes have items: a bit for each, so that one look tells which of 64 nodes are worth a visit (the mask
//! of 2013; Linux 4.0 dropped it, since what counts or walks everything is no hot path).
//!
//! Relaxed accesses throughout: a node's bit is changed under that node's lock, and whoever acts on it takes
//! the lock first.
use crate::sys::sync::{AtomicU64, Ordering};
use userswap_policy::devices::NodeId;

const WORD_NODES: usize = u64::BITS as usize;

/// A set of nodes that many threads change and read.
pub(super) struct NodeMask {
    /// Of nodes 0 to 63, without a pointer to follow.
    first: AtomicU64,
    others: Box<[AtomicU64]>,
}

impl NodeMask {
    /// No node, with room for so many.
    pub(super) fn new(nodes: usize) -> Self {
        let others = (1..nodes.div_ceil(WORD_NODES)).map(|_| AtomicU64::new(0)).collect();
        Self { first: AtomicU64::new(0), others }
    }

    /// A call, as [`NodeMask::remove`]: few additions are of a node's only item, and all would pay for a longer path.
    #[cold]
    pub(super) fn insert(&self, node: NodeId) {
        self.word(node).fetch_or(bit(node), Ordering::Relaxed);
    }

    #[cold]
    pub(super) fn remove(&self, node: NodeId) {
        self.word(node).fetch_and(!bit(node), Ordering::Relaxed);
    }

    pub(super) fn contains(&self, node: NodeId) -> bool {
        self.word(node).load(Ordering::Relaxed) & bit(node) != 0
    }

    /// Its nodes in their order; each word is read when the nodes before it have been gone through.
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        let words = std::iter::once(&self.first).chain(&self.others);
        (0..).step_by(WORD_NODES).zip(words).flat_map(|(first, word)| {
            let mut left = word.load(Ordering::Relaxed);
            std::iter::from_fn(move || {
                let node = (left != 0).then(|| NodeId(first + left.trailing_zeros() as u16));
                left &= left.wrapping_sub(1);
                node
            })
        })
    }

    fn word(&self, node: NodeId) -> &AtomicU64 {
        match usize::from(node.0) / WORD_NODES {
            0 => &self.first,
            other => &self.others[other - 1],
        }
    }
}

fn bit(node: NodeId) -> u64 {
    1 << (usize::from(node.0) % WORD_NODES)
}
