//! The report of `bench swapoff`: the fields are the keys of the JSON object.

use super::published;
use crate::figures::median;
use crate::format::Shown;
use crate::machine::{self, Machine};
use crate::size;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

const A_ROUND: &str = "there is a round";

/// One `page_cluster`: medians in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) page_cluster: u8,
    /// The kernel's, as published in 2020.
    pub(super) published_scaling_s: Option<f64>,
    pub(super) published_fixed_s: Option<f64>,
    /// Our engine by the kernel's walk.
    pub(super) scaling_s: f64,
    pub(super) fixed_s: f64,
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
            self.table().to_string(),
            published::SOURCE.to_owned(),
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

    fn table(&self) -> Table {
        let seconds = |seconds: f64| format!("{seconds:.2}");
        let published = |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), seconds);
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_header([
            "page_cluster",
            "2020 scaling",
            "2020 fixed",
            "scaling",
            "fixed",
            "device order",
        ]);
        for row in &self.rows {
            table.add_row([
                row.page_cluster.to_string(),
                published(row.published_scaling_s),
                published(row.published_fixed_s),
                seconds(row.scaling_s),
                seconds(row.fixed_s),
                seconds(self.median_device_s),
            ]);
        }
        for column in table.column_iter_mut() {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(kernel: Vec<KernelTime>) -> Report {
        let row = |page_cluster, published: Option<f64>| Row {
            page_cluster,
            published_scaling_s: published,
            published_fixed_s: published,
            scaling_s: 4.0,
            fixed_s: 3.0,
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
        assert!(text.contains("2020 scaling") && text.contains("not measured here"), "{text}");
        assert!(text.contains("60 % of the disk's speed"), "{text}");
        let last = text.lines().find(|line| line.trim_start().starts_with("10 ")).unwrap();
        assert_eq!(last.split_whitespace().collect::<Vec<_>>()[1..3], ["-", "-"]);
    }
}
