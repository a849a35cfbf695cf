//! How fast the disk below a directory takes and gives large sequential requests.
//!
//! This bounds what any swap on it can reach: O_DIRECT, 1 MiB requests, several in flight.

use serde::Serialize;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use userswap::internals::bench::swap;

/// Large enough to outlast a disk's cache for a moment, small enough for a second.
const FILE_BYTES_MAX: u64 = 512 << 20;
/// A small load does not deserve a large file, but this much shows a speed.
const FILE_BYTES_MIN: u64 = 64 << 20;
const REQUEST_BYTES: usize = 1 << 20;
/// Requests in flight, one thread each.
const THREADS: usize = 4;
/// O_DIRECT wants memory aligned to the device's block; no block is larger than this.
const ALIGNMENT: usize = 4096;
/// The best of this many passes counts: the bound is what the disk can do.
const PASSES: usize = 2;

/// Sequential speed in bytes per second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Disk {
    pub(crate) write_bytes_per_s: f64,
    pub(crate) read_bytes_per_s: f64,
}

#[derive(Debug, Clone, Copy)]
enum Direction {
    Write,
    Read,
}

impl Disk {
    /// Measures the disk below `directory` for a load of `size_bytes`, with a file without name.
    pub(crate) fn measure(directory: &Path, size_bytes: u64) -> io::Result<Self> {
        let bytes = size_bytes.clamp(FILE_BYTES_MIN, FILE_BYTES_MAX);
        let bytes = bytes - bytes % REQUEST_BYTES as u64;
        let file = nameless(directory)?;
        swap::reserve(&file, bytes)?;
        let best = |direction| {
            let passes: io::Result<Vec<Duration>> =
                (0..PASSES).map(|_| pass(&file, bytes, direction)).collect();
            let fastest = passes?.into_iter().min().expect("there is a pass");
            io::Result::Ok(bytes as f64 / fastest.as_secs_f64())
        };
        let write_bytes_per_s = best(Direction::Write)?;
        Ok(Self { write_bytes_per_s, read_bytes_per_s: best(Direction::Read)? })
    }
}

/// How a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Requests {
    /// The most of one request.
    pub(crate) bytes: usize,
    /// How many are under way, one thread each.
    pub(crate) in_flight: usize,
}

/// Reads `parts` of a file, in their order, and says how long it took.
pub(crate) fn read(file: &File, parts: &[Range<u64>], requests: Requests) -> io::Result<Duration> {
    let length = requests.bytes as u64;
    let pieces: Vec<Range<u64>> = parts
        .iter()
        .flat_map(|part| {
            let end = part.end;
            let starts = (part.start..end).step_by(requests.bytes);
            starts.map(move |start| start..end.min(start + length))
        })
        .collect();
    let next = AtomicU64::new(0);
    let take = || {
        let mut memory = vec![0u8; requests.bytes + ALIGNMENT];
        let unaligned = memory.as_ptr().align_offset(ALIGNMENT);
        let buffer = &mut memory[unaligned..][..requests.bytes];
        // Relaxed: the number is all that the threads share.
        while let Some(piece) = pieces.get(next.fetch_add(1, Relaxed) as usize) {
            let bytes = (piece.end - piece.start) as usize;
            file.read_exact_at(&mut buffer[..bytes], piece.start)?;
        }
        io::Result::Ok(())
    };
    let started = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..requests.in_flight).map(|_| scope.spawn(take)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("reading does not panic"))
    })?;
    Ok(started.elapsed())
}

/// Whether a file is read past the page cache.
pub(crate) fn is_direct(file: &File) -> io::Result<bool> {
    Ok(swap::flags(file)? & libc::O_DIRECT != 0)
}

/// Bytes per second of large reads of the first `bytes` bytes of a file that was opened for direct I/O.
pub(crate) fn read_speed(file: &File, bytes: u64) -> io::Result<f64> {
    let bytes = bytes - bytes % REQUEST_BYTES as u64;
    Ok(bytes as f64 / pass(file, bytes, Direction::Read)?.as_secs_f64())
}

/// A file that vanishes with its last descriptor, opened for direct I/O.
fn nameless(directory: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).mode(0o600);
    let unnamed = options.clone().custom_flags(libc::O_DIRECT | libc::O_TMPFILE).open(directory);
    if !matches!(&unnamed, Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP)) {
        return unnamed;
    }
    let path = directory.join(format!("userswap-bench-{}.disk", std::process::id()));
    let file = options.create_new(true).custom_flags(libc::O_DIRECT).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

fn pass(file: &File, bytes: u64, direction: Direction) -> io::Result<Duration> {
    let next = AtomicU64::new(0);
    let started = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(|_| scope.spawn(|| transfer(file, bytes, direction, &next))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("transfer does not panic"))
    })?;
    Ok(started.elapsed())
}

/// Takes one request after the other until `bytes` are done.
fn transfer(file: &File, bytes: u64, direction: Direction, next: &AtomicU64) -> io::Result<()> {
    let mut memory = vec![0xA5u8; REQUEST_BYTES + ALIGNMENT];
    let unaligned = memory.as_ptr().align_offset(ALIGNMENT);
    let buffer = &mut memory[unaligned..][..REQUEST_BYTES];
    loop {
        // Relaxed: the number is all that the threads share.
        let offset = next.fetch_add(REQUEST_BYTES as u64, Relaxed);
        if offset >= bytes {
            return Ok(());
        }
        match direction {
            Direction::Write => file.write_all_at(buffer, offset)?,
            Direction::Read => file.read_exact_at(buffer, offset)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_of_a_file_are_read_past_the_page_cache() {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let file = nameless(directory.path()).unwrap();
        swap::reserve(&file, 1 << 20).unwrap();
        assert!(is_direct(&file).unwrap());
        assert!(!is_direct(&File::open("/proc/self/stat").unwrap()).unwrap());
        let requests = Requests { bytes: 1 << 16, in_flight: 2 };
        assert!(!read(&file, &[4096..1 << 18, 1 << 19..1 << 20], requests).unwrap().is_zero());
        // Beyond the end there is nothing to read.
        read(&file, &[0..4096, 1 << 19..(1 << 20) + 4096], requests).unwrap_err();
    }

    #[test]
    fn the_disk_below_a_directory_has_a_speed_and_keeps_no_file() {
        // Not the default temporary directory, which may be in RAM.
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let disk = Disk::measure(directory.path(), 1).unwrap();
        assert!(disk.write_bytes_per_s > 0.0 && disk.read_bytes_per_s > 0.0, "{disk:?}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
