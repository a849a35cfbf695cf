//! `bench jobs` as a command, with a job that takes a moment, under the engine itself.

use std::os::unix::fs::MetadataExt;
use std::process::Command;

use serde_json::Value;

/// A job that needs twice the budget.
const SIZE: [&str; 6] = ["--scale", "0.06", "--ram", "32M", "--runs", "1"];

fn bench(options: &[&str]) -> Value {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_userswap"));
    command.args(["bench", "jobs", "--json", "--swap"]).arg(directory.path());
    let output = command.args(SIZE).args(options).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn runs(report: &Value) -> Vec<&Value> {
    assert_eq!(report["rows"][0]["state"], "measured", "is python3 installed? {report}");
    report["rows"][0]["runs"].as_array().unwrap().iter().collect()
}

#[test]
fn a_job_has_the_native_result_with_less_ram_than_it_needs() {
    let report = bench(&["sqlite", "--fault", "thread,signal"]);
    let runs = runs(&report);
    let sides: Vec<&str> = runs.iter().map(|run| run["side"].as_str().unwrap()).collect();
    assert_eq!(sides, ["native", "thread", "signal"]);
    for run in &runs {
        assert_eq!(run["verdict"], "same", "{report}");
        assert_eq!(run["parts"].as_array().unwrap().len(), 4, "{report}");
    }
    let anon = |run: &Value| run["anon_bytes_max"].as_u64().unwrap();
    assert!(anon(runs[0]) > 40 << 20, "{report}");
    for ours in &runs[1..] {
        assert!(ours["major_faults"].as_u64() > Some(1000), "{report}");
        assert!(anon(ours) < anon(runs[0]), "{report}");
    }
    assert_eq!(report["ratios"].as_array().unwrap().len(), 2, "{report}");
}

#[test]
fn a_job_is_measured_on_the_kernels_swap_beside_it() {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        let in_ci = std::env::var("CI").is_ok_and(|value| value == "true");
        assert!(!in_ci, "CI=true, but not root: the kernel's side stays untested");
        return eprintln!("NOT TESTED: the kernel's swap needs root");
    }
    // Of sqlite the kernel finds no page to take in a group as small as this, and kills it at most times.
    let report = bench(&["usemem", "--vs", "kernel"]);
    let runs = runs(&report);
    assert_eq!((&runs[2]["side"], &runs[2]["verdict"]), (&"kernel".into(), &"same".into()));
    assert!(runs[2]["major_faults"].as_u64() > Some(100), "{report}");
    let wall = |run: &Value| run["wall_s"].as_f64().unwrap();
    let ratio = report["ratios"][0]["value"].as_f64().unwrap();
    assert!((ratio / (wall(runs[2]) / wall(runs[1])) - 1.0).abs() < 1e-9, "{report}");
}
