//! Lines and bands over time: RAM and swap, devices, waiting.
use super::axis::Scale;
use super::svg::{INNER, Picture};
use crate::moments::Moment;
use crate::record::Record;
use crate::size::{self, PAGE_BYTES};

/// Points of a line at most: more than that is less than a pixel each.
const POINTS_MAX: usize = 600;
const HEIGHT: f64 = 220.0;

/// Moments that become one point.
struct Step<'a> {
    /// Where it ends, in milliseconds.
    end_ms: u64,
    seconds: f64,
    moments: &'a [Moment],
}

impl Step<'_> {
    /// A sum over its moments, for each second.
    fn rate(&self, of: impl Fn(&Moment) -> u64) -> f64 {
        self.moments.iter().map(|moment| of(moment) as f64).sum::<f64>() / self.seconds
    }

    fn last(&self) -> &Moment {
        self.moments.last().expect("a chunk has one")
    }
}

fn steps(record: &Record) -> Vec<Step<'_>> {
    let each = record.moments.len().div_ceil(POINTS_MAX).max(1);
    let mut before = 0;
    let chunks = record.moments.chunks(each).map(|moments| {
        let end_ms = moments.last().expect("a chunk has one").at_ms;
        let seconds = end_ms.saturating_sub(before).max(1) as f64 / 1e3;
        before = end_ms;
        Step { end_ms, seconds, moments }
    });
    chunks.collect()
}

/// The axis of time below a picture.
pub fn time_axis(picture: &mut Picture, record: &Record) -> Scale {
    let scale = Scale::to(record.duration_ms() as f64 / 1e3, INNER);
    for tick in scale.ticks(9) {
        picture.tick_x(scale.at(tick), &format!("{} s", (tick * 1000.0).round() / 1000.0));
    }
    scale
}

fn byte_axis(picture: &mut Picture, highest: f64, unit: &str) -> Scale {
    let scale = Scale::to(highest * 1.05, picture.inside());
    for tick in scale.byte_ticks(5) {
        picture.tick_y(scale.at(tick), &format!("{}{unit}", size::bytes(tick as u64)));
    }
    scale
}

/// RAM by what it is used for, and what is on devices.
pub fn ram(record: &Record) -> Option<Picture> {
    let steps = steps(record);
    if steps.is_empty() {
        return None;
    }
    let mut picture = Picture::new("ram", "RAM and swap over time", HEIGHT);
    let bytes = |pages: u64| pages as f64 * PAGE_BYTES as f64;
    let swapped = |moment: &Moment| {
        moment.sample.devices.iter().map(|device| bytes(device.used_pages)).sum::<f64>()
    };
    let layers = |moment: &Moment| {
        let pages = &moment.sample.pages;
        let resident = bytes(pages.resident);
        let cached = resident + bytes(pages.cached.saturating_add(pages.writing));
        [0.0, resident, cached, bytes(pages.budget)]
    };
    let highest = |moment: &Moment| swapped(moment).max(layers(moment)[3]).max(layers(moment)[2]);
    let highest = steps.iter().map(|step| highest(step.last())).fold(0.0, f64::max);
    let y = byte_axis(&mut picture, highest, "");
    let x = time_axis(&mut picture, record);
    let points = |of: &dyn Fn(&Moment) -> f64| -> Vec<(f64, f64)> {
        let point = |step: &Step| (x.at(step.end_ms as f64 / 1e3), y.at(of(step.last())));
        steps.iter().map(point).collect()
    };
    for (colour, layer) in [("a", 1), ("c", 2)] {
        let (upper, lower) =
            (points(&|moment| layers(moment)[layer]), points(&|moment| layers(moment)[layer - 1]));
        picture.band(colour, &upper, &lower);
    }
    picture.line("k", &points(&|moment| layers(moment)[3]));
    picture.line("b", &points(&swapped));
    let legend =
        [("a", "resident"), ("c", "cached or being written"), ("k", "budget"), ("b", "on devices")];
    picture.legend = legend.map(|(colour, name)| (colour, name.to_owned())).into();
    picture.note = "Areas are RAM, lines the budget and what is on swap devices.".into();
    Some(picture)
}

/// Bytes a second to and from all devices.
pub fn throughput(record: &Record) -> Option<Picture> {
    let steps = steps(record);
    let devices = |moment: &Moment, of: fn(&userswap_trace::DeviceSample) -> u64| {
        moment.sample.devices.iter().map(of).fold(0, u64::saturating_add)
    };
    let read = |step: &Step| step.rate(|moment| devices(moment, |device| device.read_bytes));
    let written = |step: &Step| step.rate(|moment| devices(moment, |device| device.written_bytes));
    let highest = steps.iter().map(|step| read(step).max(written(step))).fold(0.0, f64::max);
    if highest == 0.0 {
        return None;
    }
    let mut picture = Picture::new("throughput", "Device throughput", HEIGHT * 0.75);
    let y = byte_axis(&mut picture, highest, "/s");
    let x = time_axis(&mut picture, record);
    let x_of = |step: &Step| x.at(step.end_ms as f64 / 1e3);
    let mut draw = |colour: &'static str, name: &str, rates: Vec<f64>| {
        let along = steps.iter().map(x_of);
        picture
            .line(colour, &along.zip(rates.into_iter().map(|rate| y.at(rate))).collect::<Vec<_>>());
        picture.legend.push((colour, name.to_owned()));
    };
    draw("a", "read", steps.iter().map(read).collect());
    draw("b", "written", steps.iter().map(written).collect());
    let names: Vec<&str> = steps
        .last()
        .map(|step| step.last().sample.devices.iter().map(|device| device.name.as_str()).collect())
        .unwrap_or_default();
    picture.note = format!("All devices together: {}.", names.join(", "));
    Some(picture)
}

/// The share of the time for which a thread waited.
pub fn stalled(record: &Record) -> Option<Picture> {
    if record.totals.stall_ns == 0 {
        return None;
    }
    let mut picture = Picture::new("stalled", "Waiting", HEIGHT * 0.5);
    let y = Scale::to(100.0, picture.inside());
    for tick in [0.0, 25.0, 50.0, 75.0, 100.0] {
        picture.tick_y(y.at(tick), &format!("{tick} %"));
    }
    let x = time_axis(&mut picture, record);
    let point = |step: &Step| {
        let percent = step.rate(|moment| moment.sample.stall_ns) / 1e7;
        (x.at(step.end_ms as f64 / 1e3), y.at(percent))
    };
    let line: Vec<_> = steps(record).iter().map(point).collect();
    let ground: Vec<_> = line.iter().map(|(along, _)| (*along, 0.0)).collect();
    picture.band("b", &line, &ground);
    picture.note = "The share of the time for which at least one thread waited for a page.".into();
    Some(picture)
}
