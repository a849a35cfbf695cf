//! How the server waits, and whether idle CPUs may halt meanwhile: the setting, and what faults tell the watchdog.
use crate::sys::clock;
use crate::sys::cpu_latency::{self, CpuLatency, NoWish};
use crate::sys::lock::Lock;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use userswap_policy::awake::CPUS_MAX;
use userswap_policy::polling::{Density, POLL_MAX_US, Poll};

/// Settings that are no number of microseconds.
const OFF: u32 = 0;
const AUTO: u32 = POLL_MAX_US as u32 + 1;
const IDLE: u32 = POLL_MAX_US as u32 + 2;

/// Whether idle CPUs are kept from halting while faults are dense.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeps {
    /// They halt as they are set up to.
    Never,
    /// Where that makes more faults.
    WherePays,
    /// For as long as faults are dense.
    Always,
}

/// The setting of `poll`, and what it needs.
pub struct Polling {
    setting: AtomicU32,
    /// It is worth trying: a CPU that halts takes long to wake in a guest, and how much power it takes is the host's to say; and
    /// there are few that would be kept awake for one program.
    may_pay: bool,
    /// Opened when it is first asked for: later the process may have no right to.
    latency: OnceLock<CpuLatency>,
    /// Taken inside the gate only.
    density: Lock<Density>,
    /// Faults are dense, and idle CPUs are not to halt until the watchdog finds that this has ended.
    is_dense: AtomicBool,
}

impl Polling {
    /// At the start; without the right to keep CPUs from halting, `Idle` is `Auto`.
    pub fn new(poll: Poll) -> Self {
        let polling = Self {
            setting: AtomicU32::new(OFF),
            may_pay: cpu_latency::is_guest() && clock::cpus() <= CPUS_MAX,
            latency: OnceLock::new(),
            density: Lock::new(Density::default()),
            is_dense: AtomicBool::new(false),
        };
        if polling.set(poll).is_err() {
            polling.store(Poll::Auto);
        }
        polling
    }

    /// What is set.
    pub fn setting(&self) -> Poll {
        // Relaxed: whoever reads an old value waits in the old way once more.
        match self.setting.load(Ordering::Relaxed) {
            OFF => Poll::Off,
            AUTO => Poll::Auto,
            IDLE => Poll::Idle,
            number => Poll::Micros(number as u16),
        }
    }

    /// Changes it, inside the gate or before there are threads.
    ///
    /// # Errors
    /// Why idle CPUs cannot be kept from halting; nothing is changed then.
    pub fn set(&self, poll: Poll) -> Result<(), NoWish> {
        match poll {
            Poll::Idle => self.open()?,
            // Without the right there is nothing to be tried.
            Poll::Auto if self.may_pay => _ = self.open(),
            Poll::Auto | Poll::Off | Poll::Micros(_) => {}
        }
        self.store(poll);
        Ok(())
    }

    fn store(&self, poll: Poll) {
        let number = match poll {
            Poll::Off => OFF,
            Poll::Auto => AUTO,
            Poll::Idle => IDLE,
            Poll::Micros(number) => number.into(),
        };
        self.setting.store(number, Ordering::Relaxed);
    }

    fn open(&self) -> Result<(), NoWish> {
        match self.latency.get() {
            None => {
                // Set by another thread meanwhile, the file is the same.
                let _ = self.latency.set(CpuLatency::open()?);
                Ok(())
            }
            Some(latency) => latency.check(),
        }
    }

    /// Whether idle CPUs are kept from halting while faults are dense.
    pub fn keeps(&self) -> Keeps {
        match self.setting() {
            Poll::Idle => Keeps::Always,
            Poll::Auto if self.may_pay && self.latency.get().is_some() => Keeps::WherePays,
            Poll::Auto | Poll::Off | Poll::Micros(_) => Keeps::Never,
        }
    }

    /// By what idle CPUs are kept from halting.
    pub fn latency(&self) -> Option<&CpuLatency> {
        self.latency.get()
    }

    /// Notes a fault, inside the gate; whether faults are dense since this one.
    pub fn on_fault(&self, now_ns: u64) -> bool {
        let is_looked_for = !self.is_dense() && self.keeps() != Keeps::Never;
        // Release pairs with the watchdog's acquire: it sees the faults that have made it so.
        is_looked_for
            && self.density.lock().on_fault(now_ns)
            && !self.is_dense.swap(true, Ordering::Release)
    }

    /// Whether faults were dense since [`Polling::grown_thin`].
    pub fn is_dense(&self) -> bool {
        self.is_dense.load(Ordering::Acquire)
    }

    /// Faults are looked at again.
    pub fn grown_thin(&self) {
        self.is_dense.store(false, Ordering::Relaxed);
    }

    /// After fork, in the child, whose faults are yet to come.
    pub fn renew(&self) {
        self.grown_thin();
        if let Some(latency) = self.latency.get() {
            latency.renew();
        }
    }
}
