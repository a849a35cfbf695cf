//! `userswap report`: what a record says, in words and pictures. All of it is in the crate of reports.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use userswap::internals::whole_file;
use userswap_report::{Record, advice, draw, perfetto, words};

use crate::control::{Lean, plain, table};
use crate::failure::Failure;
use crate::outputs::keep_record;
use crate::said;

/// Mappings that are named.
const MAPPINGS: usize = 5;

/// Columns of a line of words.
const LINE: usize = 100;

/// Options of `report`.
#[derive(clap::Args)]
pub struct ReportArgs {
    /// A file of run --record; with --compare two
    #[arg(required = true, value_name = "FILE", num_args = 1..=2)]
    files: Vec<PathBuf>,
    /// Draw pictures into this file, which a browser shows
    #[arg(short = 'o', long, value_name = "FILE.html|FILE.svg")]
    output: Option<PathBuf>,
    /// Show two records beside each other
    #[arg(long)]
    compare: bool,
    /// Write events into this file, which the Perfetto UI shows
    #[arg(long, value_name = "FILE.json", conflicts_with = "compare")]
    perfetto: Option<PathBuf>,
}

/// Says and draws what a record, or two, have.
///
/// # Errors
/// A file is no record, or cannot be written.
pub fn report(args: &ReportArgs) -> Result<ExitCode, Failure> {
    let output = args.output.as_deref().map(|file| Ok((file, Form::of(file)?))).transpose()?;
    output.map_or(Ok(()), |(file, _)| keep_record("-o", file))?;
    args.perfetto.as_deref().map_or(Ok(()), |file| keep_record("--perfetto", file))?;
    match (&args.files[..], args.compare) {
        ([file], false) => one(&open(file)?, output, args.perfetto.as_deref())?,
        ([a, b], true) => two(&open(a)?, &open(b)?, output)?,
        ([_], true) => return Err(Failure::usage("--compare shows two records: name one more")),
        _ => return Err(Failure::usage("two records: add --compare, or name one")),
    }
    Ok(ExitCode::SUCCESS)
}

/// What a picture is written as.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Html,
    Svg,
}

impl Form {
    fn of(file: &Path) -> Result<Self, Failure> {
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("html") => Ok(Self::Html),
            Some("svg") => Ok(Self::Svg),
            _ => {
                let file = file.display();
                Err(Failure::usage(format!("-o {file}: use a name that ends in .html or .svg")))
            }
        }
    }
}

pub(crate) fn open(file: &Path) -> Result<Record, Failure> {
    let named = file.display();
    match file.try_exists() {
        Ok(true) => Record::open(file).map_err(Failure::usage),
        Ok(false) => Err(Failure::usage(format!(
            "{named}: does not exist: name a file of userswap record; a program writes none that fits its budget"
        ))),
        Err(error) => {
            Err(Failure::usage(format!("{named}: {error}: name a file that can be read")))
        }
    }
}

fn one(
    record: &Record,
    output: Option<(&Path, Form)>,
    perfetto: Option<&Path>,
) -> Result<(), Failure> {
    if let Some(file) = perfetto {
        export(record, "--perfetto", file)?;
    }
    match output {
        Some((file, form)) => {
            let text = if form == Form::Html { draw::html(record) } else { draw::svg(record) };
            write("-o", file, |to| to.write_all(text.as_bytes()))
        }
        None if perfetto.is_some() => Ok(()),
        None => said::print(text(record)),
    }
}

/// Writes the events of a record for the Perfetto UI.
pub(crate) fn export(record: &Record, option: &str, file: &Path) -> Result<(), Failure> {
    write(option, file, |to| perfetto::write(record, to))
}

/// A plain file has its new content whole or not at all; a pipe has it as it comes.
fn write(
    option: &str,
    file: &Path,
    fill: impl FnOnce(&mut BufWriter<&mut File>) -> io::Result<()>,
) -> Result<(), Failure> {
    let fill = |to: &mut File| {
        let mut to = BufWriter::new(to);
        fill(&mut to)?;
        to.flush()
    };
    let written = match fs::metadata(file) {
        Ok(there) if !there.is_file() => {
            File::options().write(true).open(file).and_then(|mut pipe| fill(&mut pipe))
        }
        _ => whole_file::replace_by(file, fill),
    };
    written.map_err(|error| {
        let file = file.display();
        Failure::usage(format!("{option} {file}: {error}: use a file that can be written"))
    })
}

fn two(a: &Record, b: &Record, output: Option<(&Path, Form)>) -> Result<(), Failure> {
    match output {
        Some((file, Form::Html)) => {
            write("-o", file, |to| to.write_all(draw::html_compared(a, b).as_bytes()))
        }
        Some((file, Form::Svg)) => {
            let file = file.display();
            Err(Failure::usage(format!("-o {file}: --compare draws .html: use such a name")))
        }
        None => {
            let lean = [Lean::Left, Lean::Right, Lean::Right, Lean::Right];
            let titles = ["", "FIRST", "SECOND", "RATIO"];
            let titles = std::array::from_fn(|column| (titles[column], lean[column]));
            said::print(format_args!(
                "{}\n{}",
                table(titles, &words::compared(a, b)),
                paragraph(&words::verdict(a, b))
            ))
        }
    }
}

/// All that is said of one record.
fn text(record: &Record) -> String {
    let facts: Vec<_> = words::facts(record)
        .into_iter()
        .map(|(what, fact)| [what.to_owned(), plain(&fact)])
        .collect();
    let mut text = table([("RECORD", Lean::Left), ("", Lean::Left)], &facts);
    for finding in words::findings(record) {
        text += &format!("\n{}", paragraph(&plain(&finding)));
    }
    let rows = words::cost_rows(record, MAPPINGS);
    if !rows.is_empty() {
        let titles = words::COST_TITLES;
        let titles = [(titles[0], Lean::Left), (titles[1], Lean::Right), (titles[2], Lean::Right)];
        text += &format!("\n{}", table(titles, &rows));
    }
    text + &curve(record)
}

/// The miss-ratio curve as a table; nothing if nothing came back.
pub(crate) fn curve(record: &Record) -> String {
    let rows: Vec<_> = advice::table(record).iter().map(words::curve_row).collect();
    if rows.len() < 2 {
        return String::new();
    }
    let titles = words::CURVE_TITLES.map(|title| (title, Lean::Right));
    format!("\n{}", table(titles, &rows))
}

/// Words in lines that a terminal holds.
pub(crate) fn paragraph(text: &str) -> String {
    let (mut lines, mut line) = (String::new(), String::new());
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > LINE {
            lines += &std::mem::take(&mut line);
            lines.push('\n');
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    lines + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_broken_between_lines() {
        let text = paragraph(&"word ".repeat(50));
        assert!(text.lines().all(|line| line.len() <= LINE) && text.lines().count() == 3, "{text}");
        assert_eq!(paragraph("a"), "a\n");
    }
}
