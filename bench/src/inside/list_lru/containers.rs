//! What is compared: the plain list in one lock, ListLru, and two crates' caches, as one trait.
//!
//! Items are numbers without content. A walk looks at the oldest items there are and asks what becomes of
//! each; a cache that has no such operation offers what comes nearest.
use lru::LruCache;
use quick_cache::sync::Cache;
use userswap::Error;
use userswap::NodeId;
use userswap::internals::lock::Lock;
use userswap::internals::mapping::ZeroedSlice;
use userswap::list_lru::{Code, ListLru};
use userswap_policy::lru::{Link, ListId, Lists};

/// What becomes of an item that a walk has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is taken off.
    Removed,
    /// It becomes the newest.
    Rotated,
}

/// How large a container is made.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Numbers that items can have.
    pub items: u32,
    /// Nodes, where the container has any.
    pub nodes: u32,
}

/// A container of items that could go.
pub trait Container: Sync + Sized {
    /// An empty one.
    fn new(size: Size) -> Result<Self, Error>;
    /// The node that a thread of this number uses.
    fn node_of(&self, _thread: u32) -> NodeId {
        NodeId(0)
    }
    /// Makes an item that is not there the newest of a node.
    fn add(&self, node: NodeId, item: u32);
    /// Takes an item out; false when it is not there.
    fn del(&self, node: NodeId, item: u32) -> bool;
    /// Looks at up to `budget` of the oldest items of a node.
    fn walk(&self, node: NodeId, budget: u64, fate: impl Fn(u32) -> Fate);
    /// Items of a node.
    fn len(&self, node: NodeId) -> u64;
    /// Time spent waiting for locks by all threads; None where it is unknown.
    fn waited_ns(&self) -> Option<u64>;
}

/// One list of the policy's in one lock, on cache lines of its own.
#[repr(align(128))]
pub struct Plain(Lock<Lists<ZeroedSlice<Link>>>);

const LIST: ListId = ListId::Inactive;

impl Container for Plain {
    fn new(size: Size) -> Result<Self, Error> {
        let links = ZeroedSlice::new(size.items as usize).map_err(Error::Tables)?;
        Ok(Self(Lock::new(Lists::new(links))))
    }

    fn add(&self, _: NodeId, item: u32) {
        self.0.lock().push_newest(LIST, item);
    }

    fn del(&self, _: NodeId, item: u32) -> bool {
        self.0.lock().remove(item)
    }

    fn walk(&self, _: NodeId, budget: u64, fate: impl Fn(u32) -> Fate) {
        let mut lists = self.0.lock();
        let mut next = lists.oldest(LIST);
        for _ in 0..budget {
            let Some(item) = next else { return };
            next = lists.after(item);
            match fate(item) {
                Fate::Removed => _ = lists.remove(item),
                Fate::Rotated => lists.push_newest(LIST, item),
            }
        }
    }

    fn len(&self, _: NodeId) -> u64 {
        self.0.lock().len(LIST).into()
    }

    fn waited_ns(&self) -> Option<u64> {
        Some(self.0.waited_ns())
    }
}

/// The container that this is about.
pub struct PerNode(ListLru);

impl Container for PerNode {
    fn new(size: Size) -> Result<Self, Error> {
        ListLru::new(size.nodes as usize, size.items).map(Self).map_err(Error::Tables)
    }

    fn node_of(&self, thread: u32) -> NodeId {
        // Of more than 64 nodes threads use some of each word of the mask.
        let apart = self.0.nodes().div_ceil(64) as u32;
        NodeId((thread * apart % self.0.nodes() as u32) as u16)
    }

    fn add(&self, node: NodeId, item: u32) {
        self.0.add(node, item);
    }

    fn del(&self, node: NodeId, item: u32) -> bool {
        self.0.del(node, item)
    }

    fn walk(&self, node: NodeId, mut budget: u64, fate: impl Fn(u32) -> Fate) {
        self.0.walk_one(node, None, &mut budget, |visit| match fate(visit.item()) {
            Fate::Rotated => Code::Rotate,
            Fate::Removed => {
                visit.isolate();
                Code::Removed
            }
        });
    }

    fn len(&self, node: NodeId) -> u64 {
        self.0.count_node(node)
    }

    fn waited_ns(&self) -> Option<u64> {
        Some(self.0.waits().total_ns)
    }
}

/// The crate `lru` in one lock: a hash map through which a list goes.
pub struct LruCrate(Lock<LruCache<u32, ()>>);

impl Container for LruCrate {
    fn new(_: Size) -> Result<Self, Error> {
        Ok(Self(Lock::new(LruCache::unbounded())))
    }

    fn add(&self, _: NodeId, item: u32) {
        self.0.lock().put(item, ());
    }

    fn del(&self, _: NodeId, item: u32) -> bool {
        self.0.lock().pop(&item).is_some()
    }

    fn walk(&self, _: NodeId, budget: u64, fate: impl Fn(u32) -> Fate) {
        let mut cache = self.0.lock();
        for _ in 0..budget {
            let Some((&item, &())) = cache.peek_lru() else { return };
            match fate(item) {
                Fate::Removed => _ = cache.pop_lru(),
                Fate::Rotated => _ = cache.promote(&item),
            }
        }
    }

    fn len(&self, _: NodeId) -> u64 {
        self.0.lock().len() as u64
    }

    fn waited_ns(&self) -> Option<u64> {
        Some(self.0.waited_ns())
    }
}

/// The crate `quick_cache`: a hash map in several parts, each with its lock. It has no order that a walk
/// could follow: the walk takes whatever an iterator gives first.
pub struct QuickCache(Cache<u32, ()>);

impl Container for QuickCache {
    fn new(size: Size) -> Result<Self, Error> {
        Ok(Self(Cache::new(size.items as usize)))
    }

    fn add(&self, _: NodeId, item: u32) {
        self.0.insert(item, ());
    }

    fn del(&self, _: NodeId, item: u32) -> bool {
        self.0.remove(&item).is_some()
    }

    fn walk(&self, _: NodeId, budget: u64, fate: impl Fn(u32) -> Fate) {
        let first: Vec<u32> = self.0.iter().take(budget as usize).map(|(item, ())| item).collect();
        for item in first {
            match fate(item) {
                Fate::Removed => _ = self.0.remove(&item),
                Fate::Rotated => _ = self.0.get(&item),
            }
        }
    }

    fn len(&self, _: NodeId) -> u64 {
        self.0.len() as u64
    }

    fn waited_ns(&self) -> Option<u64> {
        None
    }
}
