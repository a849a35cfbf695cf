//! One program as `top` knows it: its answers, whether it still gives any, and what was asked of it.

use std::time::Duration;

use userswap::internals::status::Status;

use super::figures::{hit_rate, resident_bytes, swapped_bytes};
use super::history::History;
use crate::control::plain;

/// A program that has not answered for this long, and for three intervals, is shown as silent.
const SILENT_AFTER: Duration = Duration::from_secs(2);

/// Whether it can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Its socket was found, or has answered so long since the start.
    Seen(Duration),
    /// Its connection has ended, with this reason.
    Gone(String),
}

/// A swapoff of one of its devices, as far as its engine has told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swapoff {
    pub device: String,
    pub pages_left: u64,
    pub pages_total: u64,
    pub state: SwapoffState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapoffState {
    UnderWay,
    /// It was told to stop, and has not answered yet.
    Cancelling,
    Done,
    Cancelled,
    Refused,
}

impl SwapoffState {
    /// Whether the engine still works at it.
    pub fn is_under_way(self) -> bool {
        matches!(self, Self::UnderWay | Self::Cancelling)
    }
}

/// A program with an engine.
pub struct Program {
    pub presence: Presence,
    pub history: History,
    /// The swapoff asked for last.
    pub swapoff: Option<Swapoff>,
}

/// What a column of the list, or a graph, shows of a program; None is what is not known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    pub ram_bytes: Option<u64>,
    pub resident_bytes: Option<u64>,
    pub swapped_bytes: Option<u64>,
    pub faults_per_second: Option<f64>,
    pub in_bytes_per_second: Option<f64>,
    pub out_bytes_per_second: Option<f64>,
    pub stall_share: Option<f64>,
    pub hit_rate: Option<f64>,
}

impl Program {
    pub fn found(now: Duration) -> Self {
        Self { presence: Presence::Seen(now), history: History::default(), swapoff: None }
    }

    /// Whether its engine works at a swapoff.
    pub fn is_swapoff_under_way(&self) -> bool {
        self.swapoff.as_ref().is_some_and(|swapoff| swapoff.state.is_under_way())
    }

    /// Takes an answer.
    pub fn answered(&mut self, now: Duration, status: Box<Status>) {
        self.presence = Presence::Seen(now);
        self.history.push(now, status);
    }

    /// For how long it has not answered, when that is longer than it takes.
    pub fn silent(&self, now: Duration, interval: Duration) -> Option<Duration> {
        let Presence::Seen(at) = self.presence else { return None };
        let silence = now.saturating_sub(at);
        (silence > SILENT_AFTER.max(interval * 3)).then_some(silence)
    }

    /// The name of its file, or a dash before its first answer.
    pub fn name(&self) -> String {
        super::text::or_dash(self.history.status(), |status| plain(&status.program))
    }

    /// Rates are None for one that is silent or gone: the last ones are not those of now.
    pub fn row(&self, now: Duration, interval: Duration) -> Row {
        let Some(status) = self.history.status() else { return Row::default() };
        let is_current =
            matches!(self.presence, Presence::Seen(_)) && self.silent(now, interval).is_none();
        let figures = self.history.figures().filter(|_| is_current);
        Row {
            ram_bytes: Some(status.ram_bytes),
            resident_bytes: Some(resident_bytes(status)),
            swapped_bytes: Some(swapped_bytes(status)),
            faults_per_second: figures.map(|it| it.faults_per_second),
            in_bytes_per_second: figures.map(|it| it.in_bytes_per_second),
            out_bytes_per_second: figures.map(|it| it.out_bytes_per_second),
            stall_share: figures.and_then(|it| it.stall_share),
            hit_rate: self.history.minute_ago().and_then(|before| hit_rate(before, status)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::examples::status;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_program_that_does_not_answer_is_silent_and_has_no_rates() {
        let mut program = Program::found(SECOND);
        assert_eq!(program.silent(2 * SECOND, SECOND), None);
        assert_eq!(program.silent(9 * SECOND, SECOND), Some(8 * SECOND));
        assert_eq!(program.silent(9 * SECOND, 5 * SECOND), None, "it is asked every five seconds");
        program.answered(9 * SECOND, Box::new(status()));
        program.answered(10 * SECOND, Box::new(status()));
        assert_eq!(program.row(10 * SECOND, SECOND).faults_per_second, Some(0.0));
        let silent = program.row(20 * SECOND, SECOND);
        assert_eq!((silent.faults_per_second, silent.ram_bytes), (None, Some(16 << 20)));
        program.presence = Presence::Gone("ended".to_owned());
        assert_eq!(program.silent(20 * SECOND, SECOND), None);
        assert_eq!(program.row(10 * SECOND, SECOND).in_bytes_per_second, None);
    }
}
