//! Waiting for SIGUSR1 in all threads of a process.

use super::report;
use std::io::{self, PipeReader, PipeWriter, Read, Write};

/// Wakes every waiting thread after one SIGUSR1.
#[derive(Debug)]
pub(super) struct Notice {
    reader: PipeReader,
    writer: PipeWriter,
}

impl Notice {
    /// Starts to catch the signal; made after the fork, because a pipe is one process's own.
    pub(super) fn new() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        signal_hook::low_level::pipe::register(libc::SIGUSR1, writer.try_clone()?)?;
        Ok(Self { reader, writer })
    }

    /// Says that this process waits, and waits; the next wait is for the next signal.
    pub(super) fn wait_alone(&self) -> io::Result<()> {
        report::print(&report::waiting("Read"))?;
        (&self.reader).read_exact(&mut [0])
    }

    /// As [`wait_alone`](Self::wait_alone), by all threads of the process for the same signal.
    pub(super) fn wait(&self) -> io::Result<()> {
        self.wait_alone()?;
        // The signal put one byte there; each thread that takes it leaves it for the next.
        (&self.writer).write_all(b"w")
    }
}
