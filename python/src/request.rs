//! Carrying out a request for an array: in parts, without the GIL, with a look at signals after each.
use crate::pool::{Block, Pool};
use crate::refusal::{raised, value};
use crate::view::{Join, Layout, PAGE_BYTES, Runs};
use pyo3::prelude::*;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use userswap::Error;

/// Bytes between two looks at signals: 10 ms of a fast disk, a tenth of a second of a slow one.
const PART_BYTES: usize = 16 << 20;

/// Runs between two looks at signals, where they are short: about a millisecond.
const PART_RUNS: usize = 1024;

/// Pieces of the runs of an array, as bytes of its block. None is longer than a part, and no piece ends inside a page which the
/// next one continues: each page is of one piece only.
struct Pieces {
    base: usize,
    runs: Runs,
    rest: Range<usize>,
}

impl Iterator for Pieces {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        if self.rest.is_empty() {
            let run = self.runs.next()?;
            self.rest = run.start - self.base..run.end - self.base;
        }
        let end = (self.rest.start + PART_BYTES) / PAGE_BYTES * PAGE_BYTES;
        let piece = self.rest.start..end.min(self.rest.end);
        self.rest.start = piece.end;
        Some(piece)
    }
}

/// An array that a pool's memory holds.
pub struct Target {
    pool: Arc<Pool>,
    block: Arc<Block>,
    layout: Layout,
}

impl Target {
    /// Finds an array's block; None for an array without bytes.
    ///
    /// # Errors
    /// The array is not of this pool.
    pub fn find(pool: Arc<Pool>, layout: Layout) -> PyResult<Option<Self>> {
        let Some(extent) = layout.extent() else { return Ok(None) };
        let Some(block) = pool.block_of(&layout) else {
            return Err(value(format!(
                "the array of {} bytes at {:#x} is not managed by this pool: use one that pool.empty() and its relatives \
                 made, or numpy within pool.numpy() with at least 128 KiB",
                extent.len(),
                extent.start
            )));
        };
        Ok(Some(Self { pool, block, layout }))
    }

    /// Swaps in what there is room for; tells `progress` bytes that are done.
    ///
    /// # Errors
    /// What a signal handler raised.
    pub fn prefetch(&self, py: Python<'_>, progress: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        self.each_piece(py, Join::Pages, progress, |piece| self.block.region().prefetch(piece))
    }

    /// Swaps out the pages that are the array's alone; returns their bytes.
    ///
    /// # Errors
    /// What a signal handler raised.
    pub fn page_out(&self, py: Python<'_>) -> PyResult<usize> {
        let mut bytes = 0;
        self.each_piece(py, Join::Bytes, None, |piece| {
            let whole = self.block.whole_pages(piece);
            bytes += whole.len();
            self.block.region().page_out(whole)
        })?;
        Ok(bytes)
    }

    /// Makes every byte zero, without reading or writing back the pages that are the array's alone.
    ///
    /// # Errors
    /// What a signal handler raised.
    pub fn discard(&self, py: Python<'_>) -> PyResult<()> {
        self.each_piece(py, Join::Bytes, None, |piece| {
            self.pool.discard(&self.block, piece);
            Ok(())
        })
    }

    /// Swaps in and keeps in RAM; with nothing pinned after an error.
    ///
    /// # Errors
    /// Too much is pinned, or what a signal handler raised.
    pub fn pin(&self, py: Python<'_>) -> PyResult<()> {
        let (mut done, mut pages_done) = (0, 0);
        let outcome = self.each_piece(py, Join::Pages, None, |piece| {
            let pages = pages_of(&piece);
            self.block.region().pin(piece).map_err(|error| match error {
                Error::PinTooLarge(_, room) => Error::PinTooLarge(self.pages(), room + pages_done),
                error => error,
            })?;
            done += 1;
            pages_done += pages;
            Ok(())
        });
        if outcome.is_err() {
            self.unpin_first(done);
        }
        outcome
    }

    /// Undoes one pin of the same array.
    pub fn unpin(&self, py: Python<'_>) {
        py.detach(|| self.unpin_first(usize::MAX));
    }

    fn unpin_first(&self, pieces: usize) {
        for piece in self.pieces(Join::Pages).take(pieces) {
            self.block.region().unpin(piece).expect("a piece lies in its block");
        }
    }

    fn pages(&self) -> u32 {
        self.pieces(Join::Pages).map(|piece| pages_of(&piece)).sum()
    }

    fn pieces(&self, join: Join) -> Pieces {
        Pieces { base: self.block.address, runs: self.layout.runs(join), rest: 0..0 }
    }

    fn each_piece(
        &self,
        py: Python<'_>,
        join: Join,
        progress: Option<&Bound<'_, PyAny>>,
        mut act: impl FnMut(Range<usize>) -> Result<(), Error> + Send,
    ) -> PyResult<()> {
        let mut pieces = self.pieces(join);
        loop {
            let part = py.detach(|| one_part(&mut pieces, &mut act)).map_err(raised)?;
            let (ControlFlow::Break(bytes) | ControlFlow::Continue(bytes)) = part;
            if let Some(progress) = progress {
                progress.call1((bytes,))?;
            }
            py.check_signals()?;
            if part.is_break() {
                return Ok(());
            }
        }
    }
}

fn pages_of(piece: &Range<usize>) -> u32 {
    (piece.end.div_ceil(PAGE_BYTES) - piece.start / PAGE_BYTES) as u32
}

/// Acts on pieces until there are bytes or runs enough to look at signals, or no more; says how many bytes it were.
fn one_part(
    pieces: &mut Pieces,
    act: &mut impl FnMut(Range<usize>) -> Result<(), Error>,
) -> Result<ControlFlow<usize, usize>, Error> {
    let mut bytes = 0;
    for piece in pieces.by_ref().take(PART_RUNS) {
        bytes += piece.len();
        act(piece)?;
        if bytes >= PART_BYTES {
            return Ok(ControlFlow::Continue(bytes));
        }
    }
    let is_over = pieces.rest.is_empty() && pieces.runs.is_over();
    Ok(if is_over { ControlFlow::Break(bytes) } else { ControlFlow::Continue(bytes) })
}
