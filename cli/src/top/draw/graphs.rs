//! Graphs of the last minutes: memory and swap, what is read and written, faults and stalls.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Sparkline;
use userswap::internals::status::Status;

use super::super::figures::Figures;
use super::super::model::Model;
use super::super::program::{Program, Row};
use super::super::text::{events, megabytes, or_dash, percent, size};
use super::{Paint, WIDE};

/// What the graphs are of.
pub struct Graphs<'a> {
    pub model: &'a Model,
    pub program: &'a Program,
    pub status: &'a Status,
    pub paint: Paint,
}

/// One graph.
struct Graph {
    title: String,
    value: fn(&Figures) -> f64,
    /// The height of the graph, or the most that there was.
    most: Option<f64>,
    style: Style,
}

/// In two columns, or three where there is room.
pub fn draw(frame: &mut Frame, area: Rect, of: &Graphs) {
    let columns = if area.width < WIDE { 2 } else { 3 };
    let halves = Layout::horizontal(vec![Constraint::Fill(1); columns]).spacing(2).split(area);
    let graphs = graphs_of(of);
    for (half, graphs) in halves.iter().zip(graphs.chunks(2)) {
        let places: [Rect; 2] = Layout::vertical([Constraint::Fill(1); 2]).areas(*half);
        for (place, graph) in places.into_iter().zip(graphs) {
            draw_graph(frame, place, of, graph);
        }
    }
}

/// In pairs, one above the other.
fn graphs_of(of: &Graphs) -> [Graph; 6] {
    let row = of.program.row(of.model.now, of.model.interval);
    let (inward, outward) = (of.paint.inward(), of.paint.outward());
    let [ram, swap] = sizes_of(of, &row);
    let [read, written] = rates_of(of, &row);
    let faults = Graph {
        title: format!("Faults {} a second", or_dash(row.faults_per_second, events)),
        value: |it| it.faults_per_second,
        most: None,
        style: inward,
    };
    let stalls = Graph {
        title: format!("Stalled {} of the time", or_dash(row.stall_share, percent)),
        value: |it| it.stall_share.unwrap_or(0.0),
        most: Some(1.0),
        style: outward,
    };
    [ram, swap, read, written, faults, stalls]
}

/// Memory and swap; the height of the first is the budget.
fn sizes_of(of: &Graphs, row: &Row) -> [Graph; 2] {
    let (ram, swap) =
        (of.status.ram_bytes, of.status.devices.iter().map(|device| device.size_bytes).sum());
    let title = |what, bytes, all| format!("{what} {} of {}", or_dash(bytes, size), size(all));
    [
        Graph {
            title: title("RAM", row.resident_bytes, ram),
            value: |it| it.resident_bytes as f64,
            most: Some(ram as f64),
            style: of.paint.inward(),
        },
        Graph {
            title: title("Swap", row.swapped_bytes, swap),
            value: |it| it.swapped_bytes as f64,
            most: None,
            style: of.paint.outward(),
        },
    ]
}

/// What is read and written; both are drawn to the same height.
fn rates_of(of: &Graphs, row: &Row) -> [Graph; 2] {
    let most = |value| of.program.history.most(of.model.now, of.model.span, value);
    let (most_in, most_out) =
        (most(|it| it.in_bytes_per_second), most(|it| it.out_bytes_per_second));
    let both = Some(most_in.max(most_out));
    let title = |what, bytes, most| {
        format!("{what} {} MB/s, at most {}", or_dash(bytes, megabytes), megabytes(most))
    };
    [
        Graph {
            title: title("In", row.in_bytes_per_second, most_in),
            value: |it| it.in_bytes_per_second,
            most: both,
            style: of.paint.inward(),
        },
        Graph {
            title: title("Out", row.out_bytes_per_second, most_out),
            value: |it| it.out_bytes_per_second,
            most: both,
            style: of.paint.outward(),
        },
    ]
}

/// Values are drawn in thousandths of the height.
const HEIGHT: f64 = 1000.0;

fn draw_graph(frame: &mut Frame, area: Rect, of: &Graphs, graph: &Graph) {
    let [title, bars] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    let values =
        of.program.history.columns(of.model.now, of.model.span, bars.width.into(), graph.value);
    let most =
        values.iter().flatten().fold(graph.most.unwrap_or(0.0), |most, value| most.max(*value));
    let scaled = |value: f64| (value / most.max(f64::MIN_POSITIVE) * HEIGHT).round() as u64;
    let data: Vec<_> = values.into_iter().map(|value| value.map(scaled)).collect();
    let span = format!("{} min", of.model.span.as_secs() / 60);
    let free = usize::from(title.width).saturating_sub(graph.title.len() + span.len());
    let text = Line::from_iter([
        Span::styled(graph.title.clone(), of.paint.title()),
        Span::raw(format!("{}{span}", " ".repeat(free))),
    ]);
    frame.render_widget(text, title);
    let bars_of = Sparkline::default().data(data).max(HEIGHT as u64).style(graph.style);
    frame.render_widget(bars_of.absent_value_symbol(" "), bars);
}
