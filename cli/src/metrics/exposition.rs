//! Metrics as text: OpenMetrics, or the older text format of Prometheus, which differs in the names of counters.

use std::fmt::Error;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{self, Registry};
use userswap::internals::status::{DeviceStatus, NodeStatus, Status};

use super::counters::COUNTERS;
use super::family::{DEVICE, Kind, Metric, NODE, PROGRAM, Unit};
use crate::control::Engine;
use crate::memory::PAGE_BYTES;

/// How all names begin.
const PREFIX: &str = "userswap";

/// A form of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    OpenMetrics,
    /// Prometheus 0.0.4, which node_exporter reads and promtool checks.
    Prometheus,
}

/// What metrics are told apart by.
type Labels = Vec<(&'static str, String)>;

/// All metrics of these engines.
pub fn exposition(engines: Vec<Engine>, format: Format) -> String {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(Engines(engines)));
    let mut openmetrics = String::new();
    text::encode(&mut openmetrics, &registry).expect("writing to a string cannot fail");
    match format {
        Format::OpenMetrics => openmetrics,
        Format::Prometheus => as_prometheus(&openmetrics),
    }
}

/// There a counter's `_total` is part of its name, and units are only in names.
fn as_prometheus(openmetrics: &str) -> String {
    let is_counter = |name: &str| openmetrics.contains(&format!("# TYPE {name} counter\n"));
    let mut text = String::new();
    for line in openmetrics.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("#"), Some("UNIT" | "EOF"), _) => continue,
            (Some("#"), Some(word), Some(name)) if is_counter(name) => {
                let rest = words.next().unwrap_or_default();
                text.push_str(&format!("# {word} {name}_total {rest}"));
            }
            _ => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

#[derive(Debug)]
struct Engines(Vec<Engine>);

impl Collector for Engines {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), Error> {
        let help = "Whether the engine answered";
        let mut up = encoder.encode_descriptor("engine_up", help, None, MetricType::Gauge)?;
        for engine in &self.0 {
            let labels: Labels = vec![("pid", engine.name.to_string())];
            encode_value(
                up.encode_family(&labels)?,
                Kind::Gauge,
                Unit::Number,
                engine.status.is_ok().into(),
            )?;
        }
        self.encode_table(&mut encoder, PROGRAM, program)?;
        self.encode_table(&mut encoder, NODE, nodes)?;
        self.encode_table(&mut encoder, DEVICE, devices)?;
        self.encode_counters(&mut encoder)?;
        self.encode_latency(&mut encoder)
    }
}

/// The parts of a program that a table is about, with what tells them apart.
type Parts<T> = fn(&Status) -> Vec<(Labels, &T)>;

fn program(status: &Status) -> Vec<(Labels, &Status)> {
    vec![(Labels::new(), status)]
}

fn nodes(status: &Status) -> Vec<(Labels, &NodeStatus)> {
    status.nodes.iter().map(|node| (vec![("node", node.node.to_string())], node)).collect()
}

fn devices(status: &Status) -> Vec<(Labels, &DeviceStatus)> {
    status.devices.iter().map(|device| (vec![("device", device.name.clone())], device)).collect()
}

impl Engines {
    fn encode_table<T>(
        &self,
        encoder: &mut DescriptorEncoder,
        table: &[Metric<T>],
        parts: Parts<T>,
    ) -> Result<(), Error> {
        for metric in table {
            let unit = told_unit(metric.unit);
            let (name, kind) = (metric.name, metric_type(metric.kind));
            let mut family = encoder.encode_descriptor(name, metric.help, unit.as_ref(), kind)?;
            for (of_program, status) in self.answers() {
                for (own, part) in parts(status) {
                    let Some(value) = (metric.value)(part) else { continue };
                    let labels: Labels = of_program.iter().cloned().chain(own).collect();
                    encode_value(family.encode_family(&labels)?, metric.kind, metric.unit, value)?;
                }
            }
        }
        Ok(())
    }

    /// An engine of another build may lack some, and have some that are not known here.
    fn encode_counters(&self, encoder: &mut DescriptorEncoder) -> Result<(), Error> {
        for row in COUNTERS {
            let (unit, kind) = (told_unit(row.unit), MetricType::Counter);
            let mut family = encoder.encode_descriptor(row.name, row.help, unit.as_ref(), kind)?;
            for (labels, status) in self.answers() {
                let Some(value) = status.counters.get(row.counter) else { continue };
                encode_value(family.encode_family(&labels)?, Kind::Counter, row.unit, *value)?;
            }
        }
        Ok(())
    }

    fn encode_latency(&self, encoder: &mut DescriptorEncoder) -> Result<(), Error> {
        let (help, unit) = ("How long faults took to be served", registry::Unit::Seconds);
        let kind = MetricType::Histogram;
        let mut family = encoder.encode_descriptor("fault_latency", help, Some(&unit), kind)?;
        for (labels, status) in self.answers() {
            let told = &status.fault_latency;
            let bounded =
                told.buckets.iter().map(|bucket| (bucket.below_ns as f64 / 1e9, bucket.count));
            let within: u64 = told.buckets.iter().map(|bucket| bucket.count).sum();
            let slower = (f64::INFINITY, told.count.saturating_sub(within));
            let buckets: Vec<_> = bounded.chain([slower]).collect();
            let sum = told.sum_ns as f64 / 1e9;
            let mut encoder = family.encode_family(&labels)?;
            encoder.encode_histogram::<NoLabelSet>(sum, told.count, &buckets, None)?;
        }
        Ok(())
    }

    /// The programs that answered, with what tells them apart.
    fn answers(&self) -> impl Iterator<Item = (Labels, &Status)> {
        self.0.iter().filter_map(|engine| {
            let status = engine.status.as_ref().ok()?;
            let (pid, program) = (engine.name.to_string(), status.program.clone());
            Some((vec![("pid", pid), ("program", program)], status))
        })
    }
}

fn metric_type(kind: Kind) -> MetricType {
    match kind {
        Kind::Counter => MetricType::Counter,
        Kind::Gauge => MetricType::Gauge,
    }
}

fn told_unit(unit: Unit) -> Option<registry::Unit> {
    match unit {
        Unit::Bytes | Unit::Pages => Some(registry::Unit::Bytes),
        Unit::Nanoseconds => Some(registry::Unit::Seconds),
        Unit::Number => None,
    }
}

fn encode_value(encoder: MetricEncoder, kind: Kind, unit: Unit, value: u64) -> Result<(), Error> {
    match (kind, unit) {
        (Kind::Counter, Unit::Nanoseconds) => ConstCounter::new(value as f64 / 1e9).encode(encoder),
        (Kind::Gauge, Unit::Nanoseconds) => ConstGauge::new(value as f64 / 1e9).encode(encoder),
        (Kind::Counter, unit) => ConstCounter::new(value * factor(unit)).encode(encoder),
        (Kind::Gauge, unit) => ConstGauge::new(value * factor(unit)).encode(encoder),
    }
}

fn factor(unit: Unit) -> u64 {
    match unit {
        Unit::Pages => PAGE_BYTES,
        Unit::Bytes | Unit::Nanoseconds | Unit::Number => 1,
    }
}
