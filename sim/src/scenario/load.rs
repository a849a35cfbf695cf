//! Programs that use memory, and a run of them to its end.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use super::{Checking, Failure, Options};
use crate::clock::{Ns, Stop};
use crate::machine::{Impossible, TIME_MAX, Whole};
use crate::memory::{Access, Memory, Outcome, PageId, Shared};

/// Pages of all tasks at most, after scaling: 512 GiB.
const PAGES_MAX: u64 = 1 << 27;

/// How many tasks a scenario may have of a kind.
pub type Tasks = Whole<1, { 1 << 20 }>;

/// Whether so many tasks of so many pages each, after scaling, can be run.
///
/// # Errors
/// A task without a page, or more pages than can be.
pub fn check(tasks: u64, pages: u64, at: Range<usize>) -> Result<(), Impossible> {
    match tasks.saturating_mul(pages) {
        1..=PAGES_MAX => Ok(()),
        _ => {
            let message = format!(
                "{tasks} tasks of {pages} pages each after scaling: use 1 of each or more, {PAGES_MAX} pages in all"
            );
            Err(Impossible::new(at, message))
        }
    }
}

/// When each program was done, and with how many pages.
#[derive(Clone, Default)]
pub struct Finished(Rc<RefCell<Vec<(Ns, u64)>>>);

impl Finished {
    /// The sum of the programs' rates, in pages per second.
    pub fn pages_per_second(&self) -> f64 {
        self.0.borrow().iter().map(|(ns, pages)| *pages as f64 * 1e9 / (*ns).max(1) as f64).sum()
    }

    /// When the last one was done.
    pub fn last(&self) -> Ns {
        self.0.borrow().iter().map(|(ns, _)| *ns).max().unwrap_or(0)
    }
}

/// Starts a program that writes to its pages one after the other, so many times.
pub fn start(memory: &Shared, node: u32, work: (Range<PageId>, u32), finished: &Finished) {
    let (memory, finished) = (Rc::clone(memory), finished.clone());
    let (pages, passes) = work;
    memory.sim().clone().program(async move {
        let thread = memory.program_thread(node);
        let mut done = 0;
        for page in (0..passes).flat_map(|_| pages.clone()) {
            if let Outcome::NoMemory = memory.access(&thread, page, Access::Write).await {
                memory.counts.kill();
                break;
            }
            done += 1;
        }
        thread.settle().await;
        finished.0.borrow_mut().push((memory.sim().now(), done));
    });
}

/// Runs until all programs have ended, each with all that it had to do.
///
/// # Errors
/// As of [`end`], or a program was killed: what it did says nothing.
pub fn finish(memory: &Memory, options: &Options) -> Result<(), Failure> {
    end(memory, options)?;
    match memory.counts.killed.get() {
        0 => Ok(()),
        killed => Err(Failure::Broken(format!(
            "{killed} programs got no memory: use larger devices, more memory or smaller programs"
        ))),
    }
}

/// Runs until all programs have ended, or were killed.
///
/// # Errors
/// An invariant is broken, or a program sleeps for ever.
pub fn end(memory: &Memory, options: &Options) -> Result<(), Failure> {
    let look = || match options.checking {
        Checking::Off => Ok(()),
        Checking::EveryEvent => memory.check(),
    };
    match memory.sim().run(TIME_MAX, look) {
        Stop::Done => Ok(()),
        stop => Err(Failure::Broken(format!("seed {}: {stop:?}", options.seed))),
    }
}
