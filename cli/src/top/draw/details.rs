//! The lower part of a program's screen, as lines: each node's lists and watermarks, the devices, the members of its job.

use ratatui::text::{Line, Span};
use userswap::internals::status::{DeviceState, DeviceStatus, JobStatus, NodeStatus, Status};

use super::super::history::History;
use super::super::text::{megabytes, or_dash, pages, percent, size};
use super::{Paint, left, right};
use crate::control::{note, plain};

/// Columns of a device's numbers: used, size, in, out, busy, with a space before each.
const DEVICE_NUMBERS: usize = 6 + 6 + 8 + 9 + 6;
/// Of a device's name, at least and at most.
const DEVICE_NAME: std::ops::RangeInclusive<usize> = 8..=40;

/// Lines of at most `width` columns.
pub fn lines(history: &History, status: &Status, width: usize, paint: Paint) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for node in &status.nodes {
        lines.extend(node_lines(node, paint));
    }
    lines.extend(device_lines(history, &status.devices, width, paint));
    if let Some(job) = &status.job {
        lines.extend(job_lines(job, paint));
    }
    lines
}

fn node_lines(node: &NodeStatus, paint: Paint) -> Vec<Line<'static>> {
    let available = node.free_pages + node.spare_pages + node.cached_pages;
    let mut lines = vec![
        Line::styled(
            format!(
                "Node {}: {} of {} resident",
                node.node,
                pages(node.resident_pages),
                pages(node.budget_pages)
            ),
            paint.title(),
        ),
        Line::raw(format!(
            " active {}  inactive {}  cached {}",
            pages(node.active_pages),
            pages(node.inactive_pages),
            pages(node.cached_pages)
        )),
        Line::raw(format!(
            " unevictable {}  writing {}  caches {}",
            pages(node.unevictable_pages),
            pages(node.writing_pages),
            pages(node.charged_pages)
        )),
        Line::raw(format!(
            " available {}: min {} low {} high {}",
            pages(available),
            pages(node.min_pages),
            pages(node.low_pages),
            pages(node.high_pages)
        )),
    ];
    if node.compressed_pages > 0 {
        lines.push(Line::raw(format!(" compressed {}", pages(node.compressed_pages))));
    }
    if node.hopeless {
        lines.push(Line::styled(" reclaim finds nothing to take", paint.warning()));
    }
    lines
}

fn device_lines(
    history: &History,
    devices: &[DeviceStatus],
    width: usize,
    paint: Paint,
) -> Vec<Line<'static>> {
    let name_width =
        width.saturating_sub(DEVICE_NUMBERS).clamp(*DEVICE_NAME.start(), *DEVICE_NAME.end());
    let row = |name: &str, cells: [&str; 5]| {
        let [used, size, inward, outward, busy] = cells;
        format!(
            "{}{}{}{}{}{}",
            left(name, name_width),
            right(used, 6),
            right(size, 6),
            right(inward, 8),
            right(outward, 9),
            right(busy, 6)
        )
    };
    let mut lines = vec![Line::styled(
        row("Device", ["USED", "SIZE", "IN MB/S", "OUT MB/S", "BUSY"]),
        paint.title(),
    )];
    for device in devices {
        let figures =
            history.figures().and_then(|it| it.devices.iter().find(|it| it.index == device.index));
        let cells = [
            size(device.used_bytes),
            size(device.size_bytes),
            or_dash(figures, |it| megabytes(it.in_bytes_per_second)),
            or_dash(figures, |it| megabytes(it.out_bytes_per_second)),
            or_dash(figures, |it| percent(it.busy_share)),
        ];
        lines.push(Line::raw(row(&plain(&device.name), cells.each_ref().map(String::as_str))));
        if let Some(state) = state_of(device.state) {
            lines.push(Line::from_iter([Span::raw(" "), Span::styled(state, paint.warning())]));
        }
    }
    lines
}

/// Nothing for one that is simply in use.
fn state_of(state: DeviceState) -> Option<&'static str> {
    match state {
        DeviceState::On => None,
        DeviceState::Full => Some("full"),
        DeviceState::Silent => Some("takes no pages for now"),
        DeviceState::Retired => Some("retired after errors"),
        DeviceState::GoingOff => Some("going off"),
        DeviceState::Borrowed => Some("the parent's, to read"),
    }
}

fn job_lines(job: &JobStatus, paint: Paint) -> Vec<Line<'static>> {
    let head = format!(
        "Job {}: {} of {} held, at most {}",
        job.root_pid,
        pages(job.held_pages),
        pages(job.budget_pages),
        pages(job.held_pages_max)
    );
    let row = |cells: [&str; 4]| {
        let [pid, share, used, refaults] = cells;
        format!("{}{}{}{}", right(pid, 8), right(share, 8), right(used, 8), right(refaults, 12))
    };
    let titles = Line::styled(row(["PID", "SHARE", "USED", "REFAULTS/S"]), paint.title());
    let members = job.members.iter().map(|member| {
        let cells = [
            member.pid.to_string(),
            pages(member.share_pages),
            pages(member.used_pages),
            member.refaults_per_second.to_string(),
        ];
        let line = format!("{}  {}", row(cells.each_ref().map(String::as_str)), note(member));
        Line::raw(line.trim_end().to_owned())
    });
    [Line::styled(head, paint.title()), titles].into_iter().chain(members).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::examples;

    #[test]
    fn the_lines_of_a_node_fit_a_terminal_of_80_columns() {
        // As wide as sizes get: "99.9M".
        let widest = 25_575;
        let node = NodeStatus {
            min_pages: widest,
            low_pages: widest,
            high_pages: widest,
            spare_pages: widest,
            free_pages: 0,
            cached_pages: 0,
            unevictable_pages: widest,
            writing_pages: widest,
            charged_pages: widest,
            compressed_pages: widest,
            ..examples::node(0)
        };
        let lines = node_lines(&node, Paint::Plain);
        assert!(lines.iter().all(|line| line.width() <= 48), "{lines:?}");
        assert!(lines.iter().any(|line| line.to_string() == " compressed 99.9M"), "{lines:?}");
    }
}
