//! The demo's workload: writes a pattern over all of its memory, reads it back and checks it, twice.
//!
//! It knows nothing of userswap and runs the same under the kernel's swap. What it did goes to
//! standard output as lines that [`Line`] writes and reads: progress on the way, then the verdict.

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, Instant};

use clap::Args;
use userswap::parse_size;

use crate::failure::Failure;
use crate::pattern::pattern;

/// How often everything is written and read; the second time everything is on the disk already.
pub const PASSES: u64 = 2;

/// The workload fills memory with words of this size.
const WORD_BYTES: u64 = 8;

/// Memory is filled and progress is reported in pieces of this many words: 4 MiB.
const PIECE_WORDS: usize = 512 << 10;

/// Options of the workload.
#[derive(Args)]
pub struct LoadArgs {
    /// Memory to use
    #[arg(value_parser = parse_size)]
    size: u64,
}

/// One line of the workload's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// Bytes written or checked so far, in all passes.
    Progress(u64),
    /// The end of the first and the second pass, since the start.
    Pass(Duration),
    /// User and system time of the thread that did the work.
    OwnTime { user: Duration, system: Duration },
    /// Processor time of the whole process, with every thread that lives in it.
    AllTime(Duration),
    /// Bytes found as they were written.
    Verified(u64),
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Line::Progress(bytes) => write!(f, "progress {bytes}"),
            Line::Pass(time) => write!(f, "pass {}", time.as_micros()),
            Line::OwnTime { user, system } => {
                write!(f, "own {} {}", user.as_micros(), system.as_micros())
            }
            Line::AllTime(time) => write!(f, "all {}", time.as_micros()),
            Line::Verified(bytes) => write!(f, "verified {bytes}"),
        }
    }
}

impl FromStr for Line {
    type Err = ();

    fn from_str(text: &str) -> Result<Line, ()> {
        let (name, values) = text.split_once(' ').ok_or(())?;
        let mut values = values.split(' ').map(|value| value.parse::<u64>().map_err(|_| ()));
        let mut value = || values.next().unwrap_or(Err(()));
        match name {
            "progress" => Ok(Line::Progress(value()?)),
            "pass" => Ok(Line::Pass(Duration::from_micros(value()?))),
            "own" => Ok(Line::OwnTime {
                user: Duration::from_micros(value()?),
                system: Duration::from_micros(value()?),
            }),
            "all" => Ok(Line::AllTime(Duration::from_micros(value()?))),
            "verified" => Ok(Line::Verified(value()?)),
            _ => Err(()),
        }
    }
}

/// Fills, reads back and checks the memory, [`PASSES`] times.
///
/// # Errors
/// A word that does not read back as it was written.
pub fn load(args: LoadArgs) -> Result<ExitCode, Failure> {
    let started = Instant::now();
    let mut memory = vec![0u64; (args.size / WORD_BYTES) as usize];
    let mut done_bytes = 0;
    for pass in 0..PASSES {
        for (number, piece) in memory.chunks_mut(PIECE_WORDS).enumerate() {
            fill(piece, first_word(pass, number));
            done_bytes += piece.len() as u64 * WORD_BYTES;
            say(Line::Progress(done_bytes))?;
        }
        for (number, piece) in memory.chunks(PIECE_WORDS).enumerate() {
            check(piece, first_word(pass, number)).map_err(|at| {
                let offset = ((number * PIECE_WORDS + at) as u64) * WORD_BYTES;
                Failure::unavailable(format!("DATA WRONG at byte {offset} in pass {}", pass + 1))
            })?;
            done_bytes += piece.len() as u64 * WORD_BYTES;
            say(Line::Progress(done_bytes))?;
        }
        say(Line::Pass(started.elapsed()))?;
    }
    if let Some(ProcessorTime { user, system }) = processor_time("/proc/thread-self/stat") {
        say(Line::OwnTime { user, system })?;
    }
    if let Some(ProcessorTime { user, system }) = processor_time("/proc/self/stat") {
        say(Line::AllTime(user + system))?;
    }
    say(Line::Verified(done_bytes / 2))?;
    Ok(ExitCode::SUCCESS)
}

fn say(line: Line) -> Result<(), Failure> {
    writeln!(io::stdout(), "{line}")
        .map_err(|error| Failure::unavailable(format!("standard output: {error}")))
}

/// The index of a piece's first word in the pattern; passes have different patterns.
fn first_word(pass: u64, piece: usize) -> u64 {
    (pass << 48) + (piece * PIECE_WORDS) as u64
}

fn fill(piece: &mut [u64], first: u64) {
    for (word, index) in piece.iter_mut().zip(first..) {
        *word = pattern(index);
    }
}

/// The index of the first word that is not as [`fill`] left it.
fn check(piece: &[u64], first: u64) -> Result<(), usize> {
    match piece.iter().zip(first..).position(|(word, index)| *word != pattern(index)) {
        None => Ok(()),
        Some(at) => Err(at),
    }
}

/// What a thread or a process has used.
#[derive(Debug, PartialEq, Eq)]
struct ProcessorTime {
    user: Duration,
    system: Duration,
}

/// Read from a `stat` file of `/proc`.
fn processor_time(path: &str) -> Option<ProcessorTime> {
    let ticks_per_s = rustix::param::clock_ticks_per_second();
    parse_stat(&fs::read_to_string(path).ok()?, ticks_per_s)
}

fn parse_stat(stat: &str, ticks_per_s: u64) -> Option<ProcessorTime> {
    // The name in parentheses may contain anything; fields are counted from its end.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(11);
    let mut time = || {
        let ticks = fields.next()?.parse::<u64>().ok()?;
        Some(Duration::from_micros(ticks * 1_000_000 / ticks_per_s.max(1)))
    };
    Some(ProcessorTime { user: time()?, system: time()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_word_is_found_where_it_is() {
        let mut piece = vec![0; 1000];
        fill(&mut piece, 5);
        assert_eq!(check(&piece, 5), Ok(()));
        assert_eq!(check(&piece, 6), Err(0), "another index has another pattern");
        piece[777] ^= 1 << 40;
        assert_eq!(check(&piece, 5), Err(777));
    }

    #[test]
    fn lines_read_back_as_they_were_written() {
        let ms = Duration::from_millis;
        for line in [
            Line::Progress(7),
            Line::Pass(ms(3)),
            Line::OwnTime { user: ms(1), system: ms(2) },
            Line::AllTime(ms(9)),
            Line::Verified(1 << 40),
        ] {
            assert_eq!(line.to_string().parse(), Ok(line));
        }
        for text in ["", "progress", "progress x", "own 5", "hello 5"] {
            assert_eq!(text.parse::<Line>(), Err(()));
        }
    }

    #[test]
    fn processor_time_is_read_past_a_name_with_spaces() {
        let stat = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 250 125 0 0";
        let (user, system) = (Duration::from_millis(2500), Duration::from_millis(1250));
        let expected = ProcessorTime { user, system };
        assert_eq!(parse_stat(stat, 100), Some(expected));
        assert_eq!(parse_stat("7 (a) S 1", 100), None);
    }
}
