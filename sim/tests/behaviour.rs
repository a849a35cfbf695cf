//! What holds for every scenario: the same seed gives the same result, and what cannot be is refused in one line.

use userswap_sim::machine::Set;
use userswap_sim::report::Report;
use userswap_sim::scenario::{self, Checking, Failure, Options};

fn run(name: &str, sets: &[&str], seed: u64, checking: Checking) -> Result<Report, String> {
    let sets: Result<Vec<Set>, _> = sets.iter().map(|set| set.parse()).collect();
    let sets = sets.map_err(|bad| bad.to_string())?;
    let result = scenario::run(name, &sets, &Options { seed, checking });
    result.map_err(|failure| match failure {
        Failure::Bad(bad) => bad.to_string(),
        Failure::Broken(what) => panic!("{what}"),
    })
}

#[test]
fn a_seed_gives_the_same_result_every_time_and_another_seed_another() {
    let small: [(&str, &[&str]); 4] = [
        ("sorted-free", &["runs=1", "machine.scale=1024"]),
        ("workloads", &SMALL),
        ("eight-nodes", &["machine.scale=1024"]),
        ("stress", &["seeds=3"]),
    ];
    for (name, sets) in small {
        let report = |seed| run(name, sets, seed, Checking::Off).unwrap().tables;
        assert_eq!(report(7), report(7), "{name}");
        assert_ne!(report(7), report(8), "{name}");
    }
}

const SMALL: [&str; 3] =
    ["load.pages=300", "load.accesses=600", "machine.memory_per_node=1600 KiB"];

#[test]
fn nothing_is_wrong_after_any_event_of_a_large_machine() {
    let report = run("workloads", &SMALL, 3, Checking::EveryEvent).unwrap();
    let read = report.table("accesses that read a device, %").unwrap();
    assert!(read.rows.iter().any(|row| row.simulated > 1.0), "the programs swap: {report}");
}

/// The eight nodes with so many devices, in a file of its own, which goes with the directory.
fn with_devices(directory: &tempfile::TempDir, count: u32) -> String {
    let (text, _) = EIGHT_NODES.split_once("[[device]]").unwrap();
    let of = |device| {
        let node = device % 8;
        format!(
            "[[device]]\nnode = {node}\nsize = \"2 GiB\"\nkind = \"copy\"\npage = \"2500 ns\"\n"
        )
    };
    let path = directory.path().join(format!("{count}.toml"));
    let devices: String = (0..count).map(of).collect();
    std::fs::write(&path, format!("{text}{devices}")).unwrap();
    path.to_str().unwrap().to_owned()
}

const EIGHT_NODES: &str = include_str!("../scenarios/eight-nodes.toml");

#[test]
fn sixty_four_devices_fill_and_lose_no_page_and_one_more_is_refused_by_its_line() {
    let directory = tempfile::tempdir().unwrap();
    let small = ["machine.scale=4096", "cost.slots_per_turn=1"];
    let report = run(&with_devices(&directory, 64), &small, 1, Checking::EveryEvent).unwrap();
    let used = &report.table("in use on each device, GiB").unwrap().rows;
    let spread: Vec<_> = used.iter().filter(|row| row.case.starts_with("spread")).collect();
    assert_eq!(spread.len(), 64);
    assert!(spread.iter().all(|row| row.simulated > 0.0), "{report}");
    let refusal = run(&with_devices(&directory, 65), &small, 1, Checking::Off).unwrap_err();
    assert!(refusal.ends_with("65.toml:360: 65 devices: use 64 at most"), "{refusal}");
    let many = ["limit.devices=64", "limit.tasks=2", "seeds=20"];
    let few = ["limit.devices=4", "limit.tasks=2", "seeds=20"];
    let events = |sets| run("stress", sets, 5, Checking::EveryEvent).unwrap().events;
    assert_ne!(events(&many), events(&few));
}

/// A scenario, a setting, and what is said about it.
const REFUSED: &[(&str, &str, &str)] = &[
    (
        "eight-node",
        "",
        "there is no scenario \"eight-node\": use per-node-devices, four-nodes, eight-nodes,",
    ),
    (
        "eight-nodes",
        "machine.node=4",
        "eight-nodes.toml: there is no machine.node: use kind, about, machine.nodes,",
    ),
    ("eight-nodes", "machine.nodes=0", "eight-nodes.toml:8: 0 nodes: use 1 to 1024"),
    ("eight-nodes", "device.3.node=8", "eight-nodes.toml:57: a device on node 8: use 0 to 7"),
    ("eight-nodes", "machine.memory_per_node=0 GiB", "0 pages per node after scaling: use 64 to"),
    (
        "eight-nodes",
        "device.0.size=16 GB",
        "\"16 GB\" is no size: use a whole number, a space and one of B, KiB,",
    ),
    ("eight-nodes", "device.0.kind=tape", "unknown variant `tape`, expected `copy` or `queue`"),
    (
        "eight-nodes",
        "kind=ten-nodes",
        "\"ten-nodes\" is no kind of scenario: use per-node-devices, device-use,",
    ),
    ("exclusive-stall", "row.4.threads=0", "exclusive-stall.toml:"),
    ("sorted-free", "load.tasks=0", "invalid value: integer `0`, expected a nonzero u32"),
    ("sorted-free", "load.devices=[65]", "65 devices: use 1 to 64"),
    ("stress", "limit.devices=65", "stress.toml:6: 65 devices: use 1 to 64"),
    (
        "stress",
        "limit.tasks=0",
        "stress.toml:6: 0 nodes, devices, tasks or pages_per_task: use 1 or more",
    ),
    ("eight-nodes", "device.0.size=1024 TiB", "pages after scaling: use 2 to 134217728"),
    ("no-such-file.toml", "", "no-such-file.toml: No such file or directory"),
];

#[test]
fn what_cannot_be_is_refused_with_file_line_and_what_would_do() {
    for (name, set, said) in REFUSED {
        let sets: &[&str] = if set.is_empty() { &[] } else { &[set] };
        let refusal = run(name, sets, 1, Checking::Off).unwrap_err();
        assert!(refusal.contains(said), "{name} {set}: {refusal}");
        assert!(!refusal.contains('\n'), "one line: {refusal}");
    }
}
