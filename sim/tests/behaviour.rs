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

/// The eight nodes with a key more of the machine, in a file of its own.
fn with_distances(directory: &tempfile::TempDir, distances: &str) -> String {
    let path = directory.path().join("far.toml");
    let added = format!("[machine]\ndistances = {distances}\n");
    std::fs::write(&path, EIGHT_NODES.replace("[machine]\n", &added)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A matrix of eight nodes, every other one so far away.
fn all_at(distance: u32) -> String {
    let row = |node| (0..8).map(|other| if other == node { 10 } else { distance }).collect();
    format!("{:?}", (0..8).map(row).collect::<Vec<Vec<u32>>>())
}

/// What costs more on another node, one of them at a time: a line of the eight nodes, and what stands in its place.
const FARTHER: [(&str, &str); 4] = [
    ("touch = \"900 ns\"", "touch = \"900 ns\"\ntouch_other_node = \"1800 ns\""),
    ("fault = \"700 ns\"\nswap", "fault = \"700 ns\"\nfault_other_node = \"900 ns\"\nswap"),
    ("page = \"2500 ns\"", "page = \"2500 ns\"\npage_other_node = \"3000 ns\""),
    ("line_other_node = \"45 ns\"", "line_other_node = \"115 ns\""),
];

#[test]
fn what_is_farther_costs_more_and_twenty_is_what_nodes_are_at_if_nothing_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let seconds = |(line, farther), distances: &str| {
        let text =
            EIGHT_NODES.replace("line_other_node = \"115 ns\"", "line_other_node = \"45 ns\"");
        let text = text
            .replace(line, farther)
            .replace("[machine]\n", &format!("[machine]\n{distances}\n"));
        let path = directory.path().join("far.toml");
        std::fs::write(&path, text).unwrap();
        let report =
            run(path.to_str().unwrap(), &["machine.scale=1024"], 1, Checking::Off).unwrap();
        report.table("time of the scaled load, s").unwrap().rows[1].simulated
    };
    for farther in FARTHER {
        let unsaid = seconds(farther, "");
        let [near, other, far] = [10, 20, 40]
            .map(|distance| seconds(farther, &format!("distances = {}", all_at(distance))));
        assert_eq!(other, unsaid, "{farther:?}");
        assert!(near < unsaid && unsaid < far, "{farther:?}: {near} {unsaid} {far}");
    }
}

/// Rows of eight nodes, a line each, with the last one's last distance as given.
fn rows(last: &str) -> String {
    let row = |node: usize| {
        let own = if node == 7 { last } else { "10" };
        let distance = |other| if other == node { own } else { "20" };
        format!("[{}],\n", (0..8).map(distance).collect::<Vec<_>>().join(", "))
    };
    format!("[\n{}]", (0..8).map(row).collect::<String>())
}

#[test]
fn a_matrix_that_cannot_be_is_refused_by_the_line_that_is_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let second = |distance: &str| rows("10").replacen("[20, 10", &format!("[{distance}, 10"), 1);
    let allowed = "use a whole number from 10 to 254";
    let refused = [
        ("5".to_owned(), "8: invalid type: integer `5`, expected a row of distances for each node: use [[10, 20], [20, 10]] for two nodes".to_owned()),
        ("[[10, 20], [20, 10]]".to_owned(), "8: 2 rows of distances: use 8, one for each node".to_owned()),
        (rows("10, 20"), "16: 9 distances of node 7: use 8, one for each node".to_owned()),
        (rows("11"), "16: distance 11 of node 7 to itself: use 10".to_owned()),
        (rows("\"10\""), format!("16: distance \"10\": {allowed}")),
        (second("9"), format!("10: distance 9: {allowed}")),
        (second("255"), format!("10: distance 255: {allowed}")),
        (second("-20"), format!("10: distance -20: {allowed}")),
        (rows("10").replacen("[20, 20, 10, 20, 20, 20, 20, 20]", "20", 1), "11: 20 is no row of distances: use 8 in brackets".to_owned()),
    ];
    for (distances, said) in refused {
        let refusal =
            run(&with_distances(&directory, &distances), &[], 1, Checking::Off).unwrap_err();
        assert!(refusal.ends_with(&format!("far.toml:{said}")), "{distances}: {refusal}");
        assert!(!refusal.contains('\n'), "one line: {refusal}");
    }
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
    ("sorted-free", "load.tasks=0", "sorted-free.toml:19: 0: use a whole number from 1 to 1048576"),
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

/// Values that no run can have: each once made a panic, a run without end, or a table of nothing.
const OUT_OF_BOUNDS: &[(&str, &str, &str)] = &[
    ("per-node-devices", "run.0.tasks=4294967295", ":44: 4294967295: use a whole number from 1 to"),
    ("per-node-devices", "run.0.tasks=1048576", "1048576 tasks of "),
    ("per-node-devices", "run.0.size_per_task=4194304 TiB", "1 tasks of 4398046511104 pages each"),
    ("per-node-devices", "run.0.size_per_task=1 B", "1 tasks of 0 pages each after scaling: use 1"),
    ("eight-nodes", "load.tasks_per_node=0", ": 0: use a whole number from 1 to 1048576"),
    ("eight-nodes", "load.tasks_per_node=1048576", "8388608 tasks of "),
    ("eight-nodes", "load.size_per_task=1 B", "16 tasks of 0 pages each"),
    ("exclusive-stall", "load.size=4 KiB", "1 tasks of 0 pages each"),
    ("exclusive-stall", "load.passes=0", ":38: 0: use a whole number from 1 to 1000"),
    ("fixed-readahead", "load.pages=0", ":16: 1 tasks of 0 pages each"),
    ("fixed-readahead", "load.streams=4294967295", ":18: 4294967295: use a whole number from 1 to"),
    ("fixed-readahead", "load.run_pages=4294967295", ":17: 4294967295: use a whole number from 1"),
    ("per-node-lru", "load.limit_per_node=0", ":18: 0 objects on each of 4 nodes"),
    ("per-node-lru", "load.limit_per_node=4294967295", "4294967295 objects on each of 4 nodes"),
    ("per-node-lru", "load.batch=18446744073709551615", "18446744073709551615"),
    ("per-node-lru", "load.batch=0", ":23: 0: use a whole number from 1 to 1048576"),
    ("scale", "load.pages_per_task=0", ":4: 2 tasks of 0 pages each"),
    ("scale", "tasks=[0]", ":5: 0 tasks of 20000 pages each"),
    ("scale", "nodes=[4294967295]", ":4: 4294967295 nodes: use 1 to 1024"),
    ("sorted-free", "load.pages=1", ":22: 1 tasks of 0 pages each"),
    ("workloads", "load.pages=2000000000", ":41: 4 tasks of 2000000000 pages each"),
    ("workloads", "load.accesses=0", ":42: 0: use a whole number from 1 to 4294967295"),
    (
        "workloads",
        "machine.line_same_node=18446744073709551615 ns",
        "\"18446744073709551615 ns\" is too long: use \"3600 s\" at most",
    ),
    ("workloads", "machine.jitter_permille=4294967295", ": 4294967295: use a whole number from 0"),
    ("workloads", "cost.slots_per_turn=0", ":23: 0: use a whole number from 1 to 1048576"),
    ("workloads", "cost.index_per_write=1025", ":22: 1025: use a whole number from 0 to 1024"),
];

#[test]
fn a_run_in_which_programs_were_killed_is_no_result() {
    let small: [(&str, &[&str]); 2] = [
        (
            "per-node-devices",
            &["machine.scale=1024", "device.0.size=1 GiB", "device.1.size=1 GiB", "runs=1"],
        ),
        ("workloads", &["device.0.size=1 MiB", "device.1.size=1 MiB"]),
    ];
    for (name, sets) in small {
        let sets: Vec<Set> = sets.iter().map(|set| set.parse().unwrap()).collect();
        let result = scenario::run(name, &sets, &Options { seed: 1, checking: Checking::Off });
        let Err(Failure::Broken(what)) = result else { panic!("{name}: {result:?}") };
        assert!(what.contains(" programs got no memory: use larger devices"), "{name}: {what}");
    }
}

#[test]
fn what_cannot_be_is_refused_with_file_line_and_what_would_do() {
    for (name, set, said) in REFUSED.iter().chain(OUT_OF_BOUNDS) {
        let sets: &[&str] = if set.is_empty() { &[] } else { &[set] };
        let refusal = run(name, sets, 1, Checking::Off).unwrap_err();
        assert!(refusal.contains(said), "{name} {set}: {refusal}");
        assert!(!refusal.contains('\n'), "one line: {refusal}");
    }
}
