//! A connection's bytes, plain or by TLS.
//!
//! What is here is called in signal handlers, as is `wire`: it allocates nothing.
use super::tls::records::{Found, SEAL_BYTES, Session};
use crate::sys::own_fd::Own;
use crate::sys::socket;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// How long one call may take, to connect, to send or to receive.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Attempts to connect that signals interrupt.
const INTERRUPTIONS_MAX: u32 = 8;

/// The end of a connection that is ours.
pub type Socket = Own<OwnedFd>;

/// A connection.
pub struct Line {
    socket: Socket,
    /// What its bytes are sealed by.
    session: Option<Box<Session>>,
}

/// Connects to a server.
///
/// # Errors
/// What the kernel says.
pub fn connect(to: SocketAddr) -> io::Result<Socket> {
    // What a signal interrupts goes on without us: another attempt is of another socket.
    for _ in 0..INTERRUPTIONS_MAX {
        match connect_once(to) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
    Err(io::Error::from_raw_os_error(libc::EAGAIN))
}

fn connect_once(to: SocketAddr) -> io::Result<Socket> {
    let stream = Own::raised(socket::stream(&to)?);
    socket::set_up(&stream, PATIENCE)?;
    socket::connect(&stream, &to).map_err(late)?;
    Ok(stream)
}

/// The kernel says of what has taken too long that it would still.
fn late(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EINPROGRESS) => io::Error::from_raw_os_error(libc::ETIMEDOUT),
        _ => error,
    }
}

/// Sends all of it.
///
/// # Errors
/// The connection is broken.
pub fn send(socket: &Socket, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match socket::send(socket, bytes) {
            Ok(part) => bytes = &bytes[part..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(late(error)),
        }
    }
    Ok(())
}

/// Receives at least one byte.
///
/// # Errors
/// The connection is broken, or there is no room, where a line is longer than any of the protocol.
pub fn receive(socket: &Socket, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match socket::receive(socket, into) {
            Ok(0) => return Err(io::Error::from_raw_os_error(libc::ECONNRESET)),
            Ok(part) => return Ok(part),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(late(error)),
        }
    }
}

impl Line {
    /// One in plain text.
    pub fn plain(socket: Socket) -> Self {
        Self { socket, session: None }
    }

    /// One whose ends have shaken hands.
    pub fn sealed(socket: Socket, session: Box<Session>) -> Self {
        Self { socket, session: Some(session) }
    }

    /// Ends it. What is left is not to be freed by a signal handler.
    pub fn close(self) -> Option<Box<Session>> {
        self.session
    }

    /// Whether another one is to take its place.
    pub fn is_worn(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_worn())
    }

    /// Sends all of it.
    ///
    /// # Errors
    /// The connection is broken; or what the server has said of us as it ended it.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(session) = &mut self.session else { return send(&self.socket, bytes) };
        for part in bytes.chunks(SEAL_BYTES) {
            if let Err(error) = send(&self.socket, session.seal(part)) {
                return Err(self.last_words().unwrap_or(error));
            }
        }
        Ok(())
    }

    /// Why the server has ended the connection, if it is about our certificate.
    fn last_words(&mut self) -> Option<io::Error> {
        let error = self.receive(&mut [0]).err()?;
        matches!(error.raw_os_error(), Some(libc::ENOKEY | libc::EKEYREJECTED)).then_some(error)
    }

    /// Receives at least one byte.
    ///
    /// # Errors
    /// As for [`Self::send`].
    pub fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(session) = &mut self.session else { return receive(&self.socket, into) };
        loop {
            let taken = session.take(into);
            if taken > 0 {
                return Ok(taken);
            }
            if session.open()? == Found::Nothing {
                let bytes = receive(&self.socket, session.room())?;
                session.received(bytes);
            }
        }
    }
}
