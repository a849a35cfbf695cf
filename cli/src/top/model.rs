//! What `top` shows: the programs, which screen, what lies over it. News change it here, keys in `keys`.
//!
//! It knows no clock, socket or terminal: time comes in as an argument, what is to be done goes out as an [`Act`].

use std::collections::BTreeMap;
use std::time::Duration;

use userswap::internals::directory::EngineName;
use userswap::internals::protocol::SettingValue;
use userswap::internals::status::Status;

use super::panel::{Panel, Settings};
use super::program::{Presence, Program, Row, Swapoff, SwapoffState};

/// Programs that are asked and shown; each is a connection and a thread.
pub const PROGRAMS_MAX: usize = 256;
/// What was told last stays on the screen for this long.
const NOTE_STAYS: Duration = Duration::from_secs(15);
/// The times that a graph can show.
const SPANS: [Duration; 3] =
    [Duration::from_secs(60), Duration::from_secs(300), super::history::SPAN_MAX];

/// The screen below what lies over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Screen {
    List,
    /// One program, its lower part moved up by so many lines.
    Program {
        of: EngineName,
        scroll: u16,
    },
}

/// What the list is sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    Pid,
    Program,
    Ram,
    Resident,
    Swapped,
    Faults,
    In,
    Out,
    Stall,
    Hits,
}

impl Column {
    /// In the order in which they are shown.
    pub const ALL: [Self; 10] = [
        Self::Pid,
        Self::Program,
        Self::Ram,
        Self::Resident,
        Self::Swapped,
        Self::Faults,
        Self::In,
        Self::Out,
        Self::Stall,
        Self::Hits,
    ];
}

/// Which end of a column comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Ascending,
    Descending,
}

/// What the threads that ask have to tell.
#[derive(Debug)]
pub enum News {
    /// The engines that there are.
    Found(Vec<EngineName>),
    Status(EngineName, Box<Status>),
    /// A connection has ended, or there was none to be had.
    Gone(EngineName, String),
    Settings(EngineName, Vec<SettingValue>),
    Progress {
        of: EngineName,
        pages_left: u64,
        pages_total: u64,
    },
    SwapoffEnded {
        of: EngineName,
        state: SwapoffState,
        told: String,
    },
    /// One line: what has become of a request.
    Told(String),
}

/// What is to be done outside the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    Leave,
    /// Gives the terminal back until the shell lets it go on.
    Suspend,
    AskSettings(EngineName),
    Set {
        of: EngineName,
        key: String,
        value: String,
    },
    Swapoff {
        of: EngineName,
        device: String,
    },
    CancelSwapoff(EngineName),
}

/// All that is shown.
pub struct Model {
    /// Time since the start.
    pub now: Duration,
    pub interval: Duration,
    pub programs: BTreeMap<EngineName, Program>,
    pub screen: Screen,
    pub panel: Panel,
    pub sort: Column,
    pub direction: Direction,
    pub selected: Option<EngineName>,
    /// The time that graphs show.
    pub span: Duration,
    note: Option<(Duration, String)>,
}

impl Model {
    pub fn new(interval: Duration) -> Self {
        Self {
            now: Duration::ZERO,
            interval,
            programs: BTreeMap::new(),
            screen: Screen::List,
            panel: Panel::Nothing,
            sort: Column::Faults,
            direction: Direction::Descending,
            selected: None,
            span: SPANS[1],
            note: None,
        }
    }

    /// Takes news that came when the clock was at `now`.
    pub fn hear(&mut self, now: Duration, news: News) {
        self.now = now;
        match news {
            News::Found(names) => self.found(&names),
            News::Status(name, status) => {
                let program = self.programs.entry(name).or_insert_with(|| Program::found(now));
                program.answered(now, status);
            }
            News::Gone(name, reason) => self.gone(name, reason),
            News::Settings(of, settings) => self.hear_settings(of, settings),
            News::Progress { of, pages_left, pages_total } => {
                if let Some(swapoff) = self.swapoff_of(of) {
                    (swapoff.pages_left, swapoff.pages_total) = (pages_left, pages_total);
                }
            }
            News::SwapoffEnded { of, state, told } => {
                if let Some(swapoff) = self.swapoff_of(of) {
                    swapoff.state = state;
                }
                self.tell(told);
            }
            News::Told(line) => self.tell(line),
        }
        self.select_something();
    }

    /// Those that have ended leave the list, but for the one that is looked at, and while a swapoff has not ended.
    fn found(&mut self, names: &[EngineName]) {
        let now = self.now;
        for name in names {
            self.programs.entry(*name).or_insert_with(|| Program::found(now));
        }
        let looked_at = self.looked_at();
        self.programs.retain(|name, program| {
            names.contains(name) || looked_at == Some(*name) || program.is_swapoff_under_way()
        });
    }

    /// A connection can end before its program does: [`Self::found`] takes programs away.
    fn gone(&mut self, name: EngineName, reason: String) {
        if let Some(program) = self.programs.get_mut(&name) {
            program.presence = Presence::Gone(reason);
        }
    }

    fn hear_settings(&mut self, of: EngineName, settings: Vec<SettingValue>) {
        let fresh = |panel: &mut Settings| {
            if panel.of == of {
                panel.selected = panel.selected.min(settings.len().saturating_sub(1));
                panel.rows = Some(settings.clone());
            }
        };
        match &mut self.panel {
            Panel::Settings(panel) => fresh(panel),
            Panel::Edit(edit) => edit.under.iter_mut().for_each(fresh),
            _ => {}
        }
    }

    fn swapoff_of(&mut self, of: EngineName) -> Option<&mut Swapoff> {
        self.programs.get_mut(&of)?.swapoff.as_mut()
    }

    /// Shows a line for a while.
    pub fn tell(&mut self, line: impl Into<String>) {
        self.note = Some((self.now, line.into()));
    }

    /// What was told last, as long as it is new.
    pub fn note(&self) -> Option<&str> {
        let (at, line) = self.note.as_ref()?;
        (self.now < *at + NOTE_STAYS).then_some(line)
    }

    /// Keeps the lower part of a program's screen from moving up by more than the `most` lines that do not fit.
    pub fn bound_scroll(&mut self, most: u16) {
        if let Screen::Program { scroll, .. } = &mut self.screen {
            *scroll = (*scroll).min(most);
        }
    }

    /// The program of the screen.
    pub fn looked_at(&self) -> Option<EngineName> {
        match self.screen {
            Screen::List => None,
            Screen::Program { of, .. } => Some(of),
        }
    }

    /// The program that keys are about.
    pub fn target(&self) -> Option<EngineName> {
        self.looked_at().or(self.selected)
    }

    /// The programs in the order of the list.
    pub fn sorted(&self) -> Vec<(EngineName, &Program, Row)> {
        let row = |program: &Program| program.row(self.now, self.interval);
        let mut rows: Vec<_> =
            self.programs.iter().map(|(name, program)| (*name, program, row(program))).collect();
        rows.sort_by(|a, b| {
            let order = match self.sort {
                Column::Pid => a.0.cmp(&b.0),
                Column::Program => a.1.name().cmp(&b.1.name()),
                column => value_of(column, &a.2).total_cmp(&value_of(column, &b.2)),
            };
            match self.direction {
                Direction::Ascending => order,
                Direction::Descending => order.reverse(),
            }
            .then_with(|| a.0.cmp(&b.0))
        });
        rows
    }

    /// Moves the selection by `steps` rows, to the ends at most.
    pub fn select(&mut self, steps: isize) {
        let rows: Vec<_> = self.sorted().into_iter().map(|row| row.0).collect();
        let at = rows.iter().position(|name| Some(*name) == self.selected).unwrap_or(0);
        let next = at.saturating_add_signed(steps).min(rows.len().saturating_sub(1));
        self.selected = rows.get(next).copied();
    }

    fn select_something(&mut self) {
        if self.selected.is_none_or(|name| !self.programs.contains_key(&name)) {
            self.selected = self.sorted().first().map(|row| row.0);
        }
    }

    /// Sorts by the column `steps` further to the right, numbers from the largest.
    pub fn sort_by(&mut self, steps: isize) {
        let count = Column::ALL.len() as isize;
        let at = Column::ALL.iter().position(|column| *column == self.sort).unwrap_or(0) as isize;
        self.sort = Column::ALL[(at + steps).rem_euclid(count) as usize];
        self.direction = match self.sort {
            Column::Pid | Column::Program => Direction::Ascending,
            _ => Direction::Descending,
        };
    }

    /// The other order of the same column.
    pub fn turn_round(&mut self) {
        self.direction = match self.direction {
            Direction::Ascending => Direction::Descending,
            Direction::Descending => Direction::Ascending,
        };
    }

    /// Another time for the graphs.
    pub fn next_span(&mut self) {
        let at = SPANS.iter().position(|span| *span == self.span).unwrap_or(0);
        self.span = SPANS[(at + 1) % SPANS.len()];
    }

    /// Whether leaving would cancel a swapoff.
    pub fn is_swapoff_under_way(&self) -> bool {
        self.programs.values().any(Program::is_swapoff_under_way)
    }

    /// Whether an engine works at one.
    pub fn is_swapoff_under_way_of(&self, of: EngineName) -> bool {
        self.programs.get(&of).is_some_and(Program::is_swapoff_under_way)
    }
}

/// What is not known is the least.
fn value_of(column: Column, row: &Row) -> f64 {
    let number = |value: Option<u64>| value.map(|value| value as f64);
    let value = match column {
        Column::Pid | Column::Program => None,
        Column::Ram => number(row.ram_bytes),
        Column::Resident => number(row.resident_bytes),
        Column::Swapped => number(row.swapped_bytes),
        Column::Faults => row.faults_per_second,
        Column::In => row.in_bytes_per_second,
        Column::Out => row.out_bytes_per_second,
        Column::Stall => row.stall_share,
        Column::Hits => row.hit_rate,
    };
    value.unwrap_or(-1.0)
}

#[cfg(test)]
mod tests {
    use super::super::examples::status;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn name(pid: u32) -> EngineName {
        EngineName { pid, number: 1 }
    }

    fn hear_status(model: &mut Model, pid: u32, change: impl FnOnce(&mut Status)) {
        let mut status = status();
        change(&mut status);
        model.hear(SECOND, News::Status(name(pid), Box::new(status)));
    }

    fn order(model: &Model) -> Vec<u32> {
        model.sorted().into_iter().map(|row| row.0.pid).collect()
    }

    #[test]
    fn the_list_is_sorted_by_each_column() {
        let mut model = Model::new(SECOND);
        hear_status(&mut model, 1, |status| status.program = "b".to_owned());
        hear_status(&mut model, 2, |status| {
            status.program = "a".to_owned();
            status.ram_bytes = 99 << 20;
        });
        model.hear(SECOND, News::Found(vec![name(1), name(2), name(3)]));
        model.sort = Column::Ram;
        assert_eq!(order(&model), [2, 1, 3], "what is not known comes last");
        model.turn_round();
        assert_eq!(order(&model), [3, 1, 2]);
        model.sort = Column::Program;
        assert_eq!(order(&model), [2, 1, 3]);
        model.sort = Column::Faults;
        assert_eq!(order(&model), [1, 2, 3], "equal ones by their numbers");
    }

    #[test]
    fn the_selection_stays_with_its_program_and_moves_to_the_ends_at_most() {
        let mut model = Model::new(SECOND);
        model.hear(SECOND, News::Found((1..=5).map(name).collect()));
        assert_eq!(model.selected, Some(name(1)));
        model.select(2);
        model.sort = Column::Pid;
        assert_eq!(model.selected, Some(name(3)));
        model.select(isize::MAX);
        assert_eq!(model.selected, Some(name(1)), "it comes last: they are in descending order");
        model.hear(SECOND, News::Found(vec![name(4), name(5)]));
        assert_eq!(model.selected, Some(name(5)));
        model.hear(SECOND, News::Found(vec![]));
        assert_eq!(model.selected, None);
    }

    #[test]
    fn a_program_that_ends_stays_only_while_it_is_looked_at() {
        let mut model = Model::new(SECOND);
        hear_status(&mut model, 1, |_| ());
        hear_status(&mut model, 2, |_| ());
        model.screen = Screen::Program { of: name(2), scroll: 0 };
        for pid in [1, 2] {
            model.hear(SECOND, News::Gone(name(pid), "ended".to_owned()));
        }
        model.hear(SECOND, News::Found(vec![]));
        let left: Vec<_> =
            model.programs.iter().map(|(name, it)| (name.pid, &it.presence)).collect();
        assert_eq!(left, [(2, &Presence::Gone("ended".to_owned()))]);
        model.screen = Screen::List;
        model.hear(SECOND, News::Found(vec![]));
        assert!(model.programs.is_empty());
    }

    #[test]
    fn a_connection_that_ends_takes_nothing_along() {
        let mut model = Model::new(SECOND);
        hear_status(&mut model, 1, |_| ());
        hear_status(&mut model, 2, |_| ());
        model.selected = Some(name(2));
        for pid in [1, 2] {
            model.hear(SECOND, News::Gone(name(pid), "no request within 30 s".to_owned()));
        }
        model.hear(SECOND, News::Found(vec![name(1), name(2)]));
        assert!(model.programs.values().all(|program| program.history.status().is_some()));
        assert_eq!(model.selected, Some(name(2)));
        hear_status(&mut model, 2, |_| ());
        assert_eq!(model.programs[&name(2)].presence, Presence::Seen(SECOND));
    }

    #[test]
    fn a_program_stays_while_a_swapoff_has_not_ended() {
        let mut model = Model::new(SECOND);
        hear_status(&mut model, 1, |_| ());
        model.programs.get_mut(&name(1)).unwrap().swapoff = Some(Swapoff {
            device: "/swap".to_owned(),
            pages_left: 3,
            pages_total: 9,
            state: SwapoffState::UnderWay,
        });
        model.hear(SECOND, News::Gone(name(1), "ended".to_owned()));
        model.hear(SECOND, News::Found(vec![]));
        assert!(model.is_swapoff_under_way() && model.is_swapoff_under_way_of(name(1)));
        let (state, told) = (SwapoffState::Refused, "ended".to_owned());
        model.hear(SECOND, News::SwapoffEnded { of: name(1), state, told });
        model.hear(SECOND, News::Found(vec![]));
        assert!(model.programs.is_empty() && !model.is_swapoff_under_way());
    }

    #[test]
    fn a_note_goes_by_itself() {
        let mut model = Model::new(SECOND);
        model.hear(SECOND, News::Told("set".to_owned()));
        assert_eq!(model.note(), Some("set"));
        model.now = 30 * SECOND;
        assert_eq!(model.note(), None);
    }

    #[test]
    fn graphs_have_one_of_three_spans() {
        let mut model = Model::new(SECOND);
        let mut next = || {
            model.next_span();
            model.span.as_secs() / 60
        };
        assert_eq!([next(), next(), next(), next()], [15, 1, 5, 15]);
    }
}
