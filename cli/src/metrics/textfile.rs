//! A file for node_exporter: replaced as a whole, so that nobody reads half of it.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use userswap::internals::whole_file;

use crate::failure::Failure;

/// What every metric begins with, that of another program's too.
const COMMENT: &[u8] = b"# ";

/// Whether a plain file is there that has not come from here.
fn holds_something_else(file: &Path) -> bool {
    let is_plain = fs::metadata(file).is_ok_and(|there| there.is_file());
    let mut start = Vec::new();
    let opened = if is_plain { File::open(file) } else { return false };
    let read = opened.and_then(|file| file.take(COMMENT.len() as u64).read_to_end(&mut start));
    read.is_ok() && !COMMENT.starts_with(&start)
}

/// Writes `text` beside the file, and gives it the file's name.
///
/// # Errors
/// It cannot be written, or is no plain file; it is as it was.
pub fn replace(file: &Path, text: &str) -> Result<(), Failure> {
    if holds_something_else(file) {
        let file = file.display();
        return Err(Failure::usage(format!(
            "--textfile: \"{file}\" holds something else than metrics: name another file, or remove it"
        )));
    }
    whole_file::replace(file, text).map_err(|error| {
        let file = file.display();
        Failure::unavailable(format!(
            "--textfile: \"{file}\" cannot be written: {error}: name a file in a directory that you can write to"
        ))
    })
}
