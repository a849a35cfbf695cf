//! Pages: one HTML file or one SVG file that needs nothing else.
use super::pictures;
use super::svg::{Picture, WIDTH, escaped};
use crate::record::Record;
use crate::{advice, words};
use std::fmt::Write as _;

/// Rows of the table of mappings.
const MAPPINGS: usize = 12;

/// Colours by name, for light and for dark.
const COLOURS: &str = "
:root { --paper: #fdfdfc; --ink: #1d1f21; --faint: #5c6166; --grid: #d9dcde; --a: #0072b2; --b: #c8500a; --c: #2a9d78; --d: #a2548a;
  --h1: #d6e6f2; --h2: #a6cbe3; --h3: #6aa9d0; --h4: #3783b8; --h5: #12598f; --h6: #06305c; color-scheme: light dark }
@media (prefers-color-scheme: dark) {
:root { --paper: #16181a; --ink: #e6e8ea; --faint: #9ba2a8; --grid: #33383c; --a: #58b4e8; --b: #f0904a; --c: #3fc79c; --d: #d98fc0;
  --h1: #16324a; --h2: #1d527c; --h3: #2c78ad; --h4: #51a3d4; --h5: #98cfee; --h6: #eef8ff } }
";

/// Everything else.
const STYLE: &str = "
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; max-width: 900px; margin: 2em auto; padding: 0 1em }
h1 { font-size: 1.5em; overflow-wrap: anywhere } * + h1 { margin-top: 2em } h2 { font-size: 1.1em; margin: 2em 0 .3em }
figure { margin: 0 } figcaption, .note { color: var(--faint); font-size: .9em } svg { max-width: 100%; height: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums } th { text-align: left; font-weight: 600 }
td, th { padding: .15em 1.5em .15em 0; border-bottom: 1px solid var(--grid) } td.n, th.n { text-align: right }
.key { display: inline-block; width: .8em; height: .8em; margin: 0 .3em 0 1em; border-radius: 2px }
.wide { overflow-x: auto } .ka { background: var(--a) } .kb { background: var(--b) } .kc { background: var(--c) } .kk { background: var(--ink) }
";

/// Inside pictures.
const PICTURE_STYLE: &str = "
svg text { fill: var(--faint); font: 12px system-ui, sans-serif } .grid { stroke: var(--grid); fill: none }
.line { fill: none; stroke-width: 1.8; stroke-linejoin: round } .sa { stroke: var(--a) } .sb { stroke: var(--b) }
.sk { stroke: var(--ink); stroke-dasharray: 5 4 } .fa { fill: var(--a); opacity: .55 } .fb { fill: var(--b); opacity: .55 } .fc { fill: var(--c); opacity: .55 }
.h1 { fill: var(--h1) } .h2 { fill: var(--h2) } .h3 { fill: var(--h3) } .h4 { fill: var(--h4) } .h5 { fill: var(--h5) } .h6 { fill: var(--h6) }
svg .title { fill: var(--ink); font-weight: 600; font-size: 15px }
";

/// A report of one record.
pub fn html(record: &Record) -> String {
    let mut body = format!("<h1>{}</h1>\n", escaped(&words::command(record)));
    let facts: Vec<_> =
        words::facts(record).into_iter().map(|(what, text)| [what.to_owned(), text]).collect();
    body += &table(&[], &facts);
    body += "<h2>What held it back, and what would help</h2>\n";
    for finding in words::findings(record) {
        writeln!(body, "<p>{}</p>", escaped(&finding)).expect("a string takes all");
    }
    body += &figures(record, "");
    body += "<h2>More RAM</h2>\n";
    let rows: Vec<_> = advice::table(record).iter().map(words::curve_row).collect();
    body += &table(&words::CURVE_TITLES, &rows);
    body += "<h2>Mappings that cost most</h2>\n";
    body += &table(&words::COST_TITLES, &words::cost_rows(record, MAPPINGS));
    page(&words::command(record), &body)
}

/// Two records beside each other.
pub fn html_compared(a: &Record, b: &Record) -> String {
    let mut body = "<h1>Two runs beside each other</h1>\n".to_owned();
    writeln!(body, "<p>{}</p>", escaped(&words::verdict(a, b))).expect("a string takes all");
    let names = [a, b].map(words::command);
    body += &table(&["", "FIRST", "SECOND", "RATIO"], &words::compared(a, b));
    for (number, name, record) in [("First", &names[0], a), ("Second", &names[1], b)] {
        writeln!(body, "<h1>{number}: {}</h1>", escaped(name)).expect("a string takes all");
        body += &figures(record, &format!("{}-", number.to_lowercase()));
    }
    page("Two runs", &body)
}

fn figures(record: &Record, prefix: &str) -> String {
    let mut text = String::new();
    for picture in pictures(record) {
        let Picture { id, title, note, legend, .. } = &picture;
        writeln!(text, "<h2>{}</h2>\n<figure id=\"figure-{prefix}{id}\">", escaped(title))
            .expect("a string takes all");
        text += &picture.element(0.0).replacen(
            &format!("id=\"{id}\""),
            &format!("id=\"{prefix}{id}\""),
            1,
        );
        write!(text, "<figcaption>{}", escaped(note)).expect("a string takes all");
        for (colour, name) in legend {
            write!(text, "<span class=\"key k{colour}\"></span>{}", escaped(name))
                .expect("a string takes all");
        }
        text += "</figcaption></figure>\n";
    }
    text
}

fn page(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{}</title>\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <style>{COLOURS}{STYLE}{PICTURE_STYLE}</style></head><body>\n{body}</body></html>\n",
        escaped(title)
    )
}

/// Rows under titles, where there are any; the first column is words.
fn table<const N: usize>(titles: &[&str], rows: &[[String; N]]) -> String {
    let class = |column: usize| if column == 0 || N == 2 { "" } else { " class=\"n\"" };
    let mut text = "<div class=\"wide\"><table>\n".to_owned();
    let cells = |kind: &str, cells: &mut dyn Iterator<Item = &str>| {
        let cell = |(column, cell): (usize, &str)| {
            format!("<{kind}{}>{}</{kind}>", class(column), escaped(cell))
        };
        format!("<tr>{}</tr>\n", cells.enumerate().map(cell).collect::<String>())
    };
    if !titles.is_empty() {
        text += &cells("th", &mut titles.iter().copied());
    }
    for row in rows {
        text += &cells("td", &mut row.iter().map(String::as_str));
    }
    text + "</table></div>\n"
}

/// All pictures of a record, one below the other.
pub fn svg(record: &Record) -> String {
    let (mut body, mut top) = (String::new(), 10.0);
    for picture in pictures(record) {
        let names: Vec<&str> = picture.legend.iter().map(|(_, name)| name.as_str()).collect();
        let mut title = escaped(&picture.title);
        if !names.is_empty() {
            title +=
                &format!(" <tspan font-weight=\"400\">({})</tspan>", escaped(&names.join(", ")));
        }
        writeln!(body, "<text class=\"title\" x=\"14\" y=\"{}\">{title}</text>", top + 16.0)
            .expect("a string takes all");
        body += &picture.element(top + 22.0);
        top += picture.height + 40.0;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{top}\" viewBox=\"0 0 {WIDTH} {top}\">\n\
         <style>{COLOURS}{PICTURE_STYLE}</style><rect width=\"100%\" height=\"100%\" style=\"fill: var(--paper)\"/>\n{body}</svg>\n"
    )
}
