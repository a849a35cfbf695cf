//! A pool of frame positions: which of them hold a physical page, and which of those are in use.
//!
//! A position stands for one page of virtual memory. It is a *hole* (no physical page there), *free* (a physical
//! page not in use) or *held* (a physical page in use, or a position that is about to be filled).
//! Positions come in chunks of 64, one word per bitmap. Runs are handed out next-fit and never cross a
//! chunk: the engine acts on a run with one system call, so long runs from fresh chunks are worth more
//! than filling gaps, and gaps close while the cursor is elsewhere.
//!
//! A new pool is all holes and untouched zero memory. Sets over the chunks make every search short.

use crate::bits::{Set, WORD, longest_run, masks};
use alloc::vec;
use alloc::vec::Vec;

/// Positions in one chunk: one word of a bitmap.
const CHUNK: u32 = WORD;

/// Consecutive positions of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameRun {
    /// The lowest position.
    pub first: u32,
    /// How many positions.
    pub count: u32,
}

impl FrameRun {
    /// The run without its first positions.
    pub const fn after(self, count: u32) -> Self {
        Self { first: self.first + count, count: self.count - count }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Hole,
    Free,
    Held,
}

/// The chunks that have positions in one state.
#[derive(Debug)]
struct Chunks {
    some: Set,
    all: Set,
}

impl Chunks {
    /// Sorts `chunk` in, whose positions in the state are `bits`.
    fn note(&mut self, chunk: u32, bits: u64) {
        match bits {
            0 => self.some.remove(chunk),
            _ => self.some.insert(chunk),
        }
        match bits {
            u64::MAX => self.all.insert(chunk),
            _ => self.all.remove(chunk),
        }
    }
}

/// Where the next search of each kind continues: the position after the last run.
#[derive(Default, Debug)]
struct Cursors {
    take_free: u32,
    take_holes: u32,
}

/// The state of every position of a pool.
#[derive(Debug)]
pub struct Pool {
    /// Bitmaps, one word per chunk; a position in neither is a hole.
    free: Vec<u64>,
    held: Vec<u64>,
    chunks_free: Chunks,
    chunks_hole: Chunks,
    /// Number of positions in each state.
    counts: [u32; 3],
    cursors: Cursors,
}

impl Pool {
    /// A pool of holes; `positions` is rounded down to whole chunks of 64.
    pub fn new(positions: u32) -> Self {
        let chunks = positions / CHUNK;
        Self {
            free: vec![0; chunks as usize],
            held: vec![0; chunks as usize],
            chunks_free: Chunks { some: Set::empty(chunks), all: Set::empty(chunks) },
            chunks_hole: Chunks { some: Set::full(chunks), all: Set::full(chunks) },
            counts: [chunks * CHUNK, 0, 0],
            cursors: Cursors::default(),
        }
    }

    /// Number of positions in any state.
    pub fn positions(&self) -> u32 {
        self.free.len() as u32 * CHUNK
    }

    /// Number of physical pages not in use.
    pub fn free(&self) -> u32 {
        self.counts[State::Free as usize]
    }

    /// Number of positions in use.
    pub fn held(&self) -> u32 {
        self.counts[State::Held as usize]
    }

    /// Number of positions that are not holes: what counts against a budget.
    pub fn present(&self) -> u32 {
        self.free() + self.held()
    }

    /// Whether a position holds a physical page, or is about to.
    pub fn is_present(&self, position: u32) -> bool {
        let (chunk, bit) = ((position / CHUNK) as usize, position % CHUNK);
        (self.free[chunk] | self.held[chunk]) >> bit & 1 != 0
    }

    /// Makes up to `max` consecutive free positions held; `None` if none is free or `max` is 0.
    ///
    /// Requests for a whole chunk prefer chunks that are wholly free.
    pub fn take_free(&mut self, max: u32) -> Option<FrameRun> {
        let run = self.find(State::Free, self.cursors.take_free, max)?;
        self.cursors.take_free = run.first + run.count;
        self.change(run, State::Free, State::Held);
        Some(run)
    }

    /// Makes up to `max` consecutive holes held; `None` if there is no hole or `max` is 0.
    ///
    /// Once the current chunk is used up, untouched chunks are preferred.
    pub fn take_holes(&mut self, max: u32) -> Option<FrameRun> {
        let run = self.find(State::Hole, self.cursors.take_holes, max)?;
        self.cursors.take_holes = run.first + run.count;
        self.change(run, State::Hole, State::Held);
        Some(run)
    }

    /// Makes held positions free: their physical pages stay.
    ///
    /// # Panics
    /// When one of them is not held.
    pub fn put_free(&mut self, run: FrameRun) {
        self.change(run, State::Held, State::Free);
    }

    /// Makes held positions holes: their physical pages are gone or elsewhere.
    ///
    /// # Panics
    /// When one of them is not held.
    pub fn put_hole(&mut self, run: FrameRun) {
        self.change(run, State::Held, State::Hole);
    }

    /// Up to `max` consecutive positions in `state`: from `cursor` on in its chunk, else in another one.
    fn find(&self, state: State, cursor: u32, max: u32) -> Option<FrameRun> {
        let chunks = match state {
            State::Free => &self.chunks_free,
            State::Hole => &self.chunks_hole,
            State::Held => unreachable!("held positions are not searched"),
        };
        let next_chunk = cursor.div_ceil(CHUNK);
        let find_in = |first: u32, end: u32| {
            let run = longest_run(|chunk| self.bits(state, chunk), first..end, max)?;
            Some(FrameRun { first: run.start, count: run.end - run.start })
        };
        if let Some(run) = find_in(cursor, next_chunk * CHUNK) {
            return Some(self.extended(run, state, max));
        }
        // All holes are equally good to fill, so the one that starts the longest run is best.
        let prefers_whole = state == State::Hole || max >= CHUNK;
        let whole = if prefers_whole { chunks.all.next_cyclic(next_chunk) } else { None };
        let chunk = whole.or_else(|| chunks.some.next_cyclic(next_chunk))?;
        let run = find_in(chunk * CHUNK, (chunk + 1) * CHUNK)?;
        Some(self.extended(run, state, max))
    }

    /// `run`, continued into the following chunks as far as they begin in the same state.
    fn extended(&self, mut run: FrameRun, state: State, max: u32) -> FrameRun {
        loop {
            let end = run.first + run.count;
            let chunk = (end / CHUNK) as usize;
            if run.count == max || !end.is_multiple_of(CHUNK) || chunk == self.free.len() {
                return run;
            }
            let more = self.bits(state, chunk).trailing_ones().min(max - run.count);
            if more == 0 {
                return run;
            }
            run.count += more;
        }
    }

    /// Changes the state of every position in `run`.
    fn change(&mut self, run: FrameRun, from: State, to: State) {
        let positions = self.positions();
        let end = run.first.checked_add(run.count);
        assert!(end.is_some_and(|end| end <= positions), "{run:?} of {positions} positions");
        for (chunk, mask) in masks(run.first, run.count) {
            let wrong = mask & !self.bits(from, chunk);
            assert!(
                wrong == 0,
                "frame position {} is not {from:?} and cannot become {to:?}",
                chunk as u32 * CHUNK + wrong.trailing_zeros()
            );
            self.free[chunk] &= !mask;
            self.held[chunk] &= !mask;
            match to {
                State::Hole => {}
                State::Free => self.free[chunk] |= mask,
                State::Held => self.held[chunk] |= mask,
            }
            self.chunks_free.note(chunk as u32, self.bits(State::Free, chunk));
            self.chunks_hole.note(chunk as u32, self.bits(State::Hole, chunk));
        }
        self.counts[from as usize] -= run.count;
        self.counts[to as usize] += run.count;
    }

    /// The positions of `chunk` that are in `state`.
    fn bits(&self, state: State, chunk: usize) -> u64 {
        match state {
            State::Hole => !(self.free[chunk] | self.held[chunk]),
            State::Free => self.free[chunk],
            State::Held => self.held[chunk],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(first: u32, count: u32) -> FrameRun {
        FrameRun { first, count }
    }

    /// A pool whose positions are all free.
    fn free_pool(positions: u32) -> Pool {
        let mut pool = Pool::new(positions);
        while pool.take_holes(CHUNK).is_some() {}
        pool.put_free(run(0, pool.positions()));
        pool
    }

    #[test]
    fn positions_are_rounded_down_to_chunks() {
        assert_eq!(Pool::new(63).positions(), 0);
        assert_eq!(Pool::new(130).positions(), 128);
        assert_eq!(Pool::new(63).take_holes(1), None);
    }

    #[test]
    fn a_huge_pool_costs_nothing_until_touched() {
        let mut pool = Pool::new(u32::MAX);
        assert_eq!(pool.take_free(64), None);
        let taken = pool.take_holes(64).expect("a new pool is all holes");
        assert_eq!(taken, run(0, 64));
        assert_eq!((pool.held(), pool.present(), pool.free()), (64, 64, 0));
    }

    #[test]
    fn runs_follow_each_other_and_into_the_next_chunks() {
        let mut pool = Pool::new(320);
        assert_eq!(pool.take_holes(40), Some(run(0, 40)));
        assert_eq!(pool.take_holes(40), Some(run(40, 40)));
        assert_eq!(pool.take_holes(200), Some(run(80, 200)));
        assert_eq!(pool.take_holes(200), Some(run(280, 40)));
        assert_eq!(pool.take_holes(0), None);
    }

    #[test]
    fn a_run_ends_where_the_next_chunk_does_not_begin_in_its_state() {
        let mut pool = free_pool(192);
        pool.take_free(70);
        pool.put_free(run(0, 64));
        pool.cursors.take_free = 0;
        assert_eq!(pool.take_free(192), Some(run(0, 64)));
    }

    #[test]
    fn a_freed_gap_before_the_cursor_is_found_after_a_round() {
        let mut pool = free_pool(128);
        for _ in 0..3 {
            pool.take_free(32);
        }
        pool.put_free(run(10, 2));
        assert_eq!(pool.take_free(32), Some(run(96, 32)));
        assert_eq!(pool.take_free(32), Some(run(10, 2)));
        assert_eq!(pool.take_free(32), None);
    }

    #[test]
    fn a_request_for_a_chunk_prefers_a_wholly_free_one() {
        let mut pool = free_pool(256);
        assert_eq!(pool.take_free(64), Some(run(0, 64)));
        assert_eq!(pool.take_free(64), Some(run(64, 64)));
        pool.put_free(run(70, 50));
        pool.cursors.take_free = 64;
        assert_eq!(pool.take_free(64), Some(run(128, 64)));
        pool.cursors.take_free = 64;
        assert_eq!(pool.take_free(4), Some(run(70, 4)));
    }

    #[test]
    fn holes_prefer_an_untouched_chunk() {
        let mut pool = Pool::new(192);
        assert_eq!(pool.take_holes(64), Some(run(0, 64)));
        assert_eq!(pool.take_holes(64), Some(run(64, 64)));
        pool.put_hole(run(10, 20));
        pool.cursors.take_holes = 0;
        assert_eq!(pool.take_holes(1), Some(run(128, 1)));
    }

    #[test]
    fn a_run_may_be_put_across_chunks() {
        let mut pool = Pool::new(192);
        while pool.take_holes(64).is_some() {}
        pool.put_free(run(60, 70));
        assert_eq!((pool.free(), pool.held(), pool.present()), (70, 122, 192));
        assert_eq!(pool.take_free(64), Some(run(64, 64)));
        pool.put_hole(run(64, 64));
        assert_eq!((pool.free(), pool.held(), pool.present()), (6, 122, 128));
    }

    #[test]
    #[should_panic(expected = "frame position 5 is not Held and cannot become Free")]
    fn freeing_twice_is_refused() {
        let mut pool = Pool::new(64);
        pool.take_holes(64);
        pool.put_free(run(5, 1));
        pool.put_free(run(0, 64));
    }

    #[test]
    #[should_panic(expected = "of 64 positions")]
    fn a_run_beyond_the_pool_is_refused() {
        Pool::new(64).put_free(run(u32::MAX, 2));
    }

    const POSITIONS: u32 = 5 * CHUNK;

    /// The longest run of held positions at the first one from `from` on, at most `max`.
    fn held_run(model: &[State], from: u32, max: u32) -> Option<FrameRun> {
        let first = (from..POSITIONS).find(|at| model[*at as usize] == State::Held)?;
        let count = model[first as usize..].iter().take_while(|state| **state == State::Held);
        Some(run(first, (count.count() as u32).min(max)))
    }

    fn change(model: &mut [State], run: FrameRun, from: State, to: State) {
        for state in &mut model[run.first as usize..][..run.count as usize] {
            assert_eq!(*state, from);
            *state = to;
        }
    }

    fn take(pool: &mut Pool, model: &mut [State], max: u32, from: State) {
        let taken = match from {
            State::Free => pool.take_free(max),
            _ => pool.take_holes(max),
        };
        match taken {
            Some(run) => {
                assert!((1..=max).contains(&run.count));
                change(model, run, from, State::Held);
            }
            None => assert!(max == 0 || !model.contains(&from)),
        }
    }

    fn put(pool: &mut Pool, model: &mut [State], held: Option<FrameRun>, to: State) {
        let Some(run) = held else { return };
        match to {
            State::Free => pool.put_free(run),
            _ => pool.put_hole(run),
        }
        change(model, run, State::Held, to);
    }

    fn check(pool: &Pool, model: &[State]) {
        let count = |state| model.iter().filter(|other| **other == state).count() as u32;
        assert_eq!(pool.free(), count(State::Free));
        assert_eq!(pool.held(), count(State::Held));
        assert_eq!(pool.present(), count(State::Free) + count(State::Held));
        for (chunk, states) in model.chunks(CHUNK as usize).enumerate() {
            for state in [State::Hole, State::Free, State::Held] {
                let bit = |at: usize| u64::from(states[at] == state) << at;
                assert_eq!(pool.bits(state, chunk), (0..states.len()).map(bit).sum::<u64>());
            }
            for (chunks, state) in
                [(&pool.chunks_free, State::Free), (&pool.chunks_hole, State::Hole)]
            {
                assert_eq!(chunks.some.contains(chunk as u32), states.contains(&state));
                let all = states.iter().all(|other| *other == state);
                assert_eq!(chunks.all.contains(chunk as u32), all);
            }
        }
    }

    proptest! {
        #[test]
        fn a_pool_equals_an_array_of_states(
            operations in prop::collection::vec((0..4, 0..POSITIONS, 0..100u32), 1..200),
        ) {
            let mut pool = Pool::new(POSITIONS);
            let mut model = vec![State::Hole; POSITIONS as usize];
            for (operation, from, max) in operations {
                let held = held_run(&model, from, max);
                match operation {
                    0 => take(&mut pool, &mut model, max, State::Hole),
                    1 => take(&mut pool, &mut model, max, State::Free),
                    2 => put(&mut pool, &mut model, held, State::Free),
                    _ => put(&mut pool, &mut model, held, State::Hole),
                }
                check(&pool, &model);
            }
        }
    }
}
