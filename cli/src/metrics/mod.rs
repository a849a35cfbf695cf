//! `userswap metrics`: the counters, gauges and histograms of all programs of this user that have an engine.
//!
//! Printed once, served by HTTP, or written to a file: each time every engine is asked anew, and nothing is kept.

mod address;
mod counters;
#[cfg(test)]
mod documents;
mod exposition;
mod family;
mod http;
mod stop;
mod textfile;

use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;

use crate::control::{PATIENCE, engines};
use crate::failure::Failure;
use crate::said;
use address::{Address, Connection, Listener};
use exposition::{Format, exposition};
pub use stop::{Stop, Woken};

/// Scrapes that are answered or waited for at once; more are refused by closing them.
const CONNECTIONS_MAX: usize = 16;

/// After a connection that could not be taken.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Options of `metrics`.
#[derive(Args)]
pub struct MetricsArgs {
    /// Serve GET /metrics until Ctrl-C, at IP:PORT, a PORT of the loopback address, or unix:PATH, which only this user can open
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:9877", conflicts_with = "textfile")]
    listen: Option<Address>,
    /// Write to a file for node_exporter's textfile collector, as a whole
    #[arg(long, value_name = "FILE")]
    textfile: Option<PathBuf>,
    /// Write the file again and again, until Ctrl-C
    #[arg(long, value_name = "SECONDS", requires = "textfile", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    every: Option<u32>,
}

/// Tells all metrics; on Ctrl-C or SIGTERM what goes on ends in order.
///
/// # Errors
/// The address or the file cannot be had.
pub fn metrics(args: MetricsArgs) -> Result<ExitCode, Failure> {
    match (args.listen, args.textfile) {
        (Some(address), _) => listen(&address)?,
        (None, Some(file)) => write(&file, args.every)?,
        (None, None) => print()?,
    }
    Ok(ExitCode::SUCCESS)
}

fn print() -> Result<(), Failure> {
    said::print(exposition(engines(PATIENCE), Format::OpenMetrics))
}

fn write(file: &Path, every: Option<u32>) -> Result<(), Failure> {
    let round = || textfile::replace(file, &exposition(engines(PATIENCE), Format::Prometheus));
    let Some(seconds) = every else { return round() };
    let stop = Stop::on_signals()?;
    // What cannot be written at first is a mistake; later it may pass.
    round()?;
    while stop.wait(None, Some(Duration::from_secs(seconds.into()))) != Woken::Stopped {
        if let Err(failure) = round() {
            said::say(failure.message);
        }
    }
    Ok(())
}

fn listen(address: &Address) -> Result<(), Failure> {
    let stop = Stop::on_signals()?;
    let listener = Listener::new(address)?;
    said::say(format_args!("metrics at {}", listener.address()));
    // The threads of connections hold it too: there are as many of them.
    let scraping = Arc::new(Mutex::new(()));
    while stop.wait(Some(listener.as_fd()), None) != Woken::Stopped {
        match listener.accept(http::REQUEST_TIME_MAX) {
            Ok(connection) if Arc::strong_count(&scraping) <= CONNECTIONS_MAX => {
                answer_in_thread(connection, scraping.clone());
            }
            // Too many, or it has gone again.
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // Descriptors are short, as a rule: it waits until some are given back.
            Err(_) if stop.wait(None, Some(ACCEPT_PAUSE)) == Woken::Stopped => break,
            Err(_) => {}
        }
    }
    Ok(())
}

/// A client that is slow, or says nothing, keeps no other from its answer.
fn answer_in_thread(mut connection: Box<dyn Connection>, scraping: Arc<Mutex<()>>) {
    let answer = move || {
        let metrics = |format| {
            // One at a time: an engine lets few clients in.
            let _one = scraping.lock().unwrap_or_else(PoisonError::into_inner);
            exposition(engines(PATIENCE), format)
        };
        // The other side has gone, or was too slow: there is nobody to tell.
        let _ = http::serve(&mut *connection, metrics);
    };
    // Without a thread the connection closes.
    let _ = std::thread::Builder::new().spawn(answer);
}
