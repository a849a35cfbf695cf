//! Where in memory faults were, and when: counts for each moment and block of 2 MiB.
use std::collections::{BTreeMap, BTreeSet};

/// Pages of a block.
pub const BLOCK_PAGES: u32 = 512;

/// Cells at most: after that moments, or blocks, that follow each other are counted together by twos, fours and so on.
const CELLS_MAX: usize = 1 << 19;

/// Moments are joined as long as there are more than this: a picture shows no more.
const COLUMNS_MIN: u64 = 512;

/// Faults by block and moment.
#[derive(Debug, Default)]
pub struct Access {
    cells: BTreeMap<(u64, u32), u64>,
    /// Milliseconds of a cell, as a power of two.
    shift: u32,
    /// Blocks of a cell, as a power of two.
    block_shift: u32,
}

/// Faults, in rows of blocks and columns of moments.
#[derive(Debug, PartialEq, Eq)]
pub struct Map {
    /// The first block of each row, lowest first. Blocks without a fault are in none.
    pub rows: Vec<u32>,
    /// For each row the faults of each column.
    pub faults: Vec<Vec<u64>>,
    /// Blocks that were counted together.
    pub joined: u64,
}

impl Access {
    /// A fault on a page, so many milliseconds after the record began.
    pub fn add(&mut self, at_ms: u64, page: u32) {
        let block = (page / BLOCK_PAGES) >> self.block_shift;
        *self.cells.entry((at_ms >> self.shift, block)).or_default() += 1;
        while self.cells.len() > CELLS_MAX {
            self.join();
        }
    }

    /// Halves the moments, or the blocks where there are few moments.
    fn join(&mut self) {
        let last = self.cells.last_key_value().map_or(0, |((moment, _), _)| *moment);
        let (moments, blocks) = if last >= COLUMNS_MIN { (1, 0) } else { (0, 1) };
        self.shift += moments;
        self.block_shift += blocks;
        for ((moment, block), faults) in std::mem::take(&mut self.cells) {
            *self.cells.entry((moment >> moments, block >> blocks)).or_default() += faults;
        }
    }

    /// At most so many rows and columns; the column of a time in milliseconds is what `column_of` says.
    pub fn map(&self, rows_max: usize, columns: usize, column_of: impl Fn(u64) -> usize) -> Map {
        let blocks: BTreeSet<u32> = self.cells.keys().map(|(_, block)| *block).collect();
        let blocks: Vec<u32> = blocks.into_iter().collect();
        let of_row = blocks.len().div_ceil(rows_max).max(1);
        let rows = blocks.iter().step_by(of_row).map(|block| block << self.block_shift);
        let rows: Vec<u32> = rows.collect();
        let mut faults = vec![vec![0; columns]; rows.len()];
        for ((moment, block), count) in &self.cells {
            let index = blocks.binary_search(block).expect("every block is among them");
            let column = column_of(moment << self.shift).min(columns - 1);
            faults[index / of_row][column] += count;
        }
        Map { rows, faults, joined: 1 << self.block_shift }
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
        for at in 0..moments * blocks {
            access.add(u64::from(at / blocks), at % blocks * BLOCK_PAGES);
        }
        assert!(access.cells.len() <= CELLS_MAX && access.shift > 0 && access.block_shift == 0);
        let map = access.map(10, 4, |moment| moment as usize / 300);
        assert_eq!(map.faults.iter().flatten().sum::<u64>(), u64::from(moments * blocks));
    }

    #[test]
    fn very_many_blocks_of_few_moments_are_counted_together() {
        const BLOCKS: u32 = 600_000;
        let mut access = Access::default();
        (0..BLOCKS).for_each(|block| access.add(0, block * BLOCK_PAGES));
        assert_eq!((access.shift, access.block_shift), (0, 1));
        // Late, and at the end of memory: times are joined as well, and both stay what they are.
        let late = 1 << 14;
        for block in 0..BLOCKS {
            access.add(late, u32::MAX - block * BLOCK_PAGES);
        }
        assert!(access.cells.len() <= CELLS_MAX, "{}", access.cells.len());
        let map = access.map(72, 2, |at_ms| (at_ms > late / 2).into());
        let column = |column: usize| map.faults.iter().map(|row| row[column]).sum::<u64>();
        assert_eq!([column(0), column(1)], [u64::from(BLOCKS); 2]);
        assert!(map.rows.is_sorted() && map.joined >= 2, "{:?}", map.rows);
    }
}
