//! What lies over a screen: a box in its middle.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Gauge, List, ListState, Padding, Paragraph, Wrap};
use userswap::internals::directory::EngineName;

use super::super::model::Model;
use super::super::panel::{Edit, Panel, Question, Settings, Times};
use super::super::program::{Swapoff, SwapoffState};
use super::super::text::{cut, cut_after_word, pages, size};
use super::{CHOSEN, KEY, Paint, left};
use crate::control::plain;

/// Most boxes have this many columns.
const WIDTH: u16 = 64;

/// The keys, and what they do.
const HELP: [(&str, &str); 14] = [
    ("↑ ↓  j k", "select a program, or scroll; PgUp, PgDn, Home, End as well"),
    ("Enter", "open the program"),
    ("Esc", "back; from the list it leaves"),
    ("← →  < >", "sort by the column to the left, to the right"),
    ("r", "turn the order round"),
    ("t", "graphs of 1, 5 or 15 minutes"),
    ("b", "set the budget"),
    ("s", "all settings, to see and to change"),
    ("o", "swapoff: empty a device and let go of it (asked twice)"),
    ("h", "hibernate, or wake: everything to swap, or back (asked)"),
    ("Ctrl-Z", "back to the shell, until fg"),
    ("q  Ctrl-C", "leave"),
    ("STALL", "share of the time in which a thread waited for a page"),
    ("RA HIT", "pages read ahead in the last minute and not for nothing"),
];

pub fn draw(frame: &mut Frame, area: Rect, model: &Model, paint: Paint) {
    match &model.panel {
        Panel::Nothing => {}
        Panel::Help => draw_help(frame, area, paint),
        Panel::Settings(settings) => draw_settings(frame, area, settings, paint),
        Panel::Edit(edit) => draw_edit(frame, area, edit, paint),
        Panel::Devices { of, selected } => {
            draw_devices(frame, area, model, (*of, *selected, paint))
        }
        Panel::Question(question) => draw_question(frame, area, model, (question, paint)),
        Panel::Swapoff(of) => {
            let swapoff = model.programs.get(of).and_then(|program| program.swapoff.as_ref());
            if let Some(swapoff) = swapoff {
                draw_swapoff(frame, area, *of, (swapoff, paint));
            }
        }
    }
}

/// An empty box with a title in the middle; returns its inside.
fn boxed(
    frame: &mut Frame,
    area: Rect,
    title: &str,
    (width, rows): (u16, u16),
    paint: Paint,
) -> Rect {
    let place = area.centered(
        Constraint::Length(width.min(area.width)),
        Constraint::Length((rows + 2).min(area.height)),
    );
    let title = cut(&plain(title), usize::from(width).saturating_sub(4));
    let block = Block::bordered()
        .title(Span::styled(format!(" {title} "), paint.title()))
        .padding(Padding::horizontal(1));
    let inner = block.inner(place);
    frame.render_widget(Clear, place);
    frame.render_widget(block, place);
    inner
}

fn draw_help(frame: &mut Frame, area: Rect, paint: Paint) {
    let inner = boxed(frame, area, "Keys and columns", (76, HELP.len() as u16), paint);
    let line = |(key, what): &(&str, &str)| {
        Line::from_iter([Span::styled(left(key, 12), KEY), Span::raw(what.to_string())])
    };
    frame.render_widget(Paragraph::new(HELP.iter().map(line).collect::<Vec<_>>()), inner);
}

fn draw_settings(frame: &mut Frame, area: Rect, settings: &Settings, paint: Paint) {
    let rows = settings.rows.as_deref().unwrap_or_default();
    let size = (area.width.min(110), rows.len().max(1) as u16);
    let inner = boxed(frame, area, &format!("Settings of {}", settings.of), size, paint);
    if settings.rows.is_none() {
        frame.render_widget(Line::raw("asked, no answer yet"), inner);
        return;
    }
    let widest = |of: fn(&userswap::internals::protocol::SettingValue) -> &str| {
        rows.iter().map(|row| of(row).chars().count()).max().unwrap_or(0)
    };
    let (keys, values) = (widest(|row| &row.key), widest(|row| &row.value).min(14));
    let allowed = usize::from(inner.width).saturating_sub(keys + values + 4);
    let line = |row: &userswap::internals::protocol::SettingValue| {
        let (key, value) = (left(&plain(&row.key), keys), left(&plain(&row.value), values));
        Line::raw(format!("{key}  {value}  {}", cut_after_word(&plain(&row.allowed), allowed)))
    };
    let mut state = ListState::default().with_selected(Some(settings.selected));
    let list = List::new(rows.iter().map(line)).highlight_style(CHOSEN);
    frame.render_stateful_widget(list, inner, &mut state);
}

fn draw_edit(frame: &mut Frame, area: Rect, edit: &Edit, paint: Paint) {
    let setting = &edit.setting;
    let inner = boxed(frame, area, &format!("{} of {}", setting.key, edit.of), (WIDTH, 5), paint);
    let choices = edit.choices();
    let entry = if choices.is_empty() {
        Line::from_iter([
            Span::raw("new value: "),
            Span::styled(edit.value.clone(), KEY),
            Span::styled(" ", CHOSEN),
        ])
    } else {
        Line::from_iter(choices.into_iter().flat_map(|choice| {
            let style = if choice == edit.value { CHOSEN } else { Style::new() };
            [Span::styled(format!(" {choice} "), style), Span::raw(" ")]
        }))
    };
    let lines = vec![
        Line::raw(format!("now: {}", plain(&setting.value))),
        entry,
        Line::raw(""),
        Line::raw(format!("allowed: {}", plain(&setting.allowed))),
    ];
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), inner);
}

fn draw_devices(
    frame: &mut Frame,
    area: Rect,
    model: &Model,
    (of, selected, paint): (EngineName, usize, Paint),
) {
    let status = model.programs.get(&of).and_then(|program| program.history.status());
    let devices = status.map(|status| &status.devices[..]).unwrap_or_default();
    let box_size = (WIDTH, devices.len() as u16);
    let inner = boxed(frame, area, &format!("Which device of {of} to take away?"), box_size, paint);
    let name_width = usize::from(inner.width).saturating_sub(20);
    let line = |device: &userswap::internals::status::DeviceStatus| {
        let name = left(&plain(&device.name), name_width);
        Line::raw(format!("{name} {} in use", size(device.used_bytes)))
    };
    let mut state = ListState::default().with_selected(Some(selected));
    let list = List::new(devices.iter().map(line)).highlight_style(CHOSEN);
    frame.render_stateful_widget(list, inner, &mut state);
}

fn draw_question(
    frame: &mut Frame,
    area: Rect,
    model: &Model,
    (question, paint): (&Question, Paint),
) {
    let name = |of: &EngineName| {
        let program = model.programs.get(of).map(super::super::program::Program::name);
        format!("{of} {}", program.unwrap_or_default())
    };
    let (title, text, yes) = match question {
        Question::Hibernate { of } => (
            format!("Hibernate {}?", name(of)),
            "Everything that it has in RAM goes to its devices. It goes on, and reads back what it touches.".to_owned(),
            "y",
        ),
        Question::Wake { of } => {
            (format!("Wake {}?", name(of)), "What RAM has room for comes back from its devices.".to_owned(), "y")
        }
        Question::Swapoff { of, device, times: Times::Once } => (
            format!("swapoff {} of {}?", plain(device), name(of)),
            "All that is on the device is read back into RAM, or moved to other devices; then the program lets go of it.".to_owned(),
            "y",
        ),
        Question::Swapoff { of, device, times: Times::Twice } => (
            format!("swapoff {}: really?", plain(device)),
            format!("{} will not swap to it any more. This is asked twice, with another key.", name(of)),
            "Y",
        ),
        Question::Leave => (
            "Leave?".to_owned(),
            "A swapoff is under way, and leaving cancels it: its device stays in use.".to_owned(),
            "y",
        ),
    };
    let inner = boxed(frame, area, &title, (WIDTH, 5), paint);
    let keys = Line::from_iter([
        Span::styled(yes, KEY),
        Span::raw(if yes == "Y" { " (a capital Y) yes    " } else { " yes    " }),
        Span::styled("n", KEY),
        Span::raw(" no"),
    ]);
    let [above, below] =
        Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(inner);
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), above);
    frame.render_widget(keys, below);
}

fn draw_swapoff(
    frame: &mut Frame,
    area: Rect,
    of: EngineName,
    (swapoff, paint): (&Swapoff, Paint),
) {
    let title = format!("swapoff {} of {of}", swapoff.device);
    let inner = boxed(frame, area, &title, (WIDTH, 3), paint);
    let [bar, state, _] = Layout::vertical([Constraint::Length(1); 3]).areas(inner);
    let done = swapoff.pages_total.saturating_sub(swapoff.pages_left);
    let share = match (swapoff.state, swapoff.pages_total) {
        (SwapoffState::Done, _) => 1.0,
        (_, 0) => 0.0,
        (_, total) => done as f64 / total as f64,
    };
    let gauge = Gauge::default()
        .ratio(share)
        .gauge_style(paint.inward())
        .label(format!("{:.0}%", share * 100.0));
    frame.render_widget(gauge, bar);
    let text = match swapoff.state {
        SwapoffState::UnderWay => {
            format!("{} of {} left", pages(swapoff.pages_left), pages(swapoff.pages_total))
        }
        SwapoffState::Cancelling => "cancelling: the device stays in use".to_owned(),
        SwapoffState::Done => "done: the device is gone".to_owned(),
        SwapoffState::Cancelled => "cancelled: the device is in use as before".to_owned(),
        SwapoffState::Refused => "refused: nothing is changed; why is said below".to_owned(),
    };
    frame.render_widget(Line::raw(text), state);
}
