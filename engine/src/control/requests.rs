//! Carrying out requests: each becomes a call of the engine, and the outcome an answer.
use super::connection::{Connection, End, REQUEST_TIME_MAX};
use super::protocol::{Answer, REQUEST_BYTES_MAX, Request};
use super::server::Shared;
use super::settings;
use crate::device::spec::{SwapPath, SwapSpec};
use crate::state::core::Core;
use crate::swapoff::method::SwapoffMethod;
use crate::swapoff::{Proceed, Progress};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time between two answers about progress: as often as an eye can follow.
const PROGRESS_PERIOD: Duration = Duration::from_millis(100);

/// Answers requests until the connection ends.
pub fn serve(shared: &Shared, connection: &mut Connection<'_>) {
    loop {
        let answer = match connection.next_line(REQUEST_TIME_MAX) {
            Ok(line) => match Request::from_line(&line) {
                Ok(request) => answer(shared, connection, request),
                Err(refusal) => Answer::error(refusal),
            },
            Err(end) => return farewell(connection, end),
        };
        if connection.send(&answer).is_err() {
            return;
        }
    }
}

fn farewell(connection: &mut Connection<'_>, end: End) {
    let reason = match end {
        End::Closed | End::Stopping => return,
        End::Silent => format!("no request within {} s", REQUEST_TIME_MAX.as_secs()),
        End::TooLong => format!("a line has at most {REQUEST_BYTES_MAX} bytes"),
    };
    // Whether it still listens or not, this is the end.
    let _ = connection.send_if_room(&Answer::error(reason));
}

fn answer(shared: &Shared, connection: &mut Connection<'_>, request: Request) -> Answer {
    let core = &shared.core;
    match request {
        Request::Status {} => Answer::Status { status: Box::new(core.status()) },
        Request::Settings {} => Answer::Settings { settings: settings::all(core) },
        Request::Set { key, value } => match settings::set(core, &key, &value) {
            Ok(value) => Answer::Set { key, value },
            Err(refusal) => Answer::error(refusal),
        },
        Request::Swapon { spec } => swapon(core, &spec),
        Request::Swapoff { path, readahead } => {
            match readahead.as_deref().map(str::parse).transpose() {
                Ok(method) => {
                    swapoff(shared, connection, Path::new(&path), method.unwrap_or_default())
                }
                Err(refusal) => Answer::error(refusal),
            }
        }
        Request::Cancel {} => Answer::error("no swapoff is under way on this connection"),
        Request::Populate { address, bytes } => {
            let bytes = core.populate(address as usize, bytes as usize);
            Answer::Populated { bytes: bytes as u64 }
        }
    }
}

fn swapon(core: &Core, text: &str) -> Answer {
    let spec: SwapSpec = match text.parse() {
        Ok(spec) => spec,
        Err(error) => return Answer::error(error),
    };
    if let SwapPath::Path(path) = &spec.path
        && !path.is_absolute()
    {
        return Answer::error(format!("{text:?} depends on a working directory: write it from /"));
    }
    let is_named = spec.remote().is_some_and(|address| !address.is_numeric())
        || spec.bucket().is_some_and(|address| !address.is_numeric());
    if is_named {
        return Answer::error(format!("{text:?} has a host by name: write its address"));
    }
    match core.swapon(&spec) {
        Ok(warning) => Answer::Done { warning },
        Err(error) => Answer::error(error),
    }
}

fn swapoff(
    shared: &Shared,
    connection: &mut Connection<'_>,
    path: &Path,
    method: SwapoffMethod,
) -> Answer {
    let Some(_turn) = Turn::take(&shared.swapoff_under_way) else {
        return Answer::error("another swapoff is under way: cancel it or wait for its end");
    };
    let mut watch = Watch { connection, told: None, cancelled: false };
    match shared.core.swapoff_by(path, method, &mut |progress| watch.after_batch(progress)) {
        Ok(()) => Answer::Done { warning: None },
        Err(_) if watch.cancelled => Answer::Cancelled {},
        Err(error) => Answer::error(error),
    }
}

/// The permission to empty a device; there is one, as two would fight for the same room.
struct Turn<'a>(&'a AtomicBool);

impl<'a> Turn<'a> {
    fn take(taken: &'a AtomicBool) -> Option<Self> {
        // Acquire pairs with the release in `drop`: the turns follow each other.
        (!taken.swap(true, Ordering::Acquire)).then_some(Self(taken))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Tells a client about its swapoff, and takes its cancel.
struct Watch<'a, 'b> {
    connection: &'a mut Connection<'b>,
    told: Option<Instant>,
    cancelled: bool,
}

impl Watch<'_, '_> {
    /// Tells the client how far it is and asks whether to go on; waits for nothing.
    fn after_batch(&mut self, progress: Progress) -> Proceed {
        let told = if self.told.is_none_or(|told| told.elapsed() >= PROGRESS_PERIOD) {
            self.told = Some(Instant::now());
            self.connection.send_if_room(&progress.into())
        } else {
            Ok(())
        };
        // A client that has gone does not want it any more.
        self.cancelled |= told.is_err() || self.is_cancelled();
        if self.cancelled { Proceed::Cancel } else { Proceed::GoOn }
    }

    fn is_cancelled(&mut self) -> bool {
        loop {
            let line = match self.connection.waiting_line() {
                Ok(Some(line)) => line,
                Ok(None) => return false,
                Err(_) => return true,
            };
            if Request::from_line(&line) == Ok(Request::Cancel {}) {
                return true;
            }
            let refusal = "a swapoff is under way on this connection: only cancel is understood";
            if self.connection.send_if_room(&Answer::error(refusal)).is_err() {
                return true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::connection::Stop;
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    const PROGRESS: Progress = Progress { pages_left: 5, pages_total: 9 };

    fn watched(test: impl FnOnce(&mut Watch<'_, '_>, UnixStream)) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let stop = Stop::new().unwrap();
        let mut connection = Connection::new(&ours, &stop).unwrap();
        test(&mut Watch { connection: &mut connection, told: None, cancelled: false }, theirs);
    }

    #[test]
    fn a_swapoff_goes_on_until_it_is_cancelled() {
        watched(|watch, mut theirs| {
            assert_eq!(watch.after_batch(PROGRESS), Proceed::GoOn);
            let mut line = [0; 52];
            theirs.read_exact(&mut line).unwrap();
            assert_eq!(&line, b"{\"answer\":\"progress\",\"pages_left\":5,\"pages_total\":9}");
            theirs.write_all(b"{\"request\":\"status\"}\n").unwrap();
            assert_eq!(watch.after_batch(PROGRESS), Proceed::GoOn);
            theirs.write_all(b"{\"request\":\"cancel\"}\n").unwrap();
            assert_eq!(watch.after_batch(PROGRESS), Proceed::Cancel);
        });
    }

    #[test]
    fn a_client_that_goes_away_cancels_its_swapoff() {
        watched(|watch, theirs| {
            drop(theirs);
            assert_eq!(watch.after_batch(PROGRESS), Proceed::Cancel);
            assert!(watch.cancelled);
        });
    }

    #[test]
    fn one_device_is_emptied_at_a_time() {
        let taken = AtomicBool::new(false);
        let turn = Turn::take(&taken);
        assert!(turn.is_some() && Turn::take(&taken).is_none());
        drop(turn);
        assert!(Turn::take(&taken).is_some());
    }
}
