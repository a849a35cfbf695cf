//! Asking the engine of another process for pages that a call of this one is about to read or write.
//!
//! The thread that asks is the program's. It waits for the other's devices as it would in the kernel, but not for ever: the other
//! may be stopped.
use super::directory::{self, EngineName};
use super::protocol::{Answer, Request};
use crate::sys::device_pins::value;
use crate::sys::own_fd::Own;
use rustix::net::SendFlags;
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long an answer is waited for, and a place among the other's clients.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause before the next try for a place: about what a client takes that wants some pages.
const PAUSE: Duration = Duration::from_millis(1);

/// Bytes that are read at once: more than an answer has.
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
    socket: PathBuf,
    stream: Option<Own<UnixStream>>,
}

impl Other {
    /// The process of a thread, if it may have an engine that answers: `directory` is where this one's socket is. None of a process
    /// that this one traces: what would answer may be stopped until this one goes on.
    pub fn of(thread: u32, directory: Option<&Path>) -> Option<Self> {
        let status = std::fs::read(format!("/proc/{thread}/status")).ok()?;
        if field(&status, b"TracerPid:", 0)? == std::process::id() {
            return None;
        }
        let (pid, user) = (field(&status, b"Tgid:", 0)?, field(&status, b"Uid:", 1)?);
        let file = EngineName { pid, number: 1 }.file();
        let others = directory::candidates(user, |name| std::env::var_os(name));
        let mut sockets = directory.map(Path::to_path_buf).into_iter().chain(others);
        let socket = sockets.find_map(|place| Some(place.join(&file)).filter(|it| it.exists()))?;
        Some(Self { socket, stream: None })
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
        let stream = match self.stream.take() {
            Some(stream) => stream,
            None => connect(&self.socket)?,
        };
        // One that is not let in finds the connection closed; one whose process has ended does not come to the next.
        rustix::net::send(&*stream, request, SendFlags::NOSIGNAL).map_err(|_| Refusal::Busy)?;
        let line = line_of(&stream).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => Refusal::Gone,
            _ => Refusal::Busy,
        })?;
        match serde_json::from_slice(&line) {
            Ok(Answer::Populated { bytes }) => {
                self.stream = Some(stream);
                Ok(bytes as usize)
            }
            Ok(Answer::Error { .. }) => Err(Refusal::Busy),
            Ok(_) | Err(_) => Err(Refusal::Gone),
        }
    }
}

fn connect(socket: &Path) -> Result<Own<UnixStream>, Refusal> {
    let stream = directory::connect(socket).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => Refusal::Busy,
        _ => Refusal::Gone,
    })?;
    let stream = Own::raised(stream);
    stream.set_read_timeout(Some(PATIENCE)).map_err(|_| Refusal::Gone)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(|_| Refusal::Gone)?;
    Ok(stream)
}

/// An answer, which is all that comes.
fn line_of(stream: &UnixStream) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    BufReader::with_capacity(ANSWER_BYTES, stream).read_until(b'\n', &mut line)?;
    if line.ends_with(b"\n") { Ok(line) } else { Err(ErrorKind::UnexpectedEof.into()) }
}

/// A number in a line of /proc/PID/status.
fn field(status: &[u8], name: &[u8], index: usize) -> Option<u32> {
    let numbers = str::from_utf8(value(status, name)?).ok()?;
    numbers.split_ascii_whitespace().nth(index)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
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
        let mut other = Other { socket, stream: None };
        let found = other.populate(8192, 5);
        (found, served.join().unwrap())
    }

    #[test]
    fn who_has_no_place_asks_again() {
        let refusal = "{\"answer\":\"error\",\"message\":\"8 clients\"}\n";
        assert_eq!(refusal, String::from_utf8(Answer::error("8 clients").to_line()).unwrap());
        let (found, asked) = answered(&[
            "{\"answer\":\"error\",\"message\":\"8 clients\"}\n",
            "{\"answer\":\"populated\",\"bytes\":5}\n",
        ]);
        assert_eq!(found, Some(5));
        let line = "{\"request\":\"populate\",\"address\":8192,\"bytes\":5}\n";
        assert_eq!(asked, [line]);
    }

    #[test]
    fn an_answer_to_something_else_and_nobody_are_none() {
        assert_eq!(answered(&["{\"answer\":\"cancelled\"}\n"]).0, None);
        let nowhere = PathBuf::from("/nonexistent/1.sock");
        let mut other = Other { socket: nowhere, stream: None };
        assert_eq!(other.populate(0, 1), None);
    }

    #[test]
    fn a_thread_is_found_by_its_process() {
        let directory = tempfile::tempdir().unwrap();
        let own = std::process::id();
        let name = EngineName { pid: own, number: 1 }.file();
        assert!(Other::of(own, Some(directory.path())).is_none());
        std::fs::write(directory.path().join(&name), "").unwrap();
        let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let other = Other::of(thread, Some(directory.path())).unwrap();
        assert_eq!(other.socket, directory.path().join(&name));
        assert!(Other::of(u32::MAX, Some(directory.path())).is_none());
    }
}
