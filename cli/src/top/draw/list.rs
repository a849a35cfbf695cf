//! The list: a line of sums, titles, a row for each program.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{List, ListState, Paragraph, Wrap};
use userswap::internals::directory::EngineName;

use super::super::model::{Column, Direction, Model};
use super::super::program::{Presence, Program, Row};
use super::super::text::{events, megabytes, or_dash, percent, size};
use super::{CHOSEN, Paint, left, right};

/// Of a name that there is room for.
const NAME_MAX: usize = 40;
/// The columns from the rates on, for a line in their place.
const RATES: [Column; 5] = [Column::Faults, Column::In, Column::Out, Column::Stall, Column::Hits];

/// What a column is called; numbers are as wide as they can be.
fn title(column: Column) -> &'static str {
    match column {
        Column::Pid => "PID",
        Column::Program => "PROGRAM",
        Column::Ram => "RAM",
        Column::Resident => "RESIDENT",
        Column::Swapped => "SWAPPED",
        Column::Faults => "FAULTS/S",
        Column::In => "IN MB/S",
        Column::Out => "OUT MB/S",
        Column::Stall => "STALL",
        Column::Hits => "RA HIT",
    }
}

/// How wide each column is where the list has `total` columns of the terminal.
fn width(column: Column, total: usize) -> usize {
    match column {
        Column::Pid => 7,
        Column::Program => {
            let others = Column::ALL.iter().filter(|column| **column != Column::Program);
            let taken: usize = others.map(|column| width(*column, total) + 1).sum();
            total.saturating_sub(taken).min(NAME_MAX)
        }
        Column::Ram => 5,
        column => title(column).len(),
    }
}

pub fn draw(frame: &mut Frame, area: Rect, model: &Model, paint: Paint) {
    let [sums, gap, titles, rows] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Fill(1),
    ])
    .areas(area);
    let programs = model.sorted();
    frame.render_widget(sums_of(&programs, paint), sums);
    frame.render_widget(sorting(model), gap);
    if programs.is_empty() {
        return draw_nothing(frame, rows);
    }
    let total = usize::from(area.width);
    frame.render_widget(titles_of(model, total, paint), titles);
    let selected = programs.iter().position(|program| Some(program.0) == model.selected);
    let lines =
        programs.iter().map(|(name, program, row)| line_of(model, (*name, program), row, total));
    let mut state = ListState::default().with_selected(selected);
    frame.render_stateful_widget(List::new(lines).highlight_style(CHOSEN), rows, &mut state);
}

fn draw_nothing(frame: &mut Frame, area: Rect) {
    let text = "No program of yours has an engine. One has as soon as it outgrows its budget:\n\n    userswap run --ram 512M -- PROGRAM";
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }), area);
}

/// `userswap top  3 programs  1.2G resident  3.1G swapped  in 120  out 60.1 MB/s`.
fn sums_of(programs: &[(EngineName, &Program, Row)], paint: Paint) -> Line<'static> {
    let bytes =
        |of: fn(&Row) -> Option<u64>| programs.iter().filter_map(|it| of(&it.2)).sum::<u64>();
    let rate =
        |of: fn(&Row) -> Option<f64>| programs.iter().filter_map(|it| of(&it.2)).sum::<f64>();
    let count = programs.len();
    let text = format!(
        "  {count} {}  {} resident  {} swapped  in {}  out {} MB/s",
        if count == 1 { "program" } else { "programs" },
        size(bytes(|row| row.resident_bytes)),
        size(bytes(|row| row.swapped_bytes)),
        megabytes(rate(|row| row.in_bytes_per_second)),
        megabytes(rate(|row| row.out_bytes_per_second)),
    );
    Line::from_iter([Span::styled("userswap top", paint.title()), Span::raw(text)])
}

fn sorting(model: &Model) -> Line<'static> {
    let order = match model.direction {
        Direction::Ascending => "the least first",
        Direction::Descending => "the most first",
    };
    Line::raw(format!("by {}, {order} (r: the other way)", title(model.sort)))
}

fn titles_of(model: &Model, total: usize, paint: Paint) -> Line<'static> {
    let cells = Column::ALL.iter().map(|column| {
        let mut style = paint.title();
        if *column == model.sort {
            style = style.add_modifier(Modifier::UNDERLINED);
        }
        [Span::styled(cell(*column, title(*column), total), style), Span::raw(" ")]
    });
    Line::from_iter(cells.flatten())
}

/// Words on the left of their column, numbers on the right.
fn cell(column: Column, text: &str, total: usize) -> String {
    match column {
        Column::Program => left(text, width(column, total)),
        column => right(text, width(column, total)),
    }
}

fn line_of(
    model: &Model,
    (name, program): (EngineName, &Program),
    row: &Row,
    total: usize,
) -> Line<'static> {
    let state = match &program.presence {
        Presence::Gone(_) => Some("has ended".to_owned()),
        Presence::Seen(_) => program
            .silent(model.now, model.interval)
            .map(|silence| format!("no answer for {} s", silence.as_secs())),
    };
    let text = |column| match column {
        Column::Pid => name.to_string(),
        Column::Program => program.name(),
        Column::Ram => or_dash(row.ram_bytes, size),
        Column::Resident => or_dash(row.resident_bytes, size),
        Column::Swapped => or_dash(row.swapped_bytes, size),
        Column::Faults => or_dash(row.faults_per_second, events),
        Column::In => or_dash(row.in_bytes_per_second, megabytes),
        Column::Out => or_dash(row.out_bytes_per_second, megabytes),
        Column::Stall => or_dash(row.stall_share, percent),
        Column::Hits => or_dash(row.hit_rate, percent),
    };
    let shown = Column::ALL.iter().filter(|column| state.is_none() || !RATES.contains(column));
    let cells: Vec<_> = shown.map(|column| cell(*column, &text(*column), total)).collect();
    let mut line = cells.join(" ");
    if let Some(state) = state {
        line.push_str("  ");
        line.push_str(&state);
    }
    Line::styled(line, Style::new())
}
