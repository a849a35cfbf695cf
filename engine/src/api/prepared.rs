//! Starting in three steps: what needs rights, then threads, then the arena.
//!
//! A program can give its rights up long before it outgrows its budget: descriptors and tables are taken before
//! that, and cost it nothing until it does. Threads come as late as can be, as a program notices them. Both
//! call the C library, which calls the program's malloc; where that is one that the program brings along, it
//! must not happen under locks that its own mmap would wait for.
use crate::api::engine::{Engine, open_devices, topology_of, tuning_of};
use crate::api::heap::Heaps;
use crate::api::options::Options;
use crate::api::running::Running;
use crate::base::error::Error;
use crate::base::index::{PageIndex, PageRange};
use crate::control::Control;
use crate::fault::sigbus;
use crate::job::member::Member;
use crate::state::arena::Arena;
use crate::state::core::Core;
use std::sync::{Arc, Mutex};

/// Everything of an engine that its process needs rights for: devices, descriptors, tables.
pub struct Gathered {
    core: Arc<Core>,
}

impl Gathered {
    /// # Errors
    /// As [`crate::Builder::build`].
    pub(super) fn new(arena: Arc<Arena>, options: &Options) -> Result<Self, Error> {
        let topology = topology_of(options);
        let tuning = tuning_of(options, &topology)?;
        let devices = open_devices(options, &topology)?;
        let core = Arc::new(Core::new(arena, devices, tuning, topology)?);
        core.limit_stored();
        Ok(Self { core })
    }

    /// Whether it was gathered by this process: what a child inherits is of no use to it.
    pub fn is_of_this_process(&self) -> bool {
        self.core.own_process.is_here()
    }
}

/// Of each range that was to stay, the pages that are not pinned; None if there was no room for it.
pub type LeftOut = Vec<Option<Vec<PageIndex>>>;

/// An engine that has its devices and threads, and not yet its arena; dropped, its threads end.
pub struct Prepared {
    running: Option<Arc<Running>>,
}

impl Prepared {
    /// The gate is closed, so the threads wait.
    ///
    /// # Errors
    /// No thread is to be had.
    pub(super) fn new(gathered: Gathered, member: Option<Arc<Member>>) -> Result<Self, Error> {
        let core = gathered.core;
        if let Some(member) = member {
            core.begin_share(&member)?;
            assert!(core.member.set(member).is_ok(), "an engine is new");
        }
        let running = Running {
            core,
            threads: Mutex::new(Vec::new()),
            servers: Mutex::new(Vec::new()),
            control: Control::default(),
            heaps: Heaps::new(),
        };
        // From here on an error drops this, which ends the threads.
        let prepared = Self { running: Some(Arc::new(running)) };
        prepared.running().start_threads()?;
        Ok(prepared)
    }

    pub(super) fn running(&self) -> &Arc<Running> {
        self.running.as_ref().expect("it is taken only by what consumes this")
    }

    /// Takes the arena over: from here on missing pages are the engine's to bring in. Other threads may go on
    /// touching memory meanwhile; their faults wait. What is there of `kept` never leaves; what is missing and `can_fill`
    /// says can be touched is brought in; all of that is pinned.
    ///
    /// # Errors
    /// The kernel refuses; nothing is registered then.
    pub fn engage(
        mut self,
        kept: &[PageRange],
        can_fill: impl Fn(PageRange) -> bool,
    ) -> Result<(Engine, LeftOut), Error> {
        let core = &self.running().core;
        // Handlers before registration, and adoption while the gate is closed: a fault in between waits there.
        sigbus::enroll(core)?;
        core.prepare_arena().map_err(Error::Tables)?;
        core.register().map_err(Error::Userfaultfd)?;
        core.adopt_present().map_err(Error::Tables)?;
        // A thread's own table on its stack, or a call that waits in the kernel, cannot do without for a moment.
        let mut missing: Vec<_> = kept.iter().map(|range| core.pin_adopted(*range).ok()).collect();
        core.gate.open();
        for (range, missing) in kept.iter().zip(&mut missing) {
            let Some(pages) = missing.as_mut().filter(|pages| !pages.is_empty()) else { continue };
            if can_fill(*range) {
                core.pin_missing(pages.drain(..));
            } else {
                core.forget_pins(pages.len() as u32);
            }
        }
        let running = self.running.take().expect("it was there a moment ago");
        Ok((Engine { running }, missing))
    }

    /// The same, with nothing that must not leave.
    ///
    /// # Errors
    /// As [`Prepared::engage`].
    pub fn engage_all(self) -> Result<Engine, Error> {
        self.engage(&[], |_| true).map(|(engine, _)| engine)
    }

    /// What it is going to be.
    pub fn core(&self) -> &Core {
        &self.running().core
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if let Some(running) = &self.running {
            // The threads wait for the gate and have to end, before any of them takes a page out.
            running.core.stop();
            running.core.gate.open();
        }
    }
}
