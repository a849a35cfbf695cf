//! A cache of objects by key, on every node: a slab, an index, and the container's list of what could go.
//!
//! An object is a page of the program's own memory, charged to the engine's budget before it is made. All
//! of them stay on the list (a lazy LRU): a look-up only marks the object, and the shrinker gives marked
//! ones another round. The locks nest index, entry; the shrinker, which has the list's lock already, only
//! tries them.
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use userswap::list_lru::{Code, ListLru};
use userswap::{Account, Engine, Error, NodeId};
use userswap::{Registration, ShrinkRequest, ShrinkResult, Shrinker};

/// Bytes of one object: what one page is charged for.
const OBJECT_BYTES: usize = 4096;

/// What a look-up came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// The object was there.
    Hit,
    /// It was made, and is there now.
    Made,
    /// It was made, but there was no room to keep it, or another thread was faster.
    NotKept,
}

/// A cache with a part on every node.
pub struct ObjectCache {
    parts: Vec<Part>,
    lru: ListLru,
    account: Account,
}

struct Part {
    index: Mutex<Index>,
    /// The slab: an object's number on the list is its index here.
    slab: Vec<Mutex<Entry>>,
}

struct Index {
    numbers: HashMap<u64, u32>,
    free: Vec<u32>,
}

#[derive(Default)]
struct Entry {
    object: Option<Object>,
    used: bool,
}

struct Object {
    key: u64,
    words: Box<[u64; OBJECT_BYTES / 8]>,
}

impl Object {
    /// Stands for the work, or the reading, that a miss costs.
    fn make(key: u64) -> Self {
        Self { key, words: Box::new(std::array::from_fn(|index| key ^ index as u64)) }
    }
}

impl ObjectCache {
    /// A cache of up to `objects` objects on each node of an engine, which asks it to shrink from now on.
    ///
    /// # Errors
    /// No address space for the list, or no thread to ask the cache.
    pub fn new(engine: &Engine, objects: u32) -> Result<(Arc<Self>, Registration), Error> {
        let part = |_| Part {
            index: Mutex::new(Index {
                numbers: HashMap::new(),
                free: (0..objects).rev().collect(),
            }),
            slab: (0..objects).map(|_| Mutex::default()).collect(),
        };
        let cache = Arc::new(Self {
            parts: (0..engine.nodes()).map(part).collect(),
            lru: ListLru::new(engine.nodes(), objects).map_err(Error::Tables)?,
            account: engine.account(),
        });
        let registration = engine.register_shrinker("objects", cache.clone())?;
        Ok((cache, registration))
    }

    /// Reads an object, making it if it is not there.
    pub fn read(&self, node: NodeId, key: u64) -> Found {
        let part = &self.parts[node.0 as usize];
        if part.read(key) {
            return Found::Hit;
        }
        if !self.account.charge(node, 1) {
            return Found::NotKept;
        }
        match part.insert(Object::make(key)) {
            Some(number) => {
                assert!(self.lru.add(node, number), "the entry was free");
                Found::Made
            }
            None => {
                self.account.uncharge(node, 1);
                Found::NotKept
            }
        }
    }

    /// Whether an object is there, which does not count as a use.
    pub fn contains(&self, node: NodeId, key: u64) -> bool {
        self.parts[node.0 as usize].index.lock().unwrap().numbers.contains_key(&key)
    }

    /// Objects on a node.
    pub fn len(&self, node: NodeId) -> usize {
        self.lru.count_node(node) as usize
    }
}

impl Part {
    fn read(&self, key: u64) -> bool {
        let index = self.index.lock().unwrap();
        let Some(number) = index.numbers.get(&key) else { return false };
        let mut entry = self.slab[*number as usize].lock().unwrap();
        let object = entry.object.as_ref().expect("what is in the index is there");
        assert!(object.key == key && object.words[7] == key ^ 7, "the object is the right one");
        entry.used = true;
        true
    }

    /// Returns the object's number; None when the slab is full, or another thread has made the object meanwhile.
    fn insert(&self, object: Object) -> Option<u32> {
        let mut index = self.index.lock().unwrap();
        if index.numbers.contains_key(&object.key) {
            return None;
        }
        let number = index.free.pop()?;
        index.numbers.insert(object.key, number);
        *self.slab[number as usize].lock().unwrap() = Entry { object: Some(object), used: false };
        Some(number)
    }
}

impl Shrinker for ObjectCache {
    fn count(&self, request: &ShrinkRequest) -> u64 {
        self.lru.shrink_count(request)
    }

    fn scan(&self, request: &mut ShrinkRequest) -> ShrinkResult {
        let node = request.node;
        let part = &self.parts[node.0 as usize];
        let freed = self.lru.shrink_walk(request, |visit| {
            let Ok(mut index) = part.index.try_lock() else { return Code::Skip };
            let number = visit.item();
            let Ok(mut entry) = part.slab[number as usize].try_lock() else { return Code::Skip };
            if std::mem::take(&mut entry.used) {
                return Code::Rotate;
            }
            let object = entry.object.take().expect("what is on the list is there");
            index.numbers.remove(&object.key);
            index.free.push(number);
            visit.isolate();
            Code::Removed
        });
        self.account.uncharge(node, freed as u32);
        ShrinkResult::Freed(freed)
    }
}
