//! What each key does, by what lies on top: a panel, or the screen.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use userswap::internals::directory::EngineName;
use userswap::internals::protocol::SettingValue;

use super::model::{Act, Model, Screen};
use super::panel::{Edit, Panel, Question, Settings, Times};
use super::program::{Presence, Swapoff, SwapoffState};

/// Rows that Page Up and Page Down move by.
const PAGE_ROWS: isize = 10;
/// The longest value that can be typed, in bytes: no setting has one as long.
const VALUE_BYTES_MAX: usize = 64;

/// Changes the model as the key says; returns what is to be done outside it.
pub fn press(model: &mut Model, key: KeyEvent) -> Option<Act> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Some(Act::Leave),
            KeyCode::Char('z') => Some(Act::Suspend),
            _ => None,
        };
    }
    // What lies on top is taken away, and put back where it stays.
    match std::mem::replace(&mut model.panel, Panel::Nothing) {
        Panel::Nothing => on_screen(model, key.code),
        Panel::Help => None,
        Panel::Settings(settings) => on_settings(model, settings, key.code),
        Panel::Edit(edit) => on_edit(model, edit, key.code),
        Panel::Devices { of, selected } => on_devices(model, of, selected, key.code),
        Panel::Question(question) => on_question(model, question, key.code),
        Panel::Swapoff(of) => on_swapoff(model, of, key.code),
    }
}

fn on_screen(model: &mut Model, key: KeyCode) -> Option<Act> {
    match key {
        KeyCode::Char('q') => return leave(model),
        KeyCode::Char('?') => model.panel = Panel::Help,
        KeyCode::Char('b') => edit_budget(model),
        KeyCode::Char('s') => return open_settings(model),
        KeyCode::Char('o') => open_swapoff(model),
        KeyCode::Char('h') => ask_hibernate(model),
        _ => {
            return match model.screen {
                Screen::List => on_list(model, key),
                Screen::Program { of, scroll } => {
                    on_program(model, of, scroll, key);
                    None
                }
            };
        }
    }
    None
}

fn on_list(model: &mut Model, key: KeyCode) -> Option<Act> {
    match key {
        KeyCode::Esc => return leave(model),
        KeyCode::Enter => {
            if let Some(of) = model.selected {
                model.screen = Screen::Program { of, scroll: 0 };
            }
        }
        KeyCode::Char('<') | KeyCode::Left => model.sort_by(-1),
        KeyCode::Char('>') | KeyCode::Right => model.sort_by(1),
        KeyCode::Char('r') => model.turn_round(),
        key => model.select(steps(key)),
    }
    None
}

fn on_program(model: &mut Model, of: EngineName, scroll: u16, key: KeyCode) {
    match key {
        KeyCode::Esc | KeyCode::Backspace => {
            model.selected = Some(of);
            model.screen = Screen::List;
        }
        KeyCode::Char('t') => model.next_span(),
        key => {
            let steps = steps(key).clamp(-i16::MAX as isize, i16::MAX as isize);
            let scroll = scroll.saturating_add_signed(steps as i16);
            model.screen = Screen::Program { of, scroll };
        }
    }
}

/// How far a key moves in a list.
fn steps(key: KeyCode) -> isize {
    match key {
        KeyCode::Up | KeyCode::Char('k') => -1,
        KeyCode::Down | KeyCode::Char('j') => 1,
        KeyCode::PageUp => -PAGE_ROWS,
        KeyCode::PageDown => PAGE_ROWS,
        KeyCode::Home => -isize::MAX,
        KeyCode::End => isize::MAX,
        _ => 0,
    }
}

fn leave(model: &mut Model) -> Option<Act> {
    if model.is_swapoff_under_way() {
        model.panel = Panel::Question(Question::Leave);
        return None;
    }
    Some(Act::Leave)
}

/// The program that a key is to change; why not is told where it has ended.
fn changeable(model: &mut Model) -> Option<EngineName> {
    let of = model.target()?;
    if let Presence::Gone(reason) = &model.programs.get(&of)?.presence {
        let reason = reason.clone();
        model.tell(reason);
        return None;
    }
    Some(of)
}

fn edit_budget(model: &mut Model) {
    let Some(of) = changeable(model) else { return };
    let Some(status) = model.programs.get(&of).and_then(|program| program.history.status()) else {
        return;
    };
    // Where it belongs to a job, the job's is set.
    let bytes = match &status.job {
        Some(job) => job.budget_pages.saturating_mul(crate::memory::PAGE_BYTES),
        None => status.ram_bytes,
    };
    let setting = SettingValue {
        key: "ram".to_owned(),
        value: userswap::ByteSize(bytes).to_string(),
        allowed: "a size of at least 16M, such as 512M".to_owned(),
    };
    model.panel = Panel::Edit(Edit { of, setting, value: String::new(), under: None });
}

fn open_settings(model: &mut Model) -> Option<Act> {
    let of = changeable(model)?;
    model.panel = Panel::Settings(Settings { of, rows: None, selected: 0 });
    Some(Act::AskSettings(of))
}

fn open_swapoff(model: &mut Model) {
    // It has a connection of its own, and may go on when the program's has ended.
    if let Some(of) = model.target().filter(|of| model.is_swapoff_under_way_of(*of)) {
        model.panel = Panel::Swapoff(of);
        return;
    }
    let Some(of) = changeable(model) else { return };
    let status = model.programs.get(&of).and_then(|program| program.history.status());
    if status.is_some_and(|status| !status.devices.is_empty()) {
        model.panel = Panel::Devices { of, selected: 0 };
    } else {
        model.tell("it has no device to let go of");
    }
}

fn ask_hibernate(model: &mut Model) {
    let Some(of) = changeable(model) else { return };
    let Some(status) = model.programs.get(&of).and_then(|program| program.history.status()) else {
        return;
    };
    model.panel = Panel::Question(match status.hibernated {
        false => Question::Hibernate { of },
        true => Question::Wake { of },
    });
}

fn on_settings(model: &mut Model, mut settings: Settings, key: KeyCode) -> Option<Act> {
    let count = settings.rows.as_ref().map_or(0, Vec::len);
    match key {
        KeyCode::Esc | KeyCode::Char('q') => return None,
        KeyCode::Enter => {
            let chosen = settings.rows.as_ref().and_then(|rows| rows.get(settings.selected));
            if let Some(setting) = chosen.cloned() {
                let (of, mut value) = (settings.of, String::new());
                let edit = Edit { of, setting, value: String::new(), under: Some(settings) };
                // A choice begins at what is set.
                if !edit.choices().is_empty() {
                    value.clone_from(&edit.setting.value);
                }
                model.panel = Panel::Edit(Edit { value, ..edit });
                return None;
            }
        }
        key => {
            let next = settings.selected.saturating_add_signed(steps(key));
            settings.selected = next.min(count.saturating_sub(1));
        }
    }
    model.panel = Panel::Settings(settings);
    None
}

fn on_edit(model: &mut Model, mut edit: Edit, key: KeyCode) -> Option<Act> {
    match key {
        KeyCode::Esc => {
            model.panel = edit.under.map_or(Panel::Nothing, Panel::Settings);
            return None;
        }
        KeyCode::Enter if !edit.value.is_empty() => {
            model.panel = edit.under.map_or(Panel::Nothing, Panel::Settings);
            let key = edit.setting.key;
            model.tell(format!("{key}: asked for {}", edit.value));
            return Some(Act::Set { of: edit.of, key, value: edit.value });
        }
        KeyCode::Char(letter) if !edit.choices().is_empty() => edit.choose_by(letter),
        KeyCode::Backspace if edit.choices().is_empty() => {
            edit.value.pop();
        }
        KeyCode::Left | KeyCode::Up => edit.choose(-1),
        KeyCode::Right | KeyCode::Down => edit.choose(1),
        KeyCode::Char(letter) if !letter.is_control() && edit.value.len() < VALUE_BYTES_MAX => {
            edit.value.push(letter);
        }
        _ => {}
    }
    model.panel = Panel::Edit(edit);
    None
}

fn on_devices(model: &mut Model, of: EngineName, selected: usize, key: KeyCode) -> Option<Act> {
    let status = model.programs.get(&of).and_then(|program| program.history.status())?;
    let device = status.devices.get(selected).map(|device| device.name.clone());
    let last = status.devices.len().saturating_sub(1);
    model.panel = match (key, device) {
        (KeyCode::Esc | KeyCode::Char('q'), _) => Panel::Nothing,
        (KeyCode::Enter, Some(device)) => {
            Panel::Question(Question::Swapoff { of, device, times: Times::Once })
        }
        (key, _) => {
            Panel::Devices { of, selected: selected.saturating_add_signed(steps(key)).min(last) }
        }
    };
    None
}

fn on_question(model: &mut Model, question: Question, key: KeyCode) -> Option<Act> {
    let hibernate =
        |value: &str, of| Act::Set { of, key: "hibernate".to_owned(), value: value.to_owned() };
    match (question, key) {
        (Question::Leave, KeyCode::Char('y')) => Some(Act::Leave),
        (Question::Hibernate { of }, KeyCode::Char('y')) => {
            model.tell("hibernating: everything goes to swap");
            Some(hibernate("1", of))
        }
        (Question::Wake { of }, KeyCode::Char('y')) => {
            model.tell("waking: what RAM has room for comes back");
            Some(hibernate("0", of))
        }
        (Question::Swapoff { of, device, times: Times::Once }, KeyCode::Char('y')) => {
            model.panel = Panel::Question(Question::Swapoff { of, device, times: Times::Twice });
            None
        }
        // Another key than the first time: one that is held down, or hit twice, does not answer twice.
        (Question::Swapoff { of, device, times: Times::Twice }, KeyCode::Char('Y')) => {
            start_swapoff(model, of, device)
        }
        (_, KeyCode::Esc | KeyCode::Char('n' | 'N' | 'q')) => {
            model.tell("nothing is changed");
            None
        }
        (question, _) => {
            model.panel = Panel::Question(question);
            None
        }
    }
}

fn start_swapoff(model: &mut Model, of: EngineName, device: String) -> Option<Act> {
    let program = model.programs.get_mut(&of)?;
    program.swapoff = Some(Swapoff {
        device: device.clone(),
        pages_left: 0,
        pages_total: 0,
        state: SwapoffState::UnderWay,
    });
    model.panel = Panel::Swapoff(of);
    Some(Act::Swapoff { of, device })
}

fn on_swapoff(model: &mut Model, of: EngineName, key: KeyCode) -> Option<Act> {
    let swapoff = model.programs.get_mut(&of).and_then(|program| program.swapoff.as_mut())?;
    if !swapoff.state.is_under_way() || matches!(key, KeyCode::Esc | KeyCode::Char('q')) {
        return None;
    }
    let act = (key == KeyCode::Char('c') && swapoff.state == SwapoffState::UnderWay).then(|| {
        swapoff.state = SwapoffState::Cancelling;
        Act::CancelSwapoff(of)
    });
    model.panel = Panel::Swapoff(of);
    act
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::examples::{device, status};
    use super::super::model::{Column, Direction, News};
    use super::*;

    const NAME: EngineName = EngineName { pid: 4711, number: 1 };
    const SECOND: Duration = Duration::from_secs(1);

    /// One program with two devices.
    fn model() -> Model {
        let mut model = Model::new(SECOND);
        let mut status = status();
        status.devices.push(device(1, "mem"));
        model.hear(SECOND, News::Status(NAME, Box::new(status)));
        model
    }

    /// Presses keys one after the other; what the last one says is to be done.
    fn press_all(model: &mut Model, keys: &[KeyCode]) -> Option<Act> {
        let (last, before) = keys.split_last().unwrap();
        for key in before {
            assert_eq!(press(model, (*key).into()), None, "{key:?}");
        }
        press(model, (*last).into())
    }

    fn typed(text: &str) -> Vec<KeyCode> {
        text.chars().map(KeyCode::Char).collect()
    }

    fn set(key: &str, value: &str) -> Option<Act> {
        Some(Act::Set { of: NAME, key: key.to_owned(), value: value.to_owned() })
    }

    #[test]
    fn q_escape_and_control_c_leave() {
        assert_eq!(press_all(&mut model(), &typed("q")), Some(Act::Leave));
        assert_eq!(
            press_all(&mut model(), &[KeyCode::Enter, KeyCode::Esc, KeyCode::Esc]),
            Some(Act::Leave)
        );
        let control = |letter| KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL);
        let mut asked = model();
        press_all(&mut asked, &typed("b"));
        assert_eq!(press(&mut asked, control('c')), Some(Act::Leave), "whatever lies on top");
        assert_eq!(press(&mut model(), control('z')), Some(Act::Suspend));
    }

    #[test]
    fn a_budget_is_typed_and_sent() {
        let mut model = model();
        let keys =
            [typed("b12G"), vec![KeyCode::Backspace, KeyCode::Char('M'), KeyCode::Enter]].concat();
        assert_eq!(press_all(&mut model, &keys), set("ram", "12M"));
        assert_eq!(model.panel, Panel::Nothing);
        assert_eq!(
            press_all(&mut model, &[KeyCode::Char('b'), KeyCode::Enter]),
            None,
            "nothing was typed"
        );
        assert!(matches!(model.panel, Panel::Edit(_)));
        let long: Vec<_> = std::iter::repeat_n(KeyCode::Char('1'), 1000).collect();
        press_all(&mut model, &long);
        assert!(matches!(&model.panel, Panel::Edit(edit) if edit.value.len() == VALUE_BYTES_MAX));
    }

    #[test]
    fn a_setting_is_chosen_among_its_values() {
        let mut model = model();
        assert_eq!(press_all(&mut model, &typed("s")), Some(Act::AskSettings(NAME)));
        let setting = |key: &str, value: &str, allowed: &str| SettingValue {
            key: key.to_owned(),
            value: value.to_owned(),
            allowed: allowed.to_owned(),
        };
        let settings =
            vec![setting("ram", "16M", "a size"), setting("poll", "auto", "auto, off or idle")];
        model.hear(SECOND, News::Settings(NAME, settings));
        let keys = [
            KeyCode::Down,
            KeyCode::Down,
            KeyCode::Enter,
            KeyCode::Char('i'),
            KeyCode::Left,
            KeyCode::Enter,
        ];
        assert_eq!(press_all(&mut model, &keys), set("poll", "off"));
        assert!(
            matches!(&model.panel, Panel::Settings(settings) if settings.selected == 1),
            "and back"
        );
        assert_eq!(press_all(&mut model, &[KeyCode::Esc]), None);
        assert_eq!(model.panel, Panel::Nothing);
    }

    #[test]
    fn a_swapoff_is_asked_for_twice_by_different_keys() {
        let mut model = model();
        let chosen = [KeyCode::Char('o'), KeyCode::Down, KeyCode::Enter];
        press_all(&mut model, &chosen);
        assert_eq!(press_all(&mut model, &typed("yyyyy")), None, "a key that is held down");
        assert_eq!(press_all(&mut model, &typed("n")), None);
        assert_eq!(model.panel, Panel::Nothing);
        assert_eq!(model.note(), Some("nothing is changed"));
        press_all(&mut model, &chosen);
        assert_eq!(press_all(&mut model, &typed("Y")), None, "the first time it is y");
        let device = "mem".to_owned();
        assert_eq!(press_all(&mut model, &typed("yY")), Some(Act::Swapoff { of: NAME, device }));
        assert_eq!(model.panel, Panel::Swapoff(NAME));
    }

    #[test]
    fn a_swapoff_under_way_is_cancelled_once_and_not_by_leaving() {
        let mut model = model();
        press_all(
            &mut model,
            &[KeyCode::Char('o'), KeyCode::Enter, KeyCode::Char('y'), KeyCode::Char('Y')],
        );
        model.hear(SECOND, News::Progress { of: NAME, pages_left: 3, pages_total: 9 });
        assert_eq!(press_all(&mut model, &[KeyCode::Esc, KeyCode::Char('q')]), None);
        assert_eq!(model.panel, Panel::Question(Question::Leave));
        press_all(&mut model, &typed("no"));
        assert_eq!(model.panel, Panel::Swapoff(NAME), "o shows the one under way");
        assert_eq!(press_all(&mut model, &typed("c")), Some(Act::CancelSwapoff(NAME)));
        assert_eq!(press_all(&mut model, &typed("c")), None, "it was told");
        let told = "cancelled".to_owned();
        model.hear(SECOND, News::SwapoffEnded { of: NAME, state: SwapoffState::Cancelled, told });
        assert_eq!(press_all(&mut model, &typed("xq")), Some(Act::Leave));
    }

    #[test]
    fn a_program_that_has_ended_is_not_changed_but_its_swapoff_is_shown() {
        let mut model = model();
        let gone = || News::Gone(NAME, "it has ended".to_owned());
        model.hear(SECOND, gone());
        for key in ["b", "s", "o", "h"] {
            model.tell("");
            assert_eq!(press_all(&mut model, &typed(key)), None);
            assert_eq!((&model.panel, model.note()), (&Panel::Nothing, Some("it has ended")));
        }
        model.hear(SECOND, News::Status(NAME, Box::new(status())));
        press_all(&mut model, &[typed("o"), vec![KeyCode::Enter], typed("yY")].concat());
        model.hear(SECOND, gone());
        press_all(&mut model, &[KeyCode::Esc, KeyCode::Char('o')]);
        assert_eq!(model.panel, Panel::Swapoff(NAME));
    }

    #[test]
    fn hibernation_is_asked_and_turned_round() {
        let mut model = model();
        assert_eq!(press_all(&mut model, &typed("hn")), None);
        assert_eq!(press_all(&mut model, &typed("hy")), set("hibernate", "1"));
        let asleep = userswap::internals::status::Status { hibernated: true, ..status() };
        model.hear(2 * SECOND, News::Status(NAME, Box::new(asleep)));
        assert_eq!(press_all(&mut model, &typed("hy")), set("hibernate", "0"));
    }

    #[test]
    fn columns_and_their_order_are_chosen() {
        let mut model = model();
        press_all(&mut model, &[KeyCode::Left]);
        assert_eq!((model.sort, model.direction), (Column::Swapped, Direction::Descending));
        press_all(&mut model, &typed(">>>>>>"));
        assert_eq!((model.sort, model.direction), (Column::Pid, Direction::Ascending));
        press_all(&mut model, &typed("r"));
        assert_eq!(model.direction, Direction::Descending);
    }

    #[test]
    fn without_programs_no_key_does_anything() {
        let mut model = Model::new(SECOND);
        assert_eq!(press_all(&mut model, &typed("bsohjkr<>")), None);
        assert_eq!(press_all(&mut model, &[KeyCode::Enter, KeyCode::End, KeyCode::PageUp]), None);
        assert_eq!((model.panel, model.screen), (Panel::Nothing, Screen::List));
    }
}
