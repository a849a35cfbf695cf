//! What lies over a screen and takes the keys: help, settings, a line to type in, questions.

use userswap::internals::directory::EngineName;
use userswap::internals::protocol::SettingValue;

/// What takes the keys; the screen below does when it is `Nothing`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Panel {
    Nothing,
    Help,
    Settings(Settings),
    Edit(Edit),
    /// Which device a swapoff is of, by its place in the status.
    Devices {
        of: EngineName,
        selected: usize,
    },
    Question(Question),
    /// How far the swapoff is that was asked for last.
    Swapoff(EngineName),
}

/// The settings of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub of: EngineName,
    /// None until the engine has answered.
    pub rows: Option<Vec<SettingValue>>,
    pub selected: usize,
}

/// A new value for a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    pub of: EngineName,
    pub setting: SettingValue,
    /// What was typed or chosen.
    pub value: String,
    /// The settings that it was opened from, to go back to.
    pub under: Option<Settings>,
}

/// What is asked before it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    Hibernate {
        of: EngineName,
    },
    Wake {
        of: EngineName,
    },
    Swapoff {
        of: EngineName,
        device: String,
        times: Times,
    },
    /// A swapoff is under way, and leaving would cancel it.
    Leave,
}

/// A swapoff is asked for twice, with another key each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    Once,
    Twice,
}

impl Edit {
    /// The values to choose from: those of a text such as `wait, stall (the default) or skip`; none where it says what a value
    /// is like.
    pub fn choices(&self) -> Vec<&str> {
        let parts = self.setting.allowed.split(", ").flat_map(|part| part.split(" or "));
        // What is in brackets is another word for the same, or about it.
        let mut is_aside = false;
        let mut words = Vec::new();
        for part in parts {
            let was_aside = is_aside;
            is_aside = (was_aside || part.contains('(')) && !part.contains(')');
            if !was_aside {
                words.push(part.split('(').next().unwrap_or_default().trim_end());
            }
        }
        let is_word = |word: &&str| {
            !word.is_empty()
                && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        if words.len() > 1 && words.iter().all(is_word) { words } else { Vec::new() }
    }

    /// Goes to the choice `steps` further on, round and round.
    pub fn choose(&mut self, steps: isize) {
        let choices = self.choices();
        if choices.is_empty() {
            return;
        }
        let count = choices.len() as isize;
        let at = choices.iter().position(|choice| *choice == self.value);
        let next = match at {
            Some(at) => (at as isize + steps).rem_euclid(count),
            None if steps < 0 => count - 1,
            None => 0,
        };
        self.value = choices[next as usize].to_owned();
    }

    /// Goes to the next choice that begins with `letter`, if there is one.
    pub fn choose_by(&mut self, letter: char) {
        let before = self.value.clone();
        for _ in 0..self.choices().len() {
            self.choose(1);
            if self.value.starts_with(letter) {
                return;
            }
        }
        self.value = before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(allowed: &str, value: &str) -> Edit {
        let setting = SettingValue {
            key: "k".to_owned(),
            value: value.to_owned(),
            allowed: allowed.to_owned(),
        };
        let of = EngineName { pid: 7, number: 1 };
        Edit { of, setting, value: value.to_owned(), under: None }
    }

    #[test]
    fn words_are_choices_and_sentences_are_not() {
        assert_eq!(edit("near or spread", "").choices(), ["near", "spread"]);
        assert_eq!(
            edit("wait, stall, skip or stall-balanced", "").choices(),
            ["wait", "stall", "skip", "stall-balanced"]
        );
        let policies = edit("scaling (or 0), fixed (or 1), vma, stream or off", "");
        assert_eq!(policies.choices(), ["scaling", "fixed", "vma", "stream", "off"]);
        let flag = edit("true or false (also 1, y, on, 0, n, off)", "");
        assert_eq!(flag.choices(), ["true", "false"]);
        for sentence in [
            "a size of at least 16M, such as 512M",
            "a number from 0 to 10",
            "a size of at least 4K such as 2M, or auto",
            "",
        ] {
            assert_eq!(edit(sentence, "").choices(), [""; 0], "{sentence}");
        }
    }

    #[test]
    fn choices_go_round() {
        let mut edit = edit("a, b or c", "c");
        let mut after = |steps| {
            edit.choose(steps);
            edit.value.clone()
        };
        assert_eq!([after(1), after(1), after(-1), after(-1)], ["a", "b", "a", "c"]);
    }
}
