//! Whether it pays to keep idle CPUs from halting while faults are dense, found out by trying.
//!
//! Each fault wakes a CPU or two, and in a guest whose CPUs halt at once that can take longer than all that they do. How much it
//! takes nobody says, so the faults of a stretch with CPUs kept awake are held against those of the stretches before and after
//! it, without, or the other way round. They lie next to each other, as a program does one thing now and another a second later;
//! and only the end of each counts: threads that have come to wake each other fast go on so for a while (50 ms were seen).
//! Several such pairs decide, and from then on one looks every now and then whether that still holds.

use core::mem;

/// What is wished of CPUs that have nothing to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Idle {
    /// They wait for work awake.
    Awake,
    /// As the machine is set up.
    #[default]
    AsSetUp,
}

impl Idle {
    const fn other(self) -> Self {
        match self {
            Self::Awake => Self::AsSetUp,
            Self::AsSetUp => Self::Awake,
        }
    }
}

/// A machine with more CPUs than this would keep too many awake for the faults of one program.
pub const CPUS_MAX: u32 = 8;

/// A window, in nanoseconds: two ticks of most kernels, with a hundred faults and more where they are dense.
pub const WINDOW_NS: u64 = 8_000_000;

/// Fewer faults than this in a window are not dense any more.
const FAULTS_MIN: u64 = 16;

/// Windows of a stretch.
const STRETCH: u32 = 8;

/// Of those, the last ones, whose faults count.
const COUNTED: u32 = 2;

/// Pairs that decide, the last ones.
const PAIRS: usize = 3;

/// Stretches between two pairs, once that many are known: a trial costs power, or it costs faults, which is worse.
const fn rest(preferred: Idle) -> u32 {
    match preferred {
        Idle::AsSetUp => 8,
        Idle::Awake => 32,
    }
}

/// CPUs are kept awake where that makes so many faults of a hundred, or more.
const GAIN: u64 = 125;

/// And no longer where it makes fewer than this.
const LOSS: u64 = 112;

/// What needs no second look.
const GAIN_FOR_SURE: u64 = 150;

/// The stretch that is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Nothing is tried for so many stretches.
    Rest(u32),
    /// The one before the trial.
    Before,
    /// The trial, with how many faults there were before.
    Trial(u64),
    /// The one after it, with how many there were before and in it.
    After(u64, u64),
}

/// What has been found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trials {
    preferred: Idle,
    stage: Stage,
    /// Windows of the stretch so far, and the faults that count.
    windows: u32,
    faults: u64,
    /// Faults of the last stretch of a rest.
    rested: u64,
    /// Of the last pairs, the last one first: what a hundred faults become with CPUs kept awake.
    gains: [u64; PAIRS],
    known: usize,
}

impl Default for Trials {
    fn default() -> Self {
        Self {
            preferred: Idle::default(),
            stage: Stage::Before,
            windows: 0,
            faults: 0,
            rested: 0,
            gains: [0; PAIRS],
            known: 0,
        }
    }
}

impl Trials {
    /// What is wished during the window that comes now.
    pub fn wish(&self) -> Idle {
        match self.stage {
            Stage::Trial(_) => self.preferred.other(),
            _ => self.preferred,
        }
    }

    /// A window is over, in which there were so many faults; false when they are not dense any more. What was found stays known.
    pub fn on_window(&mut self, faults: u64) -> bool {
        if faults < FAULTS_MIN {
            (self.stage, self.windows, self.faults) = (Stage::Before, 0, 0);
            return false;
        }
        self.windows += 1;
        if self.windows > STRETCH - COUNTED {
            self.faults += faults;
        }
        if self.windows == STRETCH {
            let faults = mem::take(&mut self.faults);
            self.windows = 0;
            self.on_stretch(faults);
        }
        true
    }

    /// A stretch is over, with so many faults that count.
    fn on_stretch(&mut self, faults: u64) {
        self.stage = match self.stage {
            Stage::Rest(left) => {
                // Far fewer than before: the program does something else by now.
                let is_other = faults * 3 < mem::replace(&mut self.rested, faults) * 2;
                match left > 1 && !(is_other && self.preferred == Idle::AsSetUp) {
                    true => Stage::Rest(left - 1),
                    false => Stage::Before,
                }
            }
            Stage::Before => Stage::Trial(faults),
            Stage::Trial(before) => Stage::After(before, faults),
            Stage::After(before, tried) => {
                let preferred = self.preferred;
                self.on_pair(tried * 2, before + faults);
                match (self.known < PAIRS, self.preferred == preferred) {
                    // The stretch after one is that before the next.
                    (true, true) => Stage::Trial(faults),
                    (true, false) => Stage::Before,
                    (false, _) => {
                        self.rested = 0;
                        Stage::Rest(rest(self.preferred))
                    }
                }
            }
        };
    }

    fn on_pair(&mut self, tried: u64, usual: u64) {
        let (awake, as_set_up) = match self.preferred {
            Idle::Awake => (usual, tried),
            Idle::AsSetUp => (tried, usual),
        };
        self.gains.rotate_right(1);
        self.gains[0] = awake * 100 / as_set_up.max(1);
        self.known = (self.known + 1).min(PAIRS);
        let mut sorted = self.gains;
        sorted.sort_unstable();
        let median = sorted[PAIRS / 2];
        if self.gains[0] >= GAIN_FOR_SURE || self.known == PAIRS && median >= GAIN {
            self.preferred = Idle::Awake;
        } else if self.known == PAIRS && median < LOSS {
            self.preferred = Idle::AsSetUp;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The windows, of so many, in which CPUs were kept awake, where the faults of a window are as `faults` says.
    fn awake(trials: &mut Trials, windows: u64, faults: impl Fn(u64, Idle) -> u64) -> u64 {
        let mut awake = 0;
        for window in 0..windows {
            let wish = trials.wish();
            awake += u64::from(wish == Idle::Awake);
            assert!(trials.on_window(faults(window, wish)), "they are dense");
        }
        awake
    }

    /// With CPUs kept awake there are so many tenths of the faults.
    fn gaining(tenths: u64) -> impl Fn(u64, Idle) -> u64 {
        move |_, wish| if wish == Idle::Awake { 20 * tenths } else { 200 }
    }

    /// The stretches before the first rest.
    const FIRST: u64 = (2 * PAIRS as u64 + 1) * STRETCH as u64;
    const TRIED: u64 = STRETCH as u64;

    /// Windows from one trial to the next.
    fn cycle(preferred: Idle) -> u64 {
        (u64::from(rest(preferred)) + 3) * u64::from(STRETCH)
    }

    #[test]
    fn cpus_are_kept_awake_where_that_makes_a_fourth_more_faults_and_else_tried_now_and_then() {
        for (tenths, preferred) in [(13, Idle::Awake), (12, Idle::AsSetUp)] {
            let mut trials = Trials::default();
            assert_eq!(awake(&mut trials, FIRST, gaining(tenths)), 3 * TRIED);
            let cycle = cycle(preferred);
            let found = awake(&mut trials, 10 * cycle, gaining(tenths));
            let expected = if preferred == Idle::Awake { cycle - TRIED } else { TRIED };
            assert_eq!(found, 10 * expected, "{preferred:?}");
        }
    }

    #[test]
    fn what_lasts_for_a_while_after_a_trial_does_not_hide_its_gain() {
        let (mut trials, since) = (Trials::default(), core::cell::Cell::new(0));
        let lasting = |window: u64, wish: Idle| {
            if wish == Idle::Awake {
                since.set(window);
            }
            if window - since.get() < 6 && since.get() > 0 { 400 } else { 200 }
        };
        awake(&mut trials, FIRST, lasting);
        assert_eq!(trials.wish(), Idle::Awake);
    }

    #[test]
    fn a_program_that_goes_over_to_something_else_is_noticed() {
        let (held, left) = (cycle(Idle::Awake), cycle(Idle::AsSetUp));
        let mut trials = Trials::default();
        awake(&mut trials, FIRST, gaining(20));
        assert!(awake(&mut trials, 10 * held, gaining(10)) < 5 * held, "two pairs, and it is over");
        assert_eq!(trials.preferred, Idle::AsSetUp);
        assert!(awake(&mut trials, 10 * left, gaining(20)) > 8 * left, "one, and it is on again");
        assert_eq!(trials.preferred, Idle::Awake);
    }

    #[test]
    fn far_fewer_faults_are_a_reason_to_try_again() {
        let mut trials = Trials::default();
        awake(&mut trials, FIRST + TRIED, |_, _| 300);
        awake(&mut trials, TRIED, |_, _| 190);
        assert_eq!(trials.stage, Stage::Before);
    }

    #[test]
    fn faults_that_become_more_or_fewer_by_themselves_say_nothing() {
        for grows in [true, false] {
            let (mut trials, windows) = (Trials::default(), FIRST + 10 * cycle(Idle::AsSetUp));
            let found = awake(&mut trials, windows, |window, _| {
                let passed = if grows { window } else { windows - window };
                100 + passed
            });
            assert_eq!(found, (3 + 10) * TRIED, "grows: {grows}");
        }
    }

    #[test]
    fn few_faults_end_it_and_what_was_found_holds_the_next_time() {
        let mut trials = Trials::default();
        awake(&mut trials, FIRST + 20, gaining(20));
        assert!(!trials.on_window(FAULTS_MIN - 1));
        assert_eq!(trials.wish(), Idle::Awake);
        assert_eq!(
            awake(&mut trials, 3 * TRIED, gaining(20)),
            2 * TRIED,
            "and is tried again soon"
        );
        assert!(trials.on_window(FAULTS_MIN));
    }
}
