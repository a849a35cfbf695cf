//! Asks every engine of this user how it is, all at once: one that is stopped costs the others nothing.

use std::path::{Path, PathBuf};
use std::time::Duration;

use userswap::internals::directory::EngineName;
use userswap::internals::status::Status;

use crate::control::{Client, all};

/// An engine answers at once, unless its program is stopped or forks; a scrape waits for ten seconds as a rule.
const PATIENCE: Duration = Duration::from_secs(3);

/// Engines that are asked at once.
const ASKED_MAX: usize = 32;

/// An engine, and how it is if it said so.
#[derive(Debug)]
pub struct Engine {
    pub name: EngineName,
    pub status: Option<Box<Status>>,
}

/// All engines of this user, root's too, in the order of their numbers.
pub fn gather() -> Vec<Engine> {
    let sockets = all();
    sockets.chunks(ASKED_MAX).flat_map(ask_all).collect()
}

fn ask_all(sockets: &[(EngineName, PathBuf)]) -> Vec<Engine> {
    std::thread::scope(|scope| {
        let ask = |named: &(EngineName, PathBuf)| {
            let (name, socket) = named.clone();
            scope.spawn(move || Engine { name, status: status_of(name, &socket) })
        };
        let threads: Vec<_> = sockets.iter().map(ask).collect();
        threads.into_iter().map(|thread| thread.join().expect("it cannot panic")).collect()
    })
}

/// None when it refuses or is silent: it may have just ended.
fn status_of(name: EngineName, socket: &Path) -> Option<Box<Status>> {
    let mut client = Client::connect(name, socket).ok()?;
    client.status_within(PATIENCE).ok()?.map(Box::new)
}
