//! The benchmark as a program: its JSON object, and that a failed load is never a number.

mod common;

use common::{refuses, run, standalone, text};

#[test]
fn json_is_one_object_on_standard_output_and_progress_is_not_there() {
    for case in [
        "swap-w-seq --tasks 2",
        "swap-w-seq-mt --tasks 2",
        "swap-w-rand",
        "swap-w-rand-mt --tasks 3",
        "swapin --tasks 2",
        "page-rand-read --tasks 2",
        "zipf-read --tasks 2",
        "zipf-write --tasks 3",
        "hash-join --tasks 2",
        "pointer-chase --tasks 2",
        "gc-heap --tasks 2",
        "swap-w-seq --step 4096 --repeat 3",
    ] {
        let output = run(&format!("bench {case} --ram 48M --size 16M --runs 2 --json"));
        assert!(output.status.success(), "{case}: {output:?}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(case.starts_with(report["case"].as_str().unwrap()), "{case}");
        let runs = report["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 2, "{case}");
        for run in runs {
            assert_eq!(run["engine"], "userswap");
            assert!(run["wall_s"].as_f64().unwrap() > 0.0, "{case}: {run}");
            assert!(run["throughput_kbs"].as_u64().unwrap() > 0, "{case}: {run}");
        }
        assert!(report["median_wall_s"]["userswap"].is_number(), "{case}");
        assert!(report["ratio"].is_null(), "{case}");
        assert!(text(&output.stderr).contains("userswap 2 of 2"), "{case}: {output:?}");
    }
}

#[test]
fn all_cases_are_one_table_with_a_row_for_each() {
    let output = run("bench all --ram 48M --size 16M --runs 1 --tasks 2 --fault thread");
    assert!(output.status.success(), "{output:?}");
    let table = text(&output.stdout);
    for case in
        ["swap-w-rand-mt --tasks 2", "zipf-write --tasks 2", "gc-heap --tasks 2 --size 8388608"]
    {
        assert!(table.contains(&format!("| `{case}` | – | ")), "{table}");
    }
}

#[test]
fn a_row_that_fails_is_named_and_the_others_are_measured() {
    // Of a heap of a page for each of 16 processes nothing can be measured.
    let output =
        run("bench all --ram 16M --size 64K --runs 1 --tasks 1 64 --case zipf-read swapin");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("'64K'"), "{output:?}");
    let output = standalone()
        .env("USERSWAP_BENCH_EXE", "false")
        .args(["bench", "all", "--size", "16M", "--case", "gc-heap", "swapin", "--tasks", "1"])
        .args(["--runs", "1", "--json"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(text(&output.stderr).matches("the load failed").count(), 2, "{output:?}");
}

#[test]
fn people_get_a_table() {
    let output = run("bench swap-w-seq --ram 48M --size 64M --runs 1 --tasks 2");
    let table = text(&output.stdout);
    assert!(table.starts_with("swap-w-seq: 2 tasks, 64 MiB through 48 MiB of RAM"), "{table}");
    assert!(table.contains("userswap   median"), "{table}");
}

#[test]
fn a_load_that_fails_or_says_nothing_ends_the_bench_with_status_1() {
    for (program, why) in [("false", "the load failed"), ("true", "0 result lines, expected 1")] {
        let output = standalone()
            .env("USERSWAP_BENCH_EXE", program)
            .args(["bench", "swap-w-seq", "--ram", "16M", "--size", "16M", "--json"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
        assert!(text(&output.stderr).contains(why), "{output:?}");
    }
}

#[test]
fn wrong_values_are_named_on_one_line_and_end_with_status_2() {
    for (options, value) in [
        ("--ram 12Q", "\"12Q\""),
        ("--ram 0", "\"0\""),
        ("--size -1", "\"-1\""),
        ("--tasks 0", "'0'"),
        ("--runs x", "'x'"),
        ("--ram 8M", "\"8M\""),
        ("--ram 32M --tasks 16", "'32M'"),
        ("--step 1T", "'1T'"),
        ("--swap mem:1K", "1K is too small"),
        ("--swap mem:1G --vs kernel", "mem:1G"),
    ] {
        refuses(&format!("bench swap-w-seq {options}"), value);
    }
}

#[test]
fn an_ideal_is_only_that_of_the_disk_that_is_swapped_to() {
    for (swap, has_ideal) in [("/var/tmp", true), ("mem:64M", false)] {
        let output =
            run(&format!("bench swapin --ram 16M --size 32M --runs 1 --json --swap {swap}"));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        for key in ["ideal_s", "share_of_disk", "disk"] {
            assert_eq!(!report[key].is_null(), has_ideal, "{swap}, {key}: {report}");
        }
    }
}
