//! Which bytes a strided array covers: runs of consecutive bytes, from an address, an item's size, and axes.
//!
//! Axes are joined, the shortest stride first, as long as no byte that matters lies between two of their steps, so that an
//! array of any layout without gaps is one run. What matters is the caller's: every byte, or every page. A page is
//! 4 KiB, so that none fits into a gap of fewer bytes.
use std::ops::Range;

/// Bytes of a page, the unit of what is pinned, prefetched and paged out.
const PAGE_BYTES: usize = 4096;

/// What may lie between two runs that are joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Join {
    /// Nothing.
    Bytes,
    /// Bytes, but no page.
    Pages,
}

/// An array's memory as numpy describes it.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Address of the first item, which need not be the lowest.
    pub address: usize,
    /// Bytes of an item.
    pub item_bytes: usize,
    /// Items along each axis.
    pub shape: Vec<usize>,
    /// Bytes from one item to the next along each axis.
    pub strides: Vec<isize>,
}

#[derive(Clone, Copy, Debug)]
struct Axis {
    count: usize,
    stride: usize,
}

/// Runs of equal length, one for each position along the axes that could not be joined.
#[derive(Clone, Debug)]
pub struct Runs {
    run_bytes: usize,
    axes: Vec<Axis>,
    position: Vec<usize>,
    /// Where the next run begins; None at the end.
    next: Option<usize>,
}

impl Layout {
    /// From the lowest byte to the end of the highest one, as far as there are addresses; None without any bytes.
    pub fn extent(&self) -> Option<Range<usize>> {
        if self.item_bytes == 0 || self.shape.contains(&0) {
            return None;
        }
        let (mut low, mut high) = (self.address as i128, (self.address + self.item_bytes) as i128);
        for (count, stride) in self.shape.iter().zip(&self.strides) {
            let reach = (*count as i128 - 1) * *stride as i128;
            low = low.saturating_add(reach.min(0));
            high = high.saturating_add(reach.max(0));
        }
        let address = |number: i128| number.clamp(0, usize::MAX as i128) as usize;
        Some(address(low)..address(high))
    }

    /// The runs of an array whose extent lies in memory.
    pub fn runs(&self, join: Join) -> Runs {
        let next = self.extent().map(|extent| extent.start);
        let mut axes: Vec<Axis> = self.shape.iter().zip(&self.strides).map(Axis::new).collect();
        axes.retain(|axis| axis.count > 1 && axis.stride > 0);
        axes.sort_by_key(|axis| axis.stride);
        let mut run_bytes = self.item_bytes;
        let gap = match join {
            Join::Bytes => 0,
            Join::Pages => PAGE_BYTES - 1,
        };
        let joined = axes.iter().take_while(|axis| {
            let is_joined = axis.stride <= run_bytes + gap;
            run_bytes += if is_joined { (axis.count - 1) * axis.stride } else { 0 };
            is_joined
        });
        let joined = joined.count();
        let axes = axes.split_off(joined);
        Runs { run_bytes, position: vec![0; axes.len()], axes, next }
    }
}

impl Axis {
    fn new((count, stride): (&usize, &isize)) -> Self {
        Self { count: *count, stride: stride.unsigned_abs() }
    }
}

impl Runs {
    /// Whether there is no further run.
    pub fn is_over(&self) -> bool {
        self.next.is_none()
    }
}

impl Iterator for Runs {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let start = self.next?;
        self.next = None;
        let mut address = start;
        for (position, axis) in self.position.iter_mut().zip(&self.axes) {
            if *position + 1 < axis.count {
                *position += 1;
                self.next = Some(address + axis.stride);
                break;
            }
            address -= *position * axis.stride;
            *position = 0;
        }
        Some(start..start + self.run_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Numbers below a bound, the same for the same seed (splitmix64).
    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: usize) -> usize {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            (mixed ^ mixed >> 31) as usize % bound
        }

        fn layout(&mut self) -> Layout {
            let axes = self.below(4);
            let strides = [0, 1, 2, 8, 64, 1000, 4096, 4097, 5000, 8191, 8192, 20_000];
            Layout {
                address: 10_000_000 + self.below(10_000),
                item_bytes: [1, 2, 8, 1000, 4096, 5000][self.below(6)],
                shape: (0..axes).map(|_| [0, 1, 2, 3, 7, 12][self.below(6)]).collect(),
                strides: (0..axes)
                    .map(|_| strides[self.below(12)] as isize * [1, -1][self.below(2)])
                    .collect(),
            }
        }
    }

    /// The first byte of every item.
    fn items(layout: &Layout) -> Vec<usize> {
        let mut items = vec![layout.address as isize];
        for (count, stride) in layout.shape.iter().zip(&layout.strides) {
            let steps =
                |item: &isize| (0..*count as isize).map(|n| item + n * stride).collect::<Vec<_>>();
            items = items.iter().flat_map(steps).collect();
        }
        items.into_iter().map(|item| item as usize).collect()
    }

    fn pages(bytes: Range<usize>) -> Range<usize> {
        bytes.start / PAGE_BYTES..bytes.end.div_ceil(PAGE_BYTES)
    }

    #[test]
    fn runs_cover_the_bytes_and_pages_of_the_items_and_no_others() {
        for seed in 0..4000 {
            let layout = Random(seed).layout();
            let items = items(&layout);
            let item = |start: &usize| *start..start + layout.item_bytes;
            let bytes: BTreeSet<usize> = items.iter().flat_map(item).collect();
            let found: BTreeSet<usize> = layout.runs(Join::Bytes).flatten().collect();
            assert_eq!(found, bytes, "seed {seed}: {layout:?}");
            let touched: BTreeSet<usize> =
                items.iter().flat_map(|start| pages(item(start))).collect();
            let found: BTreeSet<usize> = layout.runs(Join::Pages).flat_map(pages).collect();
            assert_eq!(found, touched, "seed {seed}: {layout:?}");
            let extent = bytes.first().map(|first| *first..bytes.last().expect("not empty") + 1);
            assert_eq!(layout.extent(), extent, "seed {seed}: {layout:?}");
        }
    }

    #[test]
    fn arrays_without_gaps_are_one_run_in_any_order_of_their_axes() {
        for strides in [vec![4000, 8, 800], vec![8, 80, -400], vec![8, 4096, 8 * 4096]] {
            let shape = match strides[1] {
                8 => vec![3, 100, 5],
                80 => vec![10, 5, 7],
                _ => vec![512, 8, 4],
            };
            let layout = Layout { address: 1 << 20, item_bytes: 8, shape, strides };
            assert_eq!(layout.runs(Join::Bytes).count(), 1, "{layout:?}");
            assert_eq!(layout.runs(Join::Bytes).next(), layout.extent(), "{layout:?}");
        }
        let column =
            Layout { address: 0x1008, item_bytes: 8, shape: vec![1 << 40], strides: vec![4096] };
        assert_eq!(
            column.runs(Join::Pages).count(),
            1,
            "a column of short rows is looked at as one"
        );
    }
}
