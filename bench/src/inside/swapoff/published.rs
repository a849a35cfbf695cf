//! What the proposal of April 2020 measured: nothing here was measured by this program.

/// Where the figures come from.
pub(super) const SOURCE: &str = "2020: as published with the patch (Linux 5.6, a virtual machine with 8 GB, 85 % of \
                                 it swapped out, NVMe), not measured here";

/// Seconds that the kernel's swapoff took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Published {
    pub(super) page_cluster: u8,
    pub(super) scaling_s: f64,
    pub(super) fixed_s: f64,
}

const fn row(page_cluster: u8, scaling_s: f64, fixed_s: f64) -> Published {
    Published { page_cluster, scaling_s, fixed_s }
}

const TABLE: [Published; 8] = [
    row(1, 26.77, 21.25),
    row(2, 28.29, 12.66),
    row(3, 22.09, 8.77),
    row(4, 21.50, 7.60),
    row(5, 25.35, 7.75),
    row(6, 23.19, 8.32),
    row(7, 22.25, 9.40),
    row(8, 22.09, 8.93),
];

/// The published row for a `page_cluster`, if there is one.
pub(super) fn row_of(page_cluster: u8) -> Option<Published> {
    TABLE.into_iter().find(|row| row.page_cluster == page_cluster)
}
