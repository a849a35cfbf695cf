//! The table of results in the repository is what the scenarios say now.

use std::fmt::Write as _;
use std::path::Path;

use userswap_sim::scenario::{self, Checking, Options};

#[test]
fn the_results_in_the_repository_are_those_of_this_code() {
    let mut text = String::new();
    for (name, _) in scenario::list() {
        let report = scenario::run(name, &[], &Options { seed: 1, checking: Checking::Off });
        let report = report.unwrap_or_else(|failure| panic!("{name}: {failure}"));
        writeln!(text, "{report}").expect("a string takes all");
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("results.txt");
    let is_update = std::env::var_os("USERSWAP_UPDATE_RESULTS").is_some_and(|value| value == "1");
    if is_update {
        std::fs::write(&file, &text).expect("results.txt can be written");
    }
    let kept = std::fs::read_to_string(&file).expect("results.txt is in the repository");
    assert!(
        kept == text,
        "sim/results.txt is stale: run this test with USERSWAP_UPDATE_RESULTS=1, and look at the difference"
    );
}
