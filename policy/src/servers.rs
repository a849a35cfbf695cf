//! How many threads serve fault messages: one more while those that are awake do not keep up.
//!
//! One server starts a read and goes on, so that the device has work from as many faults as there are; but it looks at a page,
//! copies and maps it alone. With many threads that fault, that is more than one CPU's work. Where one is enough, more would
//! only wake each other.

/// Servers at most.
pub const SERVERS_MAX: u8 = 4;

/// Messages found at one look with which another server is woken: with fewer it would find none left.
const FOUND_AT_ONCE: usize = 3;

/// Looks in a row that found a message, each of another thread than the one before, with which another is woken.
const FOUND_IN_A_ROW: u32 = 64;

/// Groups in which a device is told of what is outstanding: one is read while the pages of another are mapped, and the program
/// goes on with those of a third.
const GROUPS: usize = 3;

/// Of how many reads a device is told at once, when so many are in flight or may be asked for in a moment. Telling it costs (an
/// exit from a virtual machine); but one that is told of all at once has them all ready at once, and nobody works meanwhile
/// (docs/decisions.md, 95).
pub fn told_at_once(outstanding: usize) -> usize {
    (outstanding / GROUPS).max(1)
}

/// Servers that there are on a machine with so many CPUs.
pub fn servers_max(cpus: u32) -> u8 {
    cpus.clamp(1, u32::from(SERVERS_MAX)) as u8
}

/// How many of them may be awake at once unless it is set: on two CPUs one, which has a device told of several reads at once
/// ([`told_at_once`]). A second one takes CPU from the program there, and waits for each read of its own (docs/decisions.md, 93).
pub fn servers(cpus: u32) -> u8 {
    if cpus <= 2 { 1 } else { servers_max(cpus) }
}

/// What the first server has found lately.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backlog {
    in_a_row: u32,
    /// Whose message was found last.
    thread: i32,
}

impl Backlog {
    /// A look found messages of these threads; whether another server is to be woken. A thread that faults again as
    /// soon as it is answered keeps one server busy, and no second one.
    pub fn on_look(&mut self, threads: impl ExactSizeIterator<Item = i32>) -> bool {
        let messages = threads.len();
        let last = threads.last();
        let is_another = last.is_some_and(|thread| thread != self.thread);
        self.in_a_row = if is_another { self.in_a_row + 1 } else { 0 };
        self.thread = last.unwrap_or(self.thread);
        let is_behind = messages >= FOUND_AT_ONCE || self.in_a_row >= FOUND_IN_A_ROW;
        if is_behind {
            self.in_a_row = 0;
        }
        is_behind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_server_on_every_machine_and_never_more_than_the_most() {
        assert_eq!([0, 1, 2, 4, 5, 1024].map(servers_max), [1, 1, 2, 4, 4, 4]);
        assert_eq!([0, 1, 2, 3, 4, 5, 1024].map(servers), [1, 1, 1, 3, 4, 4, 4]);
    }

    #[test]
    fn a_device_is_told_of_a_third_of_what_is_outstanding_and_of_one_read_at_least() {
        assert_eq!([0, 1, 3, 4, 6, 16, 32].map(told_at_once), [1, 1, 1, 1, 2, 5, 10]);
    }

    /// What looks say that find messages of these threads.
    fn said<const N: usize>(looks: [&[i32]; N]) -> [bool; N] {
        let mut backlog = Backlog::default();
        looks.map(|threads| backlog.on_look(threads.iter().copied()))
    }

    #[test]
    fn another_server_is_woken_when_messages_pile_up() {
        let looks: [&[i32]; 5] = [&[], &[1], &[1, 2], &[3, 1, 2], &[1, 1, 1, 1]];
        assert_eq!(said(looks), [false, false, false, true, true]);
    }

    #[test]
    fn another_server_is_woken_when_there_is_no_end_of_messages_of_several_threads() {
        let mut backlog = Backlog::default();
        let mut woken_at = || (1..=100).find(|look| backlog.on_look([look % 2].into_iter()));
        assert_eq!(woken_at(), Some(64));
        assert_eq!(woken_at(), Some(64), "and the next one after as many");
    }

    #[test]
    fn a_look_in_vain_or_a_thread_that_comes_again_ends_the_row() {
        for end in [&[][..], &[63 % 2]] {
            let mut backlog = Backlog::default();
            for _ in 0..10 {
                assert!(!(1..=63).any(|look| backlog.on_look([look % 2].into_iter())));
                assert!(!backlog.on_look(end.iter().copied()));
            }
        }
    }
}
