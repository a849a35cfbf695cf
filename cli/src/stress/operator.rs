//! The operator of a round: changes the budget, devices and settings of the load while it runs, in random order.
//!
//! What is refused is refused with a reason (no room, no such device any more), and is no finding.
use crate::control::Client;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use userswap::internals::directory::EngineName;
use userswap::internals::protocol::Request;

/// Between two requests.
const PAUSE: Duration = Duration::from_millis(50);

/// What a device in trouble is waited for, in seconds: long enough for the outages of a round.
const PATIENCE: &str = "3";

/// What the operator and the round tell each other.
#[derive(Default)]
pub struct Shared {
    /// The round is over.
    pub over: AtomicBool,
    /// What was done.
    pub done: AtomicU64,
    /// What was refused.
    pub refused: AtomicU64,
}

/// Asks the engine of a process for one thing after another until the round is over.
pub fn operate(pid: u32, seed: u64, shared: &Shared) {
    let name = EngineName { pid, number: 1 };
    let mut random = seed | 1;
    let mut next = |bound: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 20) % bound
    };
    let mut client = None;
    while !shared.over.load(Ordering::Relaxed) {
        std::thread::sleep(PAUSE);
        if client.is_none() {
            // Before the load has outgrown its budget there is nobody to ask.
            client = Client::of(name).ok();
            let _ = client.as_mut().map(|client| client.ask(&set("patience", PATIENCE)));
        }
        let Some(asked) = &mut client else { continue };
        let request = request(&mut next, asked);
        match asked.ask_patiently(&request) {
            Ok(_) => shared.done.fetch_add(1, Ordering::Relaxed),
            Err(_) => {
                // Refused, or the connection is gone.
                client = None;
                shared.refused.fetch_add(1, Ordering::Relaxed)
            }
        };
    }
}

fn set(key: &str, value: &str) -> Request {
    Request::Set { key: key.to_owned(), value: value.to_owned() }
}

/// Where devices have tiers, those without are refused, and the other way about.
const SWAPONS: [&str; 8] = [
    "mem:32M",
    "mem:32M,tier=1",
    "/var/tmp:48M",
    "/var/tmp:48M,tier=2",
    "mem:48M,pri=9",
    "mem:48M,pri=9,tier=0",
    "zram:48M,pri=8",
    "zram:48M,pri=8,tier=0",
];

fn request(next: &mut impl FnMut(u64) -> u64, client: &mut Client) -> Request {
    let of = |values: &[&str], at: u64| values[at as usize % values.len()].to_owned();
    match next(14) {
        0..3 => set("ram", &of(&["16M", "18M", "24M", "40M"], next(4))),
        3 => Request::Swapon { spec: of(&SWAPONS, next(SWAPONS.len() as u64)) },
        4 => {
            let devices = client.status().map_or(Vec::new(), |status| status.devices);
            let count = devices.len().max(1) as u64;
            let path = devices.get(next(count) as usize).map_or(String::new(), |d| d.name.clone());
            Request::Swapoff { path, readahead: None }
        }
        5 => set("hibernate", "1"),
        6 => set("hibernate", "0"),
        7 => set("swap_ra_policy", &of(&["stream", "vma", "scaling", "off"], next(4))),
        8 => set("second_chance", &of(&["0", "10", "50"], next(3))),
        9 => set("slot_cache", &of(&["cache", "clusters", "shared"], next(3))),
        10 => set("watermark_scale", &of(&["10", "100", "1000"], next(3))),
        11 => set("reclaim_way", &of(&["blocks", "auto", "blocks"], next(3))),
        12 => set("servers", &of(&["4", "1", "2"], next(3))),
        _ => set("placement", &of(&["near", "spread"], next(2))),
    }
}
