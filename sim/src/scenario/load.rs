//! Programs that use memory, and a run of them to its end.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use super::{Checking, Failure, Options};
use crate::clock::{Ns, Stop};
use crate::memory::{Access, Memory, Outcome, PageId, Shared};

/// The longest virtual time of a run: an hour.
const LIMIT: Ns = 3_600_000_000_000;

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
                crate::memory::count(&memory.counts.killed, 1);
                break;
            }
            done += 1;
        }
        thread.settle().await;
        finished.0.borrow_mut().push((memory.sim().now(), done));
    });
}

/// Runs until all programs have ended.
///
/// # Errors
/// An invariant is broken, or a program sleeps for ever.
pub fn finish(memory: &Memory, options: &Options) -> Result<(), Failure> {
    let look = || match options.checking {
        Checking::Off => Ok(()),
        Checking::EveryEvent => memory.check(),
    };
    match memory.sim().run(LIMIT, look) {
        Stop::Done => Ok(()),
        stop => Err(Failure::Broken(format!("seed {}: {stop:?}", options.seed))),
    }
}
