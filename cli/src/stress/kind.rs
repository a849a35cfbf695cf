//! Kinds of rounds: how faults arrive, how pages travel, and how well the devices are.
use crate::failure::Failure;
use std::fmt;
use std::path::Path;
use userswap::{FaultMode, Transfer};

/// How well the devices of a round are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Devices {
    /// Nothing fails.
    Well,
    /// Requests fail, but what was written can be read in the end.
    InTrouble,
    /// Requests are interrupted, at times many in a row.
    Interrupted,
    /// The first has no more room from some write on.
    Full,
    /// Some pages are lost.
    Losing,
    /// Nothing fails, and what fits stays in memory, compressed.
    Compressed,
    /// Nothing fails, and pages move on from compressed memory to a small device and a large one.
    Tiers,
}

impl Devices {
    pub const ALL: [Self; 7] = [
        Self::Well,
        Self::InTrouble,
        Self::Interrupted,
        Self::Full,
        Self::Losing,
        Self::Compressed,
        Self::Tiers,
    ];

    pub fn specs(self, directory: &Path, seed: u64) -> Vec<String> {
        let directory = directory.display();
        let before_memory = |first: String| vec![first, "mem:256M".to_owned()];
        let faulty =
            |plan: &str| before_memory(format!("faulty:{directory}:128M,pri=5,{plan},seed={seed}"));
        match self {
            Self::Well => before_memory(format!("{directory}:128M,pri=5")),
            Self::Compressed => before_memory("zram:256M,pri=5".to_owned()),
            Self::Tiers => {
                let disk = format!("{directory}:48M,tier=1");
                vec!["zram:256M,tier=0".to_owned(), disk, "mem:256M,tier=2".to_owned()]
            }
            Self::InTrouble => faulty(
                "read=0.01,write=0.01,short=0.02,late=0.01:20,error=ETIMEDOUT,outage=3000:12",
            ),
            // As many in a row as one request can meet: it is repeated a hundred times.
            Self::Interrupted => {
                faulty("read=0.05,write=0.05,short=0.02,error=EINTR,outage=500:90")
            }
            // After a second or so.
            Self::Full => faulty(&format!("full={}", 300 + seed % 700)),
            Self::Losing => {
                let plan = format!("read=0.001,write=0.01,torn=0.005,flip=0.001,seed={seed}");
                before_memory(format!("faulty:mem:128M,pri=5,bad=0.0005,{plan}"))
            }
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Well => "well",
            Self::InTrouble => "trouble",
            Self::Interrupted => "interrupted",
            Self::Full => "full",
            Self::Losing => "losing",
            Self::Compressed => "compressed",
            Self::Tiers => "tiers",
        }
    }
}

/// What kind of round it is.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    pub fault: FaultMode,
    pub transfer: Transfer,
    pub devices: Devices,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.fault, self.transfer, self.devices.name())
    }
}

impl Kind {
    /// Every kind of round that this machine can run, as far as `part` is in its name.
    ///
    /// # Errors
    /// It is in none, or this machine can run none at all.
    pub fn all(part: &str) -> Result<Vec<Self>, Failure> {
        let support = userswap::probe().map_err(Failure::unavailable)?;
        let faults = [FaultMode::Thread, FaultMode::Signal];
        let transfers = [Transfer::Move, Transfer::Copy];
        let kinds = Devices::ALL.into_iter().flat_map(|devices| {
            let ways = faults.into_iter().flat_map(|fault| transfers.map(|way| (fault, way)));
            ways.map(move |(fault, transfer)| Self { fault, transfer, devices })
        });
        // Without poison a lost page stops its program.
        let is_possible = |kind: &Self| {
            (support.poison || kind.devices != Devices::Losing)
                && (support.moving || kind.transfer != Transfer::Move)
        };
        let kinds: Vec<Self> = kinds.filter(is_possible).collect();
        let found: Vec<Self> =
            kinds.iter().filter(|kind| kind.to_string().contains(part)).copied().collect();
        if found.is_empty() {
            let names: Vec<String> = kinds.iter().map(Self::to_string).collect();
            let names = names.join(", ");
            return Err(Failure::usage(format!(
                "--kind {part}: no round of this machine is called so: use {names}, or a part of them"
            )));
        }
        Ok(found)
    }

    /// Whether its load may use an io_uring of its own: docs/limits.md says where that is not safe.
    pub fn has_ring(self) -> bool {
        self.fault == FaultMode::Thread && self.transfer == Transfer::Move
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_devices_of_every_round_can_be_opened() {
        for devices in Devices::ALL {
            for spec in devices.specs(Path::new("/var/tmp"), 7) {
                let parsed: userswap::SwapSpec = spec.parse().expect(&spec);
                assert_eq!(parsed.faulty.is_some(), spec.starts_with("faulty:"));
            }
        }
    }

    #[test]
    fn a_kind_is_found_by_its_whole_name_alone() {
        for kind in Kind::all("").unwrap() {
            let found = Kind::all(&kind.to_string()).unwrap();
            assert_eq!(found.len(), 1, "{kind}");
        }
        assert!(Kind::all("tiers").unwrap().iter().all(|kind| kind.devices == Devices::Tiers));
        let refusal = Kind::all("disks").map(|_| ()).unwrap_err().message;
        assert!(refusal.contains("disks") && refusal.contains("thread-copy-well"), "{refusal}");
    }
}
