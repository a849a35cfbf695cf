//! The model as a frame: a screen, what lies over it, a line of what was told and one of keys.
//!
//! Nothing is said by colour alone: `NO_COLOR` takes it away.

mod details;
mod graphs;
mod list;
mod panel;
mod program;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use super::model::{Model, Screen};
use super::panel::Panel;

/// What all that is shown needs.
const WIDTH_MIN: u16 = 80;
const HEIGHT_MIN: u16 = 24;

/// A terminal as wide has a third column of graphs, and longer bars.
const WIDE: u16 = 120;
/// A refusal is a long line.
const NOTE_ROWS_MAX: usize = 3;
/// Most words in it are shorter.
const NOTE_WORD: usize = 12;

/// Whether there is colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    Colour,
    Plain,
}

impl Paint {
    /// As the user wishes: see no-color.org.
    pub fn here() -> Self {
        match std::env::var_os("NO_COLOR") {
            Some(value) if !value.is_empty() => Self::Plain,
            _ => Self::Colour,
        }
    }

    fn colour(self, colour: Color) -> Style {
        match self {
            Self::Colour => Style::new().fg(colour),
            Self::Plain => Style::new(),
        }
    }

    /// Of titles.
    fn title(self) -> Style {
        self.colour(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    /// Of what needs a look.
    fn warning(self) -> Style {
        self.colour(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    /// Of what goes in, or is in RAM.
    fn inward(self) -> Style {
        self.colour(Color::Green)
    }

    /// Of what goes out, or is out.
    fn outward(self) -> Style {
        self.colour(Color::Magenta)
    }
}

/// What is chosen.
const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);
/// Keys, in the line below.
const KEY: Style = Style::new().add_modifier(Modifier::BOLD);

/// Draws all of it; returns how many lines of a program's screen do not fit.
pub fn draw(frame: &mut Frame, model: &Model, paint: Paint) -> u16 {
    let area = frame.area();
    if area.width < WIDTH_MIN || area.height < HEIGHT_MIN {
        draw_too_small(frame, area);
        return 0;
    }
    let note = model.note().unwrap_or_default();
    // Lines end with a word, a little before the width.
    let note_rows = note.chars().count().div_ceil(usize::from(area.width) - NOTE_WORD);
    let note_rows = note_rows.clamp(1, NOTE_ROWS_MAX) as u16;
    let rows = [Constraint::Fill(1), Constraint::Length(note_rows), Constraint::Length(1)];
    let [main, told, keys] = Layout::vertical(rows).areas(area);
    let hidden_lines = match model.screen {
        Screen::List => {
            list::draw(frame, main, model, paint);
            0
        }
        Screen::Program { of, scroll } => {
            program::draw(frame, main, model, &program::Shown { of, scroll, paint })
        }
    };
    let note = Paragraph::new(note).wrap(Wrap { trim: true }).style(paint.warning());
    frame.render_widget(note, told);
    frame.render_widget(keys_of(model), keys);
    panel::draw(frame, main, model, paint);
    hidden_lines
}

fn draw_too_small(frame: &mut Frame, area: Rect) {
    let text = format!(
        "userswap top needs {WIDTH_MIN}×{HEIGHT_MIN} characters; this terminal has {}×{}: make it larger, or leave by q",
        area.width, area.height
    );
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
}

/// The keys of what lies on top.
fn keys_of(model: &Model) -> Line<'static> {
    let keys: &[(&str, &str)] = match (&model.panel, model.screen) {
        (Panel::Nothing, Screen::List) => &[
            ("Enter", "open"),
            ("←→", "sort"),
            ("b", "budget"),
            ("s", "set"),
            ("o", "swapoff"),
            ("h", "hibernate"),
            ("?", "help"),
            ("q", "quit"),
        ],
        (Panel::Nothing, Screen::Program { .. }) => &[
            ("Esc", "back"),
            ("t", "time"),
            ("b", "budget"),
            ("s", "set"),
            ("o", "swapoff"),
            ("h", "hibernate"),
            ("?", "help"),
            ("q", "quit"),
        ],
        (Panel::Help, _) => &[("any key", "back")],
        (Panel::Settings(_), _) => &[("↑↓", "select"), ("Enter", "change"), ("Esc", "back")],
        (Panel::Edit(edit), _) if !edit.choices().is_empty() => {
            &[("←→", "choose"), ("Enter", "set"), ("Esc", "back")]
        }
        (Panel::Edit(_), _) => &[("Enter", "set"), ("Esc", "back")],
        (Panel::Devices { .. }, _) => &[("↑↓", "select"), ("Enter", "take away"), ("Esc", "back")],
        (Panel::Question(_), _) => &[("n", "no"), ("Esc", "no")],
        (Panel::Swapoff(of), _) if model.is_swapoff_under_way_of(*of) => {
            &[("c", "cancel"), ("Esc", "let it go on")]
        }
        (Panel::Swapoff(_), _) => &[("any key", "back")],
    };
    let spans = keys.iter().enumerate().flat_map(|(at, (key, what))| {
        let gap = if at == 0 { "" } else { "  " };
        [Span::raw(gap), Span::styled(*key, KEY), Span::raw(format!(" {what}"))]
    });
    Line::from_iter(spans)
}

/// The text in a cell of so many columns, on its right side.
fn right(text: &str, width: usize) -> String {
    let free = width.saturating_sub(Span::raw(text).width());
    format!("{}{text}", " ".repeat(free))
}

/// The same on its left side; cut where it is too wide.
fn left(text: &str, width: usize) -> String {
    let text = super::text::cut(text, width);
    let free = width.saturating_sub(Span::raw(&text).width());
    format!("{text}{}", " ".repeat(free))
}

#[cfg(test)]
mod tests;
