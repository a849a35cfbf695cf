//! Random numbers as usemem draws them: the C library's 48-bit linear-congruential generator.
//!
//! The load generator must visit the original's positions; everything else of this crate that needs chance
//! uses the same generator.

/// Multiplier, increment and modulus of the rand48 family (POSIX).
const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const INCREMENT: u64 = 0xB;
const STATE_MASK: u64 = (1 << 48) - 1;
/// srand48 puts the seed's low 32 bits above this.
const SEED_LOW: u64 = 0x330E;

/// A generator of 31-bit numbers, seeded as srand48 and drawn as lrand48.
#[derive(Debug, Clone)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: ((seed & 0xFFFF_FFFF) << 16) | SEED_LOW }
    }

    /// A number below `bound`; what lies above 2^31 is never reached, as in usemem.
    #[inline]
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.state = (self.state.wrapping_mul(MULTIPLIER) + INCREMENT) & STATE_MASK;
        (self.state >> 17) % bound
    }
}

/// The numbers below `count` in random order.
pub(crate) fn shuffled(count: usize, random: &mut Random) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..count as u32).collect();
    for index in (1..count).rev() {
        numbers.swap(index, random.below(index as u64 + 1) as usize);
    }
    numbers
}

/// For each of the numbers below `count` the next one of a single cycle through all (Sattolo, 1986).
pub(crate) fn cycle(count: usize, random: &mut Random) -> Vec<u32> {
    let mut next: Vec<u32> = (0..count as u32).collect();
    for index in (1..count).rev() {
        next.swap(index, random.below(index as u64) as usize);
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_moves_every_number_once() {
        let mut numbers = shuffled(1000, &mut Random::new(1));
        assert!(!numbers.is_sorted());
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..1000));
    }

    #[test]
    fn a_cycle_comes_back_only_after_all_numbers() {
        for count in [1, 2, 3, 1000] {
            let next = cycle(count, &mut Random::new(1));
            let mut number = 0;
            for step in 1..=count {
                number = next[number as usize];
                assert_eq!(number == 0, step == count, "step {step} of {count}");
            }
        }
    }

    #[test]
    fn the_numbers_are_those_of_the_c_library() {
        // srand48(0) and srand48(42), then lrand48 three times.
        for (seed, expected) in [
            (0, [366_850_414, 1_610_402_240, 206_956_554]),
            (42, [1_598_855_263, 735_945_821, 238_553_827]),
        ] {
            let mut random = Random::new(seed);
            let drawn = [(); 3].map(|()| random.below(1 << 31));
            assert_eq!(drawn, expected, "seed {seed}");
        }
    }
}
