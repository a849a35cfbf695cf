//! `userswap sim`: what it prints, and what it refuses.

use std::process::{Command, Output};

fn sim(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_userswap"));
    command.arg("sim").args(args).output().expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_five_experiments_are_listed_and_one_prints_its_published_numbers() {
    let listed = text(&sim(&["list"]).stdout);
    for name in
        ["per-node-devices", "exclusive-stall", "sorted-free", "per-node-lru", "fixed-readahead"]
    {
        assert!(listed.contains(name), "{name} in {listed}");
    }
    let output = sim(&["sorted-free", "--set", "machine.scale=1024", "--set", "runs=1"]);
    let printed = text(&output.stdout);
    assert!(output.status.success() && printed.contains("2.280"), "{printed}");
}

#[test]
fn json_has_the_same_tables_and_a_plot_is_drawn() {
    let directory = tempfile::tempdir().unwrap();
    let plot = directory.path().join("plot.svg");
    let plot_text = plot.to_str().unwrap();
    let output =
        sim(&["eight-nodes", "--set", "machine.scale=1024", "--json", "--plot", plot_text]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(json["scenario"], "eight-nodes");
    assert_eq!(json["tables"][0]["rows"].as_array().unwrap().len(), 12);
    let drawn = std::fs::read_to_string(plot).unwrap();
    assert!(drawn.starts_with("<svg") && drawn.contains("near / spread"));
}

#[test]
fn what_cannot_be_gets_one_line_and_status_2() {
    for (args, said) in [
        (&["eight-node"][..], "there is no scenario \"eight-node\": use per-node-devices,"),
        (
            &["eight-nodes", "--set", "machine.nodes=0"],
            "eight-nodes.toml:8: 0 nodes: use 1 to 1024",
        ),
        (&["eight-nodes", "--set", "nodes"], "--set: \"nodes\" is no setting: use TABLE.KEY=VALUE"),
        (&["list", "--seed", "x"], "--seed: \"x\": use a whole number"),
        (&["list", "--seed", "18446744073709551616"], "use a smaller number"),
        (&["stress", "--set", "limit.devices=65"], "stress.toml:6: 65 devices: use 1 to 64"),
        (&["all", "--plot", "a.svg"], "--plot draws one scenario"),
        (
            &["eight-nodes", "--set", "machine.scale=1024", "--plot", "/no/such/a.svg"],
            "--plot: /no/such/a.svg:",
        ),
    ] {
        let output = sim(args);
        let error = text(&output.stderr);
        assert!(error.contains(said), "{args:?}: {error}");
        assert_eq!(
            (output.status.code(), error.lines().count()),
            (Some(2), 1),
            "{args:?}: {error}"
        );
    }
}
