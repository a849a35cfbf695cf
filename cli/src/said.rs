//! What is said on standard output and standard error: `println!` and its relatives end the process where nobody reads.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

use crate::failure::Failure;

/// Prints on standard output.
///
/// # Errors
/// It cannot be written to; where the reader has gone there is nothing to say about that.
pub fn print(text: impl Display) -> Result<(), Failure> {
    printed(io::stdout().write_all(text.to_string().as_bytes()))
}

/// What became of a write to standard output, its buffer included.
///
/// # Errors
/// As for [`print`].
pub fn printed(outcome: io::Result<()>) -> Result<(), Failure> {
    outcome.and_then(|()| io::stdout().flush()).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Failure::unread(),
        _ => Failure::unavailable(format!("standard output: {error}")),
    })
}

/// Writes a line about us on standard error. Where that is closed or full there is nobody to tell.
pub fn say(line: impl Display) {
    say_plainly(format_args!("userswap: {line}\n"));
}

/// Writes on standard error as it is.
pub fn say_plainly(text: impl Display) {
    let _ = io::stderr().write_all(text.to_string().as_bytes());
}
