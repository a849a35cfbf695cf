//! A container for reclaimable objects, as the kernel's list_lru (Linux 3.12): one list, one lock and one
//! count per node, so that reclaim of a node walks what lies there and threads of different nodes never
//! meet. What the lists do is `userswap_policy::lru`; here are the locks around them.
//!
//! An item is a node and a number below the container's capacity: its link lies in an array of that node's,
//! in address space that takes memory where it is touched. Numbers are the program's own, such as the
//! indexes of its objects in a slab; no operation allocates.
//!
//! Items are *added* when they are not in use any more and *deleted* when they are taken into use again, or
//! left on the list and given another round by the walk when they were used (the lazy LRU of dentries and
//! inodes). A walk's callback decides about each item, oldest first; it may drop the lock.
//!
//! ```
//! use std::sync::Mutex;
//! use userswap::list_lru::{Code, ListLru};
//! use userswap::NodeId;
//!
//! struct Object { name: String, used: bool }
//!
//! // Objects by number: the slab of node 0.
//! let slab: Vec<Mutex<Option<Object>>> = ["a", "b", "c"].iter().enumerate()
//!     .map(|(number, name)| Mutex::new(Some(Object { name: name.to_string(), used: number == 0 })))
//!     .collect();
//! let (node, lru) = (NodeId(0), ListLru::new(1, slab.len() as u32)?);
//! for number in 0..slab.len() as u32 {
//!     assert!(lru.add(node, number));
//! }
//! assert!(!lru.add(node, 0), "it is on the list already");
//! assert!(lru.del(node, 2), "it is in use again");
//!
//! // Reclaim: objects that were used get another round, others go, those that are locked stay.
//! let mut budget = 2;
//! let freed = lru.walk_one(node, None, &mut budget, |visit| {
//!     let Ok(mut entry) = slab[visit.item() as usize].try_lock() else { return Code::Skip };
//!     let object = entry.as_mut().expect("what is on the list exists");
//!     if std::mem::take(&mut object.used) {
//!         return Code::Rotate;
//!     }
//!     visit.isolate();
//!     *entry = None;
//!     Code::Removed
//! });
//! assert_eq!((freed, budget, lru.count_node(node)), (1, 0, 1));
//! assert_eq!(slab[0].lock().unwrap().as_ref().unwrap().name, "a");
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Not for signal handlers: one that interrupts the holder of a node's lock would wait for ever.
mod groups;
mod mask;
mod walk;

pub use groups::Group;
pub use userswap_policy::lru::Code;
pub use walk::{ShrinkRequest, Visit};

use crate::sys::mapping::ZeroedSlice;
use crate::sys::sync::{AtomicI64, AtomicU32, Guard, Lock, Ordering};
use groups::Numbers;
use mask::NodeMask;
use std::io;
use std::sync::Arc;
use userswap_policy::devices::{MACHINE_NODES_MAX, NodeId};
use userswap_policy::lru::sublists::{self, Chain, Link, ListNumber, Sublists};

/// Nodes that one container can have: as many as a machine, whatever an engine has.
pub const NODES_MAX: usize = MACHINE_NODES_MAX as usize;
/// Items that one node of a container can have.
pub const ITEMS_MAX: u32 = sublists::ITEMS_MAX;
/// Groups that one container can have at a time.
pub const GROUPS_MAX: u32 = sublists::LISTS_MAX - 1;

/// The lists of one node, of all groups.
type Lists = Sublists<ZeroedSlice<Link>>;

/// A concurrent container of reclaimable items, with lists by node and group.
pub struct ListLru {
    /// Node 0's part lies here, without a pointer to follow: where there is only one node, a container
    /// costs no more than a list.
    first: Part,
    others: Box<[Part]>,
    /// As [`Part::ungrouped`] for each group, by node.
    grouped: Box<[Box<[AtomicI64]>]>,
    /// The nodes that have items; changed under the node's lock, read without one.
    active: NodeMask,
    /// One after the highest list number that was ever in use.
    lists_end: AtomicU32,
    numbers: Lock<Numbers>,
    /// Tells its groups from those of other containers.
    identity: Arc<()>,
}

/// One node's part. Aligned to two cache lines, which some processors fetch together, so that no node
/// writes to another one's.
#[repr(C, align(128))]
struct Part {
    /// As `beside`, of the items of no group. Here, because it changes with them.
    ungrouped: AtomicI64,
    lists: Lock<Lists>,
    /// Copies of the lists' own counts, stored before the lock is dropped and read without it. Relaxed is
    /// enough: they are approximate, and nothing is found through them.
    beside: AtomicI64,
}

/// Items that [`Visit::isolate_move`] took off one node's lists, the last one first. They belong to the
/// holder of this: they can be neither added nor deleted until they are taken out of it.
#[derive(Debug)]
#[must_use = "items that are not taken out can never be added again"]
pub struct Taken {
    node: NodeId,
    chain: Chain,
}

/// Waits for the locks of a container.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Waits {
    /// Times that a thread had to wait.
    pub count: u64,
    /// Nanoseconds waited, all together.
    pub total_ns: u64,
}

impl Taken {
    /// None yet, of a node.
    pub fn new(node: NodeId) -> Self {
        Self { node, chain: Chain::default() }
    }

    /// Number of items.
    pub fn len(&self) -> u32 {
        self.chain.len()
    }

    /// Is there no item?
    pub fn is_empty(&self) -> bool {
        self.chain.is_empty()
    }
}

impl ListLru {
    /// An empty container without groups for `nodes` nodes with `items` items each.
    ///
    /// # Errors
    /// No address space.
    ///
    /// # Panics
    /// No node, more than [`NODES_MAX`], or more than [`ITEMS_MAX`] items.
    pub fn new(nodes: usize, items: u32) -> io::Result<Self> {
        Self::with_groups(nodes, items, 0)
    }

    /// As [`ListLru::new`], with room for up to `groups` groups at a time.
    ///
    /// # Errors
    /// As [`ListLru::new`].
    ///
    /// # Panics
    /// As [`ListLru::new`], or more than [`GROUPS_MAX`] groups.
    pub fn with_groups(nodes: usize, items: u32, groups: u32) -> io::Result<Self> {
        assert!((1..=NODES_MAX).contains(&nodes), "{nodes} nodes, not 1 to {NODES_MAX}");
        let others = (1..nodes).map(|_| Part::new(items, groups)).collect::<io::Result<_>>()?;
        let counters = |_| (0..groups).map(|_| AtomicI64::new(0)).collect();
        Ok(Self {
            first: Part::new(items, groups)?,
            others,
            grouped: (0..nodes).map(counters).collect(),
            active: NodeMask::new(nodes),
            lists_end: AtomicU32::new(1),
            numbers: Lock::new(Numbers::new(groups + 1)),
            identity: Arc::new(()),
        })
    }

    /// Number of nodes, 1 to [`NODES_MAX`].
    pub fn nodes(&self) -> usize {
        1 + self.others.len()
    }

    /// Makes an item that belongs to no group the newest of its node; false when it is on any list already.
    ///
    /// # Panics
    /// There is no such node or item, as in every function here.
    #[inline]
    pub fn add(&self, node: NodeId, item: u32) -> bool {
        let part = self.part(node);
        let mut lists = part.lists.lock();
        self.append(node, &mut lists, ListNumber::UNGROUPED, item)
    }

    /// Makes an item of a group the newest of its list; false when it is on any list already. Once the
    /// group is gone, its nearest ancestor's list is meant.
    ///
    /// # Panics
    /// The group is another container's.
    pub fn add_to(&self, node: NodeId, group: &Group, item: u32) -> bool {
        self.assert_own(group);
        let part = self.part(node);
        let mut lists = part.lists.lock();
        // Looked up under the lock: an item that comes before the group's end is moved with the others.
        let list = group.living_list();
        self.append(node, &mut lists, list, item)
    }

    /// Takes an item off the list that it is on; false when it is on none.
    #[inline]
    pub fn del(&self, node: NodeId, item: u32) -> bool {
        let part = self.part(node);
        let mut lists = part.lists.lock();
        let Some(list) = lists.del(item) else { return false };
        self.publish(node, &lists, list);
        self.note_fewer(node, &lists);
        true
    }

    /// Items of one group, or of none, on a node: approximate, without any lock.
    pub fn count_one(&self, node: NodeId, group: Option<&Group>) -> u64 {
        let list = group.map_or(Some(ListNumber::UNGROUPED), |group| {
            self.assert_own(group);
            group.own_list()
        });
        let counter = |list| self.counter(node, list).load(Ordering::Relaxed);
        sublists::shown(list.map_or(0, counter))
    }

    /// Items of a node: approximate, without any lock.
    pub fn count_node(&self, node: NodeId) -> u64 {
        let part = self.part(node);
        let (ungrouped, beside) = (&part.ungrouped, &part.beside);
        sublists::shown(ungrouped.load(Ordering::Relaxed) + beside.load(Ordering::Relaxed))
    }

    /// Items of all nodes: approximate, without any lock.
    pub fn count(&self) -> u64 {
        self.active_nodes().map(|node| self.count_node(node)).sum()
    }

    /// The nodes that have items at this moment.
    pub fn active_nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        // A hint: a bit may be cleared before its node is looked at.
        self.active.nodes()
    }

    /// Takes the last items out that were put in, as many as there are and `items` has room for.
    pub fn take<'a>(&self, taken: &mut Taken, items: &'a mut [u32]) -> &'a [u32] {
        let mut lists = self.part(taken.node).lists.lock();
        let mut count = 0;
        for entry in items.iter_mut() {
            let Some(item) = lists.pop(&mut taken.chain) else { break };
            *entry = item;
            count += 1;
        }
        &items[..count]
    }

    /// How threads have waited for the nodes' locks since the container was made.
    pub fn waits(&self) -> Waits {
        self.parts().fold(Waits::default(), |sum, part| Waits {
            count: sum.count + part.lists.contended(),
            total_ns: sum.total_ns + part.lists.waited_ns(),
        })
    }

    /// Every count agrees with the lists and the mask. Walks all lists under their locks; wrong while a
    /// walk is between an isolation and the end of its callback.
    pub fn is_valid(&self) -> bool {
        (0..).map(NodeId).zip(self.parts()).all(|(node, part)| {
            let lists = part.lists.lock();
            lists.is_valid()
                && self.count_node(node) == sublists::shown(lists.count())
                && self.active.contains(node) == (lists.count() > 0)
        })
    }

    #[inline]
    fn part(&self, node: NodeId) -> &Part {
        match node.0 {
            0 => &self.first,
            other => &self.others[other as usize - 1],
        }
    }

    fn parts(&self) -> impl Iterator<Item = &Part> + Clone {
        std::iter::once(&self.first).chain(&self.others)
    }

    #[inline]
    fn append(&self, node: NodeId, lists: &mut Lists, list: ListNumber, item: u32) -> bool {
        let Some(list) = lists.add(list, item) else { return false };
        self.publish(node, lists, list);
        if lists.has_at_most(1) {
            self.active.insert(node);
        }
        true
    }

    #[inline]
    fn counter(&self, node: NodeId, list: ListNumber) -> &AtomicI64 {
        match list.index() {
            0 => &self.part(node).ungrouped,
            index => &self.grouped[node.0 as usize][index - 1],
        }
    }

    #[inline(always)]
    fn publish(&self, node: NodeId, lists: &Lists, list: ListNumber) {
        if list != ListNumber::UNGROUPED {
            return self.publish_group(node, lists, list);
        }
        self.part(node).ungrouped.store(lists.count_of(list), Ordering::Relaxed);
    }

    #[cold]
    fn publish_group(&self, node: NodeId, lists: &Lists, list: ListNumber) {
        self.counter(node, list).store(lists.count_of(list), Ordering::Relaxed);
        self.publish_beside(node, lists);
    }

    #[inline]
    fn publish_beside(&self, node: NodeId, lists: &Lists) {
        self.part(node).beside.store(lists.count_beside(), Ordering::Relaxed);
    }

    /// An item of the node has gone, and its count is lower.
    #[inline]
    fn note_fewer(&self, node: NodeId, lists: &Guard<'_, Lists>) {
        if lists.has_at_most(0) {
            self.active.remove(node);
        }
    }
}

impl Part {
    fn new(items: u32, groups: u32) -> io::Result<Self> {
        let links = ZeroedSlice::new(items as usize)?;
        Ok(Self {
            lists: Lock::new(Sublists::new(links, groups + 1)),
            ungrouped: AtomicI64::new(0),
            beside: AtomicI64::new(0),
        })
    }
}
