//! The two forms of a report: one JSON object for programs, text for people.

use clap::Args;
use serde::Serialize;
use std::io::{self, Write};

/// What a report is printed as.
#[derive(Debug, Clone, Copy, Args)]
pub struct Format {
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

/// A report that has both forms.
pub(crate) trait Shown: Serialize {
    /// What people see, up to its last newline.
    fn text(&self) -> String;

    /// Writes the report to standard output.
    fn print(&self, format: Format) -> io::Result<()> {
        let text = match format.json {
            true => serde_json::to_string_pretty(self).map_err(io::Error::other)? + "\n",
            false => self.text(),
        };
        io::stdout().lock().write_all(text.as_bytes())
    }
}
