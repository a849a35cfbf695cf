//! The first line of a script: which program reads it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The kernel looks at this many bytes of a file to find the interpreter.
pub const LINE_BYTES_MAX: usize = 256;

/// The program that reads a script.
#[derive(Debug, PartialEq, Eq)]
pub enum Reader {
    /// The program at this path.
    Path(OsString),
    /// The program that env(1) finds in `PATH` under this name.
    Searched(OsString),
}

/// The reader that a file starting with these bytes names, `None` when it names none.
pub fn reader(start: &[u8]) -> Option<Reader> {
    let line = start.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next()?;
    // Not the carriage return of a line end: the kernel takes it for a part of the name.
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|w| !w.is_empty());
    let path = words.next()?;
    if path.rsplit(|byte| *byte == b'/').next() == Some(b"env")
        && let Some(name) = name_after_options(words)
    {
        return Some(Reader::Searched(OsStr::from_bytes(name).to_owned()));
    }
    Some(Reader::Path(OsString::from_vec(path.to_vec())))
}

/// Options of env(1), the words that they take, and variables that it sets come before the name.
fn name_after_options<'a>(mut words: impl Iterator<Item = &'a [u8]>) -> Option<&'a [u8]> {
    while let Some(word) = words.next() {
        match word {
            b"--unset" | b"--chdir" | b"--argv0" => {
                words.next();
            }
            // The last of several short ones may take the next word; what follows it at once is its own.
            [b'-', short @ ..] if !short.starts_with(b"-") => {
                if let Some(at) = short.iter().position(|option| b"uCa".contains(option))
                    && at + 1 == short.len()
                {
                    words.next();
                }
            }
            [b'-', ..] => {}
            word if word.contains(&b'=') => {}
            name => return Some(name),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reader_is_the_first_word_and_env_passes_it_on() {
        let path = |path: &str| Some(Reader::Path(path.into()));
        let searched = |name: &str| Some(Reader::Searched(name.into()));
        for (start, expected) in [
            ("#!/bin/sh\necho", path("/bin/sh")),
            ("#! /usr/bin/perl -w\n", path("/usr/bin/perl")),
            ("#!/bin/sh\r\n", path("/bin/sh\r")),
            ("#!/usr/bin/env python3\r\n", searched("python3\r")),
            ("#!/usr/bin/env python3\n", searched("python3")),
            ("#!/usr/bin/env -S LANG=C python3 -u\n", searched("python3")),
            ("#!/usr/bin/env -S -u HOME sh\n", searched("sh")),
            ("#!/usr/bin/env -S -uHOME --chdir / -iC / --unset=A -- B=1 sh -u\n", searched("sh")),
            ("#!/usr/bin/env\n", path("/usr/bin/env")),
            ("#!\n", None),
            ("#!  \n/bin/sh", None),
            ("echo", None),
            ("", None),
        ] {
            assert_eq!(reader(start.as_bytes()), expected, "{start:?}");
        }
    }
}
