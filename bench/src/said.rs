//! What is said on standard error: `eprintln!` ends the process, and what it has measured, where nobody reads.

use std::fmt;
use std::io::{self, ErrorKind, Write};

/// Where nobody reads what is printed, as the shell has it for a program that SIGPIPE ended.
pub(crate) const EXIT_UNREAD: u8 = 141;

/// Writes a line on standard error.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::said::line(format_args!($($text)*))
    };
}

/// Where standard error is closed or full there is nobody to tell.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    let _ = io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// Whether the reader of what is printed has gone, on purpose as a rule: there is nothing to say about that.
pub(crate) fn is_unread(error: &io::Error) -> bool {
    error.kind() == ErrorKind::BrokenPipe
}
