//! Asking the engine of another process for pages that a call of this one is about to read or write.
//!
//! The thread that asks is the program's. It waits for the other's devices as it would in the kernel, but not for ever: the other
//! may be stopped.
use super::connection::{Connection, End};
use super::directory::{self, EngineName};
use super::protocol::{Answer, Request};
use super::server::TRY_AGAIN;
use crate::sys::device_pins::value;
use crate::sys::own_fd::Own;
use crate::sys::peer;
use rustix::net::SendFlags;
use std::io::ErrorKind;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long an answer is waited for, and a place among the other's clients.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause before the next try for a place: about what a client takes that wants some pages.
const PAUSE: Duration = Duration::from_millis(1);

/// More than an answer has.
const ANSWER_BYTES: usize = 256;

/// Why there is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refusal {
    /// It has as many clients as it can have.
    Busy,
    /// It ends, or is stopped.
    Gone,
}

/// Another process whose memory is about to be accessed, and how its engine is reached.
pub struct Other {
    pid: u32,
    socket: PathBuf,
    place: Option<Place>,
}

impl Other {
    /// The process of a thread, if it may have an engine that answers: `own` is the directory of this one's socket. None of a
    /// process that this one traces: what would answer may be stopped until this one goes on.
    pub fn of(thread: u32, own: Option<&Path>) -> Option<Self> {
        let status = std::fs::read(format!("/proc/{thread}/status")).ok()?;
        let tracer = field(&status, b"TracerPid:", 0)?;
        if tracer != 0 && Path::new(&format!("/proc/self/task/{tracer}")).exists() {
            return None;
        }
        let (pid, user) = (field(&status, b"Tgid:", 0)?, field(&status, b"Uid:", 1)?);
        // The environment is not looked at: the program may be about to change it.
        let theirs = directory::candidates(user, |_| None).into_iter();
        let theirs = theirs.filter(|place| directory::check_private(place, user).is_ok());
        let places = own.map(Path::to_path_buf).into_iter().chain(theirs);
        Self::at(pid, places)
    }

    /// Where a process listens: of a name that another one has, as two pid namespaces can share a directory, nobody is asked.
    fn at(pid: u32, places: impl Iterator<Item = PathBuf>) -> Option<Self> {
        let file = EngineName { pid, number: 1 }.file();
        let mut sockets = places.map(|place| place.join(&file));
        sockets.find_map(|socket| match Place::at(&socket, pid) {
            Ok(place) => Some(Self { pid, socket, place: Some(place) }),
            Err(Refusal::Busy) => Some(Self { pid, socket, place: None }),
            Err(Refusal::Gone) => None,
        })
    }

    /// Has pages brought in; how many bytes from the first on were there a moment ago, 1 MiB at most. None if nobody
    /// answers.
    pub fn populate(&mut self, address: usize, bytes: usize) -> Option<usize> {
        let (address, bytes) = (address as u64, bytes as u64);
        let request = Request::Populate { address, bytes }.to_line();
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.ask(&request) {
                Ok(bytes) => return Some(bytes),
                Err(Refusal::Busy) if Instant::now() < deadline => std::thread::sleep(PAUSE),
                Err(Refusal::Busy | Refusal::Gone) => return None,
            }
        }
    }

    fn ask(&mut self, request: &[u8]) -> Result<usize, Refusal> {
        let place = match self.place.take() {
            Some(place) => place,
            None => Place::at(&self.socket, self.pid)?,
        };
        // One that is not let in finds the connection closed; one whose process has ended does not come to the next.
        rustix::net::send(&*place.0, request, SendFlags::NOSIGNAL).map_err(|_| Refusal::Busy)?;
        match serde_json::from_slice(&place.line()?) {
            Ok(Answer::Populated { bytes }) => {
                self.place = Some(place);
                Ok(bytes as usize)
            }
            Ok(Answer::Error { message }) if message.ends_with(TRY_AGAIN) => Err(Refusal::Busy),
            Ok(_) | Err(_) => Err(Refusal::Gone),
        }
    }
}

/// A client's place at the other's engine.
struct Place(Own<UnixStream>);

impl Place {
    fn at(socket: &Path, pid: u32) -> Result<Self, Refusal> {
        let stream = directory::connect(socket).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => Refusal::Busy,
            _ => Refusal::Gone,
        })?;
        let stream = Own::raised(stream);
        let place = Self(stream);
        let is_asked = peer::of(&*place.0).is_ok_and(|peer| peer.process == pid);
        if !is_asked || place.0.set_write_timeout(Some(PATIENCE)).is_err() {
            return Err(Refusal::Gone);
        }
        Ok(place)
    }

    /// An answer, which is all that comes.
    fn line(&self) -> Result<Vec<u8>, Refusal> {
        let answer = Connection::of_client(&self.0, ANSWER_BYTES).next_line(PATIENCE);
        answer.map_err(|end| match end {
            End::Closed => Refusal::Busy,
            End::Silent | End::TooLong | End::Stopping => Refusal::Gone,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A child forked meanwhile has its descriptor too: the other's engine is not to wait for its end. An error means
        // that there is no connection any more.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// A number in a line of /proc/PID/status.
fn field(status: &[u8], name: &[u8], index: usize) -> Option<u32> {
    let numbers = str::from_utf8(value(status, name)?).ok()?;
    numbers.split_ascii_whitespace().nth(index)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::os::unix::net::UnixListener;

    /// Answers each connection with one of the lines, after its request or, of a refusal, before.
    fn answered(lines: &'static [&'static str]) -> (Option<usize>, Vec<String>) {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("1.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let served = std::thread::spawn(move || {
            let mut asked = Vec::new();
            for line in lines {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = String::new();
                if !line.contains("error") {
                    BufReader::new(&stream).read_line(&mut request).unwrap();
                    asked.push(request);
                }
                stream.write_all(line.as_bytes()).unwrap();
            }
            asked
        });
        let mut other = Other { pid: std::process::id(), socket, place: None };
        let found = other.populate(8192, 5);
        (found, served.join().unwrap())
    }

    #[test]
    fn who_has_no_place_asks_again() {
        let (found, asked) = answered(&[
            "{\"answer\":\"error\",\"message\":\"8 clients: try again later\"}\n",
            "{\"answer\":\"populated\",\"bytes\":5}\n",
        ]);
        assert_eq!(found, Some(5));
        let line = "{\"request\":\"populate\",\"address\":8192,\"bytes\":5}\n";
        assert_eq!(asked, [line]);
    }

    #[test]
    fn an_answer_to_something_else_and_nobody_are_none() {
        assert_eq!(answered(&["{\"answer\":\"cancelled\"}\n"]).0, None);
        const UNKNOWN: &str = "{\"answer\":\"error\",\"message\":\"unknown variant\"}\n";
        assert_eq!(answered(&[UNKNOWN]).0, None, "not asked again");
        let nowhere = PathBuf::from("/nonexistent/1.sock");
        let mut other = Other { pid: 1, socket: nowhere, place: None };
        assert_eq!(other.populate(0, 1), None);
    }

    #[test]
    fn an_answer_has_an_end() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(&[b' '; 2 * ANSWER_BYTES]).unwrap();
        let found = Place(Own::new(ours)).line();
        assert_eq!(found, Err(Refusal::Gone));
    }

    #[test]
    fn whoever_else_has_the_descriptor_a_place_is_given_back() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let _of_a_child = ours.try_clone().unwrap();
        drop(Place(Own::new(ours)));
        assert_eq!(theirs.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn a_thread_is_found_by_its_process_where_somebody_listens() {
        let (stale, live) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let own = std::process::id();
        let name = EngineName { pid: own, number: 1 }.file();
        assert!(Other::of(own, Some(live.path())).is_none());
        let socket = live.path().join(&name);
        let _listener = UnixListener::bind(&socket).unwrap();
        let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        assert_eq!(Other::of(thread, Some(live.path())).unwrap().socket, socket);
        assert!(Other::of(u32::MAX, Some(live.path())).is_none());
        drop(UnixListener::bind(stale.path().join(&name)).unwrap());
        // The name of another process, at which this one listens.
        let parent = std::os::unix::process::parent_id();
        let name = EngineName { pid: parent, number: 1 }.file();
        let _taken = UnixListener::bind(live.path().join(name)).unwrap();
        assert!(Other::of(parent, Some(live.path())).is_none());
        let places = [stale.path(), live.path()].map(Path::to_path_buf);
        assert_eq!(Other::at(own, places.into_iter()).unwrap().socket, socket);
    }
}
