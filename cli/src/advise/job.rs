//! What the processes of a job have at one moment, and for how long threads of them have waited, by what their engines say.

use std::collections::BTreeMap;
use std::time::Duration;

use userswap::internals::directory::EngineName;
use userswap::internals::protocol::Request;
use userswap::internals::status::Status;

use crate::control::{Client, target};
use crate::memory::PAGE_BYTES;

/// How long an answer is waited for: a process that is stopped keeps the others waiting.
const PATIENCE: Duration = Duration::from_secs(1);

/// A job that is looked at again and again.
pub struct Job {
    root: u32,
    waits: Waits,
}

/// What there is at a look.
pub struct Seen {
    /// In RAM, and on devices.
    pub has_bytes: u64,
    /// For how long at least one process had a thread that waited, over all looks.
    pub stalled_ns: u64,
    engines: Vec<Client>,
}

impl Job {
    /// The job that begins with this process.
    pub fn of(root: u32) -> Self {
        Self { root, waits: Waits::default() }
    }

    /// None as long as no process has an engine: all that they have fits.
    pub fn look(&mut self) -> Option<Seen> {
        let job = target::jobs().into_iter().find(|job| job.root_pid == self.root);
        let pids: Vec<u32> = match &job {
            Some(job) => job.members.iter().filter(|it| it.engaged).map(|it| it.pid).collect(),
            // Each process has a budget of its own.
            None => vec![self.root],
        };
        let asked = pids.into_iter().filter_map(ask);
        let (engines, statuses): (Vec<Client>, Vec<Status>) = asked.unzip();
        if engines.is_empty() {
            return None;
        }
        let stalls = statuses.iter().map(|status| (status.pid, status.stall_ns));
        let stalled_ns = self.waits.add(stalls.collect());
        // What a parent and a child of it share is in both, but held once.
        let held = job.map_or(u64::MAX, |job| job.held_pages);
        let resident = statuses.iter().flat_map(|status| &status.nodes);
        let resident: u64 = resident.map(|node| node.resident_pages).sum();
        let swapped = statuses.iter().flat_map(|status| &status.devices);
        let swapped: u64 = swapped.map(|device| device.used_bytes).sum();
        let has_bytes = resident.min(held) * PAGE_BYTES + swapped;
        Some(Seen { has_bytes, stalled_ns, engines })
    }
}

impl Seen {
    /// Whether the job has this budget from here on; any of its engines can give it.
    pub fn set_budget(&mut self, bytes: u64) -> bool {
        let ram = Request::Set { key: "ram".into(), value: bytes.to_string() };
        self.engines.iter_mut().any(|engine| engine.ask(&ram).is_ok())
    }
}

/// None where the process has just ended, or belongs to somebody else.
fn ask(pid: u32) -> Option<(Client, Status)> {
    let mut client = Client::of(EngineName { pid, number: 1 }).ok()?;
    client.send(&Request::Status {}).ok()?;
    let status = client.status_within(PATIENCE).ok()??;
    Some((client, status))
}

/// How long processes have waited, of those that were there at a look the one that had waited most since the look before.
#[derive(Default)]
struct Waits {
    before_ns: BTreeMap<u32, u64>,
    all_ns: u64,
}

impl Waits {
    /// What each process has waited since it began; returns all until now.
    fn add(&mut self, stalls_ns: BTreeMap<u32, u64>) -> u64 {
        let since = stalls_ns.iter().map(|(pid, now)| {
            let before = self.before_ns.get(pid).copied().unwrap_or(0);
            // Less than before is of the program that the process has become.
            now.checked_sub(before).unwrap_or(*now)
        });
        self.all_ns += since.max().unwrap_or(0);
        self.before_ns.extend(stalls_ns);
        self.all_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_come_and_go_wait_as_one_that_stays() {
        let mut waits = Waits::default();
        let mut look = |stalls: &[(u32, u64)]| waits.add(stalls.iter().copied().collect());
        assert_eq!([look(&[(1, 100)]), look(&[(1, 300), (2, 100)])], [100, 300]);
        // The first has ended, the second was not heard once, the third is another program now.
        assert_eq!([look(&[(3, 50)]), look(&[(2, 180), (3, 60)])], [350, 430]);
        assert_eq!([look(&[(3, 20)]), look(&[(2, 180)]), look(&[])], [450, 450, 450]);
    }
}
