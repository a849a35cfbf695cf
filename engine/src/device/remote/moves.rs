//! Hash slots that move between the masters of a cluster can bring both copies of a group to one of them: this finds out, and
//! says so.
//!
//! Where keys are does not change while a device is used (`seconds`). A server that sends us elsewhere is the sign that slots
//! have moved; who has which is then asked for by the thread of the device, until the answer is the same twice: a move takes
//! as long as there are keys, and what is half done says little.
use super::keeper;
use super::keys::{Copy, TOGETHER};
use super::seconds::masters;
use super::survey::survey;
use super::{Copies, Part, Remote};
use crate::base::log;
use std::io;
use std::sync::atomic::Ordering;

/// Between two looks: a slot with a few thousand pages is elsewhere by then.
const PAUSE_NS: u64 = 3_000_000_000;

/// Looks after which it is given up that nobody can say it: a minute.
const FAILED_MAX: u32 = 20;

/// What the thread remembers of it.
#[derive(Default)]
pub struct Moves {
    /// When it may look again.
    not_before_ns: u64,
    /// What it found, while that may not be the last word.
    found: Option<Share>,
    /// How often nobody could say it, one after the other.
    failed: u32,
    /// Whether it was said.
    is_told: bool,
}

/// How much of a device has both copies on one master: in parts of several groups, which share their servers.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Share {
    together: usize,
    all: usize,
}

impl Share {
    /// In percent; something is one at least.
    fn percent(self) -> u64 {
        (self.together * 100).div_ceil(self.all) as u64
    }
}

impl Remote {
    /// A server says that another has a hash slot.
    pub(super) fn note_move(&self) {
        // A borrower's parent will say it of the same keys.
        if self.config.copies == Copies::Two && self.part == Part::Owner {
            self.want(keeper::MOVES);
        }
    }

    /// Looks where slots have come to, if it is time.
    pub(super) fn look_at_moves(&self, moves: &mut Moves, now_ns: u64) {
        if now_ns < moves.not_before_ns {
            return;
        }
        moves.not_before_ns = now_ns + PAUSE_NS;
        // First: what moves from here on is looked at once more.
        self.wanted.fetch_and(!keeper::MOVES, Ordering::SeqCst);
        let found = self.share().ok();
        moves.failed = if found.is_some() { 0 } else { moves.failed + 1 };
        if moves.failed == FAILED_MAX {
            // Until the next server sends us elsewhere.
            *moves = Moves { is_told: moves.is_told, ..Moves::default() };
            return;
        }
        let is_settled = found.is_some() && found == moves.found;
        moves.found = found.filter(|_| !is_settled);
        if !is_settled {
            self.wanted.fetch_or(keeper::MOVES, Ordering::Relaxed);
            return;
        }
        if let Some(share) = found.filter(|share| share.together > 0 && !moves.is_told) {
            moves.is_told = true;
            log::copies_are_together(&self.config.said, share.percent());
        }
    }

    fn share(&self) -> io::Result<Share> {
        self.survey_anyone()?;
        let firsts = (0..self.held.len()).step_by(TOGETHER);
        let owner = |group, copy| self.cluster.surveyed(self.key(group, copy).hash_slot());
        let is_together = |group: &usize| {
            let first = owner(*group, Copy::First);
            first.is_some() && first == owner(*group, Copy::Second)
        };
        Ok(Share { all: firsts.len(), together: firsts.filter(is_together).count() })
    }

    /// Asks the first server that answers, and is still one of the cluster.
    fn survey_anyone(&self) -> io::Result<()> {
        for server in 0..self.cluster.addresses().count() {
            let answers = !self.cluster.server(server).is_silent() && !self.ends();
            let is_said = answers && survey(&self.cluster, server, &self.config).is_ok();
            if is_said && masters(|slot| self.cluster.surveyed(slot)) > 0 {
                return Ok(());
            }
        }
        Err(io::ErrorKind::NotConnected.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_said_in_percent_and_never_as_none() {
        let percent = |together| Share { together, all: 1000 }.percent();
        assert_eq!([1, 10, 11, 500, 1000].map(percent), [1, 1, 2, 50, 100]);
    }
}
