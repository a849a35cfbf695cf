//! swapoff on the real engine.
mod devices;
mod load;
mod vectors;
mod walks;

use crate::support::*;
use userswap::{Builder, Engine};

fn with_memory(way: Way, ram_mib: usize, swap: &[&str]) -> Engine {
    let builder = Builder::new((ram_mib * MIB) as u64).arena_bytes(1 << 30);
    build(with_swap(builder.fault(way.0).transfer(way.1), swap))
}

fn priorities(engine: &Engine) -> Vec<i16> {
    let table = engine.core().devices.table();
    table.devices().map(|(_, device)| device.priority).collect()
}

/// Pages on each device; slots that wait in a CPU's buffer do not count.
fn used(engine: &Engine) -> Vec<usize> {
    let core = engine.core();
    let names = core.devices.list().map(|device| device.label().unwrap().name.clone());
    let mut used: Vec<(String, usize)> = names.map(|name| (name, 0)).collect();
    for page in 0..core.pages.pages() {
        let slot = match core.pages.state(page) {
            PageState::Swapped { slot } => slot,
            PageState::Cached { slot: Some(slot), .. }
            | PageState::Clean { slot, .. }
            | PageState::Resident { slot: Some(slot), .. } => slot,
            _ => continue,
        };
        let name = core.devices.describe(slot).0.name.clone();
        used.iter_mut().find(|(of, _)| *of == name).unwrap().1 += 1;
    }
    used.into_iter().map(|(_, used)| used).collect()
}

fn count_present(pages: Pages) -> usize {
    pages.present().into_iter().filter(|present| *present).count()
}
