//! `userswap report`: what a record says, in words and pictures. All of it is in the crate of reports.

use std::fs;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use userswap_report::{Record, advice, draw, perfetto, words};

use crate::control::{Lean, plain, table};
use crate::failure::Failure;
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
    if !file.exists() {
        let file = file.display();
        return Err(Failure::usage(format!(
            "{file}: does not exist: name a file of userswap record; a program writes none that fits its budget"
        )));
    }
    Record::open(file).map_err(Failure::usage)
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
            fs::write(file, text).map_err(|error| unwritten("-o", file, &error))
        }
        None if perfetto.is_some() => Ok(()),
        None => said::print(text(record)),
    }
}

/// Writes the events of a record for the Perfetto UI.
pub(crate) fn export(record: &Record, option: &str, file: &Path) -> Result<(), Failure> {
    let written = fs::File::create(file).and_then(|created| {
        let mut created = BufWriter::new(created);
        perfetto::write(record, &mut created)?;
        std::io::Write::flush(&mut created)
    });
    written.map_err(|error| unwritten(option, file, &error))
}

fn two(a: &Record, b: &Record, output: Option<(&Path, Form)>) -> Result<(), Failure> {
    match output {
        Some((file, Form::Html)) => {
            let written = fs::write(file, draw::html_compared(a, b));
            written.map_err(|error| unwritten("-o", file, &error))
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

fn unwritten(option: &str, file: &Path, error: &std::io::Error) -> Failure {
    Failure::usage(format!("{option} {}: {error}: use a file that can be written", file.display()))
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
