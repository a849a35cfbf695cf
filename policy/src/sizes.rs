//! Blocks of malloc that are as large as what was asked for, for sizes that are asked for again and again.
//!
//! An allocator has a few size classes from each power of two to the next: a page of a database with its header takes a
//! sixth more than it needs, and what just fitted into RAM does not. With a class for every size none of that is lost, but
//! each class has free blocks of its own that no other can use, and where all sizes differ these are more. So a size has a
//! class of its own only for a thread to which it is *frequent*: one of the few that make up most of what it asks for,
//! found as J. Misra and D. Gries do it ("Finding repeated elements", 1982).

/// Smaller blocks, and those of this size, have no class.
pub const BYTES_MIN: usize = 1 << 10;
/// Bytes of the largest blocks.
pub const BYTES_MAX: usize = 256 << 10;
/// Classes between two powers of two: a block is at most a 64th larger than what was asked for.
const STEPS: usize = 64;
/// How many classes there are.
pub const CLASSES: usize = STEPS * (BYTES_MAX.ilog2() - BYTES_MIN.ilog2()) as usize;

/// A size of blocks, a multiple of 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Class(u16);

impl Class {
    /// The class of the smallest blocks that hold so many bytes; None beyond the limits.
    pub fn of(bytes: usize) -> Option<Self> {
        if bytes <= BYTES_MIN || bytes > BYTES_MAX {
            return None;
        }
        let below = (bytes - 1).ilog2();
        let steps = (bytes - (1 << below)).div_ceil((1 << below) / STEPS) - 1;
        Some(Self(((below - BYTES_MIN.ilog2()) as usize * STEPS + steps) as u16))
    }

    /// By its number.
    ///
    /// # Panics
    /// There are fewer than that.
    pub fn from_index(index: usize) -> Self {
        assert!(index < CLASSES, "there is a class {index}");
        Self(index as u16)
    }

    /// Its number, below [`CLASSES`], in the order of size.
    pub fn index(self) -> usize {
        self.0.into()
    }

    /// Bytes of a block.
    pub fn bytes(self) -> usize {
        let (power, step) = (self.index() / STEPS, self.index() % STEPS);
        (BYTES_MIN << power) / STEPS * (STEPS + 1 + step)
    }
}

/// Sizes that are remembered at a time: one that is more than a ninth of all is among them.
const REMEMBERED: usize = 8;
/// A size is frequent from so many times on.
const FREQUENT: u16 = 64;
/// And is forgotten after so many others at the latest.
const TIMES_MAX: u16 = 1024;

/// What a thread asks for most.
#[derive(Clone, Copy, Debug)]
pub struct Frequent {
    /// Classes, and how often each was asked for beyond what others took away.
    sizes: [(Class, u16); REMEMBERED],
}

impl Default for Frequent {
    fn default() -> Self {
        Self::new()
    }
}

impl Frequent {
    /// Nothing was asked for yet.
    pub const fn new() -> Self {
        Self { sizes: [(Class(0), 0); REMEMBERED] }
    }

    /// Takes note of one request: whether its class is frequent.
    pub fn note(&mut self, class: Class) -> bool {
        if let Some((_, times)) =
            self.sizes.iter_mut().find(|(known, times)| *known == class && *times > 0)
        {
            *times = (*times + 1).min(TIMES_MAX);
            return *times >= FREQUENT;
        }
        match self.sizes.iter_mut().find(|(_, times)| *times == 0) {
            Some(vacant) => *vacant = (class, 1),
            None => self.sizes.iter_mut().for_each(|(_, times)| *times -= 1),
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn classes_are_multiples_of_sixteen_from_the_least_to_the_largest() {
        let sizes: Vec<_> = (0..CLASSES).map(|class| Class::from_index(class).bytes()).collect();
        assert!(sizes.is_sorted_by(|one, next| one < next), "{sizes:?}");
        assert!(sizes.iter().all(|bytes| bytes.is_multiple_of(16)));
        assert_eq!((sizes[0], sizes[CLASSES - 1]), (BYTES_MIN + 16, BYTES_MAX));
        assert_eq!(Class::of(4368).map(Class::bytes), Some(4416));
        assert_eq!([BYTES_MIN, BYTES_MAX + 1, 0].map(Class::of), [None; 3]);
    }

    #[test]
    fn a_size_is_frequent_among_many_others_and_no_longer_once_it_is_rare() {
        let mut frequent = Frequent::new();
        let class = |index: usize| Class::from_index(index);
        let other = |number: usize| class(8 + number % (CLASSES - 8));
        // Every fourth request, between others that are all different.
        let mut is_frequent = false;
        for turn in 0..1000 {
            is_frequent = frequent.note(class(7));
            (0..3).for_each(|number| assert!(!frequent.note(other(turn * 3 + number))));
        }
        assert!(is_frequent);
        (0..TIMES_MAX as usize * 9).for_each(|turn| _ = frequent.note(other(turn)));
        assert!(!frequent.note(class(7)));
    }

    #[test]
    fn where_all_sizes_differ_none_is_frequent() {
        let mut frequent = Frequent::new();
        assert!(!(0..100_000).any(|turn| frequent.note(Class::from_index(turn * 31 % CLASSES))));
    }

    proptest! {
        #[test]
        fn a_class_is_the_smallest_that_holds(bytes in BYTES_MIN + 1..=BYTES_MAX) {
            let class = Class::of(bytes).unwrap();
            let smallest = (0..CLASSES).map(Class::from_index).find(|class| class.bytes() >= bytes);
            prop_assert_eq!(Some(class), smallest);
            prop_assert!(class.bytes() <= bytes + bytes.div_ceil(STEPS) + 16);
        }
    }
}
