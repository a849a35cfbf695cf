//! A file for node_exporter: replaced as a whole, so that nobody reads half of it.

use std::path::Path;

use userswap::internals::whole_file;

use crate::failure::Failure;

/// Writes `text` beside the file, and gives it the file's name.
///
/// # Errors
/// It cannot be written, or is no plain file; it is as it was.
pub fn replace(file: &Path, text: &str) -> Result<(), Failure> {
    whole_file::replace(file, text).map_err(|error| {
        let file = file.display();
        Failure::unavailable(format!(
            "--textfile: \"{file}\" cannot be written: {error}: name a file in a directory that you can write to"
        ))
    })
}
