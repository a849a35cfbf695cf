//! Frames held for a few pages, in the order of those pages.
use userswap_policy::frames::FrameRun;

/// Runs that one [`FrameSet`] can hold.
pub const RUNS_MAX: usize = 16;

/// Held frames in a few runs, in the order of the pages they are for.
#[derive(Clone, Copy, Debug)]
pub struct FrameSet {
    runs: [FrameRun; RUNS_MAX],
    count: usize,
}

impl FrameSet {
    pub fn new() -> Self {
        Self { runs: [FrameRun { first: 0, count: 0 }; RUNS_MAX], count: 0 }
    }

    /// With one run.
    pub fn of(run: FrameRun) -> Self {
        let mut set = Self::new();
        set.push(run);
        set
    }

    /// Adds a run after the others; false when there is no room.
    pub fn push(&mut self, run: FrameRun) -> bool {
        if self.count == RUNS_MAX {
            return false;
        }
        self.runs[self.count] = run;
        self.count += 1;
        true
    }

    /// The runs, in the order of the pages they are for.
    pub fn runs(&self) -> &[FrameRun] {
        &self.runs[..self.count]
    }

    /// Number of frames in all runs.
    pub fn pages(&self) -> u32 {
        self.runs().iter().map(|run| run.count).sum()
    }

    /// The run from the frame with this index on, counted over all runs, at most `most` long.
    ///
    /// # Panics
    /// The set has no such frame.
    pub fn run_at(&self, mut index: u32, most: u32) -> FrameRun {
        for run in self.runs() {
            if index < run.count {
                return FrameRun { first: run.first + index, count: (run.count - index).min(most) };
            }
            index -= run.count;
        }
        unreachable!("the index is within the set")
    }

    /// Keeps the first `pages` frames and returns the others.
    pub fn split_off(&mut self, pages: u32) -> FrameSet {
        let (all, total) = (*self, self.pages());
        let (mut kept, mut rest) = (FrameSet::new(), FrameSet::new());
        let mut index = 0;
        while index < total {
            let bound = if index < pages { pages } else { total };
            let run = all.run_at(index, bound - index);
            let fits = if index < pages { kept.push(run) } else { rest.push(run) };
            assert!(fits, "a split has at most one run more, on the other side");
            index += run.count;
        }
        *self = kept;
        rest
    }
}

impl Default for FrameSet {
    fn default() -> Self {
        Self::new()
    }
}
