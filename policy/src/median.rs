//! The median of numbers that come one by one, followed in one word: each that is above pulls it up by a part of itself, each
//! below down (stochastic approximation: Robbins and Monro, 1951). It follows what changes within some hundred numbers.

/// By one in so many parts it goes with each number.
const STEP: u64 = 128;
/// And by so much at least.
const STEP_MIN: u64 = 32;

/// See the top of the file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Median(u64);

impl Median {
    /// One more number.
    pub fn add(&mut self, number: u64) {
        let step = (self.0 / STEP).max(STEP_MIN);
        self.0 = if number < self.0 { self.0.saturating_sub(step) } else { self.0 + step };
    }

    /// As it stands.
    pub fn get(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_numbers_are_above_it() {
        let mut median = Median::default();
        let mut random = 1u64;
        for turn in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            median.add(random >> 44);
            if turn > 5000 {
                let share = median.get() * 100 / (1 << 20);
                assert!((30..70).contains(&share), "{share} %");
            }
        }
        (0..3000).for_each(|_| median.add(1000));
        assert!(median.get().abs_diff(1000) <= 40, "{}", median.get());
    }
}
