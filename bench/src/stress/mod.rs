//! The load of `userswap stress`: workers that do to their memory whatever a program may, and know what every page must
//! hold. It runs as any program would, under `userswap run` or without, and knows nothing of userswap.
//!
//! What it must be sure of (stamps, histories) lies in shared memory, which the engine does not manage.
mod content;
mod history;
mod worker;

use content::Stamp;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use userswap::internals::bench::memory::{Backing, Memory, Populate, Protection};
use userswap::internals::bench::stress::{LOST, LOST_ALLOWED, WORDS, catch_lost};
use userswap::internals::fd;
pub use worker::OwnRing;
use worker::{FILE_PAGES, SHARED_WORDS, Shared, Worker, Wrong};

/// Threads that do it.
const WORKERS: usize = 4;

/// How often a line says that all workers go on.
const PROGRESS: Duration = Duration::from_millis(200);

/// How long the load goes on, and how.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// For how long.
    pub time: Duration,
    /// Of what is done.
    pub seed: u64,
    /// Whether the program hands its memory to an io_uring of its own.
    pub own_ring: OwnRing,
    /// Whether devices may lose pages.
    pub losses: Losses,
}

/// Whether a page may be lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Losses {
    /// It may, and then SIGBUS says so.
    Allowed,
    /// Every SIGBUS is a finding.
    None,
}

/// Does it; true when every page was as it must be.
///
/// # Errors
/// No memory, no file in the directory, nobody who reads how it goes.
pub fn run(load: Load, directory: &Path) -> io::Result<bool> {
    if load.losses == Losses::Allowed {
        LOST_ALLOWED.store(1, Ordering::Relaxed);
        catch_lost()?;
    }
    let file = file_of_stamps(directory)?;
    let memory_file = fd::memory_file()?;
    let bytes = WORKERS * SHARED_WORDS * 8;
    memory_file.set_len(bytes as u64)?;
    let backing = Backing::Shared(&memory_file, 0);
    let stamps = Memory::new(&backing, bytes, Protection::ReadWrite, Populate::AtOnce)?;
    let done: [AtomicU64; WORKERS] = std::array::from_fn(|_| AtomicU64::new(0));
    let shared = Shared {
        words: stamps.words(),
        file: &file,
        own_ring: load.own_ring,
        done: &done,
        verified: AtomicU64::new(0),
        forks: AtomicU64::new(0),
        refused: AtomicU64::new(0),
    };
    let is_right = work(load, &shared)?;
    let total: u64 = done.iter().map(|done| done.load(Ordering::Relaxed)).sum();
    let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    writeln!(
        io::stdout(),
        "total {total} {} {} {} {}",
        number(&shared.verified),
        number(&shared.forks),
        number(&shared.refused),
        number(&LOST)
    )?;
    Ok(is_right)
}

fn work(load: Load, shared: &Shared<'_>) -> io::Result<bool> {
    let workers = (0..WORKERS).map(|id| Worker::new(id, load.seed, shared));
    let workers = workers.collect::<io::Result<Vec<_>>>()?;
    let (over, wrong) = (AtomicBool::new(false), AtomicBool::new(false));
    let led = std::thread::scope(|scope| {
        let _ends = Ends(&over);
        let threads: Vec<_> = workers
            .into_iter()
            .map(|mut worker| {
                let (over, wrong) = (&over, &wrong);
                scope.spawn(move || {
                    let outcome = goes_on(&mut worker, over).and_then(|()| worker.verify_all());
                    if let Err(Wrong(text)) = outcome {
                        over.store(true, Ordering::Relaxed);
                        wrong.store(true, Ordering::Relaxed);
                        say!("stress: WRONG with seed {}: {text}", load.seed);
                    }
                })
            })
            .collect();
        let (end, mut seen) = (Instant::now() + load.time, [0; WORKERS]);
        while !threads.iter().all(|thread| thread.is_finished()) {
            if Instant::now() >= end {
                over.store(true, Ordering::Relaxed);
            }
            std::thread::sleep(PROGRESS);
            tell_progress(shared, &mut seen)?;
        }
        io::Result::Ok(())
    });
    led.map(|()| !wrong.load(Ordering::Relaxed))
}

/// Ends the workers with what leads them, whatever ends that: their scope waits for them.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn goes_on(worker: &mut Worker<'_>, over: &AtomicBool) -> Result<(), Wrong> {
    while !over.load(Ordering::Relaxed) {
        worker.step()?;
    }
    Ok(())
}

/// A line when every worker has done something since the last one: without it for long, one of them is stuck.
fn tell_progress(shared: &Shared<'_>, seen: &mut [u64; WORKERS]) -> io::Result<()> {
    let now: [u64; WORKERS] = std::array::from_fn(|id| shared.done[id].load(Ordering::Relaxed));
    if now.iter().zip(&*seen).all(|(now, seen)| now > seen) {
        *seen = now;
        writeln!(io::stdout(), "alive {}", now.iter().sum::<u64>())?;
    }
    Ok(())
}

/// An unlinked file whose pages hold their stamps, opened with O_DIRECT where the file system has it.
fn file_of_stamps(directory: &Path) -> io::Result<File> {
    const O_TMPFILE: i32 = 0o20_200_000;
    const O_DIRECT: i32 = 0o40_000;
    let mut options = File::options();
    let options = options.read(true).write(true);
    let file = options.custom_flags(O_TMPFILE).open(directory)?;
    for page in 0..FILE_PAGES {
        let words = (0..WORDS).flat_map(|index| Stamp::of_file(page).word(index).to_ne_bytes());
        file.write_all_at(&words.collect::<Vec<u8>>(), (page * WORDS * 8) as u64)?;
    }
    file.sync_all()?;
    let name = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let direct = File::options().read(true).custom_flags(O_DIRECT).open(name);
    Ok(direct.unwrap_or(file))
}
