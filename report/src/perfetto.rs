//! A record as events that the Perfetto UI and chrome://tracing open: JSON, a line each.
use crate::moments::Moment;
use crate::record::Record;
use crate::size::PAGE_BYTES;
use crate::words;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Counters that become tracks of events a second.
const RATES: [&str; 7] =
    ["pgfault", "pgmajfault", "pgfault_cached", "pswpin", "pswpout", "swap_ra", "allocstall"];

/// Writes the events.
///
/// # Errors
/// What writing says.
pub fn write(record: &Record, to: &mut impl Write) -> io::Result<()> {
    let pid = record.header.pid;
    writeln!(to, "{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
    let name = json!({"name": "process_name", "ph": "M", "pid": pid, "args": {"name": words::command(record)}});
    write!(to, "{name}")?;
    let mut before_ms = 0;
    for (number, moment) in record.moments.iter().enumerate() {
        for event in tracks(moment, before_ms).into_iter().chain(instants(moment, number)) {
            let mut event = event;
            event["pid"] = pid.into();
            event["ts"] = (moment.at_ms as f64 * 1e3).into();
            write!(to, ",\n{event}")?;
        }
        before_ms = moment.at_ms;
    }
    writeln!(to, "\n]}}")
}

fn track(name: &str, args: Value) -> Value {
    json!({"name": name, "ph": "C", "args": args})
}

/// Values at a moment, and rates since the one before.
fn tracks(moment: &Moment, before_ms: u64) -> Vec<Value> {
    let sample = &moment.sample;
    let seconds = (moment.at_ms - before_ms.min(moment.at_ms)).max(1) as f64 / 1e3;
    let mib =
        |pages: u64| (pages as f64 * PAGE_BYTES as f64 / f64::from(1 << 20) * 10.0).round() / 10.0;
    let pages = &sample.pages;
    let mut tracks = vec![
        track(
            "RAM, MiB",
            json!({"resident": mib(pages.resident), "cached": mib(pages.cached), "free": mib(pages.free),
                "writing": mib(pages.writing)}),
        ),
        track("budget, MiB", json!({"budget": mib(pages.budget)})),
        track("stalled, %", json!({"some": (sample.stall_ns as f64 / seconds / 1e7).round()})),
    ];
    for name in RATES {
        let growth = sample.counters.get(name).copied().unwrap_or(0);
        tracks
            .push(track(&format!("{name}/s"), json!({"rate": (growth as f64 / seconds).round()})));
    }
    for device in &sample.devices {
        let rate = |bytes: u64| (bytes as f64 / seconds / 1e6).round();
        let rates = json!({"read": rate(device.read_bytes), "written": rate(device.written_bytes)});
        tracks.push(track(
            &format!("{}: swapped, MiB", device.name),
            json!({"used": mib(device.used_pages)}),
        ));
        tracks.push(track(&format!("{}: MB/s", device.name), rates));
    }
    tracks
}

/// What happened once.
fn instants(moment: &Moment, number: usize) -> Vec<Value> {
    let sample = &moment.sample;
    let instant = |name: String, args: &BTreeMap<String, String>| json!({"name": name, "ph": "i", "s": "p", "args": args});
    let mut all = Vec::new();
    match number {
        0 => all.push(instant("engaged".into(), &sample.settings)),
        _ if !sample.settings.is_empty() => {
            all.push(instant("settings changed".into(), &sample.settings))
        }
        _ => {}
    }
    if let Some(forks) = sample.counters.get("forks") {
        all.push(instant(format!("forked {forks} times"), &BTreeMap::new()));
    }
    if !sample.exec.is_empty() {
        all.push(instant(format!("exec {}", words::plain(&sample.exec)), &BTreeMap::new()));
    }
    all
}
