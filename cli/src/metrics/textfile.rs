//! A file for node_exporter: replaced as a whole, so that nobody reads half of it.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::failure::Failure;

/// node_exporter is another user.
const MODE: u32 = 0o644;

/// Writes `text` beside the file, and gives it the file's name.
///
/// # Errors
/// It cannot be written; the file is as it was.
pub fn replace(file: &Path, text: &str) -> Result<(), Failure> {
    // Its name does not end in .prom: what a killed process leaves is not read.
    let mut unfinished = OsString::from(file);
    unfinished.push(format!(".{}", std::process::id()));
    let unfinished = Path::new(&unfinished);
    let written = write(unfinished, text).and_then(|()| fs::rename(unfinished, file));
    written.map_err(|error| {
        let _ = fs::remove_file(unfinished);
        let file = file.display();
        Failure::unavailable(format!(
            "--textfile: \"{file}\" cannot be written: {error}: name a file in a directory that you can write to"
        ))
    })
}

fn write(unfinished: &Path, text: &str) -> io::Result<()> {
    // A link that somebody has put there is refused, not followed.
    let _ = fs::remove_file(unfinished);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(unfinished)?;
    file.write_all(text.as_bytes())
}
