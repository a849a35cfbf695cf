//! Frames of known models, at the sizes that a terminal has.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use userswap::internals::directory::EngineName;
use userswap::internals::protocol::SettingValue;

use super::super::examples::{device, node, status, with_latency};
use super::super::model::{Column, Model, News, Screen};
use super::super::panel::{Edit, Panel, Question, Settings, Times};
use super::super::program::{Swapoff, SwapoffState};
use super::{Paint, draw};

const SECOND: Duration = Duration::from_secs(1);
const BUSY: EngineName = EngineName { pid: 4711, number: 1 };
const SILENT: EngineName = EngineName { pid: 4712, number: 2 };
const FIRST: EngineName = EngineName { pid: 98765, number: 1 };

/// Two programs, one of which stopped answering seven seconds ago.
fn model() -> Model {
    let mut model = Model::new(SECOND);
    model.hear(Duration::ZERO, News::Found(vec![BUSY, SILENT]));
    let mut other = status();
    other.program = "a-program-with-a-long-name".to_owned();
    model.hear(3 * SECOND, News::Status(SILENT, Box::new(other)));
    for at in 0..=10 {
        let mut status = with_latency(&[0, 50 * at, 30 * at, 0, 7 * at]);
        *status.counters.get_mut("pgfault").unwrap() += 1000 * at;
        *status.counters.get_mut("pswpin").unwrap() += 30_000 * at;
        *status.counters.get_mut("swap_ra").unwrap() += 100 * at;
        (status.fault_latency_ns.p50, status.fault_latency_ns.p99) = (6000, 9000);
        status.fault_latency_ns.max = 9000;
        status.stall_ns = 125_000_000 * at;
        status.devices[0].reads.bytes = 122_880_000 * at;
        model.hear(at as u32 * SECOND, News::Status(BUSY, Box::new(status)));
    }
    model.selected = Some(BUSY);
    model
}

/// The rows of a frame without the spaces at their end.
fn frame(model: &Model, (width, height): (u16, u16), paint: Paint) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| _ = draw(frame, model, paint)).unwrap();
    let buffer = terminal.backend().buffer();
    if paint == Paint::Plain {
        assert!(
            buffer.content().iter().all(|cell| (cell.fg, cell.bg) == (Color::Reset, Color::Reset))
        );
    }
    let row =
        |row: &[ratatui::buffer::Cell]| row.iter().map(|cell| cell.symbol()).collect::<String>();
    buffer.content().chunks(width.into()).map(|cells| row(cells).trim_end().to_owned()).collect()
}

const SMALL: (u16, u16) = (80, 24);
const LARGE: (u16, u16) = (200, 50);

fn has(rows: &[String], part: &str) {
    assert!(rows.iter().any(|row| row.contains(part)), "{part:?} is not in:\n{}", rows.join("\n"));
}

#[test]
fn the_list_has_a_row_for_each_program_under_its_titles() {
    let rows = frame(&model(), SMALL, Paint::Plain);
    let expected = "\
userswap top  2 programs  23.4M resident  80M swapped  in 123  out 0.0 MB/s
by FAULTS/S, the most first (r: the other way)
    PID PROGRAM      RAM RESIDENT SWAPPED FAULTS/S IN MB/S OUT MB/S STALL RA HIT
   4711 python3.11   16M    11.7M     40M     1000     123      0.0   12%   100%
 4712-2 a-program…   16M    11.7M     40M  no answer for 7 s";
    assert_eq!(rows[..5].join("\n"), expected);
    assert_eq!(
        rows[23],
        "Enter open  ←→ sort  b budget  s set  o swapoff  h hibernate  ? help  q quit"
    );
    has(&frame(&model(), LARGE, Paint::Colour), "4712-2 a-program-with-a-long-name ");
}

#[test]
fn a_list_longer_than_the_terminal_follows_the_selection() {
    let mut model = model();
    let names: Vec<_> = (1..100).map(|pid| EngineName { pid, number: 1 }).collect();
    model.hear(10 * SECOND, News::Found(names));
    model.sort = Column::Pid;
    model.turn_round();
    model.select(isize::MAX);
    let rows = frame(&model, SMALL, Paint::Plain);
    assert!(rows[21].starts_with("     99 "), "{}", rows.join("\n"));
}

#[test]
fn without_programs_it_says_how_one_comes() {
    has(&frame(&Model::new(SECOND), SMALL, Paint::Plain), "userswap run --ram 512M -- PROGRAM");
}

#[test]
fn a_program_has_graphs_latency_lists_devices_and_job() {
    let mut model = model();
    model.screen = Screen::Program { of: BUSY, scroll: 0 };
    for (size, paint) in [(SMALL, Paint::Plain), (LARGE, Paint::Colour)] {
        let rows = frame(&model, size, paint);
        for part in [
            "4711 python3.11   faults by thread, placement near",
            "1000 faults/s   stalled 12%   readahead hit 100%",
            "RAM 11.7M of 16M",
            "Swap 40M of 64G",
            "In 123 MB/s, at most 123",
            "█",
            "median 6.0 µs, p99 9.0 µs",
            "< 2.0 µs ",
            " active 7.4M  inactive 3.9M  cached 1.9M",
            " available 4M: min 256K low 992K high 1.6M",
            "/var/tmp ",
            "40M   64G     123      0.0  0.0%",
            "Job 4711: 15.6M of 16M held",
        ] {
            has(&rows, part);
        }
    }
    has(&frame(&model, LARGE, Paint::Colour), "Stalled 12% of the time");
}

#[test]
fn what_does_not_fit_is_counted_and_scrolled_to() {
    let mut model = model();
    let mut large = status();
    large.nodes = (0..8).map(node).collect();
    large.devices = vec![device(0, "/swap/0"), device(1, "/swap/1")];
    model.hear(11 * SECOND, News::Status(BUSY, Box::new(large)));
    model.screen = Screen::Program { of: BUSY, scroll: 0 };
    let rows = frame(&model, SMALL, Paint::Plain);
    has(&rows, "↓ 29 more lines");
    assert!(!rows.iter().any(|row| row.contains("REFAULTS/S")));
    model.screen = Screen::Program { of: BUSY, scroll: u16::MAX };
    has(&frame(&model, SMALL, Paint::Plain), "REFAULTS/S");
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    let mut hidden = 0;
    terminal.draw(|frame| hidden = draw(frame, &model, Paint::Plain)).unwrap();
    model.bound_scroll(hidden);
    assert_eq!(model.screen, Screen::Program { of: BUSY, scroll: 29 });
}

#[test]
fn an_engine_of_an_older_build_has_dashes_for_what_it_does_not_tell() {
    let mut model = Model::new(SECOND);
    for at in [0, 1] {
        let mut status = status();
        status.fault_latency_ns.max = 5000;
        model.hear(at * SECOND, News::Status(FIRST, Box::new(status)));
    }
    has(
        &frame(&model, SMALL, Paint::Plain),
        "  98765 python3.11   16M    11.7M     40M        0     0.0      0.0     –      –",
    );
    model.screen = Screen::Program { of: FIRST, scroll: 0 };
    let rows = frame(&model, SMALL, Paint::Plain);
    has(&rows, "stalled –");
    has(&rows, "40M   64G       –        –     –");
    has(&rows, "median");
}

#[test]
fn a_program_that_is_silent_or_gone_says_so_on_its_screen() {
    let mut model = model();
    model.screen = Screen::Program { of: SILENT, scroll: 0 };
    has(
        &frame(&model, SMALL, Paint::Plain),
        "no answer for 7 s: it is stopped, or busy with a fork",
    );
    model.hear(10 * SECOND, News::Gone(SILENT, "process 4712-2 has just ended".to_owned()));
    has(&frame(&model, SMALL, Paint::Plain), "process 4712-2 has just ended");
}

#[test]
fn a_small_terminal_is_told_what_it_takes() {
    for size in [(40, 10), (79, 24), (80, 23), (1, 1)] {
        let rows = frame(&model(), size, Paint::Colour);
        if size.0 > 1 {
            let text = rows.join(" ");
            assert!(text.starts_with("userswap top needs 80×24"), "{text}");
            assert!(text.contains(&format!("{}×{}", size.0, size.1)), "{text}");
        }
    }
}

/// Every panel, and a part of what it shows.
fn panels() -> Vec<(Panel, &'static str)> {
    let setting = SettingValue {
        key: "reclaim_contention".to_owned(),
        value: "wait".to_owned(),
        allowed: "wait, stall, skip or stall-balanced".to_owned(),
    };
    let settings = Settings { of: BUSY, rows: Some(vec![setting.clone()]), selected: 0 };
    let edit = Edit { of: BUSY, setting, value: "stall".to_owned(), under: None };
    let twice = Question::Swapoff { of: BUSY, device: "/var/tmp".to_owned(), times: Times::Twice };
    let once = Question::Swapoff { of: BUSY, device: "/var/tmp".to_owned(), times: Times::Once };
    vec![
        (Panel::Help, "share of the time in which a thread waited"),
        (
            Panel::Settings(settings),
            "reclaim_contention  wait  wait, stall, skip or stall-balanced",
        ),
        (Panel::Settings(Settings { of: BUSY, rows: None, selected: 0 }), "no answer yet"),
        (Panel::Edit(edit), " wait   stall   skip   stall-balanced"),
        (Panel::Devices { of: BUSY, selected: 0 }, "40M in use"),
        (Panel::Question(once), "swapoff /var/tmp of 4711 python3.11?"),
        (Panel::Question(twice), "Y (a capital Y) yes"),
        (Panel::Question(Question::Hibernate { of: BUSY }), "Hibernate 4711 python3.11?"),
        (Panel::Question(Question::Wake { of: BUSY }), "Wake 4711 python3.11?"),
        (Panel::Question(Question::Leave), "leaving cancels it"),
        (Panel::Swapoff(BUSY), "3.9M of 15.6M left"),
    ]
}

/// Over every screen and at every size: nothing panics, and each shows what it is about.
#[test]
fn panels_lie_over_the_screens() {
    for (panel, part) in panels() {
        let mut model = model();
        model.panel = panel;
        model.programs.get_mut(&BUSY).unwrap().swapoff = Some(Swapoff {
            device: "/var/tmp".to_owned(),
            pages_left: 1000,
            pages_total: 4000,
            state: SwapoffState::UnderWay,
        });
        for screen in [Screen::List, Screen::Program { of: BUSY, scroll: 0 }] {
            model.screen = screen;
            for size in [SMALL, LARGE] {
                has(&frame(&model, size, Paint::Plain), part);
            }
            frame(&model, (40, 10), Paint::Plain);
        }
    }
}

#[test]
fn a_long_refusal_is_shown_whole() {
    let mut model = model();
    model.tell("process 4711: /var/tmp holds 17136 pages, and without it there is room for 16383: swap another device on first, or raise the budget");
    let rows = frame(&model, SMALL, Paint::Plain);
    has(&rows, "process 4711: /var/tmp holds 17136 pages");
    has(&rows, "raise the budget");
}
