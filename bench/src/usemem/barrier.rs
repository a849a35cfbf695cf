//! A barrier for tasks that may be threads, processes, or both.
//!
//! Each task writes a byte to one pipe and then reads from another, which ends when the leader
//! closes it: all tasks wake at once. Where a process dies instead of arriving its parent kills the
//! rest, and the leader then reads the end of the first pipe.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::sync::{Mutex, PoisonError};

/// The ends of a barrier's two pipes; each side of a fork drops those of the other side.
#[derive(Debug)]
pub(super) struct Barrier {
    arrivals: PipeReader,
    arrive: Mutex<Option<PipeWriter>>,
    gate: PipeReader,
    open_gate: Mutex<Option<PipeWriter>>,
}

impl Barrier {
    pub(super) fn new() -> io::Result<Self> {
        let (arrivals, arrive) = io::pipe()?;
        let (gate, open_gate) = io::pipe()?;
        Ok(Self {
            arrivals,
            arrive: Mutex::new(Some(arrive)),
            gate,
            open_gate: Mutex::new(Some(open_gate)),
        })
    }

    /// Makes this process one that only leads: it does not count as a task that may still arrive.
    pub(super) fn only_lead(&self) {
        drop(take(&self.arrive));
    }

    /// Makes this process one that only follows: it does not hold the gate closed.
    pub(super) fn only_follow(&self) {
        drop(take(&self.open_gate));
    }

    /// Arrives, and waits until the leader opens the gate.
    pub(super) fn wait(&self) -> io::Result<()> {
        let arrive = self.arrive.lock().unwrap_or_else(PoisonError::into_inner);
        arrive.as_ref().expect("a task keeps its side of the barrier").write_all(b"r")?;
        drop(arrive);
        (&self.gate).read_to_end(&mut Vec::new()).map(drop)
    }

    /// Waits until `tasks` tasks have arrived or can arrive no more, then opens the gate.
    pub(super) fn lead(&self, tasks: usize) -> io::Result<()> {
        (&self.arrivals).take(tasks as u64).read_to_end(&mut Vec::new())?;
        drop(take(&self.open_gate));
        Ok(())
    }
}

fn take(end: &Mutex<Option<PipeWriter>>) -> Option<PipeWriter> {
    end.lock().unwrap_or_else(PoisonError::into_inner).take()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    #[test]
    fn no_task_passes_before_all_have_arrived() {
        const TASKS: usize = 8;
        let barrier = Barrier::new().unwrap();
        let arrived = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..TASKS {
                scope.spawn(|| {
                    arrived.fetch_add(1, SeqCst);
                    barrier.wait().unwrap();
                    assert_eq!(arrived.load(SeqCst), TASKS);
                });
            }
            barrier.lead(TASKS).unwrap();
        });
    }

    #[test]
    fn the_gate_opens_when_the_missing_tasks_are_gone() {
        let barrier = Barrier::new().unwrap();
        barrier.only_lead();
        barrier.lead(3).unwrap();
    }
}
