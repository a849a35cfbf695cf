//! A program with a cache of its own, and with work that needs more memory than there is: the budget covers
//! both. While the work goes through its memory the cache gives way, its cold objects first; when the work
//! is done the cache grows again.
//!
//! `cargo run --release -p userswap --example object_cache`
mod cache;

use cache::{Found, ObjectCache};
use userswap::{Builder, Engine, Error, NodeId, Scanned};

const RAM_BYTES: u64 = 32 << 20;
const WORK_BYTES: usize = 64 << 20;
const STEP_BYTES: usize = 8 << 20;
const PAGE_BYTES: u64 = 4096;
/// Objects that are read, of which every eighth is read again and again: 23 MiB.
const KEYS: u64 = 6000;
const HOT: u64 = 8;

fn main() -> Result<(), Error> {
    let engine = Builder::new(RAM_BYTES).fake_numa(2).build()?;
    let (cache, registration) = ObjectCache::new(&engine, KEYS as u32)?;
    println!(
        "{:<24}{:>9}{:>9}{:>9}{:>12}{:>12}",
        "MiB", "objects", "resident", "other", "hot there", "cold there"
    );
    read_all(&engine, &cache);
    show("objects read", &engine, &cache);
    let mut work = engine.map(WORK_BYTES)?;
    for (step, part) in work.as_mut_slice().chunks_mut(STEP_BYTES).enumerate() {
        part.fill(step as u8 + 1);
        show(&format!("{} MiB of work written", (step + 1) * (STEP_BYTES >> 20)), &engine, &cache);
    }
    drop(work);
    read_all(&engine, &cache);
    show("work done, objects read", &engine, &cache);
    let Scanned { scanned, freed } = registration.scanned();
    println!("the shrinker looked at {scanned} objects and freed {freed}");
    Ok(())
}

/// The nodes in turn, as in a program whose threads run on all of them.
fn node_of(engine: &Engine, key: u64) -> NodeId {
    NodeId((key % engine.nodes() as u64) as u16)
}

fn read_all(engine: &Engine, cache: &ObjectCache) {
    (0..KEYS).for_each(|key| _ = cache.read(node_of(engine, key), key));
}

fn show(what: &str, engine: &Engine, cache: &ObjectCache) {
    let (mut hot, mut cold) = (Share::default(), Share::default());
    for key in 0..KEYS {
        let node = node_of(engine, key);
        match key % HOT {
            0 => hot.add(cache.read(node, key) == Found::Hit),
            _ => cold.add(cache.contains(node, key)),
        }
    }
    let usage = engine.usage();
    let mib = |pages: u64| pages as f64 * PAGE_BYTES as f64 / f64::from(1 << 20);
    let objects: usize = (0..engine.nodes() as u16).map(|node| cache.len(NodeId(node))).sum();
    println!(
        "{what:<24}{:>9.1}{:>9.1}{:>9.1}{:>10.0} %{:>10.0} %",
        mib(objects as u64),
        mib(usage.resident.into()),
        mib((usage.budget - usage.charged - usage.resident).into()),
        hot.percent(),
        cold.percent(),
    );
}

/// How many of all keys are there.
#[derive(Default)]
struct Share {
    present: u64,
    all: u64,
}

impl Share {
    fn add(&mut self, is_there: bool) {
        self.present += u64::from(is_there);
        self.all += 1;
    }

    fn percent(&self) -> f64 {
        self.present as f64 * 100.0 / self.all as f64
    }
}
