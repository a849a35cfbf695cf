//! How fast a swap directory is, in about five seconds: the file that an engine would make there, written in order and
//! read at random.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use userswap::SwapSpec;
use userswap::internals::open;

use crate::memory::PAGE_BYTES;
use crate::pattern::pattern;

/// What is written at most, and what the reads are spread over.
const FILE_BYTES: u64 = 1 << 30;
/// One request of a write, as large as the engine's.
const WRITE_BYTES: usize = 1 << 20;
/// As many faults wait for a disk where many threads fault.
const READERS: u64 = 16;

/// How long each part may take; at least one request is made.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    write: Duration,
    /// Of each of two.
    read: Duration,
}

/// What shows a speed.
pub const FIVE_SECONDS: Effort =
    Effort { write: Duration::from_secs(2), read: Duration::from_millis(1500) };

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speed {
    pub write_mb_per_s: f64,
    /// Pages read one at a time.
    pub reads_per_s: f64,
    /// By sixteen threads.
    pub reads_together_per_s: f64,
}

/// Measures a file that vanishes with its descriptor.
///
/// # Errors
/// The directory cannot be used, or the disk fails.
pub fn measure(swap: &SwapSpec, effort: Effort) -> io::Result<Speed> {
    let swap = SwapSpec { size: None, ..swap.clone() };
    let device = open::open(&swap, FILE_BYTES).map_err(io::Error::other)?;
    let file = device.file.ok_or_else(|| io::Error::other("is memory"))?;
    let written = write(&file, device.bytes, effort.write)?;
    let read = |readers| {
        reads(&file, Reads { pages: written.bytes / PAGE_BYTES, readers, time: effort.read })
    };
    Ok(Speed {
        write_mb_per_s: written.bytes as f64 / written.time.as_secs_f64() / 1e6,
        reads_per_s: read(1)?,
        reads_together_per_s: read(READERS)?,
    })
}

struct Written {
    bytes: u64,
    time: Duration,
}

fn write(file: &File, bytes: u64, time: Duration) -> io::Result<Written> {
    let mut memory = vec![0; WRITE_BYTES + PAGE_BYTES as usize];
    let buffer = aligned(&mut memory, WRITE_BYTES);
    let begun = Instant::now();
    let mut done = 0;
    while done + WRITE_BYTES as u64 <= bytes && (done == 0 || begun.elapsed() < time) {
        // No two blocks are the same to a disk that shares them.
        for (word, number) in buffer.chunks_exact_mut(8).zip(done..) {
            word.copy_from_slice(&pattern(number).to_ne_bytes());
        }
        file.write_all_at(buffer, done)?;
        done += WRITE_BYTES as u64;
    }
    file.sync_data()?;
    match done {
        0 => Err(io::Error::other("has no room for a file to measure with")),
        bytes => Ok(Written { bytes, time: begun.elapsed() }),
    }
}

/// Pages read at random.
struct Reads {
    pages: u64,
    readers: u64,
    time: Duration,
}

/// Pages per second.
fn reads(file: &File, Reads { pages, readers, time }: Reads) -> io::Result<f64> {
    let done = AtomicU64::new(0);
    let begun = Instant::now();
    let read = |reader: u64| {
        let mut memory = vec![0; 2 * PAGE_BYTES as usize];
        let buffer = aligned(&mut memory, PAGE_BYTES as usize);
        for turn in 0.. {
            let page = pattern(turn * READERS + reader) % pages;
            file.read_exact_at(buffer, page * PAGE_BYTES)?;
            // Relaxed: read once all have ended.
            done.fetch_add(1, Ordering::Relaxed);
            if begun.elapsed() >= time {
                break;
            }
        }
        io::Result::Ok(())
    };
    let read = &read;
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..readers).map(|reader| scope.spawn(move || read(reader))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("reading does not panic"))
    })?;
    Ok(done.into_inner() as f64 / begun.elapsed().as_secs_f64())
}

/// O_DIRECT wants memory that begins with a page.
fn aligned(memory: &mut [u8], bytes: usize) -> &mut [u8] {
    let unaligned = memory.as_ptr().align_offset(PAGE_BYTES as usize);
    &mut memory[unaligned..][..bytes]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_measured_and_keeps_nothing() {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let least = Effort { write: Duration::ZERO, read: Duration::ZERO };
        let speed = measure(&SwapSpec::at(directory.path()), least).unwrap();
        let all = [speed.write_mb_per_s, speed.reads_per_s, speed.reads_together_per_s];
        assert!(all.iter().all(|speed| *speed > 0.0), "{speed:?}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        measure(&SwapSpec::at(directory.path().join("no/directory")), least).unwrap_err();
    }
}
