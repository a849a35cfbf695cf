//! `userswap man`: a page for every command, made of the same command line that reads it.

pub mod examples;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::failure::Failure;
use crate::said;
use examples::Example;

/// Options of `man`.
#[derive(Args)]
pub struct ManArgs {
    /// Where the pages go [default: the page of `userswap` itself to standard output]
    directory: Option<PathBuf>,
}

/// Prints the first page, or writes all.
///
/// # Errors
/// The directory cannot be written to.
pub fn man(args: &ManArgs) -> Result<ExitCode, Failure> {
    // `userswap help COMMAND` is no command to read about.
    let mut command = crate::command().disable_help_subcommand(true);
    command.build();
    match &args.directory {
        None => {
            let page = page(&command, "").expect("a page fits memory");
            said::printed(io::stdout().write_all(&page))?;
        }
        Some(directory) => write_all(&command, "", directory).map_err(|error| {
            Failure::unavailable(format!(
                "{}: {error}; name a writable directory",
                directory.display()
            ))
        })?,
    }
    Ok(ExitCode::SUCCESS)
}

fn write_all(command: &Command, path: &str, directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let name =
        ["userswap"].into_iter().chain(path.split_whitespace()).collect::<Vec<_>>().join("-");
    fs::write(directory.join(format!("{name}.1")), page(command, path)?)?;
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_all(below, format!("{path} {}", below.get_name()).trim(), directory)?;
    }
    Ok(())
}

fn page(command: &Command, path: &str) -> io::Result<Vec<u8>> {
    // Other sections' examples are text that is filled; ours are lines.
    let command = command.clone().after_help("");
    let has_commands = command.get_subcommands().any(|below| !below.is_hide_set());
    let man = Man::new(command)
        .manual("userswap")
        .source(concat!("userswap ", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if has_commands {
        man.render_subcommands_section(&mut text)?;
    }
    let mut more = Roff::new();
    match path {
        "" => say(&mut more, "EXAMPLES", examples::of("run")),
        path => say(&mut more, "EXAMPLES", examples::of(path)),
    }
    if path == "run" {
        defaults(&mut more);
    }
    if !path.is_empty() {
        more.control("SH", ["SEE ALSO"]);
        more.text([bold("userswap"), roman("(1)")]);
    }
    more.to_writer(&mut text)?;
    Ok(text)
}

fn say(page: &mut Roff, heading: &str, examples: &[Example]) {
    page.control("SH", [heading]);
    for Example { line, does } in examples {
        page.control("TP", []);
        page.text([bold(*line)]);
        page.text([roman(*does)]);
    }
}

fn defaults(page: &mut Roff) {
    page.control("SH", ["ENVIRONMENT"]);
    page.control("TP", []);
    page.text([bold("USERSWAP_RAM, USERSWAP_SWAP, USERSWAP_FAULT ...")]);
    page.text([roman("the option of that name, where the command line does not give it; several values with ; between them")]);
    page.control("SH", ["FILES"]);
    for (file, says) in [
        (
            "$XDG_CONFIG_HOME/userswap.toml, ~/.config/userswap.toml",
            "the same for what the environment does not give: ram = \"2G\"",
        ),
        ("/etc/userswap.toml", "the same for what that does not give"),
    ] {
        page.control("TP", []);
        page.text([bold(file)]);
        page.text([roman(says)]);
    }
}
