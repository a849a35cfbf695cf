//! A connection to an engine: a request goes out, answers come in, and no wait is without an end.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use userswap::internals::directory::{self, EngineName};
use userswap::internals::peer;
use userswap::internals::protocol::{Answer, Request};
use userswap::internals::status::Status;

use super::target;
use crate::failure::Failure;
use crate::said;

/// An engine answers at once what needs no device; it is silent while its program forks and copies what is swapped.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
/// The longest answer, in bytes: thousands of devices.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// A connection to one engine.
pub struct Client {
    name: EngineName,
    stream: BufReader<UnixStream>,
    /// The longest silence before it is told or given up on.
    patience: Duration,
    /// What has come of a line whose end has not.
    partial: Vec<u8>,
}

impl Client {
    /// Finds the engine of a process and connects to it.
    ///
    /// # Errors
    /// There is none that we may ask, or its program is stopped.
    pub fn of(name: EngineName) -> Result<Client, Failure> {
        let client = Client::connect(name, &target::find(name)?)?;
        client.check_goes_on()?;
        Ok(client)
    }

    /// A program that is stopped would answer once it is continued, and do only then what was asked.
    ///
    /// # Errors
    /// It is.
    pub fn check_goes_on(&self) -> Result<(), Failure> {
        // Not by the name: in another namespace processes have other numbers.
        let process = peer::of(self.stream.get_ref()).map_or(0, |peer| peer.process);
        if target::is_stopped(process) {
            return Err(Failure::unavailable(format!(
                "process {} is stopped: continue it first (kill -CONT {process})",
                self.name
            )));
        }
        Ok(())
    }

    /// Connects to an engine's socket.
    ///
    /// # Errors
    /// It has gone, or belongs to another user.
    pub fn connect(name: EngineName, socket: &Path) -> Result<Client, Failure> {
        let refuse = |error: io::Error| {
            Failure::unavailable(match error.kind() {
                ErrorKind::PermissionDenied => {
                    format!("process {name} belongs to somebody else: ask as that user or as root")
                }
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                    format!("process {name} has just ended: `userswap list` shows those that run")
                }
                ErrorKind::WouldBlock => {
                    format!("process {name} has not answered anybody for long: is it stopped?")
                }
                _ => format!("process {name}: {}: {error}", socket.display()),
            })
        };
        let stream = directory::connect(socket).map_err(refuse)?;
        stream.set_read_timeout(Some(ANSWER_TIME_MAX)).map_err(refuse)?;
        stream.set_write_timeout(Some(ANSWER_TIME_MAX)).map_err(refuse)?;
        let stream = BufReader::new(stream);
        Ok(Client { name, stream, patience: ANSWER_TIME_MAX, partial: Vec::new() })
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// The engine refuses, in its words; or it does not answer.
    pub fn ask(&mut self, request: &Request) -> Result<Answer, Failure> {
        self.ask_within(request, self.patience)
    }

    /// As [`ask`](Client::ask), with `patience`.
    ///
    /// # Errors
    /// As for [`ask`](Client::ask).
    pub fn ask_within(&mut self, request: &Request, patience: Duration) -> Result<Answer, Failure> {
        self.send(request)?;
        let answer = self.answer_within(patience)?.ok_or_else(|| self.silent_for(patience))?;
        self.checked(answer)
    }

    /// As [`ask`](Client::ask), for what takes as long as the devices need.
    ///
    /// # Errors
    /// The engine refuses, in its words; or it has gone.
    pub fn ask_patiently(&mut self, request: &Request) -> Result<Answer, Failure> {
        self.ask_patiently_and(request, || {})
    }

    /// As [`ask_patiently`](Client::ask_patiently), and tells the user that it takes long.
    ///
    /// # Errors
    /// As for [`ask_patiently`](Client::ask_patiently).
    pub fn ask_and_wait(&mut self, request: &Request) -> Result<Answer, Failure> {
        let (name, seconds) = (self.name, self.patience.as_secs());
        let mut told = false;
        self.ask_patiently_and(request, || {
            if !std::mem::replace(&mut told, true) {
                said::say(format_args!(
                    "process {name} has not answered for {seconds} s: it is still at it, or stopped"
                ));
            }
        })
    }

    fn ask_patiently_and(
        &mut self,
        request: &Request,
        mut on_silence: impl FnMut(),
    ) -> Result<Answer, Failure> {
        self.send(request)?;
        loop {
            match self.answer_within(self.patience)? {
                Some(answer) => return self.checked(answer),
                None => on_silence(),
            }
        }
    }

    fn checked(&self, answer: Answer) -> Result<Answer, Failure> {
        match answer {
            Answer::Error { message } => Err(self.refusal(&message)),
            answer => Ok(answer),
        }
    }

    /// How the engine is doing.
    ///
    /// # Errors
    /// As for [`ask`](Client::ask).
    pub fn status(&mut self) -> Result<Status, Failure> {
        self.send(&Request::Status {})?;
        self.status_within(self.patience)?.ok_or_else(|| self.silent_for(self.patience))
    }

    /// The status that was asked for, if it comes within `patience`.
    ///
    /// # Errors
    /// As for [`ask`](Client::ask).
    pub fn status_within(&mut self, patience: Duration) -> Result<Option<Status>, Failure> {
        match self.answer_within(patience)? {
            Some(Answer::Status { status }) => Ok(Some(*status)),
            Some(Answer::Error { message }) => Err(self.refusal(&message)),
            Some(other) => Err(self.nonsense(&format!("{other:?}"))),
            None => Ok(None),
        }
    }

    /// Sends a request.
    ///
    /// # Errors
    /// The engine has gone.
    pub fn send(&mut self, request: &Request) -> Result<(), Failure> {
        // An engine that refuses everybody has closed already, and its reason waits to be read.
        match self.stream.get_mut().write_all(&request.to_line()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(self.silence(&error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The next answer if it comes within `patience`.
    ///
    /// # Errors
    /// The engine has gone.
    pub fn answer_within(&mut self, patience: Duration) -> Result<Option<Answer>, Failure> {
        let set = self.stream.get_ref().set_read_timeout(Some(patience));
        set.map_err(|error| self.silence(&error))?;
        let room = ANSWER_BYTES_MAX.saturating_sub(self.partial.len() as u64);
        let read = (&mut self.stream).take(room).read_until(b'\n', &mut self.partial);
        match read {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) if error.kind() != ErrorKind::ConnectionReset => Err(self.silence(&error)),
            Ok(_) if self.partial.ends_with(b"\n") => {
                let line = std::mem::take(&mut self.partial);
                serde_json::from_slice(&line)
                    .map(Some)
                    .map_err(|error| self.nonsense(&error.to_string()))
            }
            Ok(_) | Err(_) => Err(Failure::unavailable(format!(
                "process {} has ended the connection: it may have ended itself",
                self.name
            ))),
        }
    }

    /// An engine's refusal; it is one line, whatever it says.
    pub fn refusal(&self, message: &str) -> Failure {
        Failure::unavailable(format!("process {}: {}", self.name, super::table::plain(message)))
    }

    /// An answer that does not belong to its request.
    pub fn nonsense(&self, what: &str) -> Failure {
        Failure::unavailable(format!(
            "process {} answers what this build does not understand ({}): use the userswap that \
             started it",
            self.name,
            super::table::plain(what)
        ))
    }

    /// An answer that has not come within `patience`.
    pub fn silent_for(&self, patience: Duration) -> Failure {
        Failure::unavailable(format!(
            "process {} does not answer within {} s: is it stopped, or busy with a fork?",
            self.name,
            patience.as_secs_f64()
        ))
    }

    fn silence(&self, error: &io::Error) -> Failure {
        Failure::unavailable(format!("process {} cannot be asked: {error}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// A client of an engine that is silent for many times as long as the client has patience, and then answers.
    fn client_of_a_slow_engine(answer: Answer) -> Client {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("7.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let client = Client::connect(EngineName { pid: 7, number: 1 }, &socket).unwrap();
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream);
            lines.read_line(&mut String::new()).unwrap();
            std::thread::sleep(Duration::from_millis(100));
            lines.get_mut().write_all(&answer.to_line()).unwrap();
        });
        Client { patience: Duration::from_millis(1), ..client }
    }

    #[test]
    fn what_takes_as_long_as_the_devices_need_is_waited_for() {
        let set = Answer::Set { key: "ram".to_owned(), value: "24M".to_owned() };
        let request = Request::Set { key: "ram".to_owned(), value: "24M".to_owned() };
        let answer = super::super::set::ask(&mut client_of_a_slow_engine(set), &request).unwrap();
        assert!(matches!(answer, Answer::Set { key, .. } if key == "ram"));
        let mut client = client_of_a_slow_engine(Answer::Done { warning: None });
        super::super::swapon::ask(&mut client, "mem:1G".to_owned()).unwrap();
    }
}
