//! One connection: lines in, lines out, and never a wait without an end.
//!
//! A client that sends nothing, never ends its line, or does not read what it is sent, loses its connection after a
//! while; no other client waits for it.
use super::protocol::{Answer, REQUEST_BYTES_MAX};
use crate::sys::fd;
use crate::sys::fd::Event;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A client has this long for its next line: enough to type one.
pub const REQUEST_TIME_MAX: Duration = Duration::from_secs(30);
/// A client has this long to make room for an answer: all fit into the buffer of an idle connection.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);
/// The most bytes of one read.
const PIECE_BYTES: usize = 4 << 10;

/// Tells all connections of an engine to end.
#[derive(Debug)]
pub struct Stop {
    /// Readable once they are to end.
    pub event: Event,
    now: AtomicBool,
}

impl Stop {
    /// One that has not been signalled.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { event: Event::new()?, now: AtomicBool::new(false) })
    }

    /// Tells them to end now.
    pub fn signal(&self) {
        self.now.store(true, Ordering::Release);
        self.event.signal();
    }

    /// They have ended, and others may begin.
    pub fn clear(&self) {
        self.event.clear();
        self.now.store(false, Ordering::Release);
    }

    /// Whether they are to end.
    pub fn is_now(&self) -> bool {
        self.now.load(Ordering::Acquire)
    }
}

/// Why a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The client has closed it, or does not take its answers.
    Closed,
    /// No line within the time.
    Silent,
    /// A longer line than is waited for.
    TooLong,
    /// The engine ends.
    Stopping,
}

/// A stream, and what was read of it beyond the last line.
pub struct Connection<'a> {
    stream: &'a UnixStream,
    stop: Option<&'a Stop>,
    /// The longest line that is waited for, in bytes.
    longest: usize,
    unread: Vec<u8>,
}

impl<'a> Connection<'a> {
    /// A connection over a blocking stream.
    ///
    /// # Errors
    /// The stream takes no time-out.
    pub fn new(stream: &'a UnixStream, stop: &'a Stop) -> io::Result<Self> {
        stream.set_write_timeout(Some(ANSWER_TIME_MAX))?;
        Ok(Self { stream, stop: Some(stop), longest: REQUEST_BYTES_MAX, unread: Vec::new() })
    }

    /// For a client: nothing but its patience ends what it waits for, lines of so many bytes at most.
    pub fn of_client(stream: &'a UnixStream, longest: usize) -> Self {
        Self { stream, stop: None, longest, unread: Vec::new() }
    }

    /// The next line without its end, waited for as long as `patience`.
    ///
    /// # Errors
    /// The connection is to end.
    pub fn next_line(&mut self, patience: Duration) -> Result<Vec<u8>, End> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(line) = self.waiting_line()? {
                return Ok(line);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(End::Silent);
            }
            // Rounded up, or the last millisecond would be a busy loop.
            let left_ms = i32::try_from(left.as_millis()).unwrap_or(i32::MAX - 1) + 1;
            let stop = self.stop.map_or(-1, |stop| stop.event.as_raw_fd());
            fd::poll(&[self.stream.as_raw_fd(), stop, -1], left_ms);
        }
    }

    /// A line without its end, if one has come already.
    ///
    /// # Errors
    /// The connection is to end.
    pub fn waiting_line(&mut self) -> Result<Option<Vec<u8>>, End> {
        loop {
            if self.stop.is_some_and(Stop::is_now) {
                return Err(End::Stopping);
            }
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.unread.drain(..=end).collect();
                line.pop();
                return Ok(Some(line));
            }
            if self.unread.len() > self.longest {
                return Err(End::TooLong);
            }
            let mut piece = [0; PIECE_BYTES];
            match rustix::net::recv(self.stream, &mut piece, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(End::Closed),
                Ok((bytes, _)) => self.unread.extend_from_slice(&piece[..bytes]),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(_) => return Err(End::Closed),
            }
        }
    }

    /// Sends an answer, waiting up to 5 s for each write to find room.
    ///
    /// # Errors
    /// The client has closed the connection, or makes no room.
    pub fn send(&mut self, answer: &Answer) -> Result<(), End> {
        let line = answer.to_line();
        let mut rest = &line[..];
        while !rest.is_empty() {
            match rustix::net::send(self.stream, rest, SendFlags::NOSIGNAL) {
                Ok(bytes) => rest = &rest[bytes..],
                Err(Errno::INTR) => {}
                Err(_) => return Err(End::Closed),
            }
        }
        Ok(())
    }

    /// Sends an answer if there is room at once, and drops it otherwise: others follow.
    ///
    /// # Errors
    /// The client has closed the connection, or had room for a part of the line only.
    pub fn send_if_room(&mut self, answer: &Answer) -> Result<(), End> {
        send_if_room(self.stream, answer)
    }
}

/// As [`Connection::send_if_room`].
///
/// # Errors
/// As for [`Connection::send_if_room`].
pub fn send_if_room(stream: &UnixStream, answer: &Answer) -> Result<(), End> {
    let line = answer.to_line();
    match rustix::net::send(stream, &line, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
        Ok(bytes) if bytes == line.len() => Ok(()),
        Err(Errno::AGAIN | Errno::INTR) => Ok(()),
        // Half a line cannot be taken back.
        Ok(_) | Err(_) => Err(End::Closed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const LONG: Duration = Duration::from_secs(60);

    fn pair() -> (UnixStream, UnixStream, Stop) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (ours, theirs, Stop::new().unwrap())
    }

    #[test]
    fn lines_are_found_in_whatever_pieces_they_come() {
        let (ours, mut theirs, stop) = pair();
        let mut connection = Connection::new(&ours, &stop).unwrap();
        theirs.write_all(b"one\n\ntw").unwrap();
        assert_eq!(connection.next_line(LONG).unwrap(), b"one");
        assert_eq!(connection.next_line(LONG).unwrap(), b"");
        assert_eq!(connection.waiting_line(), Ok(None));
        theirs.write_all(b"o\nrest").unwrap();
        assert_eq!(connection.next_line(LONG).unwrap(), b"two");
        drop(theirs);
        assert_eq!(connection.next_line(LONG), Err(End::Closed));
    }

    #[test]
    fn a_client_that_says_nothing_or_does_not_end_its_line_is_given_up() {
        let (ours, mut theirs, stop) = pair();
        let mut connection = Connection::new(&ours, &stop).unwrap();
        assert_eq!(connection.next_line(Duration::from_millis(5)), Err(End::Silent));
        theirs.write_all(b"half").unwrap();
        assert_eq!(connection.next_line(Duration::from_millis(5)), Err(End::Silent));
        theirs.write_all(&vec![b'x'; REQUEST_BYTES_MAX]).unwrap();
        assert_eq!(connection.next_line(LONG), Err(End::TooLong));
    }

    #[test]
    fn the_end_of_the_engine_ends_the_wait() {
        let (ours, _theirs, stop) = pair();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| Connection::new(&ours, &stop).unwrap().next_line(LONG));
            stop.signal();
            assert_eq!(waiting.join().unwrap(), Err(End::Stopping));
        });
    }

    #[test]
    fn progress_that_nobody_reads_is_dropped_and_not_waited_for() {
        let (ours, theirs, stop) = pair();
        let mut connection = Connection::new(&ours, &stop).unwrap();
        let answer = Answer::Progress { pages_left: 1, pages_total: 2 };
        for _ in 0..100_000 {
            assert_eq!(connection.send_if_room(&answer), Ok(()));
        }
        drop(theirs);
        assert_eq!(connection.send_if_room(&answer), Err(End::Closed));
    }
}
