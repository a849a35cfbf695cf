//! Scenario files: TOML, with the line of whatever is wrong in them, and `--set`, which changes a line.

use std::fmt;
use std::ops::Range;

use serde::de::DeserializeOwned;

use super::Impossible;

/// A file's text under its name.
#[derive(Clone, Debug)]
pub struct Source {
    name: String,
    text: String,
}

/// A change to a line: `machine.nodes=4`, `device.0.size="1 GiB"`.
#[derive(Clone, Debug)]
pub struct Set {
    /// The table, its index if there are several, the key.
    key: String,
    value: String,
}

/// What is wrong, with file and line.
#[derive(Debug, PartialEq, Eq)]
pub struct BadFile(String);

impl BadFile {
    /// A refusal that no line is to blame for.
    pub fn new(message: String) -> Self {
        Self(message)
    }
}

impl fmt::Display for BadFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadFile {}

impl std::str::FromStr for Set {
    type Err = BadFile;

    fn from_str(text: &str) -> Result<Self, BadFile> {
        let refusal = || BadFile(format!("{text:?} is no setting: use TABLE.KEY=VALUE"));
        let (key, value) = text.split_once('=').ok_or_else(refusal)?;
        if key.is_empty() || value.is_empty() {
            return Err(refusal());
        }
        Ok(Self { key: key.trim().to_owned(), value: value.trim().to_owned() })
    }
}

impl Source {
    /// A text, and the name to report it under.
    pub fn new(name: &str, text: &str) -> Self {
        Self { name: name.to_owned(), text: text.to_owned() }
    }

    /// Gives a key another value, which may lack its quotes.
    ///
    /// # Errors
    /// There is no such key: the message names those that there are.
    pub fn set(&mut self, set: &Set) -> Result<(), BadFile> {
        let mut lines: Vec<String> = self.text.lines().map(str::to_owned).collect();
        let keys = keys_of(&lines);
        let Some((value_lines, _)) = keys.iter().find(|(_, key)| *key == set.key) else {
            let names: Vec<_> = keys.iter().map(|(_, key)| key.as_str()).collect();
            let (file, key) = (&self.name, &set.key);
            return Err(BadFile(format!("{file}: there is no {key}: use {}", names.join(", "))));
        };
        let line = value_lines.start;
        let (key, old) = lines[line].split_once('=').expect("a line with a key has a value");
        let is_quoted = old.trim_start().starts_with('"') && !set.value.starts_with('"');
        let value = if is_quoted { format!("{:?}", set.value) } else { set.value.clone() };
        lines[line] = format!("{key}= {value}");
        // Empty rather than gone: the numbers of those below stay.
        lines[line + 1..value_lines.end].iter_mut().for_each(String::clear);
        self.text = lines.join("\n");
        Ok(())
    }

    /// Reads it.
    ///
    /// # Errors
    /// What it says is not of this shape.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, BadFile> {
        toml::from_str(&self.text).map_err(|error| {
            let at = error.span().unwrap_or(0..0);
            self.refuse(&Impossible::new(at, error.message().replace('\n', ", ")))
        })
    }

    /// A refusal with file and line.
    pub fn refuse(&self, impossible: &Impossible) -> BadFile {
        let start = impossible.at.start.min(self.text.len());
        let line = self.text[..start].matches('\n').count() + 1;
        BadFile(format!("{}:{line}: {}", self.name, impossible.message))
    }
}

/// Every key with its lines, as `--set` names it.
fn keys_of(lines: &[String]) -> Vec<(Range<usize>, String)> {
    let mut table = String::new();
    let mut seen: Vec<String> = Vec::new();
    let mut keys: Vec<(Range<usize>, String)> = Vec::new();
    let mut open = 0;
    for (number, line) in lines.iter().enumerate() {
        let line = line.trim();
        if open > 0 {
            open += brackets(line);
            keys.last_mut().expect("an open value has a key").0.end = number + 1;
        } else if let Some(name) = line.strip_prefix("[[").and_then(|rest| rest.split("]]").next())
        {
            let index = seen.iter().filter(|other| *other == name).count();
            seen.push(name.to_owned());
            table = format!("{name}.{index}.");
        } else if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            table = format!("{}.", in_last_of_array(name, &seen));
        } else if let Some((key, value)) = line.split_once('=')
            && !line.starts_with('#')
        {
            open = brackets(value);
            keys.push((number..number + 1, format!("{table}{}", key.trim())));
        }
    }
    keys
}

/// How many more brackets a line opens than it closes, outside of strings and comments.
fn brackets(line: &str) -> i32 {
    let outside: String = line.split('"').step_by(2).collect();
    let code = outside.split('#').next().unwrap_or_default();
    let count = |bracket: char| code.matches(bracket).count() as i32;
    count('[') - count(']')
}

/// The name of a table, with its number if it is in one of an array: the last one so far.
fn in_last_of_array(name: &str, arrays: &[String]) -> String {
    let of_array = name.split_once('.').and_then(|(array, rest)| {
        let count = arrays.iter().filter(|other| *other == array).count();
        Some(format!("{array}.{}.{rest}", count.checked_sub(1)?))
    });
    of_array.unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    const TEXT: &str = "[machine]\n# how many\nnodes = 2\n[[device]]\nsize = \"1 GiB\"\n[[device]]\nsize = \"2 GiB\"\n";

    #[derive(Deserialize, Debug)]
    #[serde(deny_unknown_fields)]
    struct File {
        machine: Machine,
        device: Vec<Device>,
    }
    #[derive(Deserialize, Debug)]
    #[serde(deny_unknown_fields)]
    struct Machine {
        nodes: u32,
    }
    #[derive(Deserialize, Debug)]
    #[serde(deny_unknown_fields)]
    struct Device {
        size: super::super::Bytes,
    }

    fn with(set: &str) -> Result<File, BadFile> {
        let mut source = Source::new("a.toml", TEXT);
        source.set(&set.parse()?)?;
        source.read()
    }

    #[test]
    fn a_setting_changes_its_line() {
        let file = with("device.1.size=5 GiB").unwrap();
        assert_eq!(file.device.map_size(), [1 << 30, 5 << 30]);
        assert_eq!(with("machine.nodes=7").unwrap().machine.nodes, 7);
    }

    #[test]
    fn a_table_in_a_table_of_an_array_is_of_the_last_one_before_it() {
        let text =
            "[[run]]\ntasks = 1\n[run.published]\nnear = 1\n[[run]]\n[run.published]\nnear = 2\n";
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let expected = [
            (1..2, "run.0.tasks".to_owned()),
            (3..4, "run.0.published.near".to_owned()),
            (6..7, "run.1.published.near".to_owned()),
        ];
        assert_eq!(keys_of(&lines), expected);
    }

    #[test]
    fn a_value_over_several_lines_is_one_value_and_those_below_keep_their_numbers() {
        let text = "[a]\nrows = [  # of [two\n  [1, 2],\n  [3, 4],\n]\nlast = \"[x\"\n";
        let mut source = Source::new("a.toml", text);
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        assert_eq!(keys_of(&lines), [(1..5, "a.rows".to_owned()), (5..6, "a.last".to_owned())]);
        source.set(&"a.rows=[[5]]".parse().unwrap()).unwrap();
        assert_eq!(source.text, "[a]\nrows = [[5]]\n\n\n\nlast = \"[x\"");
    }

    trait MapSize {
        fn map_size(self) -> Vec<u64>;
    }
    impl MapSize for Vec<Device> {
        fn map_size(self) -> Vec<u64> {
            self.into_iter().map(|device| device.size.0).collect()
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line_and_what_would_do() {
        let said = |set| with(set).unwrap_err().to_string();
        assert_eq!(
            said("machine.nods=7"),
            "a.toml: there is no machine.nods: use machine.nodes, device.0.size, device.1.size"
        );
        assert_eq!(
            said("device.0.size=5 GX"),
            "a.toml:5: \"5 GX\" is no size: use a whole number, a space and one of B, KiB, MiB, GiB, TiB"
        );
        assert_eq!(said("nodes"), "\"nodes\" is no setting: use TABLE.KEY=VALUE");
        let unknown = Source::new("b.toml", "[machine]\nnods = 2").read::<File>().unwrap_err();
        assert_eq!(unknown.to_string(), "b.toml:2: unknown field `nods`, expected `nodes`");
    }
}
