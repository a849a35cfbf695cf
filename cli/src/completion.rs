//! `userswap completions`: what a shell runs when Tab is pressed, and what it is answered.
//!
//! The script asks this binary, which asks the running programs: processes, settings with their values, and devices are
//! completed as they are at that moment.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Command};
use clap_complete::engine::{
    ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use clap_complete::env::{CompleteEnv, Shells};
use userswap::internals::directory::EngineName;
use userswap::internals::protocol::{Answer, Request};

use crate::control::{Client, Engine, engines};
use crate::failure::Failure;
use crate::said;

/// Set by the script: the shell that asks.
const VARIABLE: &str = "USERSWAP_COMPLETE";

/// Nobody who presses Tab waits for a program that is stopped.
const PATIENCE: Duration = Duration::from_millis(500);

/// zsh loads the script from its `fpath` at the first Tab, as the body of a function that is to complete: without this
/// that Tab would offer nothing.
const ZSH_END: &str = "
if [[ $funcstack[1] == _userswap ]]; then
    _clap_dynamic_completer_userswap
fi
";

/// Options of `completions`.
#[derive(Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_parser = ["bash", "zsh", "fish"])]
    shell: String,
}

/// Prints the script.
///
/// # Errors
/// Standard output is closed.
pub fn completions(args: &CompletionsArgs) -> Result<ExitCode, Failure> {
    let shells = Shells::builtins();
    let shell = shells.completer(&args.shell).expect("the values are shells");
    let end = if args.shell == "zsh" { ZSH_END } else { "" };
    let mut out = io::stdout();
    let written = shell
        .write_registration(VARIABLE, "userswap", "userswap", "userswap", &mut out)
        .and_then(|()| out.write_all(end.as_bytes()));
    said::printed(written)?;
    Ok(ExitCode::SUCCESS)
}

/// Answers a shell and ends, if one asks.
pub fn answer(command: fn() -> Command) {
    CompleteEnv::with_factory(move || with_answers(command())).var(VARIABLE).complete();
}

/// The command line, with what completes its values.
fn with_answers(command: Command) -> Command {
    let pid = || ArgValueCompleter::new(processes);
    let add = |command: Command, name: &'static str, answer: ArgValueCompleter| {
        command.mut_arg(name, |argument| argument.add(answer))
    };
    command
        .mut_subcommand("status", |status| add(status, "pid", pid()))
        .mut_subcommand("swapon", |swapon| add(swapon, "pid", pid()))
        .mut_subcommand("swapoff", |swapoff| {
            add(add(swapoff, "pid", pid()), "path", ArgValueCompleter::new(devices))
        })
        .mut_subcommand("set", |set| {
            let set = add(add(set, "pid", pid()), "key", ArgValueCompleter::new(settings));
            add(set, "value", ArgValueCompleter::new(values))
        })
        .mut_subcommand("run", |run| add(run, "command", ArgValueCompleter::new(Program)))
        .mut_subcommand("record", |record| add(record, "command", ArgValueCompleter::new(Program)))
}

fn candidates(
    all: impl IntoIterator<Item = (String, String)>,
    current: &OsStr,
) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    let fitting = all.into_iter().filter(|(value, _)| value.starts_with(&*current));
    fitting.map(|(value, help)| CompletionCandidate::new(value).help(Some(help.into()))).collect()
}

fn processes(current: &OsStr) -> Vec<CompletionCandidate> {
    // One that cannot be asked is there all the same.
    let named = |engine: Engine| {
        (engine.name.to_string(), engine.status.map_or(String::new(), |it| it.program))
    };
    candidates(engines(PATIENCE).into_iter().map(named), current)
}

/// The process that the line names, asked.
fn asked(request: &Request) -> Option<Answer> {
    let mut client = Client::of(named(&words(), 0)?.parse::<EngineName>().ok()?).ok()?;
    client.ask_within(request, PATIENCE).ok()
}

fn devices(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(Answer::Status { status }) = asked(&Request::Status {}) else { return Vec::new() };
    candidates(status.devices.into_iter().map(|device| (device.name, device.kind)), current)
}

fn settings(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(Answer::Settings { settings }) = asked(&Request::Settings {}) else {
        return Vec::new();
    };
    candidates(
        settings.into_iter().map(|it| (it.key, format!("{}; {}", it.value, it.allowed))),
        current,
    )
}

fn values(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(Answer::Settings { settings }) = asked(&Request::Settings {}) else {
        return Vec::new();
    };
    let Some(key) = named(&words(), 1) else { return Vec::new() };
    let Some(setting) = settings.into_iter().find(|it| it.key == key) else { return Vec::new() };
    let now = std::iter::once((setting.value, "as it is".to_owned()));
    let others = words_of(&setting.allowed).into_iter().map(|word| (word, String::new()));
    candidates(now.chain(others), current)
}

/// The values in "auto, off or a number from 1 to 10": those of one word.
fn words_of(allowed: &str) -> Vec<String> {
    let parts = allowed.split(", ").flat_map(|part| part.split(" or "));
    // "fixed (or 1)" is one value with another name.
    let parts = parts.filter_map(|part| part.split(" (").next());
    let plain =
        |part: &&str| !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    parts.filter(plain).map(str::to_owned).collect()
}

/// The words of the line that is being written.
fn words() -> Vec<OsString> {
    env::args_os().skip_while(|word| word != "--").skip(1).collect()
}

/// The words from the process on, the one of that number: values of options come before it.
fn named(words: &[OsString], number: usize) -> Option<String> {
    let mut words = words.iter().skip(2).filter_map(|word| word.to_str());
    let process = words.find(|word| word.parse::<EngineName>().is_ok())?;
    std::iter::once(process).chain(words).nth(number).map(str::to_owned)
}

/// A program first, then files for it.
struct Program;

impl ValueCompleter for Program {
    fn complete(&self, current: &OsStr) -> Vec<CompletionCandidate> {
        self.complete_at(0, current)
    }

    fn complete_at(&self, index: usize, current: &OsStr) -> Vec<CompletionCandidate> {
        let files = PathCompleter::any().complete(current);
        match index {
            0 if !current.to_string_lossy().contains('/') => {
                candidates(programs().into_iter().map(|name| (name, String::new())), current)
                    .into_iter()
                    .chain(files)
                    .collect()
            }
            _ => files,
        }
    }
}

fn programs() -> Vec<String> {
    let path = env::var_os("PATH").unwrap_or_default();
    let entries = env::split_paths(&path).filter_map(|directory| fs::read_dir(directory).ok());
    let is_program = |entry: &fs::DirEntry| {
        fs::metadata(entry.path())
            .is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    let programs = entries.flatten().filter_map(Result::ok).filter(is_program);
    let mut names: Vec<_> =
        programs.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_one_word_are_completed() {
        for (allowed, words) in [
            ("near or spread", &["near", "spread"][..]),
            ("wait, stall, skip or stall-balanced", &["wait", "stall", "skip", "stall-balanced"]),
            (
                "auto, off, idle or a number of microseconds from 1 to 1000",
                &["auto", "off", "idle"],
            ),
            ("scaling (or 0), fixed (or 1), vma or off", &["scaling", "fixed", "vma", "off"]),
            ("a size of at least 16M, such as 512M", &[]),
        ] {
            assert_eq!(words_of(allowed), words, "{allowed}");
        }
    }

    #[test]
    fn operands_are_counted_from_the_process_on() {
        let words = ["userswap", "set", "--one", "more", "4711", "ram"].map(OsString::from);
        let found = [0, 1, 2].map(|number| named(&words, number));
        assert_eq!(found.each_ref().map(Option::as_deref), [Some("4711"), Some("ram"), None]);
    }
}
