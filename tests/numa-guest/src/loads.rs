//! What happened in the guest, made of its messages: loads, and what was seen in each of their phases.
use crate::console::Message;
use std::collections::BTreeMap;
use userswap::internals::status::Status;

/// Bytes of a sector in the kernel's statistics.
const SECTOR_BYTES: u64 = 512;

/// A device of the guest.
#[derive(Clone, Debug)]
pub struct Device {
    /// The node it is near to, as the guest's kernel says.
    pub node: u32,
    /// Its block device, whose name is another one at each boot.
    pub path: String,
}

/// The devices by name.
pub type Devices = BTreeMap<String, Device>;

/// The swap that a load used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The kernel's own.
    Kernel,
    /// That of `userswap run`.
    Userswap,
}

/// A line of /proc/swaps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelSwap {
    /// The device's name.
    pub device: String,
    /// Its usable size.
    pub size_kb: u64,
    /// What is in use of it.
    pub used_kb: u64,
    /// As given, or negative when it was given automatically.
    pub priority: i32,
}

/// A line of numa_maps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Map {
    /// `default`, or `prefer:N`.
    pub policy: String,
    /// Pages on each node.
    pub pages: BTreeMap<u32, u64>,
}

impl Map {
    /// Pages on all nodes.
    pub fn total(&self) -> u64 {
        self.pages.values().sum()
    }
}

/// What was seen at one moment of a load.
#[derive(Clone, Debug, Default)]
pub struct Phase {
    /// Which moment.
    pub name: String,
    /// Written to each device since the moment before.
    pub written_kb: BTreeMap<String, u64>,
    /// The kernel's swap devices, if the load uses them.
    pub swaps: Vec<KernelSwap>,
    /// The engine, if there is one.
    pub status: Option<Status>,
    /// The program's memory, if there is an engine.
    pub maps: Vec<Map>,
}

/// A program that ran on one side, from its start to its end.
#[derive(Clone, Debug)]
pub struct Load {
    /// The devices and what is done with them.
    pub case: String,
    /// The swap that it used.
    pub side: Side,
    /// Where it ran.
    pub cpu: u32,
    /// What was seen, from the end of its first pass on.
    pub phases: Vec<Phase>,
    /// Its data was what it had written.
    pub is_verified: bool,
    /// Its exit status.
    pub status: Option<i32>,
    /// Pages that the kernel moved to other nodes meanwhile, of all programs.
    pub moved: u64,
    /// Sectors written to each device when the last phase was seen.
    sectors: BTreeMap<String, u64>,
}

/// The devices that the guest found.
pub fn devices(messages: &[Message]) -> Devices {
    let found = messages.iter().filter(|message| message.kind == "device");
    let device = |message: &Message| {
        let node = message.number("node")?;
        Some((message.word("name").into(), Device { node, path: message.word("path").into() }))
    };
    found.filter_map(device).collect()
}

/// The loads in the order in which they ran; with what could not be read in `errors`.
pub fn loads(messages: &[Message], devices: &Devices, errors: &mut Vec<String>) -> Vec<Load> {
    let mut loads: Vec<Load> = Vec::new();
    for message in messages.iter().filter(|message| !message.word("case").is_empty()) {
        let load = load_of(message, &mut loads);
        if let Err(reason) = load.take(message, devices) {
            let (case, phase) = (message.word("case"), message.word("phase"));
            errors.push(format!("{case}, CPU {}, {phase}: {reason}", message.word("cpu")));
        }
    }
    loads
}

fn load_of<'l>(message: &Message, loads: &'l mut Vec<Load>) -> &'l mut Load {
    let side = match message.word("side") {
        "kernel" => Side::Kernel,
        _ => Side::Userswap,
    };
    let cpu = message.number("cpu").unwrap_or_default();
    let is_same = |load: &Load| {
        (load.case.as_str(), load.side, load.cpu) == (message.word("case"), side, cpu)
    };
    let index = loads.iter().position(is_same).unwrap_or_else(|| {
        loads.push(Load::new(message.word("case").to_owned(), side, cpu));
        loads.len() - 1
    });
    &mut loads[index]
}

impl Load {
    fn new(case: String, side: Side, cpu: u32) -> Self {
        let (phases, sectors) = (Vec::new(), BTreeMap::new());
        Self { case, side, cpu, phases, is_verified: false, status: None, moved: 0, sectors }
    }

    /// A phase by name.
    pub fn phase(&self, name: &str) -> Option<&Phase> {
        self.phases.iter().find(|phase| phase.name == name)
    }

    fn take(&mut self, message: &Message, devices: &Devices) -> Result<(), String> {
        match message.kind.as_str() {
            "writes" => self.take_writes(message, devices),
            "swaps" => self.last_phase().swaps = swaps(message, devices),
            "maps" => {
                self.last_phase().maps = message.body.iter().filter_map(|line| map(line)).collect();
            }
            "status" => {
                let status = serde_json::from_str(&message.text());
                self.last_phase().status =
                    Some(status.map_err(|error| format!("status: {error}"))?);
            }
            "data" => self.is_verified = message.word("answer") == "verified",
            "moved" => self.moved = message.number("pages").unwrap_or(0),
            "finish" => self.status = message.number("status"),
            "error" => return Err(format!("{}: {}", message.word("what"), message.text())),
            _ => {}
        }
        Ok(())
    }

    /// Begins a phase with what was written since the one before.
    fn take_writes(&mut self, message: &Message, devices: &Devices) {
        let now: BTreeMap<String, u64> = message
            .body
            .iter()
            .filter_map(|line| {
                let (file, numbers) = line.split_once(':')?;
                let path = format!("/dev/{}", file.strip_prefix("/sys/block/")?.split('/').next()?);
                // Sectors written are the seventh number.
                let sectors = numbers.split_whitespace().nth(6)?.parse().ok()?;
                Some((name_of(&path, devices)?, sectors))
            })
            .collect();
        if message.word("phase") != "start" {
            let since = |(name, sectors): (&String, &u64)| {
                let before = self.sectors.get(name).copied().unwrap_or_default();
                (name.clone(), (sectors - before) * SECTOR_BYTES / 1024)
            };
            let written_kb = now.iter().map(since).collect();
            let name = message.word("phase").to_owned();
            self.phases.push(Phase { name, written_kb, ..Phase::default() });
        }
        self.sectors = now;
    }

    fn last_phase(&mut self) -> &mut Phase {
        if self.phases.is_empty() {
            self.phases.push(Phase::default());
        }
        self.phases.last_mut().expect("there is one now")
    }
}

/// The name of a device by its path.
pub fn name_of(path: &str, devices: &Devices) -> Option<String> {
    devices.iter().find(|(_, device)| device.path == path).map(|(name, _)| name.clone())
}

fn swaps(message: &Message, devices: &Devices) -> Vec<KernelSwap> {
    let swap = |line: &String| {
        let mut words = line.split_whitespace();
        let device = name_of(words.next()?, devices)?;
        let mut numbers = words.skip(1).filter_map(|word| word.parse::<i64>().ok());
        let (size, used, priority) = (numbers.next()?, numbers.next()?, numbers.next()?);
        let (size_kb, used_kb) = (size as u64, used as u64);
        Some(KernelSwap { device, size_kb, used_kb, priority: priority as i32 })
    };
    message.body.iter().filter_map(swap).collect()
}

fn map(line: &str) -> Option<Map> {
    let policy = line.split_whitespace().nth(1)?.to_owned();
    let pages = line.split_whitespace().filter_map(|word| {
        let (node, pages) = word.strip_prefix('N')?.split_once('=')?;
        Some((node.parse().ok()?, pages.parse().ok()?))
    });
    Some(Map { policy, pages: pages.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::messages;

    const CONSOLE: &str = "\
@device name=A node=0 path=/dev/nvme1n1
@device name=B node=1 path=/dev/nvme0n1
@writes case=four side=kernel cpu=1 phase=start
/sys/block/nvme0n1/stat:    10  0  80  5  7  0  8  1  0 0 0
/sys/block/nvme1n1/stat:    10  0  80  5  7  0  16 1  0 0 0
@.
@writes case=four side=kernel cpu=1 phase=full
/sys/block/nvme0n1/stat:    10  0  80  5  7  0  2056  1  0 0 0
/sys/block/nvme1n1/stat:    10  0  80  5  7  0  16 1  0 0 0
@.
@swaps case=four side=kernel cpu=1 phase=full
Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority
/dev/nvme1n1                            partition\t262140\t\t0\t\t-2
/dev/nvme0n1                            partition\t262140\t\t1024\t\t-3
@.
@data case=four side=kernel cpu=1 answer=verified
@finish case=four side=kernel cpu=1 status=0 seconds=7
@maps case=four side=userswap cpu=1 phase=full
7e62 prefer:1 anon=158 dirty=158 active=0 N0=1 N1=157 kernelpagesize_kB=4
@.
@error case=four side=userswap cpu=1 what=write
no memory
@.
";

    #[test]
    fn a_load_is_what_its_messages_say() {
        let messages = messages(CONSOLE);
        let mut errors = Vec::new();
        let loads = loads(&messages, &devices(&messages), &mut errors);
        let [kernel, own] = &loads[..] else { panic!("{loads:?}") };
        assert_eq!((kernel.side, kernel.cpu, kernel.status), (Side::Kernel, 1, Some(0)));
        assert!(kernel.is_verified && !own.is_verified);
        let full = kernel.phase("full").unwrap();
        assert_eq!(full.written_kb, BTreeMap::from([("A".into(), 0), ("B".into(), 1024)]));
        let b = KernelSwap { device: "B".into(), size_kb: 262140, used_kb: 1024, priority: -3 };
        assert_eq!(full.swaps[1], b);
        let map = &own.phases[0].maps[0];
        assert_eq!((map.policy.as_str(), map.pages[&1], map.total()), ("prefer:1", 157, 158));
        assert_eq!(errors, ["four, CPU 1, : write: no memory"]);
    }
}
