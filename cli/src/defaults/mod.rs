//! Defaults for `run`: the command line wins over the environment, that over the user's file, that over the machine's
//! file, and all of them over what is built in.
//!
//! Every value goes through the option's own parser before it counts, so that a wrong one is refused in the words of the
//! command line, with the place where it stands.

mod file;
#[cfg(test)]
mod fuzz;

use std::env;
use std::path::PathBuf;

use clap::{Arg, ArgAction, Args, Command, FromArgMatches};

use crate::failure::Failure;
use crate::run::RunArgs;
use crate::value_refusal;
use file::Entry;

/// How the variables begin; the option's name in capitals follows.
const PREFIX: &str = "USERSWAP_";
/// Two options of which there can be one: a default does not count as given to the parser.
const TRACE: &str = "trace";
const RECORD: &str = "record";
/// Between the values of an option that may be repeated.
const BETWEEN: char = ';';

/// What `run` would do without options.
pub struct OfRun {
    pub run: RunArgs,
    /// Where that stands, for people.
    pub sources: String,
}

/// The defaults as `run` sees them.
///
/// # Errors
/// A value that cannot be used, with its place.
pub fn of_run() -> Result<OfRun, Failure> {
    let found = Defaults::find()?;
    let parsed = |command: Command| {
        let matches = command.try_get_matches_from(["run", "--", "true"]);
        let run = matches.and_then(|matches| RunArgs::from_arg_matches(&matches));
        run.expect("every value was tried")
    };
    let bare = RunArgs::augment_args(Command::new("run"));
    let found = found.beside(&parsed(bare.clone()))?;
    let run = parsed(found.apply(bare));
    Ok(OfRun { run, sources: found.sources() })
}

/// Values for options that the command line does not name.
pub struct Defaults {
    /// The first of an option wins.
    entries: Vec<Entry>,
    files: Vec<PathBuf>,
}

impl Defaults {
    /// Looks at the environment and the files.
    ///
    /// # Errors
    /// As for [`of_run`].
    pub fn find() -> Result<Defaults, Failure> {
        let command = RunArgs::augment_args(Command::new("run"));
        let mut defaults = Defaults { entries: of_environment(&command), files: Vec::new() };
        for path in file::paths(|name| env::var_os(name).map(PathBuf::from)) {
            if let Some(entries) = file::read(&path)? {
                defaults.entries.extend(entries);
                defaults.files.push(path);
            }
        }
        defaults.entries.iter().try_for_each(|entry| check(&command, entry))?;
        Ok(defaults)
    }

    /// The command `run`, with these instead of what is built in.
    pub fn apply(&self, run: Command) -> Command {
        // The user's own file is read before the machine's, so the last to be applied is the first.
        self.entries.iter().rev().fold(run, |run, entry| {
            let Some(option) = option(&run, &entry.key) else { return run };
            let name = option.get_id().clone();
            // They last as long as the process, as the command line does.
            let values = entry.values.iter().map(|value| &*value.clone().leak());
            run.mut_arg(name, |option| option.default_values(values))
        })
    }

    /// Without those that what the command line names cannot go together with.
    ///
    /// # Errors
    /// Two of them cannot go together, and the command line names neither.
    pub fn beside(mut self, given: &RunArgs) -> Result<Defaults, Failure> {
        let first = |key: &str| self.entries.iter().find(|entry| entry.key == key);
        let (drops_trace, drops_record) = (given.record.is_some(), given.trace.is_some());
        if let (false, false, Some(trace), Some(record)) =
            (drops_trace, drops_record, first(TRACE), first(RECORD))
        {
            let (origin, other) = (&trace.origin, &record.origin);
            return Err(Failure::usage(format!(
                "{origin}: trace: cannot go together with record, of {other}: remove one of them"
            )));
        }
        self.entries.retain(|entry| match &entry.key[..] {
            TRACE => !drops_trace,
            RECORD => !drops_record,
            _ => true,
        });
        Ok(self)
    }

    fn sources(&self) -> String {
        let variables =
            self.entries.iter().map(|entry| &entry.origin).filter(|it| !it.contains(':'));
        let files = self.files.iter().map(|path| path.display().to_string());
        let all: Vec<_> = variables.cloned().chain(files).collect();
        if all.is_empty() { "as built in".to_owned() } else { format!("of {}", all.join(", ")) }
    }
}

fn of_environment(command: &Command) -> Vec<Entry> {
    let entry = |option: &Arg| {
        let key = option.get_long()?.to_owned();
        let name = format!("{PREFIX}{}", key.to_uppercase().replace('-', "_"));
        let text = env::var_os(&name).filter(|text| !text.is_empty())?;
        // What is not UTF-8 is refused by the option, which shows it.
        let text = text.to_string_lossy().into_owned();
        let values = match option.get_action() {
            ArgAction::Append => text.split(BETWEEN).map(str::to_owned).collect(),
            _ => vec![text],
        };
        Some(Entry { key, values, origin: name })
    };
    options(command).filter_map(entry).collect()
}

/// Those that can have defaults.
fn options(command: &Command) -> impl Iterator<Item = &Arg> {
    command
        .get_arguments()
        .filter(|option| option.get_long().is_some_and(|name| name != NO_DEFAULTS))
}

/// The option that ends all this.
const NO_DEFAULTS: &str = "no-defaults";

fn option<'a>(command: &'a Command, key: &str) -> Option<&'a Arg> {
    options(command).find(|option| option.get_long() == Some(key))
}

/// Has the option itself look at its values.
fn check(command: &Command, entry: &Entry) -> Result<(), Failure> {
    let Entry { key, values, origin } = entry;
    let refuse = |reason: String| Failure::usage(format!("{origin}: {reason}"));
    let Some(option) = option(command, key) else {
        let known: Vec<_> = options(command).filter_map(Arg::get_long).collect();
        return Err(refuse(format!("{key}: is no option of run: use {}", known.join(", "))));
    };
    let words: Vec<String> = match (option.get_action(), &values[..]) {
        (ArgAction::SetTrue, [value]) if value == "true" || value == "false" => return Ok(()),
        (ArgAction::SetTrue, values) => {
            return Err(refuse(format!("{key}: {:?}: use true or false", values.join(" "))));
        }
        (ArgAction::Set, [value]) => vec![format!("--{key}={value}")],
        (ArgAction::Set, values) => {
            return Err(refuse(format!("{key}: {} values: give one", values.len())));
        }
        (_, values) => values.iter().map(|value| format!("--{key}={value}")).collect(),
    };
    let words = ["run"].into_iter().chain(words.iter().map(String::as_str)).chain(["--", "true"]);
    match command.clone().try_get_matches_from(words) {
        Ok(_) => Ok(()),
        Err(error) => Err(refuse(value_refusal(&error).unwrap_or_else(|| {
            let text = error.to_string();
            text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
        }))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        RunArgs::augment_args(Command::new("run"))
    }

    fn entry(key: &str, values: &[&str]) -> Entry {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        Entry { key: key.to_owned(), values, origin: "/f:3".to_owned() }
    }

    #[test]
    fn a_value_is_refused_in_the_options_own_words() {
        for (key, values, said) in [
            ("ram", &["1M"][..], "/f:3: --ram: \"1M\" is too small a budget: give at least 16M"),
            ("fault", &["both"], "\"both\""),
            ("rams", &["1G"], "/f:3: rams: is no option of run: use ram, "),
            ("no-defaults", &["true"], "is no option"),
            ("quiet", &["yes"], "quiet: \"yes\": use true or false"),
            ("ram", &["1G", "2G"], "2 values"),
            ("swap", &["/a", "mem:x"], "mem:x"),
        ] {
            let refusal = check(&command(), &entry(key, values)).unwrap_err().message;
            assert!(refusal.contains(said), "{refusal}");
            assert!(refusal.starts_with("/f:3: ") && !refusal.contains('\n'), "{refusal}");
        }
    }

    #[test]
    fn the_first_of_an_option_wins_and_the_command_line_before_it() {
        let entries = vec![
            entry("ram", &["32M"]),
            entry("ram", &["64M"]),
            entry("quiet", &["true"]),
            entry("swap", &["/a", "/b"]),
        ];
        let command = Defaults { entries, files: Vec::new() }.apply(command());
        let shown = |words: &[&str]| {
            let matches = command.clone().try_get_matches_from(words).unwrap();
            let all = |name| {
                let values = matches.get_raw(name).into_iter().flatten();
                values.map(|value| value.to_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
            };
            [all("ram"), all("swap"), matches.get_flag("quiet").to_string()]
        };
        assert_eq!(shown(&["run", "true"]), ["32M", "/a /b", "true"]);
        assert_eq!(shown(&["run", "--ram=1G", "--swap=/c", "true"]), ["1G", "/c", "true"]);
    }

    #[test]
    fn what_the_command_line_names_drops_the_default_that_cannot_be_beside_it() {
        let keys = |words: &[&str]| {
            let entries =
                vec![entry("record", &["r"]), entry("ram", &["32M"]), entry("trace", &["t"])];
            let matches = command().try_get_matches_from(words).unwrap();
            let given = RunArgs::from_arg_matches(&matches).unwrap();
            let left = Defaults { entries, files: Vec::new() }.beside(&given);
            left.map(|left| left.entries.into_iter().map(|entry| entry.key).collect::<Vec<_>>())
        };
        assert_eq!(keys(&["run", "--trace=x", "true"]), Ok(vec!["ram".into(), "trace".into()]));
        assert_eq!(keys(&["run", "--record=x", "true"]), Ok(vec!["record".into(), "ram".into()]));
        let refusal = keys(&["run", "true"]).unwrap_err().message;
        assert!(refusal.starts_with("/f:3: trace: ") && refusal.contains("record"), "{refusal}");
    }
}
