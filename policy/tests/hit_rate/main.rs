//! Misses of the engine's replacement beside other policies and the optimum, over traces generated and recorded.
//!
//! The table in docs/hit-rate.md is what this test computes: it fails when the two differ, and writes the
//! table anew when run with `UPDATE_TABLES=1`.
mod ours;
mod rivals;
mod traces;

use ours::Ours;
use std::fmt::Write;
use traces::Trace;

/// Pages of memory for the traces that are generated.
const BUDGET: u32 = 8192;
const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/hit-rate.md");
const BEGIN: &str = "<!-- table: cargo test -p userswap-policy --test hit_rate -->\n";

fn table() -> String {
    let others = rivals::names();
    let mut text = format!(
        "| trace | accesses | FIFO | LRU | {} | userswap | soft | optimum |\n|{}\n",
        others.join(" | "),
        "---|".repeat(7 + others.len())
    );
    for Trace { name, pages, budget, .. } in traces::all() {
        let mut ours = Ours::new(&pages, budget);
        let misses = pages.iter().filter(|page| ours.access(**page).is_miss()).count();
        let (fifo, lru) = (rivals::fifo(&pages, budget), rivals::lru(&pages, budget));
        let (soft, optimum) = (ours.soft_faults(), rivals::optimum(&pages, budget));
        let accesses = pages.len();
        let others: Vec<String> =
            rivals::misses(&pages, budget).iter().map(u64::to_string).collect();
        let others = others.join(" | ");
        writeln!(
            text,
            "| {name} | {accesses} | {fifo} | {lru} | {others} | {misses} | +{soft} | {optimum} |"
        )
        .unwrap();
    }
    text
}

#[test]
fn the_table_in_the_documentation_is_what_the_policy_does() {
    let page = std::fs::read_to_string(TABLE).expect("the table's page exists");
    let (before, after) = page.split_once(BEGIN).expect("the page says where the table begins");
    let end = after.find("\n\n").map_or(after.len(), |end| end + 1);
    let table = table();
    if std::env::var_os("UPDATE_TABLES").is_some() {
        std::fs::write(TABLE, format!("{before}{BEGIN}{table}{}", &after[end..])).unwrap();
        return;
    }
    assert_eq!(after[..end], table, "docs/hit-rate.md is out of date: run with UPDATE_TABLES=1");
}

#[test]
fn a_hot_set_stays_while_a_scan_runs_through() {
    for Trace { name, pages, hot, budget } in traces::all() {
        let Some(hot) = hot else { continue };
        let mut ours = Ours::new(&pages, budget);
        let (mut accesses, mut hits) = (0u32, 0u32);
        for (page, outcome) in pages.iter().map(|page| (*page, ours.access(*page))) {
            if hot.contains(&page) {
                accesses += 1;
                hits += u32::from(!outcome.is_miss());
            }
        }
        let (share, least) = (f64::from(hits) / f64::from(accesses), 0.95);
        assert!(share >= least, "{name}: {hits} of {accesses} hot accesses hit");
    }
}

#[test]
fn no_trace_gets_much_worse_than_with_lru() {
    for Trace { name, pages, budget, .. } in traces::all() {
        let mut ours = Ours::new(&pages, budget);
        let misses = pages.iter().filter(|page| ours.access(**page).is_miss()).count() as u64;
        let lru = rivals::lru(&pages, budget);
        // A page of a new phase may have to come twice before it is believed.
        assert!(misses <= 2 * lru, "{name}: {misses} misses, LRU has {lru}");
    }
}
