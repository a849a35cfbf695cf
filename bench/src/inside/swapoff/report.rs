//! The report of `bench swapoff`: the fields are the keys of the JSON object.

use super::ours::Walked;
use super::{WALKS, published};
use crate::figures::median;
use crate::format::Shown;
use crate::machine::{self, Machine};
use crate::size;
use comfy_table::{CellAlignment, Table, presets};
use serde::{Serialize, Serializer};

const A_ROUND: &str = "there is a round";

/// One `page_cluster`: medians in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) page_cluster: u8,
    /// The kernel's, as published in 2020.
    pub(super) published_scaling_s: Option<f64>,
    pub(super) published_fixed_s: Option<f64>,
    /// Our engine by the kernel's walks, in the order of [`WALKS`].
    #[serde(serialize_with = "by_method")]
    pub(super) walks: [Walked; WALKS.len()],
}

/// The kernel's swapoff here.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct KernelTime {
    pub(super) page_cluster: u8,
    pub(super) median_s: f64,
}

/// What was measured on our side: an item of each list per round.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    pub(super) ram_bytes: u64,
    pub(super) size_bytes: u64,
    pub(super) plain_read_s: Vec<f64>,
    pub(super) device_s: Vec<f64>,
}

/// Medians are over the rounds; times are in seconds.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Report {
    case: &'static str,
    ram_bytes: u64,
    size_bytes: u64,
    /// Plain reads past the page cache in the requests of our swapoff, of the same slots.
    plain_read_s: Vec<f64>,
    /// Our swapoff by its default method.
    device_s: Vec<f64>,
    median_plain_read_s: f64,
    median_device_s: f64,
    /// Of the disk's speed by plain reads, median of the rounds.
    share_of_disk: f64,
    rows: Vec<Row>,
    kernel: Vec<KernelTime>,
    /// The kernel's better time to ours.
    ratio: Option<f64>,
    machine: Machine,
    kernel_release: String,
}

impl Shown for Report {
    fn text(&self) -> String {
        let mut lines = vec![
            format!(
                "swapoff: {} on the device, {} of RAM to take it back; medians of {}, in seconds",
                size::display(self.size_bytes),
                size::display(self.ram_bytes),
                self.device_s.len()
            ),
            self.times().to_string(),
            published::SOURCE.to_owned(),
            "requests of the walks".to_owned(),
            self.requests().to_string(),
            format!(
                "device order (the default)  {:.2} s, {:.0} % of the disk's speed (plain O_DIRECT reads: {:.2} s)",
                self.median_device_s,
                self.share_of_disk * 100.0,
                self.median_plain_read_s
            ),
        ];
        for time in &self.kernel {
            lines.push(format!(
                "the kernel's swapoff here, page-cluster {}  {:.2} s",
                time.page_cluster, time.median_s
            ));
        }
        lines.extend(self.ratio.map(|ratio| format!("kernel / userswap  {ratio:.2}")));
        lines.push(format!("{}, Linux {}", self.machine, self.kernel_release));
        lines.push(String::new());
        lines.join("\n")
    }
}

impl Report {
    /// # Panics
    /// Without a round.
    pub(super) fn new(measured: Measured, rows: Vec<Row>, kernel: Vec<KernelTime>) -> Self {
        let Measured { ram_bytes, size_bytes, plain_read_s, device_s } = measured;
        let shares = plain_read_s.iter().zip(&device_s).map(|(plain, device)| plain / device);
        let share_of_disk = median(shares).expect(A_ROUND);
        let median_device_s = median(device_s.iter().copied()).expect(A_ROUND);
        let best = kernel.iter().map(|time| time.median_s).min_by(f64::total_cmp);
        Self {
            case: "swapoff",
            ram_bytes,
            size_bytes,
            median_plain_read_s: median(plain_read_s.iter().copied()).expect(A_ROUND),
            plain_read_s,
            device_s,
            median_device_s,
            share_of_disk,
            rows,
            kernel,
            ratio: best.map(|best| best / median_device_s),
            machine: Machine::this(),
            kernel_release: machine::kernel_release(),
        }
    }

    fn times(&self) -> Table {
        let seconds = |seconds: f64| format!("{seconds:.2}");
        let published = |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), seconds);
        let walks = WALKS.map(|method| method.to_string());
        let header = ["page_cluster", "2020 default", "2020 fixed"].map(str::to_owned);
        let rows = self.rows.iter().map(|row| {
            let cluster = row.page_cluster.to_string();
            let before = [published(row.published_scaling_s), published(row.published_fixed_s)];
            let walks = row.walks.map(|walk| seconds(walk.seconds));
            let device = [seconds(self.median_device_s)];
            [cluster].into_iter().chain(before).chain(walks).chain(device).collect()
        });
        table(header.into_iter().chain(walks).chain(["device order".to_owned()]), rows)
    }

    /// How many requests the walks made, which no other load on the disk changes.
    fn requests(&self) -> Table {
        let header = ["page_cluster".to_owned()].into_iter();
        let rows = self.rows.iter().map(|row| {
            let walks = row.walks.map(|walk| walk.requests.to_string());
            [row.page_cluster.to_string()].into_iter().chain(walks).collect()
        });
        table(header.chain(WALKS.map(|method| method.to_string())), rows)
    }
}

fn table(header: impl Iterator<Item = String>, rows: impl Iterator<Item = Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header).add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn by_method<S: Serializer>(walks: &[Walked; WALKS.len()], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(WALKS.iter().map(ToString::to_string).zip(walks))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(kernel: Vec<KernelTime>) -> Report {
        let row = |page_cluster, published: Option<f64>| Row {
            page_cluster,
            published_scaling_s: published,
            published_fixed_s: published,
            walks: [Walked { seconds: 4.0, requests: 77 }; WALKS.len()],
        };
        let rows = vec![row(3, Some(22.09)), row(10, None)];
        let (plain_read_s, device_s) = (vec![0.5, 0.6, 0.9], vec![1.0; 3]);
        let (ram_bytes, size_bytes) = (1 << 30, 850 << 20);
        Report::new(Measured { ram_bytes, size_bytes, plain_read_s, device_s }, rows, kernel)
    }

    #[test]
    fn the_share_is_the_median_of_the_rounds_and_the_kernels_better_time_counts() {
        let time = |page_cluster, median_s| KernelTime { page_cluster, median_s };
        let json = serde_json::to_value(report(vec![time(3, 10.0), time(5, 9.0)])).unwrap();
        assert_eq!((&json["share_of_disk"], &json["ratio"]), (&0.6.into(), &9.0.into()));
        assert!(serde_json::to_value(report(vec![])).unwrap()["ratio"].is_null());
    }

    #[test]
    fn what_was_published_is_told_from_what_was_measured() {
        let text = report(vec![]).text();
        assert!(text.contains("2020 default") && text.contains("not measured here"), "{text}");
        assert!(text.contains("60 % of the disk's speed"), "{text}");
        let mut last = text.lines().filter(|line| line.trim_start().starts_with("10 "));
        assert_eq!(last.next().unwrap().split_whitespace().collect::<Vec<_>>()[1..3], ["-", "-"]);
        assert_eq!(last.next().unwrap().matches("77").count(), WALKS.len());
    }
}
