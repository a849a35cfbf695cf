//! Idle CPUs are kept from halting while faults are dense, where the setting `poll` is `idle`.
//!
//! A fault hands its work to a device, from there to another thread, and back: each of these wakes a CPU, and one that has halted
//! takes longer to wake than the work does. Faults only count themselves, and wake the watchdog when they have become dense;
//! the wish itself, a system call that wakes all idle CPUs, is the watchdog's to make and to take back.
use crate::base::counters::count;
use crate::state::core::Core;
use crate::sys::clock;
use crate::sys::cpu_latency::Idle;
use std::sync::atomic::Ordering;
use userswap_policy::polling::{AWAKE_NS, Poll};

/// What the watchdog knows while idle CPUs are kept from halting.
pub(super) struct Awake {
    /// As far as that time is counted.
    counted_ns: u64,
    /// When faults were last seen to go on, and how many there had been.
    seen_ns: u64,
    faults: u64,
}

impl Core {
    /// Notes a fault, inside the gate; safe in a signal handler.
    pub(super) fn note_density(&self, now_ns: u64) {
        if self.polling.on_fault(now_ns) {
            self.wake_watchdog();
        }
    }

    /// Keeps idle CPUs from halting or lets them; what is held then, and for how long nothing of it will change.
    pub(super) fn keep_awake(&self, awake: Option<Awake>) -> (Option<Awake>, u64) {
        let faults = self.counters.pgfault.load(Ordering::Relaxed);
        let now = clock::now_ns();
        let is_wanted = self.polling.setting() == Poll::Idle && !self.is_stopping();
        let Some(mut awake) = awake else {
            let is_held = is_wanted && self.polling.is_dense() && self.wish(Idle::Awake);
            let new = is_held.then_some(Awake { counted_ns: now, seen_ns: now, faults });
            return (new, if is_held { AWAKE_NS } else { u64::MAX });
        };
        count(&self.counters.idle_awake_ns, now - awake.counted_ns);
        awake.counted_ns = now;
        if awake.faults != faults {
            (awake.seen_ns, awake.faults) = (now, faults);
        }
        let until_ns = awake.seen_ns + AWAKE_NS;
        if is_wanted && now < until_ns {
            return (Some(awake), until_ns - now);
        }
        self.wish(Idle::AsSetUp);
        self.polling.grown_thin();
        (None, u64::MAX)
    }

    /// Without a file nothing is wished, for good.
    fn wish(&self, idle: Idle) -> bool {
        self.polling.latency().is_some_and(|latency| latency.wish(idle).is_ok())
    }
}
