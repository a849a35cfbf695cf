//! SIGINT and its relatives while something runs that must be cleaned up.
//!
//! As long as an [`Interrupt`] is held, a signal is remembered and the loads that run are killed;
//! the code that waits for them then finds the signal and leaves in order. At all other times
//! the signals do what they would do without this module.

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use thiserror::Error;
use userswap::internals::bench::process::{Pid, kill_group};

/// What a shell adds to a signal's number.
const EXIT_SIGNAL: i32 = 128;

/// A signal asked this process to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("interrupted by signal {signal}")]
pub struct Interrupted {
    /// The number of the signal.
    pub signal: i32,
}

impl Interrupted {
    /// The status of a program that a signal stopped, as a shell shows it.
    pub(crate) fn exit_code(self) -> ExitCode {
        ExitCode::from(u8::try_from(EXIT_SIGNAL + self.signal).unwrap_or(1))
    }
}

#[derive(Debug)]
struct State {
    holders: usize,
    loads: Vec<Pid>,
    signal: Option<i32>,
}

static STATE: Mutex<State> = Mutex::new(State { holders: 0, loads: Vec::new(), signal: None });
static LISTENER: OnceLock<Result<(), io::ErrorKind>> = OnceLock::new();

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps signals from ending this process while it is held.
#[derive(Debug)]
pub(crate) struct Interrupt(());

impl Interrupt {
    pub(crate) fn hold() -> io::Result<Self> {
        (*LISTENER.get_or_init(|| listen().map_err(|error| error.kind())))?;
        state().holders += 1;
        Ok(Self(()))
    }

    /// Fails if a signal has come since the first of the present holders began.
    pub(crate) fn check(&self) -> Result<(), Interrupted> {
        state().signal.map_or(Ok(()), |signal| Err(Interrupted { signal }))
    }

    /// Has a signal kill the process group that `leader` leads, until the value is dropped.
    pub(crate) fn cover(&self, leader: Pid) -> Covered {
        let mut state = state();
        state.loads.push(leader);
        if state.signal.is_some() {
            kill_group(leader);
        }
        Covered(leader)
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        let mut state = state();
        state.holders -= 1;
        if state.holders == 0 {
            state.signal = None;
        }
    }
}

/// A load that a signal kills.
#[derive(Debug)]
pub(crate) struct Covered(Pid);

impl Drop for Covered {
    fn drop(&mut self) {
        state().loads.retain(|&leader| leader != self.0);
    }
}

fn listen() -> io::Result<()> {
    let ignored = ignored_signals();
    let wanted = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];
    // nohup and background jobs ignore signals on purpose, and that must stay so.
    let wanted = wanted.into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0);
    let mut signals = Signals::new(wanted)?;
    std::thread::Builder::new().name("interrupt".to_owned()).spawn(move || {
        signals.forever().for_each(on_signal);
    })?;
    Ok(())
}

fn on_signal(signal: i32) {
    let mut state = state();
    if state.holders > 0 {
        state.signal = Some(signal);
        state.loads.iter().for_each(|&leader| kill_group(leader));
        return;
    }
    drop(state);
    if signal_hook::low_level::emulate_default_handler(signal).is_err() {
        std::process::exit(EXIT_SIGNAL + signal);
    }
}

/// The mask of ignored signals; none if it cannot be read.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
