//! The benchmark cases from the command line, with small sizes: every variant has its row.
use serde_json::Value;
use std::process::Command;

fn rows(arguments: &str) -> Vec<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_userswap"))
        .arg("bench")
        .args(arguments.split_whitespace())
        .arg("--json")
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments}: {output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["rows"].as_array().unwrap().clone()
}

fn texts(rows: &[Value], key: &str) -> Vec<String> {
    rows.iter().map(|row| row[key].as_str().unwrap().to_owned()).collect()
}

#[test]
fn contention_compares_every_policy_with_every_number_of_threads() {
    let rows = rows("contention --ram 32M --size 64M --tasks 1,2 --passes 2 --nodes 2 --runs 1");
    assert_eq!(texts(&rows, "policy"), ["wait", "stall", "skip", "stall-balanced"].repeat(3));
    let tasks: Vec<u64> = rows.iter().map(|row| row["tasks"].as_u64().unwrap()).collect();
    assert_eq!(tasks, [1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 1, 1]);
    assert_eq!(texts(&rows[8..], "load"), ["rewrite"; 4]);
    assert!(rows.iter().all(|row| row["removals"].as_u64().unwrap() > 0), "{rows:?}");
}

#[test]
fn slots_are_freed_in_every_order_with_every_number_of_devices() {
    let rows = rows("slot-free --ram 16M --size 32M --tasks 2 --runs 1 --turns 1");
    assert_eq!(texts(&rows, "order"), ["sorted", "merged", "unsorted", "grouped"].repeat(3));
    for row in &rows {
        let devices = row["devices"].as_f64().unwrap();
        let locks = row["locks_per_64"].as_f64().unwrap();
        assert!(row["slots_freed"].as_u64().unwrap() > 1000, "{row}");
        assert!(row["routine_ns"].as_f64().unwrap() > 0.0, "{row}");
        match row["order"].as_str().unwrap() {
            // A batch of one CPU's buffer: each device's lock once, and what is not in batches.
            "sorted" | "merged" | "grouped" => assert!(locks <= devices + 1.0, "{row}"),
            _ if devices == 1.0 => assert!(locks <= 2.0, "{row}"),
            _ => assert!(locks > 16.0, "neighbours are on different devices: {row}"),
        }
    }
}

#[test]
fn choosing_a_device_is_timed_for_every_number_of_nodes_with_both_placements() {
    let rows = rows("device-choice --nodes 1 2 64 --choices 1000 --runs 1");
    assert_eq!(texts(&rows, "placement"), ["near", "spread"].repeat(3));
    let numbers =
        |key: &str| -> Vec<u64> { rows.iter().map(|row| row[key].as_u64().unwrap()).collect() };
    assert_eq!(numbers("devices"), [1, 1, 2, 2, 64, 64]);
    assert_eq!(numbers("list_entries"), [1, 1, 4, 2, 64 * 64, 64]);
}

#[test]
fn counting_is_timed_with_and_without_the_mask_up_to_a_thousand_nodes() {
    let rows = rows("list-count --nodes 1,100,1024 --counts 1 --runs 1");
    let of = |row: &Value| (row["nodes"].as_u64().unwrap(), row["in_use"].as_u64().unwrap());
    let expected = [(1, 1), (100, 1), (100, 100), (1024, 1), (1024, 1024)];
    assert!(rows.iter().map(of).eq(expected.into_iter().flat_map(|of| [of, of])), "{rows:?}");
}

const ALGORITHMS: [&str; 5] = ["lz4", "zstd auto", "zstd -1", "zstd 1", "zstd 9"];

#[test]
fn what_a_core_compresses_is_timed_by_kind_and_algorithm() {
    let rows = rows("store --data 4:1 random sorted --pages 64 --runs 1");
    assert_eq!(texts(&rows, "algorithm"), ALGORITHMS.repeat(3));
    let ratio = |row: &Value| row["ratio"].as_f64().unwrap();
    let ratios: Vec<f64> = rows.iter().map(ratio).collect();
    assert!((3.5..4.5).contains(&ratios[0]), "lz4: {ratios:?}");
    assert!(ratios[5..10].iter().all(|ratio| *ratio == 1.0), "noise: {ratios:?}");
    assert!(ratios[10..].iter().all(|ratio| *ratio > 5.0), "numbers in order: {ratios:?}");
}

#[test]
fn every_case_of_a_program_is_measured_from_the_command_line() {
    for case in
        ["swap-w-seq", "swap-w-seq-mt", "swap-w-rand", "swap-w-rand-mt", "swapin", "page-rand-read"]
    {
        let arguments = ["bench", case, "--runs", "1", "--ram", "16M", "--size", "24M", "--json"];
        let output = Command::new(env!("CARGO_BIN_EXE_userswap")).args(arguments).output().unwrap();
        assert!(output.status.success(), "{case}: {output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["case"], case);
        assert!(report["median_wall_s"]["userswap"].as_f64().unwrap() > 0.0, "{report}");
    }
}

#[test]
fn a_run_that_exceeds_its_budget_is_no_figure() {
    let line = "bench swapin --ram 16M --size 64M --swap mem:24M --runs 1";
    let output =
        Command::new(env!("CARGO_BIN_EXE_userswap")).args(line.split(' ')).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.lines().last().unwrap().contains("beyond its budget"), "{error}");
}

#[test]
fn a_fork_is_timed_natively_and_with_faults_by_each_way() {
    let rows = rows("fork --ram 16M --size 48M --forks 2 --runs 1");
    assert_eq!(texts(&rows, "way"), ["natively", "faults by thread", "faults by signal"]);
    for row in &rows {
        let [returns, exit, exec] = ["fork_returns_ms", "exit_ms", "exec_ms"]
            .map(|key| row[key]["median"].as_f64().unwrap());
        assert!(returns > 0.0 && returns < exit && exec > 0.0, "{row}");
    }
}
