//! One program: what it is, graphs of the last minutes, how long faults took, and its nodes, devices and job below.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Wrap};
use userswap::internals::directory::EngineName;
use userswap::internals::status::Status;

use super::super::latency::{self, Bar};
use super::super::model::Model;
use super::super::program::{Presence, Program};
use super::super::text::{cut, duration, events, or_dash, percent, size};
use super::graphs::{self, Graphs};
use super::{Paint, WIDE, details, left};
use crate::control::plain;

/// Of the name of its file.
const NAME_MAX: usize = 20;
/// Columns of the box with the histogram.
const LATENCY_WIDTH: u16 = 30;
const LATENCY_WIDTH_WIDE: u16 = 60;
/// Of these, beside a bar.
const BAR_BESIDE: usize = 15;
/// Rows of a graph with its title where the terminal is as small as it can be.
const GRAPH_ROWS_MIN: u16 = 4;
/// Of the rows that a larger terminal has, one in so many goes to each of the two graphs above each other.
const GRAPH_ROWS_PART: u16 = 6;

/// Which program, how far its lower part is moved up, and how it is painted.
pub struct Shown {
    pub of: EngineName,
    pub scroll: u16,
    pub paint: Paint,
}

/// Returns how many lines of the lower part do not fit.
pub fn draw(frame: &mut Frame, area: Rect, model: &Model, shown: &Shown) -> u16 {
    let Some(program) = model.programs.get(&shown.of) else {
        frame.render_widget(
            Line::raw(format!("{}: no such program (Esc: back to the list)", shown.of)),
            area,
        );
        return 0;
    };
    let Some(status) = program.history.status() else {
        frame.render_widget(Line::raw(format!("{}: {}", shown.of, state_of(model, program))), area);
        return 0;
    };
    let graph_rows = GRAPH_ROWS_MIN + area.height.saturating_sub(22) / GRAPH_ROWS_PART;
    let [head, facts, graph_area, below] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(graph_rows * 2),
        Constraint::Fill(1),
    ])
    .areas(area);
    frame.render_widget(head_of(shown, program, status), head);
    frame.render_widget(facts_of(model, program, shown.paint), facts);
    graphs::draw(frame, graph_area, &Graphs { model, program, status, paint: shown.paint });
    let latency_width = if area.width < WIDE { LATENCY_WIDTH } else { LATENCY_WIDTH_WIDE };
    let [latency, lower] =
        Layout::horizontal([Constraint::Length(latency_width), Constraint::Fill(1)]).areas(below);
    draw_latency(frame, latency, program, shown);
    draw_details(frame, lower, program, status, shown)
}

/// Nothing as long as it answers.
fn state_of(model: &Model, program: &Program) -> String {
    match (&program.presence, program.silent(model.now, model.interval)) {
        (Presence::Gone(reason), _) => reason.clone(),
        (_, Some(silence)) => {
            format!("no answer for {} s: it is stopped, or busy with a fork", silence.as_secs())
        }
        (_, None) if program.history.status().is_none() => "asked".to_owned(),
        (_, None) => String::new(),
    }
}

fn head_of(shown: &Shown, program: &Program, status: &Status) -> Line<'static> {
    let what = format!(
        "   faults by {}, placement {}{}{}",
        plain(&status.fault),
        plain(&status.placement),
        if status.hibernated { ", hibernated" } else { "" },
        if status.pins > 0 { format!(", {} pins", status.pins) } else { String::new() },
    );
    let name = format!("{} {}", shown.of, cut(&program.name(), NAME_MAX));
    Line::from_iter([Span::styled(name, shown.paint.title()), Span::raw(what)])
}

/// `831 faults/s   stalled 3.1%   readahead hit 97%   3.6M not managed`, or why none of it is known.
fn facts_of(model: &Model, program: &Program, paint: Paint) -> Line<'static> {
    let state = state_of(model, program);
    if !state.is_empty() {
        return Line::styled(state, paint.warning());
    }
    let row = program.row(model.now, model.interval);
    let outside = program.history.status().map(|status| status.unmanaged_bytes);
    Line::raw(format!(
        "{} faults/s   stalled {}   readahead hit {}   {} not managed",
        or_dash(row.faults_per_second, events),
        or_dash(row.stall_share, percent),
        or_dash(row.hit_rate, percent),
        or_dash(outside, size),
    ))
}

fn draw_latency(frame: &mut Frame, area: Rect, program: &Program, shown: &Shown) {
    let Some(status) = program.history.status() else { return };
    let block = Block::bordered().title(Span::styled(" Latency of faults ", shown.paint.title()));
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let times = &status.fault_latency_ns;
    let rows = usize::from(inner.height).saturating_sub(2);
    let bars = latency::bars(program.history.minute_ago(), status, rows);
    let lines = if times.max == 0 {
        vec![Line::raw("no fault yet")]
    } else if bars.is_empty() {
        let all = [
            ("median", times.p50),
            ("95 %", times.p95),
            ("99 %", times.p99),
            ("slowest", times.max),
        ];
        all.map(|(what, time)| Line::raw(format!("{what:>9} {:>8}", duration(time)))).to_vec()
    } else {
        let head = format!("median {}, p99 {}", duration(times.p50), duration(times.p99));
        let most = bars.iter().map(|bar| bar.share).fold(0.0, f64::max);
        let width = usize::from(inner.width).saturating_sub(BAR_BESIDE);
        let line = |bar: &Bar| bar_line(bar, (bar.share / most * width as f64, width), shown.paint);
        [Line::raw(head), Line::raw("in the last minute:")]
            .into_iter()
            .chain(bars.iter().map(line))
            .collect()
    };
    frame.render_widget(Paragraph::new(lines), inner);
}

/// `< 65 µs ████████▌   52%`.
fn bar_line(bar: &Bar, (length, width): (f64, usize), paint: Paint) -> Line<'static> {
    let eighths = (length * 8.0).round() as usize;
    let part = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
    let drawn = format!("{}{part}", "█".repeat(eighths / 8));
    Line::from_iter([
        Span::raw(format!("<{:>7} ", duration(bar.below_ns))),
        Span::styled(left(&drawn, width), paint.inward()),
        Span::raw(format!(" {:>5}", percent(bar.share))),
    ])
}

fn draw_details(
    frame: &mut Frame,
    area: Rect,
    program: &Program,
    status: &Status,
    shown: &Shown,
) -> u16 {
    let inner_width = area.width.saturating_sub(2);
    let lines = details::lines(&program.history, status, inner_width.into(), shown.paint);
    let rows = usize::from(area.height.saturating_sub(2));
    let hidden = lines.len().saturating_sub(rows);
    let scroll = usize::from(shown.scroll).min(hidden);
    let mut block =
        Block::bordered().title(Span::styled(" Nodes, devices, job ", shown.paint.title()));
    if hidden > scroll {
        block = block
            .title_bottom(Line::raw(format!(" ↓ {} more lines ", hidden - scroll)).right_aligned());
    }
    let text: Vec<_> = lines.into_iter().skip(scroll).collect();
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }).block(block), area);
    u16::try_from(hidden).unwrap_or(u16::MAX)
}
