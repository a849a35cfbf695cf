//! Where in memory faults were, and when: counts for each moment and block of 2 MiB.
use std::collections::{BTreeMap, BTreeSet};

/// Pages of a block.
pub const BLOCK_PAGES: u32 = 512;

/// Cells at most: after that the moments that follow each other are counted together by twos, fours and so on.
const CELLS_MAX: usize = 1 << 19;

/// Faults by block and moment.
#[derive(Debug, Default)]
pub struct Access {
    cells: BTreeMap<(u32, u32), u64>,
    /// Moments of a cell, as a power of two.
    shift: u32,
}

/// Faults, in rows of blocks and columns of moments.
#[derive(Debug, PartialEq, Eq)]
pub struct Map {
    /// The first block of each row, lowest first. Blocks without a fault are in none.
    pub rows: Vec<u32>,
    /// For each row the faults of each column.
    pub faults: Vec<Vec<u64>>,
}

impl Access {
    /// A fault on a page, in the moment with this number.
    pub fn add(&mut self, moment: u32, page: u32) {
        *self.cells.entry((moment >> self.shift, page / BLOCK_PAGES)).or_default() += 1;
        if self.cells.len() > CELLS_MAX {
            self.shift += 1;
            for ((moment, block), faults) in std::mem::take(&mut self.cells) {
                *self.cells.entry((moment >> 1, block)).or_default() += faults;
            }
        }
    }

    /// At most so many rows and columns; the column of a moment is what `column_of` says.
    pub fn map(&self, rows_max: usize, columns: usize, column_of: impl Fn(u32) -> usize) -> Map {
        let blocks: BTreeSet<u32> = self.cells.keys().map(|(_, block)| *block).collect();
        let blocks: Vec<u32> = blocks.into_iter().collect();
        let of_row = blocks.len().div_ceil(rows_max).max(1);
        let rows: Vec<u32> = blocks.iter().step_by(of_row).copied().collect();
        let mut faults = vec![vec![0; columns]; rows.len()];
        for ((moment, block), count) in &self.cells {
            let index = blocks.binary_search(block).expect("every block is among them");
            let column = column_of(moment << self.shift).min(columns - 1);
            faults[index / of_row][column] += count;
        }
        Map { rows, faults }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_without_faults_have_no_row() {
        let mut access = Access::default();
        for (moment, page) in [(0, 5), (0, 6), (1, 9_000_000), (3, 700)] {
            access.add(moment, page);
        }
        let map = access.map(10, 2, |moment| moment as usize / 2);
        assert_eq!(map.rows, [0, 1, 9_000_000 / BLOCK_PAGES]);
        assert_eq!(map.faults, [[2, 0], [0, 1], [1, 0]]);
        assert_eq!(access.map(2, 1, |_| 0).faults, [[3], [1]]);
    }

    #[test]
    fn very_many_cells_are_counted_together() {
        let mut access = Access::default();
        let (moments, blocks) = (1200, 1000);
        (0..moments * blocks).for_each(|at| access.add(at / blocks, at % blocks * BLOCK_PAGES));
        assert!(access.cells.len() <= CELLS_MAX && access.shift > 0);
        let map = access.map(10, 4, |moment| moment as usize / 300);
        assert_eq!(map.faults.iter().flatten().sum::<u64>(), u64::from(moments * blocks));
    }
}
