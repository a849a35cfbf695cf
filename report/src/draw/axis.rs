//! Scales: where a value stands, and where its lines are.

/// A linear scale from 0 to a highest value, over some length of a picture.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    highest: f64,
    length: f64,
}

impl Scale {
    /// From 0 to a value that may be 0 itself.
    pub fn to(highest: f64, length: f64) -> Self {
        let highest = if highest.is_finite() && highest > 0.0 { highest } else { 1.0 };
        Self { highest, length }
    }

    /// How far from its beginning a value stands.
    pub fn at(self, value: f64) -> f64 {
        (value / self.highest * self.length).clamp(0.0, self.length)
    }

    /// Round values, about so many.
    pub fn ticks(self, about: u32) -> Vec<f64> {
        self.ticks_of(about, &[1.0, 2.0, 5.0, 10.0], 10.0)
    }

    /// The same for bytes, which are round in powers of two.
    pub fn byte_ticks(self, about: u32) -> Vec<f64> {
        self.ticks_of(about, &[1.0, 2.0, 4.0, 8.0, 16.0], 16.0)
    }

    fn ticks_of(self, about: u32, steps: &[f64], base: f64) -> Vec<f64> {
        let rough = self.highest / f64::from(about);
        let power = base.powf(rough.log(base).floor());
        let step = steps.iter().map(|step| step * power).find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        (0..=2 * about)
            .map(|count| f64::from(count) * step)
            .filter(|tick| *tick <= self.highest * 1.0001)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within_the_scale() {
        assert_eq!(Scale::to(9.0, 100.0).ticks(5), [0.0, 2.0, 4.0, 6.0, 8.0]);
        assert_eq!(Scale::to(1024.0, 100.0).byte_ticks(4), [0.0, 256.0, 512.0, 768.0, 1024.0]);
        assert_eq!(Scale::to(f64::NAN, 100.0).at(0.5), 50.0);
        assert!(Scale::to(0.0, 1.0).ticks(4).len() < 10);
    }
}
