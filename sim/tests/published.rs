//! The five experiments beside their published tables: what was calibrated comes out, and so do the ratios that carry each
//! message.

use userswap_sim::report::{Report, Row, Standing};
use userswap_sim::scenario::{self, Checking, Options};

fn run(name: &str) -> Report {
    let options = Options { seed: 1, checking: Checking::Off };
    scenario::run(name, &[], &options).unwrap_or_else(|failure| panic!("{name}: {failure}"))
}

fn row<'a>(report: &'a Report, table: &str, case: &str) -> &'a Row {
    let table = report.table(table).unwrap_or_else(|| panic!("no table {table:?}"));
    table.rows.iter().find(|row| row.case == case).unwrap_or_else(|| panic!("no row {case:?}"))
}

fn assert_within(row: &Row, percent: f64) {
    let error = row.error().expect("the row has a published number") * 100.0;
    assert!(error.abs() <= percent, "{}: off by {error:.1} %, not within {percent} %", row.case);
}

fn assert_calibrated(report: &Report, percent: f64) {
    let rows = report.tables.iter().flat_map(|table| &table.rows);
    let calibrated: Vec<_> = rows.filter(|row| row.standing == Standing::Calibrated).collect();
    assert!(!calibrated.is_empty());
    calibrated.into_iter().for_each(|row| assert_within(row, percent));
}

#[test]
fn per_node_lists_gain_what_they_gained() {
    let report = run("per-node-devices");
    assert_calibrated(&report, 3.0);
    let ratios = report.table("ratios of rates").unwrap();
    assert_eq!(ratios.rows.len(), 6);
    ratios.rows.iter().for_each(|row| assert_within(row, 15.0));
}

#[test]
fn per_node_lists_lose_where_nodes_outnumber_devices() {
    let report = run("eight-nodes");
    assert_within(row(&report, "time of the scaled load, s", "near / spread"), 15.0);
    let first = |listing| row(&report, "in use on each device, GiB", listing).simulated;
    assert!(first("near, device 0") > 4.0 * first("near, device 1"));
    assert!(first("spread, device 0") < 1.1 * first("spread, device 1"));
}

#[test]
fn sorting_a_batch_gains_only_with_several_devices() {
    let report = run("sorted-free");
    assert_calibrated(&report, 3.0);
    assert_within(row(&report, "sorted / unsorted", "1 devices"), 0.1);
    assert_within(row(&report, "sorted / unsorted", "2 devices"), 15.0);
    assert_within(row(&report, "sorted / unsorted", "4 devices"), 15.0);
}

#[test]
fn lists_per_node_end_the_waiting() {
    let report = run("per-node-lru");
    assert_calibrated(&report, 3.0);
    let table = "waiting for list locks, % of CPU time";
    assert_within(row(&report, table, "a list per node"), 15.0);
    assert_eq!(row(&report, table, "one list, 1 walker").simulated, 0.0);
}

#[test]
fn a_fixed_window_gains_with_its_size_and_a_scaled_one_never() {
    let report = run("fixed-readahead");
    let time = |case: &str| row(&report, "swapoff by page_cluster, s", case).simulated;
    let default: Vec<_> = (1..=8).map(|cluster| time(&format!("default, {cluster}"))).collect();
    assert!(default.iter().all(|time| (time / default[0] - 1.0).abs() < 0.02), "{default:?}");
    for cluster in ["1", "2", "3", "4", "5", "6", "7"] {
        assert_within(row(&report, "mean of default / fixed by page_cluster", cluster), 15.0);
    }
    // A window that is looked up at every page costs more than it saves in the end.
    assert!(time("fixed, 5") < time("fixed, 3") && time("fixed, 5") < time("fixed, 7"));
    let look_up = row(&report, "other walks, page_cluster 3, s", "look-up first").simulated;
    assert!(look_up < time("default, 3") / 2.0);
}

/// The source's system time is that of the program: its reclaimers are the kernel's threads.
#[test]
fn the_baselines_of_the_exclusive_stall_keep_as_many_cpus_busy_as_the_source_says() {
    let report = run("exclusive-stall");
    for threads in [1, 3, 5, 7, 8] {
        let busy = row(&report, "CPUs busy for the system", &format!("{threads} threads, wait"));
        assert_within(busy, if threads == 1 { 5.0 } else { 30.0 });
    }
}

/// What is outside the source's own noise: all runs together take longer, most of all with a thread on every CPU, because
/// programs reclaim directly what paused reclaimers do not.
#[test]
fn pausing_reclaimers_sends_programs_into_direct_reclaim() {
    let report = run("exclusive-stall");
    let direct = |case: String| row(&report, "pages reclaimed directly, % of all", &case).simulated;
    for threads in [1, 3, 5, 7, 8] {
        let wait = direct(format!("{threads} threads, wait"));
        let stall = direct(format!("{threads} threads, stall"));
        assert!(stall > 1.3 * wait, "{threads} threads: {stall} % against {wait} %");
    }
    let ratio = |case| row(&report, "elapsed, stall / wait", case);
    assert_within(ratio("all threads"), 15.0);
    assert!(
        ratio("5 threads, stall").simulated > 1.02 && ratio("8 threads, stall").simulated > 1.05
    );
    assert_eq!(row(&report, "pauses", "8 threads, wait").simulated, 0.0);
}
