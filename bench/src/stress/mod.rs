//! The load of `userswap stress`: workers that do to their memory whatever a program may, and know what every page must
//! hold. It runs as any program would, under `userswap run` or without, and knows nothing of userswap.
//!
//! What it must be sure of (stamps, histories) lies in shared memory, which the engine does not manage.
mod content;
mod history;
mod worker;

use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use userswap::internals::bench::memory::{Backing, Memory, Populate, Protection};
use userswap::internals::bench::stress::{LOST, LOST_ALLOWED, catch_lost};
use userswap::internals::fd;
use worker::{Files, SHARED_WORDS, Shared, Worker, Wrong};

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
    /// Which process of its job it is.
    pub part: Part,
}

/// Whether the program may hand its memory to an io_uring of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnRing {
    /// It may.
    Used,
    /// docs/limits.md says where not.
    Unsafe,
}

/// Which process of its job a load is.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// The first; with what starts the others, given their load and a directory for their files.
    First(fn(&Load, &Path) -> io::Result<Command>),
    /// One that another load has started: small, and it fills its memory before all else.
    Member,
}

impl Part {
    /// Threads that do it.
    fn workers(self) -> usize {
        match self {
            Self::First(_) => 4,
            Self::Member => 1,
        }
    }
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
    let workers = load.part.workers();
    let files = Files::new(directory, workers)?;
    let memory_file = fd::memory_file()?;
    let bytes = workers * SHARED_WORDS * 8;
    memory_file.set_len(bytes as u64)?;
    let backing = Backing::Shared(&memory_file, 0);
    let stamps = Memory::new(&backing, bytes, Protection::ReadWrite, Populate::AtOnce)?;
    let done: Vec<AtomicU64> = (0..workers).map(|_| AtomicU64::new(0)).collect();
    let shared = Shared {
        words: stamps.words(),
        files: &files,
        load,
        directory,
        done: &done,
        verified: AtomicU64::new(0),
        forks: AtomicU64::new(0),
        members: AtomicU64::new(0),
        refused: AtomicU64::new(0),
    };
    let is_right = work(&shared)?;
    let total: u64 = done.iter().map(|done| done.load(Ordering::Relaxed)).sum();
    let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    writeln!(
        io::stdout(),
        "total {total} {} {} {} {} {}",
        number(&shared.verified),
        number(&shared.forks),
        number(&shared.members),
        number(&shared.refused),
        number(&LOST)
    )?;
    Ok(is_right)
}

fn work(shared: &Shared<'_>) -> io::Result<bool> {
    let load = shared.load;
    let workers = (0..shared.done.len()).map(|id| Worker::new(id, load.seed, shared));
    let workers = workers.collect::<io::Result<Vec<_>>>()?;
    let (over, wrong) = (AtomicBool::new(false), AtomicBool::new(false));
    let led = std::thread::scope(|scope| {
        let _ends = Ends(&over);
        let threads: Vec<_> = workers
            .into_iter()
            .map(|mut worker| {
                let (over, wrong) = (&over, &wrong);
                scope.spawn(move || {
                    if let Err(Wrong(text)) = goes_on(&mut worker, over) {
                        over.store(true, Ordering::Relaxed);
                        wrong.store(true, Ordering::Relaxed);
                        say!("stress: WRONG with seed {}: {text}", load.seed);
                    }
                })
            })
            .collect();
        let (end, mut seen) = (Instant::now() + load.time, vec![0; shared.done.len()]);
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

/// To the end, when all of its pages are looked at.
fn goes_on(worker: &mut Worker<'_>, over: &AtomicBool) -> Result<(), Wrong> {
    if worker.is_member() {
        worker.write_all()?;
    }
    while !over.load(Ordering::Relaxed) {
        worker.step()?;
    }
    worker.verify_all()
}

/// A line when every worker has done something since the last one: without it for long, one of them is stuck.
fn tell_progress(shared: &Shared<'_>, seen: &mut Vec<u64>) -> io::Result<()> {
    let now = shared.done.iter().map(|done| done.load(Ordering::Relaxed));
    let now: Vec<u64> = now.collect();
    if now.iter().zip(&*seen).all(|(now, seen)| now > seen) {
        writeln!(io::stdout(), "alive {}", now.iter().sum::<u64>())?;
        *seen = now;
    }
    Ok(())
}
