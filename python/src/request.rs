//! Carrying out a request for an array: in parts, without the GIL, with a look at signals after each.
use crate::pool::Pool;
use crate::refusal::{raised, value};
use crate::view::{Join, Layout, Runs};
use pyo3::prelude::*;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use userswap::internals::pages;
use userswap::internals::signal::Blocked;
use userswap::internals::{PAGE_BYTES, PageRange};
use userswap::{Advice, Error};

/// Bytes between two looks at signals: 10 ms of a fast disk, a tenth of a second of a slow one.
const PART_BYTES: usize = 16 << 20;

/// Runs between two looks at signals, where they are short: about a millisecond.
const PART_RUNS: usize = 1024;

/// Pieces of the runs of an array, as addresses. None is longer than a part, and no piece ends inside a page which the
/// next one continues: each page is of one piece only.
struct Pieces {
    runs: Runs,
    rest: Range<usize>,
}

impl Iterator for Pieces {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        if self.rest.is_empty() {
            self.rest = self.runs.next()?;
        }
        let end = (self.rest.start + PART_BYTES) / PAGE_BYTES * PAGE_BYTES;
        let piece = self.rest.start..end.min(self.rest.end);
        self.rest.start = piece.end;
        Some(piece)
    }
}

/// An array that lies in a pool's memory.
pub struct Target {
    pool: Arc<Pool>,
    layout: Layout,
}

impl Target {
    /// For an array that has bytes; None for one without.
    ///
    /// # Errors
    /// The array is not of this pool.
    pub fn find(pool: Arc<Pool>, layout: Layout) -> PyResult<Option<Self>> {
        let Some(extent) = layout.extent() else { return Ok(None) };
        let arena = &pool.engine.core().arena;
        if !arena.contains(extent.start) || !arena.contains(extent.end - 1) {
            return Err(value(format!(
                "the array of {} bytes at {:#x} is not of this pool: use one that it has made, or numpy within its numpy()",
                extent.len(),
                extent.start
            )));
        }
        Ok(Some(Self { pool, layout }))
    }

    /// Swaps in what there is room for; tells `progress` bytes that are done.
    ///
    /// # Errors
    /// What a signal handler raised.
    pub fn prefetch(&self, py: Python<'_>, progress: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        self.each_piece(py, Join::Pages, progress, |piece| self.advise(&piece, Advice::Prefetch))
    }

    /// Swaps out the pages that are the array's alone; returns their bytes.
    ///
    /// # Errors
    /// What a signal handler raised.
    pub fn page_out(&self, py: Python<'_>) -> PyResult<usize> {
        let mut bytes = 0;
        self.each_piece(py, Join::Bytes, None, |piece| {
            let whole = whole_pages(&piece);
            bytes += whole.len();
            self.advise(&whole, Advice::PageOut)
        })?;
        Ok(bytes)
    }

    /// Makes every byte zero, without reading or writing back the pages that are the array's alone.
    ///
    /// # Errors
    /// What a signal handler raised.
    pub fn discard(&self, py: Python<'_>) -> PyResult<()> {
        self.each_piece(py, Join::Bytes, None, |piece| {
            let whole = whole_pages(&piece);
            pages::clear(piece.start, whole.start - piece.start);
            self.forget(&whole);
            pages::clear(whole.end, piece.end - whole.end);
            Ok(())
        })
    }

    /// Swaps in and keeps in RAM; with nothing pinned after an error.
    ///
    /// # Errors
    /// Too much is pinned, or what a signal handler raised.
    pub fn pin(&self, py: Python<'_>) -> PyResult<()> {
        self.pool.recent.turn_off(&self.pool.heap);
        let (mut done, mut pages_done) = (0, 0);
        let outcome = self.each_piece(py, Join::Pages, None, |piece| {
            self.advise(&piece, Advice::Pin).map_err(|error| match error {
                Error::PinTooLarge(_, room) => Error::PinTooLarge(self.pages(), room + pages_done),
                error => error,
            })?;
            self.pool.pins.note(&self.pool.heap, &piece);
            done += 1;
            pages_done += pages_of(&piece);
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
        let pins = &self.pool.pins;
        let pieces = self.pieces(Join::Pages).take(pieces);
        for piece in pieces.filter(|piece| pins.forget(&self.pool.heap, piece)) {
            self.advise(&piece, Advice::Unpin).expect("the array keeps its memory");
        }
    }

    fn advise(&self, bytes: &Range<usize>, advice: Advice) -> Result<(), Error> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.pool.engine.advise(bytes.start, bytes.len(), advice)
    }

    fn forget(&self, whole: &Range<usize>) {
        if whole.is_empty() {
            return;
        }
        let core = self.pool.engine.core();
        let first = core.arena.page_of(whole.start);
        let _blocked = Blocked::new();
        core.drop_range(PageRange { first, count: (whole.len() / PAGE_BYTES) as u32 });
    }

    fn pages(&self) -> u32 {
        self.pieces(Join::Pages).map(|piece| pages_of(&piece)).sum()
    }

    fn pieces(&self, join: Join) -> Pieces {
        Pieces { runs: self.layout.runs(join), rest: 0..0 }
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

/// The pages that lie within these bytes as a whole; empty, within the bytes, where there are none.
fn whole_pages(bytes: &Range<usize>) -> Range<usize> {
    let start = bytes.start.next_multiple_of(PAGE_BYTES).min(bytes.end);
    start..(bytes.end / PAGE_BYTES * PAGE_BYTES).max(start)
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
