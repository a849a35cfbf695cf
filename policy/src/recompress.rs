//! Recompression: pages that stay compressed are compressed once more, by work that would be too much for a page that leaves.
//!
//! What stays was cold, and a page that comes back takes as long whatever it was packed with. So the work waits: for a page,
//! until it has been there for a while, which is told by looks at all pages from time to time; and for a CPU that nothing else
//! wants, of which it takes a part. The kernel's zram leaves both to the administrator (idle pages and `recompress`,
//! drivers/block/zram, Linux 6.1).

/// A page that was there at so many looks is cold.
const LOOKS: u8 = 4;
/// The page has had its turn.
const TRIED: u8 = u8::MAX;

/// Of the CPU, work takes one part in so many.
const SHARE: u64 = 4;
/// While other work wants the CPUs, nanoseconds from one look at them to the next.
const BUSY_NS: u64 = 100_000_000;

/// What a look at a page finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// It has not been there for long enough; this is its next age.
    Young(u8),
    /// It is cold, and its turn comes: this is its next age.
    Cold(u8),
    /// It has had its turn.
    Tried,
}

/// What a look finds at a page of this age, which is 0 when it comes.
pub fn look(age: u8) -> Look {
    match age {
        TRIED => Look::Tried,
        age if age >= LOOKS => Look::Cold(TRIED),
        age => Look::Young(age + 1),
    }
}

/// Nanoseconds from a look at all pages to the next, so that a page is cold after `seconds`, or a quarter later.
pub fn look_ns(seconds: u32) -> u64 {
    u64::from(seconds) * 1_000_000_000 / u64::from(LOOKS)
}

/// Whether there is a CPU for more work, of so many, while so many threads run or want to, this one among them.
pub fn is_idle(running: u32, cpus: u32) -> bool {
    running <= cpus
}

/// How long to rest after work that took so long, or found no CPU.
pub fn rest_ns(worked_ns: Option<u64>) -> u64 {
    worked_ns.map_or(BUSY_NS, |worked_ns| worked_ns * (SHARE - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_its_turn_once_and_not_before_it_is_cold() {
        let (mut age, mut young) = (0, 0);
        loop {
            match look(age) {
                Look::Young(next) => (age, young) = (next, young + 1),
                Look::Cold(next) => {
                    age = next;
                    break;
                }
                Look::Tried => panic!("it had no turn"),
            }
        }
        assert_eq!((young, look(age)), (LOOKS, Look::Tried));
        // The looks before its turn take as long as was asked for.
        assert_eq!(u64::from(LOOKS) * look_ns(30), 30_000_000_000);
    }

    #[test]
    fn work_takes_its_share_of_a_cpu_that_nobody_wants() {
        assert!(is_idle(1, 1) && is_idle(2, 2) && !is_idle(2, 1) && !is_idle(9, 8));
        assert_eq!(rest_ns(Some(700_000)), 2_100_000);
        assert_eq!(rest_ns(None), BUSY_NS);
    }
}
