//! Asks every engine of this user how it is, all at once: one that is stopped costs the others nothing.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use userswap::internals::directory::EngineName;
use userswap::internals::protocol::Request;
use userswap::internals::status::Status;

use super::client::Client;
use super::target;
use crate::failure::Failure;

/// An engine answers at once, unless its program is stopped or forks; a scrape waits for ten seconds as a rule.
pub const PATIENCE: Duration = Duration::from_secs(3);

/// Engines that are asked at once; each takes a descriptor.
const ASKED_MAX: usize = 256;
/// What has come already is read also when all patience went to another engine.
const READING_TIME: Duration = Duration::from_millis(1);

/// An engine, and how it is.
#[derive(Debug)]
pub struct Engine {
    pub name: EngineName,
    /// An error when it refuses or is silent: it may have just ended.
    pub status: Result<Status, Failure>,
}

/// All engines of this user, root's too, in the order of their numbers; none is waited for longer than `patience`.
pub fn engines(patience: Duration) -> Vec<Engine> {
    let sockets = target::all();
    sockets.chunks(ASKED_MAX).flat_map(|some| ask_all(some, patience)).collect()
}

fn ask_all(sockets: &[(EngineName, PathBuf)], patience: Duration) -> Vec<Engine> {
    let ask = |(name, socket): &(EngineName, PathBuf)| -> Result<Client, Failure> {
        let mut client = Client::connect(*name, socket)?;
        client.check_goes_on()?;
        client.send(&Request::Status {})?;
        Ok(client)
    };
    // All are asked before any is waited for: an answer waits in its connection until it is read.
    let asked: Vec<_> = sockets.iter().map(ask).collect();
    let deadline = Instant::now() + patience;
    let status = |client: Result<Client, Failure>| -> Result<Status, Failure> {
        let mut client = client?;
        let left = deadline.saturating_duration_since(Instant::now());
        let status = client.status_within(left.max(READING_TIME))?;
        status.ok_or_else(|| client.silent_for(patience))
    };
    let names = sockets.iter().map(|(name, _)| *name);
    names.zip(asked).map(|(name, client)| Engine { name, status: status(client) }).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;

    use tempfile::TempDir;
    use userswap::internals::protocol::Answer;

    use super::*;

    /// Two sockets, and what listens at them.
    fn two() -> (TempDir, Vec<(EngineName, PathBuf)>, Vec<UnixListener>) {
        let directory = tempfile::tempdir().unwrap();
        let named = |pid| {
            let name = EngineName { pid, number: 1 };
            (name, directory.path().join(name.file()))
        };
        let sockets: Vec<_> = [7, 8].map(named).into();
        let listeners = sockets.iter().map(|(_, socket)| UnixListener::bind(socket).unwrap());
        let listeners = listeners.collect();
        (directory, sockets, listeners)
    }

    fn refusals(engines: &[Engine]) -> Vec<&str> {
        engines.iter().map(|engine| &*engine.status.as_ref().unwrap_err().message).collect()
    }

    #[test]
    fn all_are_asked_before_any_is_waited_for() {
        let (_directory, sockets, listeners) = two();
        std::thread::spawn(move || {
            let accept = |listener: &UnixListener| BufReader::new(listener.accept().unwrap().0);
            let mut streams: Vec<_> = listeners.iter().map(accept).collect();
            for stream in &mut streams {
                stream.read_line(&mut String::new()).unwrap();
            }
            for stream in &mut streams {
                stream.get_mut().write_all(&Answer::error("later").to_line()).unwrap();
            }
        });
        let engines = ask_all(&sockets, Duration::from_secs(60));
        assert_eq!(refusals(&engines), ["process 7: later", "process 8: later"]);
    }

    #[test]
    fn the_silent_ones_share_one_patience() {
        let (_directory, sockets, _listeners) = two();
        for refusal in refusals(&ask_all(&sockets, Duration::ZERO)) {
            assert!(refusal.contains("does not answer within 0 s"), "{refusal}");
        }
    }
}
