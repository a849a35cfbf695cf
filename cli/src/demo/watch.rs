//! What a workload has in RAM and on swap while it runs, looked at between its lines of progress.

use std::fs;
use std::time::{Duration, Instant};

use userswap::internals::directory::EngineName;

use crate::control::Client;

/// Enough looks for a picture of a run of seconds, too few to cost it anything.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// How it was at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sample {
    pub at_s: f64,
    pub ram_bytes: f64,
    pub swap_bytes: f64,
    /// Written and read back so far.
    pub done_bytes: f64,
}

/// Looks at one process.
pub struct Watch {
    name: EngineName,
    /// There is none until the process has outgrown its budget.
    engine: Option<Client>,
    begun: Instant,
    samples: Vec<Sample>,
}

impl Watch {
    pub fn of(pid: u32) -> Watch {
        let name = EngineName { pid, number: 1 };
        Watch { name, engine: None, begun: Instant::now(), samples: vec![Sample::default()] }
    }

    /// Looks, unless it has just looked.
    pub fn look(&mut self, done_bytes: u64) {
        let now = self.begun.elapsed();
        let last_s = self.samples.last().map_or(0.0, |sample| sample.at_s);
        if now.as_secs_f64() < last_s + BETWEEN_LOOKS.as_secs_f64() {
            return;
        }
        let (Some(ram_bytes), Some(swap_bytes)) = (self.ram_bytes(), self.swap_bytes()) else {
            return;
        };
        self.samples.push(Sample {
            at_s: now.as_secs_f64(),
            ram_bytes: ram_bytes as f64,
            swap_bytes: swap_bytes as f64,
            done_bytes: done_bytes as f64,
        });
    }

    /// All that was seen, beginning with nothing.
    pub fn samples(self) -> Vec<Sample> {
        self.samples
    }

    fn ram_bytes(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.name.pid)).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
    }

    /// Nothing before there is an engine; unknown once it has ended.
    fn swap_bytes(&mut self) -> Option<u64> {
        if self.engine.is_none() {
            self.engine = Client::of(self.name).ok();
        }
        let Some(engine) = &mut self.engine else { return Some(0) };
        let devices = engine.status().ok()?.devices;
        Some(devices.iter().map(|device| device.used_bytes).sum())
    }
}
