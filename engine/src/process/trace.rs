//! The thread that writes a trace (`state/trace.rs`): it empties the ring into a file, block by block.
//!
//! It sleeps between looks, since waking it would cost the fault that does it a system call. For a trace it takes no lock, and
//! passes no gate; for a record's samples (`sample.rs`) it does, and leaves one out rather than wait for a fork. The file of each process is its own: a forked child makes another, and what it inherits it does not touch.
use crate::base::counters::count;
use crate::base::error::Error;
use crate::base::log;
use crate::process::sample::Sampler;
use crate::state::core::{Core, Path};
use crate::state::trace::{Detail, Start, TraceFile};
use crate::sys::own_fd::Own;
use crate::sys::thread::Thread;
use crate::sys::{PAGE_BYTES, clock, process};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use userswap_trace::{Header, RecordHeader, Sample, Writer};

/// Between two looks at the ring: a CPU that has run this thread is told of pages that leave until it runs another program's.
const PAUSE_NS: u64 = 250_000_000;

/// A record begins with looks as often as this, so that one of a short run has a shape too.
const PAUSE_MIN_NS: u64 = 50_000_000;

/// And has a look every 32nd of its age.
const LOOKS_OF_AGE: u64 = 32;

/// How long an event that is being noted is waited for at the end.
const LATE_NS: u64 = 20_000_000;

/// After which events are written though they fill no block: what a killed program loses.
const BLOCK_NS: u64 = 1_000_000_000;

/// Bytes of the program and its arguments that a record has.
const COMMAND_BYTES_MAX: usize = 500;

/// Names that are tried for a file: programs that a process has become by exec have one each.
const NAMES_MAX: u32 = 1000;

/// Whether a sample that was wanted was written.
enum Sampled {
    Whole,
    /// A fork keeps everybody out.
    Later,
}

/// What the thread has.
struct Recorder {
    core: Arc<Core>,
    writer: Writer<Own<File>>,
    began_ns: u64,
    flushed_ns: u64,
    /// What a record has beyond a trace.
    sampler: Option<Sampler>,
}

impl Recorder {
    /// Until the end is asked for, or the engine stops.
    fn run(&mut self) -> io::Result<()> {
        let core = self.core.clone();
        loop {
            let is_last = core.trace.is_ending() || core.is_stopping();
            if is_last {
                core.trace.wait_for_events();
            }
            self.drain()?;
            if is_last {
                return self.end();
            }
            match core.trace.executes() {
                Some(program) => self.tell_exec(program)?,
                None => {
                    self.sample(String::new())?;
                    if clock::now_ns() >= self.flushed_ns + BLOCK_NS {
                        self.flush()?;
                    }
                    core.trace.wait(self.pause_ns());
                }
            }
        }
    }

    /// Takes what is in the ring; what is noted meanwhile has its turn in the next look.
    fn drain(&mut self) -> io::Result<()> {
        let core = self.core.clone();
        let lost = core.trace.take_lost();
        if lost > 0 {
            count(&core.counters.trace_lost, lost);
            self.writer.note_lost(lost);
        }
        while let Some(event) = core.trace.take() {
            if self.writer.push(event) {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.flushed_ns = clock::now_ns();
        self.writer.flush((self.flushed_ns - self.began_ns) / 1_000_000)
    }

    /// The events until now stay before the sample of now, with the program that the process is about to become.
    fn sample(&mut self, exec: String) -> io::Result<Sampled> {
        let Some(sampler) = &mut self.sampler else { return Ok(Sampled::Whole) };
        let Some(sample) = sampler.sample(&self.core) else { return Ok(Sampled::Later) };
        self.flushed_ns = clock::now_ns();
        let at_ms = (self.flushed_ns - self.began_ns) / 1_000_000;
        self.writer.sample(Sample { exec, ..sample }, at_ms).map(|()| Sampled::Whole)
    }

    /// What there is, and the program that comes; again, while another thread forks.
    fn tell_exec(&mut self, program: String) -> io::Result<()> {
        if let Sampled::Later = self.sample(program)? {
            std::thread::yield_now();
            return Ok(());
        }
        self.flush()?;
        self.core.trace.told();
        Ok(())
    }

    fn pause_ns(&self) -> u64 {
        match self.sampler {
            None => PAUSE_NS,
            Some(_) => {
                ((clock::now_ns() - self.began_ns) / LOOKS_OF_AGE).clamp(PAUSE_MIN_NS, PAUSE_NS)
            }
        }
    }

    fn end(&mut self) -> io::Result<()> {
        let core = self.core.clone();
        // A thread that has a number may not have been on a CPU since.
        let until = clock::now_ns() + LATE_NS;
        while core.trace.is_pending() && clock::now_ns() < until {
            std::thread::yield_now();
            self.drain()?;
        }
        self.sample(String::new())?;
        self.writer.end((clock::now_ns() - self.began_ns) / 1_000_000)
    }
}

impl Core {
    /// Begins the trace of this process, if one is wanted; without a file the program goes on without it.
    pub(crate) fn start_trace(self: &Arc<Self>) -> Result<Option<Thread>, Error> {
        let Some(to) = &self.tuning.trace else { return Ok(None) };
        let start = self.trace.take_over();
        let opened = open(to).and_then(|file| {
            let number = file.as_raw_fd();
            Ok((number, Writer::new(file, &self.trace_header(to, start))?))
        });
        let (number, writer) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                log::no_trace(
                    to.detail.option(),
                    &to.path.display().to_string(),
                    &error.to_string(),
                );
                return Ok(None);
            }
        };
        self.threads.note_fds([number]);
        self.trace.begin();
        let began_ns = clock::now_ns();
        let sampler = match (to.detail, start) {
            (Detail::Trace, _) => None,
            (Detail::Record, Start::Fresh) => Some(Sampler::default()),
            (Detail::Record, Start::Forked) => Some(Sampler::from_now(self)),
        };
        let core = self.clone();
        let recorder = Recorder { core, writer, began_ns, flushed_ns: began_ns, sampler };
        Thread::spawn("userswap-trace", move || record(recorder, number))
            .map(Some)
            .map_err(Error::Thread)
    }

    fn trace_header(&self, to: &TraceFile, start: Start) -> Header {
        let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
        Header {
            program: name.trim_end().to_owned(),
            pid: std::process::id(),
            page_bytes: PAGE_BYTES as u32,
            budget_pages: self.budget_pages(),
            pages: self.pages.pages(),
            fault: self.tuning.fault.to_string(),
            transfer: if self.path == Path::Move { "move" } else { "copy" }.to_owned(),
            readahead: self.tuning.readahead.policy.to_string(),
            forked: start == Start::Forked,
            record: (to.detail == Detail::Record).then(|| RecordHeader {
                command: process::command_line(COMMAND_BYTES_MAX),
                address: self.arena.address() as u64,
                cpus: process::usable_cpus(),
            }),
        }
    }
}

fn record(mut recorder: Recorder, number: RawFd) {
    let core = recorder.core.clone();
    if let Err(error) = recorder.run() {
        // Of the last block there may be a part; where nothing can be added a file can still be made shorter.
        let _ = recorder.writer.target().set_len(recorder.writer.whole_bytes());
        let to = core.tuning.trace.as_ref().expect("a recorder has a file");
        log::no_trace(to.detail.option(), &to.path.display().to_string(), &error.to_string());
    }
    core.trace.stop();
    // Together, as a fork sees it: the number may be another file's as soon as it is closed.
    core.inside_gate(|| {
        core.threads.forget_fd(number);
        drop(recorder);
    });
}

/// A file that was not there: the name itself for the process that is the root, with a number for all others.
fn open(to: &TraceFile) -> io::Result<Own<File>> {
    let process = std::process::id();
    let is_root = process == to.root;
    let name = |try_: u32| {
        let mut name = to.path.clone().into_os_string();
        match (is_root, try_) {
            (true, 0) => {}
            (_, 0 | 1) => name.push(format!(".{process}")),
            _ => name.push(format!(".{process}.{try_}")),
        }
        PathBuf::from(name)
    };
    for try_ in u32::from(!is_root)..NAMES_MAX {
        match File::options().write(true).create_new(true).open(name(try_)) {
            Ok(file) => return Ok(Own::raised(file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}
