//! One picture: a frame with axes, and what is drawn in it.
use std::fmt::Write as _;

/// Width of a picture, and of what lies inside its axes.
pub const WIDTH: f64 = 900.0;
pub const INNER: f64 = WIDTH - LEFT - RIGHT;
/// Room for the labels of the axes.
pub const LEFT: f64 = 104.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 24.0;

/// A picture with a title; its body is SVG.
#[derive(Debug)]
pub struct Picture {
    /// For links and tests.
    pub id: &'static str,
    pub title: String,
    /// What is to be seen, in a sentence.
    pub note: String,
    /// Names of series with their colours.
    pub legend: Vec<(&'static str, String)>,
    pub height: f64,
    pub body: String,
}

impl Picture {
    /// A picture whose inside is so high.
    pub fn new(id: &'static str, title: &str, inside: f64) -> Self {
        let (title, height) = (title.to_owned(), inside + TOP + BOTTOM);
        Self { id, title, note: String::new(), legend: Vec::new(), height, body: String::new() }
    }

    /// Height inside the axes.
    pub fn inside(&self) -> f64 {
        self.height - TOP - BOTTOM
    }

    /// The position of a height above the lower axis.
    pub fn y(&self, up: f64) -> f64 {
        self.height - BOTTOM - up
    }

    /// A line across, with its label.
    pub fn tick_y(&mut self, up: f64, label: &str) {
        let (y, right) = (self.y(up), WIDTH - RIGHT);
        let label = escaped(label);
        self.add(format_args!(
            "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/><text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            LEFT - 6.0,
            y + 4.0
        ));
    }

    /// A label below.
    pub fn tick_x(&mut self, along: f64, label: &str) {
        let (x, y) = (LEFT + along, self.height - 7.0);
        let label = escaped(label);
        self.add(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{label}</text>"
        ));
    }

    /// A line through points, as distances along and up.
    pub fn line(&mut self, colour: &str, points: &[(f64, f64)]) {
        let path = self.path(points);
        self.add(format_args!("<path class=\"line s{colour}\" d=\"{path}\"/>"));
    }

    /// What lies between two lines of the same length.
    pub fn band(&mut self, colour: &str, upper: &[(f64, f64)], lower: &[(f64, f64)]) {
        let back: Vec<_> = lower.iter().rev().copied().collect();
        let path = format!("{}L{}Z", self.path(upper), &self.path(&back)[1..]);
        self.add(format_args!("<path class=\"f{colour}\" d=\"{path}\"/>"));
    }

    fn path(&self, points: &[(f64, f64)]) -> String {
        let mut path = String::new();
        for (number, (along, up)) in points.iter().enumerate() {
            let command = if number == 0 { 'M' } else { 'L' };
            write!(path, "{command}{:.1} {:.1}", LEFT + along, self.y(*up))
                .expect("a string takes all");
        }
        path
    }

    /// Adds SVG.
    pub fn add(&mut self, text: std::fmt::Arguments<'_>) {
        self.body.write_fmt(text).expect("a string takes all");
        self.body.push('\n');
    }

    /// The element, `top` below where it would be.
    pub fn element(&self, top: f64) -> String {
        let Self { id, title, note, height, body, .. } = self;
        let label = escaped(&format!("{title}. {note}"));
        format!(
            "<svg id=\"{id}\" role=\"img\" aria-label=\"{label}\" y=\"{top}\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" xmlns=\"http://www.w3.org/2000/svg\">\n{body}</svg>\n"
        )
    }
}

/// Text where markup is read.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
