//! Idle CPUs are kept from halting while faults are dense, where the setting `poll` is `idle`, and where it is `auto` and that
//! pays (`policy::awake`).
//!
//! A fault hands its work to a device, from there to another thread, and back: each of these wakes a CPU, and one that has halted
//! takes longer to wake than the work does. Faults only count themselves, and wake the watchdog when they have become dense;
//! the wish itself, a system call that wakes all idle CPUs, is the watchdog's to make and to take back.
use crate::base::counters::count;
use crate::state::core::Core;
use crate::state::polling::Keeps;
use crate::sys::clock;
use std::sync::atomic::Ordering;
use userswap_policy::awake::{Idle, Trials, WINDOW_NS};
use userswap_policy::polling::AWAKE_NS;

/// What the watchdog knows of idle CPUs.
#[derive(Default)]
pub(super) struct Awake {
    trials: Trials,
    dense: Option<Dense>,
}

/// Faults are dense.
struct Dense {
    wished: Idle,
    /// As far as the time with CPUs kept awake is counted, or since the window began.
    since_ns: u64,
    /// When faults were last seen to go on, and how many there had been; or at the beginning of the window.
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

    /// Keeps idle CPUs from halting or lets them; for how long nothing of that will change.
    pub(super) fn keep_awake(&self, awake: &mut Awake) -> u64 {
        let (now_ns, faults) = (clock::now_ns(), self.counters.pgfault.load(Ordering::Relaxed));
        let keeps = if self.is_stopping() { Keeps::Never } else { self.polling.keeps() };
        let Some(mut dense) = awake.dense.take() else {
            let wished = match keeps {
                Keeps::Always => Idle::Awake,
                Keeps::WherePays => awake.trials.wish(),
                Keeps::Never => return u64::MAX,
            };
            // Without a file nothing is wished, for good.
            if !self.polling.is_dense() || !self.wish(wished) {
                return u64::MAX;
            }
            awake.dense = Some(Dense { wished, since_ns: now_ns, seen_ns: now_ns, faults });
            return if keeps == Keeps::Always { AWAKE_NS } else { WINDOW_NS };
        };
        let next = match keeps {
            Keeps::Always => self.while_dense(&mut dense, now_ns, faults),
            Keeps::WherePays => self.while_it_pays(&mut dense, &mut awake.trials, now_ns, faults),
            Keeps::Never => None,
        };
        if let Some(next_ns) = next {
            awake.dense = Some(dense);
            return next_ns;
        }
        self.count_awake(&mut dense, now_ns);
        self.wish(Idle::AsSetUp);
        self.polling.grown_thin();
        u64::MAX
    }

    /// CPUs are kept awake as long as there are faults at all; None once there have been none for a while.
    fn while_dense(&self, dense: &mut Dense, now_ns: u64, faults: u64) -> Option<u64> {
        self.count_awake(dense, now_ns);
        if dense.faults != faults {
            (dense.seen_ns, dense.faults) = (now_ns, faults);
        }
        if dense.wished == Idle::AsSetUp {
            self.wish(Idle::Awake);
            dense.wished = Idle::Awake;
        }
        let until_ns = dense.seen_ns + AWAKE_NS;
        (now_ns < until_ns).then(|| until_ns - now_ns)
    }

    /// CPUs are kept awake in the windows in which that pays, or is tried; None once faults are not dense any more.
    fn while_it_pays(
        &self,
        dense: &mut Dense,
        trials: &mut Trials,
        now_ns: u64,
        faults: u64,
    ) -> Option<u64> {
        let window_ns = now_ns - dense.seen_ns;
        if window_ns < WINDOW_NS {
            return Some(WINDOW_NS - window_ns);
        }
        self.count_awake(dense, now_ns);
        // A window that others have made longer counts as one.
        let in_window = (faults - dense.faults) * WINDOW_NS / window_ns;
        (dense.seen_ns, dense.faults) = (now_ns, faults);
        if !trials.on_window(in_window) {
            return None;
        }
        if trials.wish() != dense.wished {
            dense.wished = trials.wish();
            self.wish(dense.wished);
        }
        Some(WINDOW_NS)
    }

    fn count_awake(&self, dense: &mut Dense, now_ns: u64) {
        let since_ns = std::mem::replace(&mut dense.since_ns, now_ns);
        if dense.wished == Idle::Awake {
            count(&self.counters.idle_awake_ns, now_ns - since_ns);
        }
    }

    fn wish(&self, idle: Idle) -> bool {
        self.polling.latency().is_some_and(|latency| latency.wish(idle).is_ok())
    }
}
