//! One task: map, pass over the memory, report, free.

use super::barrier::Barrier;
use super::content::Content;
use super::notice::Notice;
use super::options::{Access, Freeing, Options, Order, Source, Start, WORD_BYTES};
use super::pass::{Ended, Pass, Work, WrongData};
use super::report;
use crate::random::Random;
use crate::said::{EXIT_UNREAD, is_unread};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant, SystemTime};
use thiserror::Error;
use userswap::internals::bench::memory::{Backing, Memory, Populate, Protection};
use userswap::internals::bench::process::{self, Pid};

/// usemem does not time the freeing of more mappings than this.
const TIMED_MAPPINGS_MAX: usize = 32;

/// Why a load stopped.
#[derive(Debug, Error)]
pub(super) enum Failure {
    #[error(transparent)]
    Data(#[from] WrongData),
    #[error("cannot open {0}: {1}")]
    Open(PathBuf, io::Error),
    #[error("cannot allocate {0} bytes: {1}")]
    Allocate(u64, io::Error),
    #[error("cannot lock memory: {0}")]
    Lock(io::Error),
    #[error("cannot bind to CPU {0}: {1}")]
    Bind(usize, io::Error),
    #[error("cannot start all tasks: {0}")]
    Start(io::Error),
    #[error("process {pid} failed: {status}")]
    Child { pid: Pid, status: ExitStatus },
    #[error("{0}")]
    System(#[from] io::Error),
}

impl Failure {
    /// Tells people, with the exact words of usemem where it has some, and what to exit with.
    pub(super) fn told(&self) -> u8 {
        match self {
            Self::System(error) if is_unread(error) => return EXIT_UNREAD,
            Self::Child { status, .. } if status.code() == Some(EXIT_UNREAD.into()) => {
                return EXIT_UNREAD;
            }
            Self::Data(wrong) => say!("{wrong}"),
            other => say!("usemem: {other}"),
        }
        1
    }
}

/// What the tasks have in common.
#[derive(Debug)]
pub(super) struct Team<'a> {
    pub(super) options: &'a Options,
    pub(super) content: &'a Content,
    pub(super) started: Instant,
    pub(super) shared: Option<&'a Memory>,
    pub(super) start: Option<Barrier>,
    pub(super) free: Option<Barrier>,
}

impl Team<'_> {
    /// The barriers in the order in which tasks come to them.
    pub(super) fn barriers(&self) -> impl Iterator<Item = &Barrier> {
        self.start.iter().chain(&self.free)
    }
}

/// One of the tasks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task<'a> {
    pub(super) team: &'a Team<'a>,
    pub(super) number: usize,
    pub(super) notice: Option<&'a Notice>,
}

/// What the passes of a task have added up to.
#[derive(Debug, Default)]
struct Progress {
    bytes: u64,
    time_is_up: bool,
}

impl Task<'_> {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let team = self.team;
        self.bind()?;
        self.meet(Start::BeforeAllocation)?;
        let mut clock = team.started;
        if team.options.init_time {
            report::print(&report::initialization(clock.elapsed()))?;
            clock = Instant::now();
        }
        let mut random = self.random();
        let mut own = Vec::new();
        let mut progress = Progress::default();
        match team.shared {
            Some(memory) => {
                self.meet(Start::AfterAllocation)?;
                self.passes(memory, &mut random, &mut progress)?;
            }
            None => self.units(&mut own, &mut random, &mut progress)?,
        }
        let memories: Vec<&Memory> = team.shared.into_iter().chain(&own).collect();
        if let Some(notice) = self.notice {
            notice.wait()?;
            clock = Instant::now();
            for memory in &memories {
                self.repeat(Work::Verify, memory, &mut random, &mut progress)?;
            }
        }
        report::print(&report::throughput("", progress.bytes, clock.elapsed()))?;
        self.afterwards(&memories, &mut random)?;
        self.free(own)
    }

    fn bind(&self) -> Result<(), Failure> {
        let Some(stride) = self.team.options.bind_stride else { return Ok(()) };
        let cpus = std::thread::available_parallelism()?.get();
        let cpu = self.number.wrapping_mul(stride) % cpus;
        process::bind_to_cpu(cpu).map_err(|error| Failure::Bind(cpu, error))
    }

    /// Waits at the start barrier if it is at this point.
    fn meet(&self, at: Start) -> io::Result<()> {
        match &self.team.start {
            Some(barrier) if self.team.options.start == at => barrier.wait(),
            _ => Ok(()),
        }
    }

    fn random(&self) -> Random {
        let seed = match self.team.options.order {
            Order::Random { seed: Some(seed) } => seed,
            _ => arbitrary_seed() ^ self.number as u64,
        };
        Random::new(seed)
    }

    /// Works through the size in units, each a mapping that stays.
    fn units(
        &self,
        memories: &mut Vec<Memory>,
        random: &mut Random,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let options = self.team.options;
        let source = OpenSource::new(options)?;
        let mut left = options.bytes;
        while left > 0 && !progress.time_is_up {
            let bytes = options.unit_bytes.min(left);
            left -= bytes;
            if bytes < 2 * WORD_BYTES {
                // A remainder without two words cannot be worked on.
                break;
            }
            let memory = source.allocate(options, bytes)?;
            self.meet(Start::AfterAllocation)?;
            // usemem's accounting: each allocation counts as an eighth of its size.
            progress.bytes += bytes / 8;
            self.passes(&memory, random, progress)?;
            memories.push(memory);
        }
        Ok(())
    }

    /// The passes that come before a signal, or all.
    fn passes(
        &self,
        memory: &Memory,
        random: &mut Random,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let work = match self.team.options.access {
            Access::Write => Work::Write,
            Access::Read | Access::ReadOfWritable => Work::Read,
        };
        if self.notice.is_some() {
            // Unreported, and sequential whatever the order: every page must have content.
            self.pass(Work::Write, &|| false).sequential(memory.words())?;
            return Ok(());
        }
        self.repeat(work, memory, random, progress)
    }

    fn repeat(
        &self,
        work: Work,
        memory: &Memory,
        random: &mut Random,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let options = self.team.options;
        let time_is_up = || {
            // "More than SEC whole seconds": the fraction does not count.
            options.runtime.is_some_and(|most| {
                Duration::from_secs(self.team.started.elapsed().as_secs()) > most
            })
        };
        for round in 0..options.repeat {
            if round > 0 && options.dots {
                report::print(".")?;
            }
            let pass = self.pass(in_round(options, round, work), &time_is_up);
            let ended = match options.order {
                Order::Sequential => pass.sequential(memory.words())?,
                Order::Random { .. } => pass.random(memory.words(), random)?,
            };
            match ended {
                Ended::Complete { accesses } => progress.bytes += accesses * WORD_BYTES,
                Ended::TimeIsUp { accesses } => {
                    progress.bytes += accesses * WORD_BYTES;
                    progress.time_is_up = true;
                    break;
                }
            }
        }
        Ok(())
    }

    fn pass<'t>(&'t self, work: Work, time_is_up: &'t dyn Fn() -> bool) -> Pass<'t> {
        let Team { options, content, .. } = self.team;
        Pass { work, content, step_words: options.step_words, time_is_up }
    }

    /// What follows the result line and precedes freeing.
    fn afterwards(&self, memories: &[&Memory], random: &mut Random) -> Result<(), Failure> {
        let options = self.team.options;
        if options.read_again {
            let clock = Instant::now();
            let mut progress = Progress::default();
            for memory in memories {
                self.repeat(Work::Read, memory, random, &mut progress)?;
            }
            let line = report::throughput("read again ", progress.bytes, clock.elapsed());
            report::print(&line)?;
        }
        if options.lock {
            memories.iter().try_for_each(|memory| memory.lock()).map_err(Failure::Lock)?;
        }
        std::thread::sleep(options.sleep);
        Ok(())
    }

    fn free(&self, memories: Vec<Memory>) -> Result<(), Failure> {
        if let (Some(barrier), Freeing::Together) = (&self.team.free, self.team.options.freeing) {
            barrier.wait()?;
        }
        let timed = (1..=TIMED_MAPPINGS_MAX).contains(&memories.len());
        let clock = Instant::now();
        drop(memories);
        if timed {
            report::print(&report::freeing(clock.elapsed()))?;
        }
        Ok(())
    }
}

/// What a round of `work` does: it verifies what can be known.
fn in_round(options: &Options, round: u32, work: Work) -> Work {
    let is_random = matches!(options.order, Order::Random { .. });
    // Where nothing was written a file and the heap hold whatever they held before.
    let was_zero = !matches!(options.source, Source::File { .. } | Source::Malloc);
    match work {
        Work::Verify if is_random && !was_zero => Work::Read,
        work if is_random && !was_zero => work,
        Work::Write if is_random || round > 0 => Work::VerifyAndWrite,
        Work::Read if is_random => Work::Verify,
        work => work,
    }
}

fn arbitrary_seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs()) ^ u64::from(std::process::id())
}

/// Allocates the memory that all tasks share.
pub(super) fn allocate_shared(options: &Options) -> Result<Memory, Failure> {
    OpenSource::new(options)?.allocate(options, options.bytes)
}

/// A source whose file is open.
enum OpenSource {
    Private(File),
    Shared(File, u64),
    Anonymous,
    Malloc,
}

impl OpenSource {
    fn new(options: &Options) -> Result<Self, Failure> {
        let write = options.access != Access::Read;
        let open = |path: &Path| {
            let mut how = File::options();
            how.read(true).write(write).create(write).truncate(false);
            how.open(path).map_err(|error| Failure::Open(path.to_owned(), error))
        };
        Ok(match &options.source {
            Source::DevZero => Self::Private(open(Path::new("/dev/zero"))?),
            Source::Anonymous => Self::Anonymous,
            Source::Malloc => Self::Malloc,
            Source::File { path, offset } => {
                let file = open(path)?;
                let end = offset + options.bytes;
                if write && file.metadata()?.len() < end {
                    file.set_len(end)?;
                }
                Self::Shared(file, *offset)
            }
        })
    }

    fn allocate(&self, options: &Options, bytes: u64) -> Result<Memory, Failure> {
        let backing = match self {
            Self::Private(file) => Backing::Private(file),
            Self::Shared(file, offset) => Backing::Shared(file, *offset),
            Self::Anonymous => Backing::Anonymous,
            Self::Malloc => Backing::Malloc,
        };
        let protection = match options.access {
            Access::Read => Protection::Read,
            Access::Write | Access::ReadOfWritable => Protection::ReadWrite,
        };
        let populate = if options.populate { Populate::AtOnce } else { Populate::OnTouch };
        let length = usize::try_from(bytes).expect("a 64-bit machine");
        Memory::new(&backing, length, protection, populate)
            .map_err(|error| Failure::Allocate(bytes, error))
    }
}
