//! Starting in two steps: first what may take its time and call into the program, then the arena.
//!
//! Opening devices and starting threads calls the C library, which calls the program's malloc; where that is
//! one that the program brings along, it must not happen under locks that its own mmap would wait for.
use crate::api::engine::{Engine, open_devices, topology_of, tuning_of};
use crate::api::options::Options;
use crate::api::running::Running;
use crate::base::error::Error;
use crate::control::Control;
use crate::fault::sigbus;
use crate::state::arena::Arena;
use crate::state::core::Core;
use std::sync::{Arc, Mutex};

/// An engine that has its devices and threads, and not yet its arena.
pub struct Prepared {
    pub(super) running: Arc<Running>,
}

impl Prepared {
    /// The gate is closed, so the threads wait.
    ///
    /// # Errors
    /// As [`crate::Builder::build`].
    pub(super) fn new(arena: Arc<Arena>, options: &Options) -> Result<Self, Error> {
        let topology = topology_of(options);
        let tuning = tuning_of(options, &topology)?;
        let devices = open_devices(options, &topology)?;
        let core = Arc::new(Core::new(arena, devices, tuning, topology)?);
        // From here on an error drops this, which ends the threads.
        let running = Arc::new(Running {
            core,
            threads: Mutex::new(Vec::new()),
            control: Control::default(),
        });
        running.start_threads()?;
        Ok(Self { running })
    }

    /// Takes the arena over: from here on missing pages are the engine's to bring in. Other threads may go on
    /// touching memory meanwhile; their faults wait.
    ///
    /// # Errors
    /// The kernel refuses; nothing is registered then.
    pub fn engage(self) -> Result<Engine, Error> {
        let running = self.running;
        // Handlers before registration, adoption with the gate closed: a fault in between waits there.
        sigbus::enroll(&running.core)?;
        running.core.register().map_err(Error::Userfaultfd)?;
        running.core.adopt_present().map_err(Error::Books)?;
        running.core.gate.open();
        Ok(Engine { running })
    }
}
