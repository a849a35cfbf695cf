//! Which bytes a strided array covers: runs of consecutive bytes, from an address, an item's size, and axes.
//!
//! Axes are joined, the shortest stride first, as long as no byte that matters lies between two of their steps, so that an
//! array of any layout without gaps is one run. What matters is the caller's: every byte, or every page. A page is
//! 4 KiB, so that none fits into a gap of fewer bytes.
use std::ops::Range;

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
    /// From the lowest byte to the end of the highest one; None without any bytes, or for bytes that no address names.
    pub fn extent(&self) -> Option<Range<usize>> {
        if self.item_bytes == 0 || self.shape.contains(&0) {
            return None;
        }
        let (mut low, mut high) = (self.address as i128, (self.address + self.item_bytes) as i128);
        for (count, stride) in self.shape.iter().zip(&self.strides) {
            let reach = (*count as i128 - 1).checked_mul(*stride as i128)?;
            low += reach.min(0);
            high += reach.max(0);
        }
        Some(usize::try_from(low).ok()?..usize::try_from(high).ok()?)
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

/// Bytes of a page, the unit of what is pinned, prefetched and paged out.
pub const PAGE_BYTES: usize = 4096;
