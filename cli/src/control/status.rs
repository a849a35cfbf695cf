//! `userswap status`: devices as `swapon --show` has them, then every node's list, memory and locks.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use userswap::ByteSize;
use userswap::internals::directory::EngineName;
use userswap::internals::status::{
    DeviceState, DeviceStatus, JobStatus, LockStatus, NodeStatus, ShrinkerStatus, Status,
    UnmapLockStatus,
};

use super::client::Client;
use super::list::statuses;
use super::table::{Lean, plain, table};
use super::target;
use crate::failure::Failure;
use crate::memory::PAGE_BYTES;
use crate::said;

/// Options of `status`.
#[derive(Args)]
pub struct StatusArgs {
    /// The process, as `userswap list` shows it [default: all of this user]
    pid: Option<EngineName>,
    /// Print one JSON object, or an array of them without PID
    #[arg(long)]
    json: bool,
}

/// Prints one engine's, or every one's.
///
/// # Errors
/// There is no such engine.
pub fn status(args: &StatusArgs) -> Result<ExitCode, Failure> {
    let statuses = match args.pid {
        Some(name) => vec![(name, Client::of(name)?.status()?)],
        None => statuses(),
    };
    said::print(match (args.json, args.pid) {
        (true, Some(_)) => json(&statuses[0].1) + "\n",
        (true, None) => {
            let all: Vec<_> = statuses.into_iter().map(|(_, status)| status).collect();
            json(&all) + "\n"
        }
        (false, _) => {
            let texts = statuses.iter().map(|(name, status)| describe(*name, status));
            let jobs = if args.pid.is_none() { target::jobs() } else { Vec::new() };
            let jobs = jobs.iter().filter(|job| is_unmanaged_alone(job)).map(job_alone);
            texts.chain(jobs).collect::<Vec<_>>().join("\n")
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).expect("a status is strings, numbers and lists")
}

/// What is too much to be the engine's own, and children without one.
fn outside(status: &Status) -> String {
    let memory = match status.unmanaged_bytes {
        ..UNMANAGED_MIN_BYTES => String::new(),
        bytes => format!(", {} unmanaged", ByteSize(bytes).rounded()),
    };
    memory + &children(status.unmanaged_children)
}

/// `, 2 unmanaged children`.
pub fn children(unmanaged: u64) -> String {
    match unmanaged {
        0 => String::new(),
        1 => ", 1 unmanaged child".to_owned(),
        unmanaged => format!(", {unmanaged} unmanaged children"),
    }
}

/// Libraries, stacks and the engine's tables take some of it in every program.
const UNMANAGED_MIN_BYTES: u64 = 4 << 20;

fn describe(name: EngineName, status: &Status) -> String {
    let mut text = format!(
        "{name} {}: {} of RAM, faults by {}, placement {}{}{}{}\n",
        plain(&status.program),
        ByteSize(status.ram_bytes).rounded(),
        plain(&status.fault),
        plain(&status.placement),
        if status.hibernated { ", hibernated" } else { "" },
        if status.pins > 0 { format!(", {} pins", status.pins) } else { String::new() },
        outside(status),
    );
    text.push_str(&status.job.as_ref().map(job).unwrap_or_default());
    text.push_str(&devices(&status.devices));
    for device in &status.devices {
        text.push_str(&compressed(device));
        text.push_str(&packed(device));
    }
    for node in &status.nodes {
        text.push_str(&list_of(node));
    }
    for node in &status.nodes {
        text.push_str(&memory_of(node));
    }
    text.push_str(&caches(&status.shrinkers));
    text.push_str(&readahead(status));
    text.push_str(&locks(status));
    text.push_str(&removal(&status.unmap_lock));
    text
}

/// `job 4711: 512M for 5 processes, 500M held, at most 512M; taken beyond it 0`.
fn job(job: &JobStatus) -> String {
    let size = |pages: u64| ByteSize(pages.saturating_mul(PAGE_BYTES)).rounded();
    format!(
        "job {}: {} for {} {}, {} held, at most {}; taken beyond it {}\n",
        job.root_pid,
        size(job.budget_pages),
        job.members.len(),
        if job.members.len() == 1 { "process" } else { "processes" },
        size(job.held_pages),
        size(job.held_pages_max),
        size(job.exceeded_pages)
    )
}

/// Whether what runs unmanaged is shown by no engine of its job.
fn is_unmanaged_alone(job: &JobStatus) -> bool {
    job.unmanaged_children > 0 && !job.members.iter().any(|member| member.engaged)
}

/// The same, with what an engine would say in its first line.
fn job_alone(status: &JobStatus) -> String {
    let line = job(status);
    format!("{}; no engine{}\n", line.trim_end(), children(status.unmanaged_children))
}

fn readahead(status: &Status) -> String {
    let settings = &status.readahead;
    let counter = |name: &str| status.counters.get(name).copied().unwrap_or(0);
    format!(
        "readahead: {} (page_cluster {}, vma_ra_enabled {}), {} pages ahead, {} hits, {} wasted\n",
        plain(&settings.swap_ra_policy),
        settings.page_cluster,
        settings.vma_ra_enabled,
        counter("swap_ra"),
        counter("swap_ra_hit"),
        counter("swap_ra_wasted")
    )
}

fn removal(removal: &UnmapLockStatus) -> String {
    format!(
        "removal locks ({}): {} acquisitions, {} waits, {:.3} s waited, {} stalled, {} skipped\n",
        plain(&removal.contention),
        removal.lock.acquisitions,
        removal.lock.waits,
        removal.wait_ns as f64 / 1e9,
        removal.stalled,
        removal.skipped
    )
}

fn devices(devices: &[DeviceStatus]) -> String {
    let titles = [
        ("NAME", Lean::Left),
        ("TYPE", Lean::Left),
        ("SIZE", Lean::Right),
        ("USED", Lean::Right),
        ("PRIO", Lean::Right),
        ("NODE", Lean::Right),
        ("", Lean::Left),
    ];
    let row = |device: &DeviceStatus| {
        let tier = device.tier.map_or_else(String::new, |tier| format!("tier {tier}"));
        let encrypted = if device.encrypt { "encrypted" } else { "" };
        let state = match device.state {
            DeviceState::On => "",
            DeviceState::Full => "full",
            DeviceState::Silent => "takes no pages for now",
            DeviceState::Retired => "retired after errors",
            DeviceState::GoingOff => "going off",
            DeviceState::Borrowed => "the parent's, to read",
        };
        [
            plain(&device.name),
            plain(&device.kind),
            ByteSize(device.size_bytes).rounded(),
            ByteSize(device.used_bytes).rounded(),
            device.priority.to_string(),
            device.node.map_or_else(|| "-".to_owned(), |node| node.to_string()),
            [&tier, encrypted, state]
                .into_iter()
                .filter(|word| !word.is_empty())
                .collect::<Vec<_>>()
                .join(", "),
        ]
    };
    table(titles, &devices.iter().map(row).collect::<Vec<_>>())
}

/// `zram: 64M of pages in 25M of RAM, 2.6 to 1; 3100 pages of one value, 12 not compressed`.
fn compressed(device: &DeviceStatus) -> String {
    let Some(found) = &device.compressed else { return String::new() };
    let pages_bytes = found.pages.saturating_mul(PAGE_BYTES);
    format!(
        "{}: {} of pages in {} of RAM{}; {} pages of one value, {} not compressed\n",
        plain(&device.name),
        ByteSize(pages_bytes).rounded(),
        ByteSize(found.pool_bytes).rounded(),
        ratio(found.pages, found.pool_bytes),
        found.same_pages,
        found.huge_pages
    )
}

/// `swap0: 64M of pages share 20M of slots, 3.2 to 1`.
fn packed(device: &DeviceStatus) -> String {
    let Some(found) = &device.packed else { return String::new() };
    let pages_bytes = found.pages.saturating_mul(PAGE_BYTES);
    format!(
        "{}: {} of pages share {} of slots{}\n",
        plain(&device.name),
        ByteSize(pages_bytes).rounded(),
        ByteSize(found.slot_bytes).rounded(),
        ratio(found.pages, found.slot_bytes)
    )
}

/// Of fewer pages memory that is only begun says more than how well they compress.
const RATIO_PAGES_MIN: u64 = 64;

/// `, 2.6 to 1`.
fn ratio(pages: u64, bytes: u64) -> String {
    match pages {
        ..RATIO_PAGES_MIN => String::new(),
        _ => format!(", {:.1} to 1", pages as f64 * PAGE_BYTES as f64 / bytes.max(1) as f64),
    }
}

/// `node 0 (cpus 0-3): swap0 (1) swap1 (3)`.
fn list_of(node: &NodeStatus) -> String {
    let cpus = match &node.cpus[..] {
        [] => "no cpus".to_owned(),
        cpus => format!("cpus {}", ranges(cpus)),
    };
    let entries: String = node
        .swap_list
        .iter()
        .map(|entry| format!(" {} ({})", plain(&entry.name), entry.key))
        .collect();
    format!("node {} ({cpus}):{}\n", node.node, if entries.is_empty() { " none" } else { &entries })
}

/// `0-3,8`.
fn ranges(numbers: &[u32]) -> String {
    let runs = numbers.chunk_by(|number, next| number.checked_add(1) == Some(*next));
    let text = runs.map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        _ => run[0].to_string(),
    });
    text.collect::<Vec<_>>().join(",")
}

fn memory_of(node: &NodeStatus) -> String {
    let size = |pages: u64| ByteSize(pages.saturating_mul(PAGE_BYTES)).rounded();
    format!(
        "node {} memory: budget {}, resident {} ({} active, {} inactive), cached {}, caches {}, compressed {}, writing {}, \
         free {}, spare {}; watermarks {} {} {}; slots given {}{}\n",
        node.node,
        size(node.budget_pages),
        size(node.resident_pages),
        size(node.active_pages),
        size(node.inactive_pages),
        size(node.cached_pages),
        size(node.charged_pages),
        size(node.compressed_pages),
        size(node.writing_pages),
        size(node.free_pages),
        size(node.spare_pages),
        size(node.min_pages),
        size(node.low_pages),
        size(node.high_pages),
        size(node.placed.iter().map(|placed| placed.slots).sum()),
        if node.hopeless { "; reclaim is hopeless" } else { "" },
    )
}

fn caches(shrinkers: &[ShrinkerStatus]) -> String {
    let line = |cache: &ShrinkerStatus| {
        let (scanned, freed) = (cache.objects_scanned, cache.objects_freed);
        format!("cache {}: {scanned} objects scanned, {freed} freed\n", plain(&cache.name))
    };
    shrinkers.iter().map(line).collect()
}

fn locks(status: &Status) -> String {
    let used =
        |lock: LockStatus| format!("{} acquisitions, {} waits", lock.acquisitions, lock.waits);
    let mut text = format!("list lock: {}\n", used(status.list_lock));
    for device in &status.devices {
        let freeing = match device.free_lock.acquisitions {
            0 => String::new(),
            times => format!(" ({:.1} per acquisition)", device.slots_freed as f64 / times as f64),
        };
        writeln!(
            text,
            "{}: allocating {}; freeing {}, {} slots{freeing}",
            plain(&device.name),
            used(device.alloc_lock),
            used(device.free_lock),
            device.slots_freed
        )
        .expect("writing to a string cannot fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use userswap::internals::status::{
        CompressedStatus, ListEntry, PackedStatus, Placed, ReadaheadStatus, TrafficStatus,
    };

    use super::*;

    fn device(index: u32, name: &str, priority: i32) -> DeviceStatus {
        DeviceStatus {
            index,
            name: name.to_owned(),
            kind: "file".to_owned(),
            size_bytes: 1 << 30,
            used_bytes: 3 << 20,
            lent_bytes: 0,
            encrypt: index == 0,
            compressed: None,
            packed: None,
            priority,
            tier: None,
            node: (index > 0).then_some(0),
            state: DeviceState::On,
            alloc_lock: LockStatus { acquisitions: 4, waits: 1 },
            free_lock: LockStatus { acquisitions: 2, waits: 0 },
            slots_freed: 100,
            reads: TrafficStatus { requests: 9, bytes: 36 << 10, errors: 0 },
            writes: TrafficStatus { requests: 3, bytes: 3 << 20, errors: 1 },
            busy_ns: 2_000_000,
        }
    }

    fn node() -> NodeStatus {
        let entry = |device, name: &str, key| ListEntry { device, name: name.to_owned(), key };
        NodeStatus {
            node: 0,
            cpus: vec![0, 1, 2, 3, 8],
            budget_pages: 4096,
            resident_pages: 2048,
            inactive_pages: 1024,
            active_pages: 1000,
            cached_pages: 256,
            unevictable_pages: 0,
            charged_pages: 512,
            compressed_pages: 256,
            writing_pages: 0,
            free_pages: 1,
            spare_pages: 0,
            min_pages: 64,
            low_pages: 128,
            high_pages: 256,
            reclaim_priority: 12,
            reclaim_failures: 16,
            hopeless: true,
            placed: vec![Placed { device: 0, slots: 512 }, Placed { device: 1, slots: 256 }],
            swap_list: vec![entry(1, "/swap1", 1), entry(0, "/swap0", 2)],
        }
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "one story, told in order")]
    fn the_text_shows_devices_lists_memory_and_locks() {
        let mut devices = vec![device(0, "/swap0", -2), device(1, "/swap1", -3)];
        devices[1].state = DeviceState::GoingOff;
        devices[1].compressed = Some(CompressedStatus {
            pages: 8192,
            same_pages: 12,
            huge_pages: 7,
            compressed_bytes: 9 << 20,
            pool_bytes: 10 << 20,
        });
        devices[0].packed = Some(PackedStatus { pages: 16_384, slot_bytes: 20 << 20 });
        let status = Status {
            pid: 7,
            program: "sort".to_owned(),
            fault: "thread".to_owned(),
            ram_bytes: 16 << 20,
            job: Some(JobStatus {
                root_pid: 6,
                budget_pages: 8192,
                held_pages: 4096,
                held_pages_max: 6144,
                exceeded_pages: 16,
                unmanaged_children: 0,
                members: vec![Default::default(); 2],
            }),
            placement: "near".to_owned(),
            readahead: ReadaheadStatus {
                swap_ra_policy: "fixed".to_owned(),
                page_cluster: 5,
                vma_ra_enabled: true,
            },
            hibernated: false,
            unmanaged_bytes: 0,
            unmanaged_children: 0,
            pins: 0,
            free_slots: 5,
            total_slots: 9,
            list_lock: LockStatus { acquisitions: 12, waits: 3 },
            unmap_lock: UnmapLockStatus {
                contention: "skip".to_owned(),
                lock: LockStatus { acquisitions: 7, waits: 2 },
                wait_ns: 1_500_000_000,
                skipped: 2,
                ..UnmapLockStatus::default()
            },
            devices,
            shrinkers: vec![ShrinkerStatus {
                name: "objects".to_owned(),
                objects_scanned: 256,
                objects_freed: 200,
            }],
            nodes: vec![node()],
            counters: [("swap_ra".to_owned(), 40), ("swap_ra_hit".to_owned(), 30)].into(),
            fault_latency_ns: Default::default(),
            fault_latency: Default::default(),
            stall_ns: 1_500_000_000,
        };
        let text = describe(EngineName { pid: 7, number: 2 }, &status);
        let expected = "\
7-2 sort: 16M of RAM, faults by thread, placement near
job 6: 32M for 2 processes, 16M held, at most 24M; taken beyond it 64K
NAME   TYPE SIZE USED PRIO NODE
/swap0 file   1G   3M   -2    - encrypted
/swap1 file   1G   3M   -3    0 going off
/swap0: 64M of pages share 20M of slots, 3.2 to 1
/swap1: 32M of pages in 10M of RAM, 3.2 to 1; 12 pages of one value, 7 not compressed
node 0 (cpus 0-3,8): /swap1 (1) /swap0 (2)
node 0 memory: budget 16M, resident 8M (3.9M active, 4M inactive), cached 1M, caches 2M, compressed 1M, writing 0, free 4K, spare 0; watermarks 256K 512K 1M; slots given 3M; reclaim is hopeless
cache objects: 256 objects scanned, 200 freed
readahead: fixed (page_cluster 5, vma_ra_enabled true), 40 pages ahead, 30 hits, 0 wasted
list lock: 12 acquisitions, 3 waits
/swap0: allocating 4 acquisitions, 1 waits; freeing 2 acquisitions, 0 waits, 100 slots (50.0 per acquisition)
/swap1: allocating 4 acquisitions, 1 waits; freeing 2 acquisitions, 0 waits, 100 slots (50.0 per acquisition)
removal locks (skip): 7 acquisitions, 2 waits, 1.500 s waited, 0 stalled, 2 skipped
";
        assert_eq!(text, expected);
        let parked =
            Status { hibernated: true, pins: 3, unmanaged_bytes: 6 << 20, ..status.clone() };
        let first = |status: &Status| {
            describe(EngineName { pid: 7, number: 2 }, status).lines().next().unwrap().to_owned()
        };
        assert!(first(&parked).ends_with("near, hibernated, 3 pins, 6M unmanaged"));
        let parent = |children| Status { unmanaged_children: children, ..status.clone() };
        assert!(first(&parent(1)).ends_with("near, 1 unmanaged child"));
        assert!(first(&parent(2)).ends_with("near, 2 unmanaged children"));
        let job = JobStatus { unmanaged_children: 2, ..parent(2).job.unwrap() };
        assert!(is_unmanaged_alone(&job));
        assert_eq!(
            job_alone(&job),
            "job 6: 32M for 2 processes, 16M held, at most 24M; taken beyond it 64K; no engine, 2 unmanaged children\n"
        );
        assert_eq!(serde_json::from_str::<Status>(&json(&status)).unwrap(), status);
    }

    #[test]
    fn how_well_next_to_nothing_compresses_is_not_said() {
        assert_eq!(ratio(63, 256 << 10), "");
        assert_eq!(ratio(64, 128 << 10), ", 2.0 to 1");
    }

    #[test]
    fn a_node_without_cpus_or_devices_says_so() {
        let bare = NodeStatus { cpus: vec![], swap_list: vec![], ..node() };
        assert_eq!(list_of(&bare), "node 0 (no cpus): none\n");
    }
}
