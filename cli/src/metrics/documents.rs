//! Holds docs/metrics.md and the dashboard against the metrics that there are.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;
use userswap::Snapshot;

use super::counters::COUNTERS;
use super::exposition::{Format, exposition};
use super::family::{DEVICE, NODE, PROGRAM};

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A family, as its text describes it.
struct Described {
    name: String,
    kind: String,
    help: String,
}

/// All families, in their order; there is no program.
fn families() -> Vec<Described> {
    let text = exposition(Vec::new(), Format::Prometheus);
    let lines: Vec<_> = text.lines().collect();
    let describe = |pair: &[&str]| {
        let (name, help) = pair[0].strip_prefix("# HELP ")?.split_once(' ')?;
        let kind = pair[1].strip_prefix("# TYPE ")?.strip_prefix(name)?.trim();
        // The library ends each with a full stop.
        let help = help.trim_end_matches('.');
        Some(Described { name: name.to_owned(), kind: kind.to_owned(), help: help.to_owned() })
    };
    lines.windows(2).filter_map(describe).collect()
}

fn labels(name: &str) -> &'static str {
    match name {
        "userswap_engine_up" => "pid",
        name if name.starts_with("userswap_node_") => "pid, program, node",
        name if name.starts_with("userswap_device_") => "pid, program, device",
        _ => "pid, program",
    }
}

#[test]
fn every_counter_of_the_engine_is_a_metric() {
    let ours: Vec<_> = COUNTERS.iter().map(|row| row.counter).collect();
    let theirs: Vec<_> = Snapshot::default().values().iter().map(|(name, _)| *name).collect();
    assert_eq!(ours, theirs);
}

#[test]
fn names_are_given_once() {
    let families = families();
    let all = 2 + PROGRAM.len() + NODE.len() + DEVICE.len() + COUNTERS.len();
    assert_eq!(families.len(), all);
    let names: BTreeSet<_> = families.iter().map(|family| &family.name).collect();
    assert_eq!(names.len(), all);
}

#[test]
fn the_document_lists_every_metric_as_it_is() {
    let row = |family: &Described| {
        let Described { name, kind, help } = family;
        format!("| `{name}` | {kind} | {} | {help} |", labels(name))
    };
    let expected: Vec<_> = families().iter().map(row).collect();
    let text = document("metrics.md");
    let listed: Vec<_> = text.lines().filter(|line| line.starts_with("| `userswap_")).collect();
    assert_eq!(listed, expected, "docs/metrics.md should have:\n{}", expected.join("\n"));
}

/// All texts under the key `expr`.
fn expressions(of: &Value, found: &mut Vec<String>) {
    match of {
        Value::Object(fields) => {
            for (key, value) in fields {
                match (key.as_str(), value) {
                    ("expr" | "query" | "definition", Value::String(text)) => {
                        found.push(text.clone())
                    }
                    _ => expressions(value, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| expressions(value, found)),
        _ => {}
    }
}

#[test]
fn the_dashboard_asks_for_nothing_that_is_not_exported() {
    let histogram = |name: &str| ["_bucket", "_sum", "_count"].map(|end| format!("{name}{end}"));
    let series = families().into_iter().flat_map(|family| match family.kind.as_str() {
        "histogram" => histogram(&family.name).to_vec(),
        _ => vec![family.name],
    });
    let series: BTreeSet<_> = series.collect();
    let dashboard: Value = serde_json::from_str(&document("grafana.json")).unwrap();
    let mut asked = Vec::new();
    expressions(&dashboard, &mut asked);
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let names = asked.iter().flat_map(|text| text.split(|c| !is_part(c)));
    let names: BTreeSet<_> = names.filter(|word| word.starts_with("userswap_")).collect();
    assert!(names.len() > 20, "it asks for much of what there is: {names:?}");
    let unknown: Vec<_> = names.iter().filter(|name| !series.contains(**name)).collect();
    assert!(unknown.is_empty(), "not exported: {unknown:?}");
}
