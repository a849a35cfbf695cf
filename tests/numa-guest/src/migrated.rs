//! What must hold of a load whose pages the kernel moves to another node: the engine notices, and no pool keeps pages of others.
use crate::loads::{Load, Map, Phase};

/// The case of `guest/placement.sh`.
pub const CASE: &str = "migrated";

/// Of fewer, which may be those of other programs, none has to be the load's: `guest/placement.sh` waits for 512 up to
/// three times, and on a busy host it waits in vain.
const MOVED_MIN: u64 = 3 * 512;

/// What is wrong with that case, or that it is missing.
pub fn judge(loads: &[Load]) -> Vec<String> {
    let Some(load) = loads.iter().find(|load| load.case == CASE) else {
        return vec![format!("no load {CASE}")];
    };
    let Some(last) = load.phases.last() else {
        return vec![format!("{CASE}: userswap did not come this far")];
    };
    let migrated = migrated(last);
    println!(
        "numa-guest: {CASE}: {migrated} pages that the kernel had moved, which says that it moved {}",
        load.moved
    );
    let pools = load.phases.iter().flat_map(|phase| pools_with_pages_elsewhere(&phase.maps));
    let mut wrong: Vec<String> = pools.map(|text| format!("{CASE}: {text}")).collect();
    match migrated {
        0 if load.moved < MOVED_MIN => {
            println!("numa-guest: NOT TESTED: {CASE}: the kernel had no time to move pages")
        }
        0 => wrong.push(format!("{CASE}: the engine has not noticed that the kernel moves pages")),
        _ => {}
    }
    wrong
}

fn migrated(phase: &Phase) -> u64 {
    let counters = phase.status.as_ref().map(|status| &status.counters);
    counters.and_then(|counters| counters.get("numa_pages_migrated").copied()).unwrap_or(0)
}

/// Pools with pages on another node than their own.
pub fn pools_with_pages_elsewhere(maps: &[Map]) -> Vec<String> {
    let elsewhere = |map: &Map| {
        let node = map.policy.strip_prefix("prefer:")?;
        let own = node.parse().ok().and_then(|node: u32| map.pages.get(&node));
        (own.copied().unwrap_or(0) != map.total())
            .then(|| format!("the pool of node {node} has pages elsewhere: {:?}", map.pages))
    };
    maps.iter().filter_map(elsewhere).collect()
}
